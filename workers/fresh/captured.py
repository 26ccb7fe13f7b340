"""Captures of a suite's kernels under ncu or torch.profiler: which kernels, the program, its options and its environment.

The program is `tuner.tuning.measure.counted`, in the worker's own interpreter, with the build's code first on its path as in a
fresh run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profiles.capture.tools.ncu import MAX_LAUNCHES, NcuOptions
from profiles.capture.tools.options import TIME_LIMIT_S
from profiles.capture.tools.tool import PYTHON
from profiles.capture.tools.torch_profiler import TorchOptions
from profiles.models import Capture, CaptureTarget
from tuner.bring.own import selectors as own_selectors
from tuner.gate.suites.selectors import COUNTERS, job_kernels
from tuner.models import KernelRun, Suite, SuiteCapture, SuiteJob
from tuner.tuning.measure.fresh import make_policy
from tuner.tuning.trial import Config
from workers.clocks import hold
from workers.core import gpu
from workers.fresh.runner import compiled_folder
from workers.tune import team

TARGET = "Kernels of benchmark suites"
ABOUT = "Run by suites alone, which say the kernels: no capture can be asked of it by itself."
SPEC = "RIDGEPOINT_KERNELS"                      # as `tuner.tuning.measure.counted` reads it, which imports torch
RANGE = "ridgepoint"
ARGV = [PYTHON, "-m", "tuner.tuning.measure.counted"]
LAUNCHES = 3                                     # of each kernel that ncu profiles: counters hardly vary
STEPS = TorchOptions(wait=1, warmup=2, active=10, record_shapes=False)
GPU_KERNELS = 8                                  # that one launch of an operator may consist of (split-K: 2)
START_S, FULL_S, FEW_S = 300, 60, 10             # time limits: start and compile; a kernel with all counters, with a few


@dataclass(frozen=True)
class CountedKernel:
    """One kernel, as a suite's runs measured it. Without `config`: the operator's default."""

    key: str
    operator: str
    shape: Mapping[str, int]
    dtype: str
    config: Config | None = None
    source_hash: str = ""                        # of the runs: other code is not launched in its name


def full_counters(kernels: int, cold: bool) -> NcuOptions:
    """Return options for all sections, with source: what a kernel's page explains a kernel by."""
    return NcuOptions(set="full", **_shared_options(kernels, cold, FULL_S))


def few_counters(metrics: Sequence[str], kernels: int, cold: bool) -> NcuOptions:
    """Return options for some counters alone: one or two passes a launch.

    Grid and block come with the launch's own section.
    """
    return NcuOptions(set="none", sections=("LaunchStats",), metrics=tuple(metrics), import_source=False,
                      **_shared_options(kernels, cold, FEW_S))


def _shared_options(kernels: int, cold: bool, each_s: int) -> dict[str, Any]:
    return {"nvtx_include": f"{RANGE}/", "cache_control": cache_control(cold),
            "launch_count": min(MAX_LAUNCHES, LAUNCHES * GPU_KERNELS * kernels),
            "time_limit_s": min(TIME_LIMIT_S[1], START_S + each_s * kernels)}


def cache_control(cold: bool) -> str:
    """Return ncu's word for L2 between its passes: emptied before each, or as the pass before left it."""
    return "all" if cold else "none"


def write_spec(folder: Path, kernels: Sequence[CountedKernel], kind: str, rounds: int) -> dict[str, str]:
    """Write the program's file into `folder`; return the variable that names it."""
    place = folder / "kernels.json"
    place.write_text(json.dumps({"kernels": [asdict(one) for one in kernels], "kind": kind, "rounds": rounds}), encoding="utf-8")
    return {SPEC: str(place)}



def ensure_target() -> CaptureTarget:
    """Return the row that such captures belong to.

    It stays switched off: without a suite's job there is nothing to launch.
    """
    row, _ = CaptureTarget.objects.update_or_create(name=TARGET, defaults={
        "argv": ARGV, "cwd": "", "env": {}, "enabled": False, "description": ABOUT})
    return row


