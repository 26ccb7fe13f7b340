"""Counters of both builds on a real GPU, without Django: ncu and torch.profiler over the program that a suite's workers run.

    python tests/gpu/counters_on_gpu.py OUTDIR [--seconds 150]

Two builds: "base" and "slow", where softmax has a worse configuration and a team's clamp reads half of its input twice. Each is
looked at three times: all counters, the few that a suite gates, a timeline. `check` says what must hold; reports, traces, logs and
`counters.json` are left in OUTDIR.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from profiles.capture import command
from profiles.capture.options import NcuOptions, TorchOptions
from tests.gpu.gate_on_gpu import KERNELS, SLOWER, builds_in
from tuner.team.packages import ENABLED
from workers import counted, facts, gpu

PROJECT = Path(__file__).resolve().parents[2]
LOOKED_AT = ("softmax", "clamp", "small matmul")
FEW = ("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
       "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
       "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active")
SHOWN = (*FEW, "launch__registers_per_thread", "launch__grid_size", "sm__warps_active.avg.pct_of_peak_sustained_active")


def kernels_of(build: str) -> list[counted.Counted]:
    chosen = [one for one in KERNELS if one.key in LOOKED_AT]
    return [counted.Counted(one.key, one.operator, one.shape, one.dtype, SLOWER.get(one.key, one.config) if build == "slow"
                            else one.config) for one in chosen]


def captured(options: NcuOptions | TorchOptions, build: Any, place: Path, limit_s: float) -> dict[str, Any]:
    """One capture: its command, exit status, seconds, the end of what it printed, and the file it wrote."""
    place.mkdir(parents=True)
    argv = command.command(options, counted.ARGV, ncu=facts.ncu().get("path", "ncu"), python=sys.executable,
                           launcher=str(PROJECT / command.LAUNCHER), folder=str(place))
    card = gpu.gpus()[0]
    rounds = counted.LAUNCHES if isinstance(options, NcuOptions) else options.wait + options.warmup + options.active
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", ENABLED: "acme-kernels", "CUDA_VISIBLE_DEVICES": card.uuid,
               **build.side.environ(), **counted.environ(place, kernels_of(build.name), "cold", rounds)}
    began = time.monotonic()
    process = subprocess.Popen(argv, cwd=PROJECT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
    (place / "log.txt").write_text(said)
    name = command.NCU_REPORT if isinstance(options, NcuOptions) else command.TORCH_TRACE
    return {"argv": command.shown(argv), "status": process.returncode, "seconds": round(time.monotonic() - began, 1),
            "said": said[-3000:], "file": str(place / name) if (place / name).exists() else ""}


def table(report: str) -> list[dict[str, str]]:
    """Every launch of a report with its metrics in base units and its NVTX ranges, as ncu itself prints them."""
    done = subprocess.run([facts.ncu()["path"], "--import", report, "--page", "raw", "--csv", "--print-units", "base", "--nvtx",
                           "--print-fp"], capture_output=True, text=True, timeout=60)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    return [row for row in rows if row.get("ID", "").strip()]           # the row below the names holds units


def launches(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Kernel, numbers, and everything that a column with NVTX in its name says."""
    return [{"kernel": row.get("Kernel Name", ""), "metrics": {name: row[name] for name in SHOWN if row.get(name)},
             "nvtx": {name: value for name, value in row.items() if value and ("Range" in name or "NVTX" in name.upper())}}
            for row in rows]


def main(out: Path, seconds: float) -> dict[str, Any]:
    """Everything that was captured; the document is written after each step."""
    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    document: dict[str, Any] = {"gpu": gpu.gpus()[0].as_json(), "ncu": facts.ncu(), "captures": {}}
    n = len(LOOKED_AT)
    kinds: dict[str, NcuOptions | TorchOptions] = {
        "everything": counted.everything(n, cold=True), "few": counted.few(FEW, n, cold=True), "timeline": counted.STEPS}
    with tempfile.TemporaryDirectory(prefix="ridgepoint-counters-") as folder:
        builds = builds_in(Path(folder))
        for kind, options in kinds.items():
            for name in ("base", "slow"):
                left = seconds - (time.monotonic() - began)
                if left < 15:
                    document["captures"][f"{name} {kind}"] = {"skipped": f"{left:.0f} s are left"}
                    continue
                one = captured(options, builds[name], out / f"{name}-{kind}", left)
                if one["file"].endswith(".ncu-rep"):
                    one["launches"] = launches(table(one["file"]))
                elif one["file"]:
                    one["ranges"] = ranges(Path(one["file"]))
                document["captures"][f"{name} {kind}"] = one
                (out / "counters.json").write_text(json.dumps(document, indent=1))
                print(f"{name} {kind}: status {one['status']}, {one['seconds']} s, {len(one.get('launches', ()))} launches",
                      flush=True)
    return document


def ranges(trace: Path) -> dict[str, int]:
    """How often each kernel's name stands over launches in a torch.profiler trace."""
    with gzip.open(trace, "rt") as file:
        events = json.load(file)["traceEvents"]
    marks = [str(each.get("name")) for each in events if each.get("cat") == "user_annotation"]
    return {key: marks.count(key) for key in LOOKED_AT}


def median(document: Mapping[str, Any], capture: str, key: str, *names: str) -> float:
    """Of the launches of one kernel, by its NVTX range: the sum of these metrics."""
    values = sorted(sum(float(row["metrics"][name].replace(",", "")) for name in names)
                    for row in document["captures"][capture]["launches"] if key in " ".join(row["nvtx"].values()))
    return values[len(values) // 2]


def check(document: Mapping[str, Any]) -> list[str]:
    """What does not hold; []: all is well."""
    wrong = []
    for name in ("base", "slow"):
        for kind in ("everything", "few"):
            found = document["captures"].get(f"{name} {kind}", {})
            rows = found.get("launches", [])
            if found.get("status") != 0 or len(rows) < counted.LAUNCHES * len(LOOKED_AT):
                wrong.append(f"{name} {kind}: status {found.get('status')}, {len(rows)} launches: {found.get('said', '')[-600:]}")
            for key in LOOKED_AT if rows else ():
                mine = [row for row in rows if key in " ".join(row["nvtx"].values())]
                if not mine or len(mine) % counted.LAUNCHES:
                    wrong.append(f"{name} {kind}: {len(mine)} launches lie in the NVTX range {key}: {rows[0]['nvtx']}")
        marks = document["captures"].get(f"{name} timeline", {}).get("ranges", {})
        if any(marks.get(key, 0) < counted.STEPS.active for key in LOOKED_AT):
            wrong.append(f"{name} timeline: {marks}")
    if wrong:
        return wrong
    read = {name: median(document, f"{name} few", "clamp", "dram__bytes_read.sum") for name in ("base", "slow")}
    if not 1.3 < read["slow"] / read["base"] < 1.7:
        wrong.append(f"clamp reads half of its input twice, DRAM bytes say {read}")
    time_ns = {name: median(document, f"{name} few", "softmax", "gpu__time_duration.sum") for name in ("base", "slow")}
    if not time_ns["slow"] > time_ns["base"]:
        wrong.append(f"softmax is slower with its worse configuration, ncu says {time_ns} ns")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=150.0)
    given = parser.parse_args()
    faults = check(main(given.out, given.seconds))
    print("\n".join(faults) or "all is well")
    sys.exit(bool(faults))
