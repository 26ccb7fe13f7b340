"""What is lost after CUPTI was taken out: `python -m tests.gpu.fleet.detached WORKLOAD [--seconds 60] [--gpu 0] [--out FILE]`.

Three processes of a workload take turns of a quarter of a second: one that will be collected from, and two that never are. Then the
first has windows, CUPTI taken out after each, and the turns go on. Each process is compared with itself before and beside the
others, so neither what differs between processes nor a drift of the machine counts. Lines after each series of windows: `detached`,
the collected one beside both others; `same`, one untouched beside the other, whose interval should hold 0."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.fleet.residue import Process
from tests.gpu.fleet.residue_child import COLLECT
from tests.gpu.fleet.residue_stats import BASE
from workers.agent.controller import _t

TURN_S, SERIES, PARTS, WINDOWS_S = 0.25, 3, 20, 60.0
NAMES = ("collected", "untouched", "untouched again")


def rounds(processes: list[Process], count: int) -> np.ndarray:
    """Return ln of the mean step, (count, processes)."""
    found = np.zeros((count, len(processes)))
    for at in range(count):
        for number in np.roll(range(len(processes)), at):
            took = processes[number].turn(TURN_S, keep=False)
            if took is None:
                raise RuntimeError(f"{NAMES[number]}: {processes[number].why}")
            found[at, number] = np.log(took.mean())
    return found


def change(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """Return by how many % the first column grew beside the mean of the others, with a 95 % interval by parts of the time."""
    own, other = ((each[:, 0] - each[:, 1:].mean(axis=1)) for each in (after, before))
    a, b = (np.array([part.mean() for part in np.array_split(each, min(PARTS, each.size))]) for each in (own, other))
    more = float(a.mean() - b.mean())
    half = _t(min(a.size, b.size) - 1) * float(np.sqrt(a.var(ddof=1) / a.size + b.var(ddof=1) / b.size))
    return {"loss_pct": 100 * np.expm1(more), "low_pct": 100 * np.expm1(more - half), "high_pct": 100 * np.expm1(more + half)}


def measure(processes: list[Process], seconds: float) -> list[dict[str, Any]]:
    """Return lines: the change after each series of windows against all turns before the first."""
    count = max(PARTS, int(seconds / (1 + SERIES) / (len(processes) * (TURN_S + 0.12))))
    rounds(processes, 3)                # warm
    before, lines, all_after = rounds(processes, count), [], []
    for series in range(1, SERIES + 1):
        processes[0].pipe.send(COLLECT)
        told = processes[0].take(WINDOWS_S)
        if told is None:
            raise RuntimeError(f"in its windows: {processes[0].why}")
        all_after.append(rounds(processes, count))
        lines.append({"result": "detached", "series": series, "windows": len(told[0]), "records": int(sum(told[0])),
                      "empty_windows": int(sum(not each for each in told[0])), "out_ms": float(np.median(told[1])),
                      **change(before, all_after[-1])})
    after = np.concatenate(all_after)
    of_all = {"series": "all", "turns": len(after), "windows": lines[-1]["windows"]}
    return [*lines, {"result": "detached", **of_all, **change(before, after)},
            {"result": "same", **of_all, **change(before[:, 1:], after[:, 1:])}]


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("workload")
    asked.add_argument("--seconds", type=float, default=60, help="of turns (default: %(default)s)")
    asked.add_argument("--gpu", default="")
    asked.add_argument("--out", type=Path, help="lines are added to this file as well")
    options = asked.parse_args()
    if options.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = options.gpu
    importlib.import_module("torch")            # before the fork: the children share it
    with tempfile.TemporaryDirectory(prefix="rp") as folder:
        processes = [Process(options.workload, variant, Path(folder)) for variant in ("out, later", BASE, BASE)]
        try:
            if not all(process.ready() for process in processes):
                raise RuntimeError("; ".join(filter(None, (process.why for process in processes))))
            lines = measure(processes, options.seconds)
        except RuntimeError as error:
            lines = [{"result": "died", "why": str(error), "words": processes[0].log.read_text(errors="replace")[:1500]}]
        facts = {name: processes[1].facts.get(name) for name in ("gpu", "driver", "torch", "cupti")}
        for process in processes:
            process.end()
    for line in lines:
        text = json.dumps({"workload": options.workload, **facts, **line}, default=float) + "\n"
        sys.stdout.write(text)
        if options.out:
            with options.out.open("a") as file:
                file.write(text)
    return int(lines[0]["result"] == "died")


if __name__ == "__main__":
    sys.exit(main())