def build_kernels(job: SuiteJob, build: str) -> list[CountedKernel]:
    """Return a build's kernels: those that a job has runs of, or that a job for counters alone asks for."""
    alone = job.reason == COUNTERS
    runs = KernelRun.objects.filter(kernel__in=job_kernels(job), build__name=build, rejected="", recorded="").order_by("pk")
    ran = {run.kernel_id: run for run in (runs if alone else runs.filter(job=job)).only("kernel_id", "config", "source_hash")}
    configs = next((row.get("configs") or {} for row in job.builds if row["build"] == build), {}) if alone else {}
    mine = {kernel.op for kernel in job_kernels(job) if own_selectors.kernel_named(kernel.op)}     # run behind walls alone
    return [CountedKernel(kernel.key, kernel.op, kernel.shape, kernel.dtype,
                            configs.get(kernel.key) or ran[kernel.pk].config or None, ran[kernel.pk].source_hash)
            for kernel in job_kernels(job) if kernel.pk in ran and kernel.op not in mine]


def timed_as(job: SuiteJob) -> str:
    """Return "cold", "warm" or "graph": as the suite's samples are taken."""
    return str(make_policy(job.suite.policy)["kind"])


def suite_capture_of(capture: Capture) -> SuiteCapture | None:
    """Return the suite's order behind a capture of operators; None for every other capture."""
    found = SuiteCapture.objects.filter(capture=capture).select_related("job__suite").first()
    return found if found is not None and found.job.suite.kind in (Suite.Kind.OPERATORS, Suite.Kind.WINNERS) else None


def capture_environ(capture: Capture, card: gpu.Gpu, folder: Path) -> dict[str, str]:
    """Return what the program must know: kernels, teams' packages, where compiled kernels lie.

    {} for every other capture.
    """
    suite_capture = suite_capture_of(capture)
    if suite_capture is None:
        return {}
    rounds = STEPS.steps_needed() if capture.tool == STEPS.TOOL else LAUNCHES
    return {**team.child_environment(), "TRITON_CACHE_DIR": str(compiled_folder(suite_capture.job.suite_id, card)),
            **write_spec(folder, build_kernels(suite_capture.job, suite_capture.build), timed_as(suite_capture.job), rounds)}


def capture_gpus(capture: Capture, here: Sequence[gpu.Gpu]) -> list[gpu.Gpu]:
    """Return GPUs of the model on which the job's runs were measured; all, for every other capture."""
    asked = suite_capture_of(capture)
    wanted = str(asked.job.environment.get("gpu") or asked.job.device.partition(":")[2]) if asked is not None else ""
    return [card for card in here if wanted in ("", card.name)]


@contextmanager
def suite_clocks(capture: Capture, worker: str, cards: Sequence[gpu.Gpu]) -> Iterator[dict[str, Any] | None]:
    """Hold clocks as owners ask while a suite's run is captured; yield the conditions, of several GPUs those that are not locked.

    None for every other capture, counters and timelines of suites among them. Raises SandboxError.
    """
    if not SuiteCapture.objects.filter(capture=capture, number__gte=0).exists():
        yield None
        return
    with ExitStack() as stack:
        locks = [stack.enter_context(hold.hold_clocks(card.uuid, f"capture {capture.pk} on {worker}")) for card in cards]
        yield next((lock for lock in locks if not lock["locked"]), locks[0])


def capture_title(capture: Capture) -> str:
    """Return the title of the profile that a capture becomes: the kernel, or how many of which suite."""
    asked = suite_capture_of(capture)
    if asked is None:
        return capture.target.name
    keys = asked.job.kernels if asked.job.kernels is not None else [kernel.key for kernel in job_kernels(asked.job)]
    return keys[0] if len(keys) == 1 else f"{asked.job.suite.name}, {len(keys)} kernels"
