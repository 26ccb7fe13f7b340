"""Drift on recorded runs: false alarms over long histories, builds until 0.1 % a build is seen. For docs/gate-bench.md.

Builds are drawn from recorded runs of identical code (with repetition), five runs a build, and read as they arrive, each time
against the oldest. `session` makes each build as a whole slower or faster by so much (standard deviation): runs of one build share
a machine's day. `python -m bench.gate_drift` prints the table.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.public_timing import medians_us
from tuner.gate.stats.noise import LEAST_BUILDS, find_drift
from tuner.gate.stats.rule import Rule

RUNS, FLOOR = 5, Rule().floor
H200 = Path(__file__).parents[1] / "tests" / "data" / "h200"


def recorded_kernels() -> dict[str, Sequence[float]]:
    """Name -> run medians in µs of identical code."""
    found: dict[str, Sequence[float]] = dict(medians_us().items())
    for file in ("timing_runs", "timing_runs_small"):
        kernels: dict[str, list[float]] = defaultdict(list)
        for line in gzip.decompress((H200 / f"{file}.jsonl.gz").read_bytes()).splitlines():
            one = json.loads(line)
            kernels[f"{one['op']} {json.dumps(one['config'], sort_keys=True)} {json.dumps(one['shape'], sort_keys=True)}"].append(
                float(np.median(one["us"])))
        found |= {f"{file}: {name}": times for name, times in kernels.items()}
    return found


def builds_until_told(times: Sequence[float], builds: int, per_build: float, session: float,
                      rng: np.random.Generator) -> int | None:
    """Builds until a drift is told; None where it is not."""
    factors = (1 + per_build) ** np.arange(builds) * np.exp(rng.normal(0, session, builds))
    series = [run * factor for run, factor in zip(rng.choice(times, (builds, RUNS)), factors, strict=True)]
    for so_far in range(LEAST_BUILDS, builds + 1):
        if find_drift(series[:so_far], FLOOR) is not None:
            return so_far
    return None


def rows(draws: int, builds: int, seed: int = 8) -> Iterator[Mapping[str, Any]]:
    """One for each group of kernels and session's noise."""
    kernels = recorded_kernels()
    groups = {"GEMM of 19 ms, RTX A4000, clock locked": [times for name, times in kernels.items() if ":" not in name],
              "38-212 µs, H200, clocks free": [times for name, times in kernels.items() if name.startswith("timing_runs:")],
              "5-22 µs, H200, clocks free": [times for name, times in kernels.items() if name.startswith("timing_runs_small:")]}
    for name, of in groups.items():
        for session in (0.0, 0.005):
            rng = np.random.default_rng(seed)
            false = [builds_until_told(of[n % len(of)], builds, 0.0, session, rng) for n in range(draws)]
            seen = {rate: [builds_until_told(of[n % len(of)], 160, rate, session, rng) for n in range(draws)]
                    for rate in (0.001, 0.002)}
            yield {"name": name, "session": session, "kernels": len(of), "draws": draws, "builds": builds,
                   "false": sum(each is not None for each in false), "seen": seen}


def table(found: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| recorded runs | each build's session | false drifts | 0.1 % a build: told, after builds (median, worst) "
             "| 0.2 % a build |", "|---|--:|--:|--:|--:|"]
    for one in found:
        cells = []
        for times in one["seen"].values():
            told = [each for each in times if each is not None]
            cells.append(f"{100 * len(told) / len(times):.0f} %, {np.median(told):.0f}, {max(told)}" if told else "0 %")
        lines.append(f"| {one['name']} ({one['kernels']} kernels) | ±{100 * one['session']:g} % | "
                     f"{one['false']} of {one['draws']:,} histories of {one['builds']:,} builds | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    draws, builds = (int(argument) for argument in (sys.argv[1:3] or ("60", "400")))
    print(table(list(rows(draws, builds))))
