"""Hardware counters of a candidate: a launch of it under ncu, behind the same walls, where ncu is there and may count."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles.capture.tools.ncu import installed_ncu
from tuner.gate.stats.rule import finite_number
from tuner.tuning.trial import cleaned
from workers.core import sandboxed

BOUNDS = sandboxed.Bounds(wall_s=120, cpu_s=600, memory_mb=16 << 10, data_mb=64 << 10, room_mb=2048, file_mb=512)
RANGE = "ridgepoint"                # as tuner.tuning.measure.counted marks it, which imports torch
TIME = "gpu__time_duration.sum"
_TENSOR = "sm__inst_executed_pipe_tensor_op_{}.avg.pct_of_peak_sustained_active"
# what a page shows → counters of ncu that say it; the first that a GPU has
COUNTERS: Mapping[str, str] = {
    "duration_ns": TIME, "dram_pct": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed", "tensor_hmma_pct": _TENSOR.format("hmma"),
    "tensor_gmma_pct": _TENSOR.format("gmma"), "registers": "launch__registers_per_thread",
    "occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active"}
SINCE_HOPPER, OLDER = ("tensor_gmma_pct",), ("7", "8")     # a name that a GPU does not have ends the whole run
MOST_LINES, MOST_BYTES = 2000, 1 << 20


def count(request: Mapping[str, Any], capability: str, *, read: Sequence[Path], devices: Sequence[Path], environ: Mapping[str, str],
          is_over: Callable[[], bool], bounds: sandboxed.Bounds = BOUNDS) -> dict[str, Any]:
    """Return the counters by name, of the kernel of the launch that took longest; {"why"} where none were collected."""
    tool = installed_ncu()
    if "missing" in tool or not tool.get("path"):
        return {"why": str(tool.get("missing") or "ncu is not on this worker")}
    real = Path(tool["path"]).resolve()
    older = capability.partition(".")[0] in OLDER
    names = [name for name in COUNTERS if not (older and name in SINCE_HOPPER)]
    command = [str(real), "--csv", "--page", "raw", "--print-units", "base", "--nvtx", "--nvtx-include", f"{RANGE}/",
               "--target-processes", "application-only", "--clock-control", "none",
               "--metrics", ",".join(COUNTERS[name] for name in names),
               sys.executable, "-m", "tuner.candidates.judge.counted"]
    lines: list[str] = []

    def hear(line: bytes) -> None:
        if len(lines) < MOST_LINES and len(line) < MOST_BYTES:
            lines.append(line.decode(errors="replace"))

    ending = sandboxed.run(command, json.dumps(request).encode(), read=[*read, *homes(real)], devices=devices, environ=environ,
                           bounds=bounds, on_line=hear, is_over=is_over)
    found = read_csv(lines)
    if found:
        return {**found, "tool": f"ncu {tool.get('version', '')}".strip()}
    why = ending.why or why_nothing(lines, ending.said) or f"ncu ended with {ending.status}"
    return {"why": f"ncu counted nothing behind the walls: {why}"[:600]}


def why_nothing(lines: Sequence[str], said: str) -> str:
    """Return ncu's own error and the last line of the program that it started; "" where neither said a word."""
    spoken = [line.strip() for line in (*lines, *said.splitlines()) if line.strip()]
    error = next((line.removeprefix("==ERROR==").strip() for line in spoken if line.startswith("==ERROR==")), "")
    last = next((line for line in reversed(spoken) if not line.startswith("==")), "")
    return str(cleaned("; ".join(filter(None, (error, last)))))


def homes(program: Path, shared: Path = Path("/opt/nvidia/nsight-compute")) -> list[Path]:
    """Return the folders that ncu needs: its own, or those where the script of that name in a CUDA toolkit looks for it."""
    own = next((each for each in program.parents if each.name.startswith(("nsight-compute", "NVIDIA-Nsight-Compute"))), None)
    if own is not None:
        return [own]
    beside = sorted(program.parent.parent.glob("nsight-compute*"))
    return list(dict.fromkeys([program.parent, *(folder for each in (*beside, shared) if each.is_dir()
                                                 for folder in (each, each.resolve()))]))


def read_csv(lines: Sequence[str]) -> dict[str, Any]:
    """Return the counters of the longest kernel in ncu's raw page as CSV, whatever else was printed; {} where it holds none."""
    begin = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return {}
    rows = [dict(each) for each in csv.DictReader(lines[begin:]) if each]
    kernels = [{name: number for name, counter in COUNTERS.items()
                if (number := finite_number(_number(row.get(counter)))) is not None} for row in rows]
    kernels = [each for each in kernels if "duration_ns" in each]
    if not kernels:
        return {}
    longest = max(kernels, key=lambda each: each["duration_ns"])
    tensor = max((longest.pop(name) for name in ("tensor_hmma_pct", "tensor_gmma_pct") if name in longest), default=None)
    return {**longest, **({} if tensor is None else {"tensor_pct": tensor}), "kernels": len(kernels)}


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
