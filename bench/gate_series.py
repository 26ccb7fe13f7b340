"""Change points on recorded runs: how soon a step of 2 % is found, how often identical builds have one. For docs/gate-bench.md.

Series of builds are drawn from tests/data/public_timing (1,000 runs of identical code per file), five runs a build. They are read
as they arrive: after every build the change points of what is there so far are asked for, and whatever is told of identical builds
at any time counts as false, once per place. `python -m bench.gate_series` prints the table.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.public_timing import medians_us
from tuner.gate.stats.changes import change_points

RUNS, STEP, WITHIN = 5, 1.02, 8
WINDOW = 60            # newest builds that are looked at when one arrives; the whole series is looked at once, at the end
SAME_PLACE = 3         # false changes so near to each other are one


def rows(draws: int = 500, builds: int = 2000, seed: int = 6) -> Iterator[dict[str, Any]]:
    """One per file: {"file", "builds", "false_online", "false_whole" (both per 500 builds), "draws", "found", "median_builds",
    "worst_builds", "place_right", "seconds"}; `found` is the share of the draws found within 8 builds."""
    for name, times in sorted(medians_us().items()):
        rng, began = np.random.default_rng(seed), time.perf_counter()
        same = list(rng.choice(times, (builds, RUNS)))
        false = told_online(same)
        delays, right = [], 0
        for _ in range(draws):
            at = int(rng.integers(2, WINDOW))
            series = rng.choice(times, (at + WITHIN, RUNS))
            series[at:] *= STEP
            delay, place = found_after(list(series), at)
            delays.append(delay)
            right += place == at
        found = [delay for delay in delays if delay is not None]
        yield {"file": name, "builds": builds, "false_online": 500 * len(false) / builds,
               "false_whole": 500 * len(change_points(same)) / builds, "draws": draws, "found": len(found) / draws,
               "median_builds": float(np.median(found)) if found else None, "worst_builds": max(found, default=None),
               "place_right": right / draws, "seconds": time.perf_counter() - began}


def told_online(series: Sequence[Any]) -> list[int]:
    """Places of all changes that are told at any time while the builds arrive."""
    told: list[int] = []
    for so_far in range(4, len(series) + 1):
        start = max(0, so_far - WINDOW)
        for one in change_points(series[start:so_far]):
            if all(abs(start + one.index - place) > SAME_PLACE for place in told):
                told.append(start + one.index)
    return told


def found_after(series: Sequence[Any], at: int) -> tuple[int | None, int | None]:
    """(builds at the new speed, the first one included, until the step is told; its place): (None, None) within 8 not."""
    for builds in range(1, WITHIN + 1):
        near = [one for one in change_points(series[:at + builds]) if abs(one.index - at) <= 1]
        if near:
            return builds, near[0].index
    return None, None


def table(found: Sequence[dict[str, Any]]) -> str:
    lines = ["| recorded file | false changes per 500 builds, as they arrive | over the whole series | +2 % found within 8 builds "
             "| builds until found: median, worst | at the right build |", "|---|---|---|---|---|---|"]
    lines += [f"| {one['file']} | {one['false_online']:.2f} (of {one['builds']:,}) | {one['false_whole']:.2f} | "
              f"{100 * one['found']:.1f} % of {one['draws']:,} | {one['median_builds']:.0f}, {one['worst_builds']} | "
              f"{100 * one['place_right']:.1f} % |" for one in found]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(list(rows(*(int(argument) for argument in sys.argv[1:3])))))
