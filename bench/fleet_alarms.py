"""How often production's change points speak of identical builds, and how soon of a slower one. Simulated series.

    python -m bench.fleet_alarms --days calm --seconds 300 --processes 2

A week holds an alarm where any of SERIES series is told slower at any of its seven looks. Days differ by a standard deviation of
their own for each series: "calm" normal, independent; "hard" with the tails of Student's t of 5 degrees and half of the day before
in each (rho 0.5). Every third day is another build.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from dataclasses import asdict, dataclass

import numpy as np

from tuner.gate.production.series import Day, steps

SERIES, WINDOW_DAYS, BLOCKS = 1000, 42, 6


@dataclass(frozen=True)
class Days:
    """How days of identical builds differ."""

    middle_sd: float = 0.003        # of a series' days, the median over series; they vary by a factor of exp(0.6)
    tail: float | None = None       # degrees of freedom of Student's t; None: normal
    rho: float = 0.0                # of one day with the next


KINDS = {"calm": Days(), "hard": Days(0.004, 5.0, 0.5)}


def make_levels(rng: np.random.Generator, kind: Days, days: int, series: int = SERIES) -> np.ndarray:
    """Return blocks in µs, shape (series, days, BLOCKS), without any change."""
    shock = rng.normal(size=(series, days)) if kind.tail is None else \
        rng.standard_t(kind.tail, (series, days)) * np.sqrt((kind.tail - 2) / kind.tail)
    for day in range(1, days):
        shock[:, day] = kind.rho * shock[:, day - 1] + np.sqrt(1 - kind.rho ** 2) * shock[:, day]
    day_sd, block_sd = (np.exp(rng.normal(np.log(kind.middle_sd), 0.6, (series, 1))) for _ in range(2))
    blocks = rng.normal(size=(series, days, BLOCKS)) * block_sd[:, :, None]
    return 50 * np.exp((shock * day_sd)[:, :, None] + blocks)


def count_alarms(kind: Days, seed: int, seconds: float) -> tuple[int, int, int]:
    """Return (weeks, weeks with an alarm, steps told) until the time is over."""
    rng, end, weeks, alarms, told = np.random.default_rng(seed), time.monotonic() + seconds, 0, 0, 0
    while time.monotonic() < end:
        us = make_levels(rng, kind, WINDOW_DAYS + 7)
        found = set()
        for number, series in enumerate(us):
            days = [Day(day, f"b{day // 3}", blocks.tolist()) for day, blocks in enumerate(series)]
            known: set[int] = set()
            for look in range(8):
                seen = {step.at.day for step in steps(days[look:look + WINDOW_DAYS], SERIES) if step.change.slower}
                if look:            # what the look before this week told is no alarm of this week
                    found |= {(number, day) for day in seen if not known & {day - 1, day, day + 1}}
                known |= seen
        weeks, alarms, told = weeks + 1, alarms + bool(found), told + len(found)
    return weeks, alarms, told


def find_delays(kind: Days, step: float, seed: int, tries: int = 60) -> list[int | None]:
    """Return for each series the number of days at the new speed after which the step is told; None: not within 14."""
    rng = np.random.default_rng(seed)
    us = make_levels(rng, kind, 35, tries)
    us[:, 21:] *= step
    out: list[int | None] = []
    for series in us:
        days = [Day(day, "a" if day < 21 else "b", blocks.tolist()) for day, blocks in enumerate(series)]
        out.append(next((after for after in range(1, 15) if any(
            abs(each.change.index - 21) <= 1 and each.change.slower for each in steps(days[:21 + after], SERIES))), None))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", choices=KINDS, default="calm")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    kind = KINDS[given.days]
    with multiprocessing.Pool(given.processes) as pool:
        delays = {step: pool.apply_async(find_delays, (kind, step, given.seed)) for step in (1.03, 1.05, 1.1, 1.2)}
        found = pool.starmap(count_alarms, [(kind, given.seed * 1000 + at, given.seconds) for at in range(given.processes)])
        weeks, alarms, told = (sum(each[at] for each in found) for at in range(3))
        soon = {f"{step:.2f}": {"found": sum(each is not None for each in got.get()), "of": len(got.get()),
                                "median_days": float(np.median([each or 99 for each in got.get()]))}
                for step, got in delays.items()}
    print(json.dumps({"kind": given.days, **asdict(kind), "series": SERIES, "weeks": weeks, "weeks_with_alarm": alarms,
                      "alarms": told, "delays": soon}))


if __name__ == "__main__":
    main()
