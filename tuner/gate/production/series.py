"""Change points of one kernel in production, over builds and days. Pure.

A series is one (signature, GPU model, model, simulated or not). Its builds in the sense of `tuner.gate.stats.changes` are the days
of each build, builds in the order in which they were first seen; the runs of a day are its blocks of BLOCK_HOURS hours, each the
median over GPUs of the mean logarithm of durations: one slow GPU moves none of them, nor do single slow launches. The statistics
are the gate's: exact segmentation, the rank test on blocks, the t-test on days, the floor. Nothing is told that rests on fewer than
LEAST_DAYS days, or is within DEVIATIONS of how much the series' own days differ.

Many series are looked at, every day: the t-test on days is asked for WEEKLY / (LOOKS · series) (Bonferroni over the series and the
looks of a week), so that less than WEEKLY of weeks hold any false alarm. `docs/fleet-regressions.md` has what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
import numpy.typing as npt

from tuner.gate.stats.changes import ALPHA_BUILDS, Change, change_points
from tuner.gate.stats.noise import residuals
from tuner.gate.stats.rule import Rule

BLOCK_HOURS = 4
LEAST_DAYS = 3                  # on each side: two bad days in a row are weather
DEVIATIONS, LEAST_DEVIATIONS = 8.0, 4.0      # of days about their level: of a step with LEAST_DAYS days, and with many
LEAST_LAUNCHES = 20             # of a GPU in an hour: with fewer, its hour does not count
WEEKLY = 0.01                   # of weeks may hold a false alarm, over all series together
LOOKS = 7                       # in a week: one when each day was summed
FLOOR = Rule().floor            # a smaller slowdown is not told

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
GpuHour = tuple[int, int, int, int, int, int, float]    # hour, GPU, signature, context, launches, total_ns, log_sum


@dataclass(frozen=True)
class Day:
    """One build's day of one series: medians of its blocks in µs, oldest first."""

    day: int                    # since 1970
    build: str
    us: Sequence[float]
    first_hour: int = 0


@dataclass(frozen=True)
class ProductionStep:
    """From `build` and `day` on, the kernel takes `ratio` times as long; what is surely before and after it: `good` and `bad`."""

    change: Change
    at: Day
    good: Day
    bad: Day

    @property
    def same_build(self) -> bool:
        return self.good.build == self.bad.build


def alpha_of(series: int) -> float:
    """Return the level of the t-test on days where so many series are looked at."""
    return min(ALPHA_BUILDS, WEEKLY / (LOOKS * max(1, series)))


def in_order(days: Sequence[Day]) -> list[Day]:
    """Return days with those of one build together, builds by when they were first seen."""
    first: dict[str, tuple[int, int, str]] = {}
    for day in days:
        place = (day.day, day.first_hour, day.build)
        first[day.build] = min(first.get(day.build, place), place)
    return sorted(days, key=lambda each: (first[each.build], each.day))


def steps(days: Sequence[Day], series: int, floor: float = FLOOR) -> list[ProductionStep]:
    """Return the changes of one series of days `in_order`, slower and faster; `series`: how many are looked at."""
    if not _may_change(days, floor):
        return []
    days = [day for day in days if len(day.us)]
    changes = change_points([day.us for day in days], floor=floor, alpha_builds=alpha_of(series))
    edges = [0, *(change.index for change in changes), len(days)]
    medians = np.array([median(day.us) for day in days])
    own = float(np.std(residuals(*(medians[a:b] for a, b in pairwise(edges))))) if changes else 0.0
    out = []
    for before, change, after in zip(edges, changes, edges[2:], strict=False):
        count = min(change.index - before, after - change.index)
        if count >= LEAST_DAYS and abs(np.log(change.ratio)) >= deviations_of(count) * own:
            out.append(ProductionStep(change, days[change.index], days[change.good], days[change.bad]))
    return out


def deviations_of(days: int) -> float:
    """Return by how many deviations of its own days a series must step where so many days stand on the shorter side.

    Days of a fleet have heavier tails than a t-test believes, and bad days come in rows.
    """
    return max(LEAST_DEVIATIONS, DEVIATIONS * math.sqrt(LEAST_DAYS / days))


def _may_change(days: Sequence[Day], floor: float) -> bool:
    """Return whether days differ enough for any change: else the tests need not be asked, they tell nothing below the floor.

    A change must keep half of the floor between the medians of days even without the one of each side that speaks for it most.
    """
    medians = np.log([median(day.us) for day in days if len(day.us)] or [1.0])
    return bool(np.ptp(medians) >= np.log1p(floor) / 2)


def hour_levels(rows: Sequence[GpuHour], group_of: Mapping[int, int]) -> dict[tuple[int, int], tuple[float, int, int, int]]:
    """Return (signature, group) -> (median over GPUs of the mean log of ns, launches, total_ns, GPUs) of the rows of one hour.

    `group_of`: context -> group; a GPU's contexts of one group are added up.
    """
    hours = [row for row in rows if row[3] in group_of]
    if not hours:
        return {}
    table = np.array([(row[2], group_of[row[3]], row[1], row[4], row[5]) for row in hours], np.int64)
    logs = np.array([row[6] for row in hours], np.float64)
    keys, totals, sums = _add_up(table, logs)
    enough = totals[:, 0] >= LEAST_LAUNCHES
    keys, totals, sums = keys[enough], totals[enough], sums[enough]
    if not keys.size:
        return {}
    mean = sums / totals[:, 0]
    order = np.lexsort((mean, keys[:, 1], keys[:, 0]))
    keys, totals, mean = keys[order], totals[order], mean[order]
    edges = np.flatnonzero(np.append(True, np.any(keys[1:, :2] != keys[:-1, :2], axis=1)))
    ends = np.append(edges[1:], len(keys))
    middle = (mean[edges + (ends - edges - 1) // 2] + mean[edges + (ends - edges) // 2]) / 2
    whole = np.add.reduceat(totals, edges, axis=0)
    return {(int(signature), int(group)): (float(level), int(launches), int(total), int(gpus))
            for (signature, group, _), level, (launches, total), gpus in zip(
                keys[edges].tolist(), middle.tolist(), whole.tolist(), (ends - edges).tolist(), strict=True)}


def hour_times(rows: Sequence[GpuHour], group_of: Mapping[int, int]) -> dict[tuple[int, int], int]:
    """Return (signature, group) -> total ns of all rows of one hour, also of those that `hour_levels` leaves out."""
    times: dict[tuple[int, int], int] = {}
    for _, _, signature, context, _, total_ns, _ in rows:
        if context in group_of:
            key = (signature, group_of[context])
            times[key] = times.get(key, 0) + total_ns
    return times


def _add_up(table: Ints, logs: Floats) -> tuple[Ints, Ints, Floats]:
    """Rows of one (signature, group, GPU) as one."""
    order = np.lexsort((table[:, 2], table[:, 1], table[:, 0]))
    table, logs = table[order], logs[order]
    edges = np.flatnonzero(np.append(True, np.any(table[1:, :3] != table[:-1, :3], axis=1)))
    return table[edges, :3], np.add.reduceat(table[:, 3:], edges, axis=0), np.add.reduceat(logs, edges)


def block_medians(logs_by_hour: Mapping[int, float]) -> list[float]:
    """Return the medians of a day's blocks in µs, of those with an hour; `logs_by_hour`: hour of the day -> log of ns."""
    blocks: dict[int, list[float]] = {}
    for hour, value in logs_by_hour.items():
        blocks.setdefault(hour // BLOCK_HOURS, []).append(value)
    return [float(np.exp(np.median(blocks[block]))) / 1000 for block in sorted(blocks)]
