"""What it takes to look at a suite's kernels under ncu or torch.profiler: program, options, what its environment says. No Django.

The program is `tuner.bench.counted`, in the worker's own interpreter, with the build's code first on its path as in a fresh run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profiles.capture.command import PYTHON
from profiles.capture.options import MAX_LAUNCHES, TIME_LIMIT_S, NcuOptions, TorchOptions
from tuner.trial import Config

SPEC = "RIDGEPOINT_KERNELS"                      # as `tuner.bench.counted` reads it, which imports torch
RANGE = "ridgepoint"
ARGV = [PYTHON, "-m", "tuner.bench.counted"]
LAUNCHES = 3                                     # of each kernel that ncu profiles: counters hardly vary
STEPS = TorchOptions(wait=1, warmup=2, active=10, record_shapes=False)
GPU_KERNELS = 8                                  # that one launch of an operator may consist of (split-K: 2)
START_S, FULL_S, FEW_S = 300, 60, 10             # time limits: start and compile; a kernel with all counters, with a few


@dataclass(frozen=True)
class Counted:
    """One kernel, as a suite's runs measured it. Without `config`: the operator's default."""

    key: str
    operator: str
    shape: Mapping[str, int]
    dtype: str
    config: Config | None = None
    source_hash: str = ""                        # of the runs: other code is not launched in its name


def everything(kernels: int, cold: bool) -> NcuOptions:
    """All sections, with source: what a kernel's page explains a kernel by."""
    return NcuOptions(set="full", **_shared(kernels, cold, FULL_S))


def few(metrics: Sequence[str], kernels: int, cold: bool) -> NcuOptions:
    """Some counters alone: one or two passes a launch. Grid and block come with the launch's own section."""
    return NcuOptions(set="none", sections=("LaunchStats",), metrics=tuple(metrics), import_source=False,
                      **_shared(kernels, cold, FEW_S))


def _shared(kernels: int, cold: bool, each_s: int) -> dict[str, Any]:
    return {"nvtx_include": f"{RANGE}/", "cache_control": cache(cold),
            "launch_count": min(MAX_LAUNCHES, LAUNCHES * GPU_KERNELS * kernels),
            "time_limit_s": min(TIME_LIMIT_S[1], START_S + each_s * kernels)}


def cache(cold: bool) -> str:
    """ncu replays a launch for each pass: L2 is emptied before each, or found as the pass before left it."""
    return "all" if cold else "none"


def environ(folder: Path, kernels: Sequence[Counted], kind: str, rounds: int) -> dict[str, str]:
    """Writes the program's file into `folder`; the variable that names it."""
    place = folder / "kernels.json"
    place.write_text(json.dumps({"kernels": [asdict(one) for one in kernels], "kind": kind, "rounds": rounds}), encoding="utf-8")
    return {SPEC: str(place)}
