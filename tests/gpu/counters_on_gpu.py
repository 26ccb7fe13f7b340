"""Counters of both builds on a real GPU, without Django: ncu and torch.profiler over the program that a suite's workers run.

    python tests/gpu/counters_on_gpu.py OUT.tgz [--seconds 110]          on the machine with the GPU
    python tests/gpu/counters_on_gpu.py OUT.tgz --check                  where the product's readers are installed

Two builds: "base" and "slow", where softmax has a worse configuration and a team's clamp reads half of its input twice. Each is
looked at three times: softmax with all counters, three kernels with the few that a suite gates, and a timeline. `check` says what
must hold of the reports, as ingest reads them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from profiles.capture import command
from profiles.capture.tools import ncu, torch_profiler
from profiles.capture.tools.options import Options
from profiles.capture.tools.tool import Paths
from profiles.capture.tools.torch_profiler import TorchOptions
from workers.core import gpu
from workers.fresh import captured as counted

PROJECT = Path(__file__).resolve().parents[2]
KEYS = {"softmax": "softmax R=8192 C=4096 fp16", "clamp": "acme_clamp N=33554432 fp16",
        "small matmul": "matmul M=16 N=4096 K=4096 bf16"}
TIME = "gpu__time_duration.sum"
FEW = (TIME, "dram__bytes_read.sum", "dram__bytes_write.sum",
       "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
       "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active")
KINDS: dict[str, tuple[Options, tuple[str, ...]]] = {
    "everything": (counted.full_counters(1, cold=True), ("softmax",)),
    "few": (counted.few_counters(FEW, len(KEYS), cold=True), tuple(KEYS)),
    "timeline": (counted.STEPS, tuple(KEYS))}


def kernels_of(build: str, names: tuple[str, ...]) -> list[counted.CountedKernel]:
    from tests.gpu.gate_on_gpu import KERNELS, SLOWER

    return [counted.CountedKernel(KEYS[one.key], one.operator, one.shape, one.dtype,
                            SLOWER.get(one.key, one.config) if build == "slow" else one.config)
            for one in KERNELS if one.key in names]


def captured(kind: str, build: Any, place: Path, limit_s: float) -> dict[str, Any]:
    """One capture: its command, exit status, seconds, the end of what it printed, and the file it wrote."""
    from tuner.tuning.team.packages import ENABLED

    options, names = KINDS[kind]
    place.mkdir(parents=True)
    argv = command.build_command(options, counted.ARGV, Paths(
        ncu.installed_ncu().get("path", ""), python=sys.executable, project=str(PROJECT), folder=str(place)))
    rounds = options.steps_needed() if isinstance(options, TorchOptions) else counted.LAUNCHES
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", ENABLED: "acme-kernels", "CUDA_VISIBLE_DEVICES": gpu.gpus()[0].uuid,
               **build.side.environ(), **counted.write_spec(place, kernels_of(build.name, names), "cold", rounds)}
    began = time.monotonic()
    process = subprocess.Popen(argv, cwd=PROJECT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    (place / "log.txt").write_text(said)
    return {"argv": command.shell_text(argv), "status": process.returncode, "seconds": round(time.monotonic() - began, 1),
            "said": said[-3000:]}


def main(out: Path, seconds: float) -> None:
    """Everything that was captured, as one archive, written anew after each step."""
    from tests.gpu.gate_on_gpu import builds_in

    began = time.monotonic()
    document: dict[str, Any] = {"gpu": gpu.gpus()[0].as_json(), "ncu": ncu.installed_ncu(), "captures": {}}
    with tempfile.TemporaryDirectory(prefix="ridgepoint-counters-") as code, tempfile.TemporaryDirectory() as folder:
        builds = builds_in(Path(code))
        for kind in KINDS:
            for name in ("base", "slow"):
                left = seconds - (time.monotonic() - began)
                if left < 15:
                    document["captures"][f"{name}-{kind}"] = {"skipped": f"{left:.0f} s are left"}
                    continue
                one = document["captures"][f"{name}-{kind}"] = captured(kind, builds[name], Path(folder) / f"{name}-{kind}", left)
                (Path(folder) / "counters.json").write_text(json.dumps(document, indent=1))
                with tarfile.open(out, "w:gz") as archive:
                    archive.add(folder, "counters")
                print(f"{name} {kind}: status {one['status']}, {one['seconds']} s, "
                      f"{one['said'].count('==PROF== Profiling')} launches", flush=True)


# ---- afterwards, where the product's readers are ----

def check(archive: Path) -> list[str]:
    """What does not hold; []: all is well."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        place = Path(folder) / "counters"
        few = {name: launches(place / f"{name}-few" / ncu.TOOL.result) for name in ("base", "slow")}
        everything = {name: launches(place / f"{name}-everything" / ncu.TOOL.result) for name in ("base", "slow")}
        for name in ("base", "slow"):
            marks = ranges(place / f"{name}-timeline" / torch_profiler.TOOL.result)
            if set(marks) != set(KEYS.values()) or min(marks.values()) < counted.STEPS.active:
                wrong.append(f"{name} timeline: {marks}")
            for found, names in ((few[name], tuple(KEYS)), (everything[name], ("softmax",))):
                counts = {key: sum(of == key for of, _ in found) for key in map(KEYS.get, names)}
                if set(counts.values()) != {captured.LAUNCHES} or len(found) != captured.LAUNCHES * len(names):
                    wrong.append(f"{name}: {counts} of {len(found)} launches lie in their kernel's range")
    if wrong:
        return wrong
    read, time_ns = ({name: median(metrics[metric] for of, metrics in rows if of == KEYS[kernel]) for name, rows in few.items()}
                     for metric, kernel in (("dram__bytes_read.sum", "clamp"), (TIME, "softmax")))
    if not 1.3 < read["slow"] / read["base"] < 1.7:
        wrong.append(f"clamp reads half of its input twice, DRAM bytes say {read}")
    if not time_ns["slow"] > time_ns["base"]:
        wrong.append(f"softmax is slower with its worse configuration, ncu says {time_ns} ns")
    print(f"clamp reads {read} B; softmax takes {time_ns} ns")
    return wrong


def launches(report: Path) -> list[tuple[str, dict[str, Any]]]:
    """(kernel by its NVTX range, metrics) of each launch."""
    from profiles.ingest import read

    return [(str(launch.metrics.get("nvtx__ranges", "")).rpartition(" | ")[2], launch.metrics) for launch in read(report).launches]


def ranges(trace: Path) -> dict[str, int]:
    """How often each kernel's name stands over launches in a torch.profiler trace."""
    with gzip.open(trace, "rt") as file:
        events = json.load(file)["traceEvents"]
    marks = [str(each.get("name")) for each in events if each.get("cat") == "user_annotation"]
    return {key: marks.count(key) for key in KEYS.values() if key in marks}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=110.0)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.check:
        faults = check(given.out)
        print("\n".join(faults) or "all is well")
        sys.exit(bool(faults))
    main(given.out, given.seconds)
