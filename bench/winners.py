"""How often measuring cached winners again is right: `python -m bench.winners 1000`. Recorded fresh runs of an H200 alone.

Each draw is one job: every configuration of a file as the operator's default, and as the winner beside it, runs of both drawn
from the same 24 recorded processes without a process being used twice. The winner's samples are multiplied by what is injected.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tuner.gate.stats.records import read_runs
from tuner.gate.stats.runs import KernelRuns
from tuner.gate.stats.winner import Choice, Contender, Problem, choose, runs_needed

H200 = Path(__file__).resolve().parents[1] / "tests" / "data" / "h200"
FILES = {"13 configurations, 38 to 212 µs": "timing_runs", "16 configurations, 5 to 22 µs": "timing_runs_lead"}
INJECTED = (1.0, 0.99, 0.98, 0.97, 0.95, 1.02, 1.05)
SERVED = "cached winner"


def some(kernel: KernelRuns, key: str, which: Sequence[int], scale: float = 1.0) -> KernelRuns:
    return replace(kernel, key=key, runs=[replace(kernel.runs[at], us=kernel.runs[at].us * scale) for at in which])


def job(kernels: Sequence[KernelRuns], runs: int, scale: float, rng: np.random.Generator) -> list[Choice]:
    """The first job, then the second of what it left open, drawn anew."""
    def problems(keys: Sequence[str], order: np.ndarray, each: int) -> list[Problem]:
        return [Problem(key, some(kernels[int(key)], key, order[:each]),
                        [Contender(SERVED, some(kernels[int(key)], key, order[each:2 * each], scale))], served=SERVED)
                for key in keys]

    found = choose(problems([str(at) for at in range(len(kernels))], rng.permutation(24), runs))
    left = [choice.key for choice in found if choice.open]
    if not left:
        return found
    again = choose(problems(left, rng.permutation(24), 12), last=True)       # 12 of each side is all that 24 processes give
    by_key = {choice.key: choice for choice in again}
    return [by_key.get(choice.key, choice) for choice in found]


@dataclass(frozen=True)
class Row:
    file: str
    winner: float                  # its time against the default's, as injected
    runs: int                      # of each side
    stays: float                   # share of winners that stay
    jobs: float                    # share of jobs in which one stays


def rows(draws: int) -> Iterator[Row]:
    for label, name in FILES.items():
        kernels = read_runs(H200 / f"{name}.jsonl.gz")
        runs = runs_needed(len(kernels))
        for scale in INJECTED:
            rng = np.random.default_rng(7)
            kept = np.array([[choice.serves == SERVED for choice in job(kernels, runs, scale, rng)] for _ in range(draws)])
            yield Row(label, scale, runs, float(kept.mean()), float(kept.any(axis=1).mean()))


def text(table: Iterable[Row]) -> str:
    lines = ["| recorded | winner against the default | runs of a side | stays | jobs in which one stays |",
             "|---|---|---|---|---|"]
    for row in table:
        change = f"{100 * (row.winner - 1):+.0f} %".replace("-", "−") if row.winner != 1.0 else "the same code"
        lines.append(f"| {row.file} | {change} | {row.runs} | {100 * row.stays:.2f} % | {100 * row.jobs:.1f} % |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(text(rows(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)))
