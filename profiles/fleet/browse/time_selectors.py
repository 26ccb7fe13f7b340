"""GPU-hours over time, by job, model, build or model of GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from profiles.fleet.browse.addresses import DAY_HOURS, View
from profiles.fleet.days import too_coarse
from profiles.fleet.selectors import gap_words, question_of
from profiles.fleet.store import Coverage, Question
from profiles.fleet.stores import fleet_store

HOURLY_HOURS = 48                   # a longer window is drawn by days
DRAWN = 7                           # groups; the rest is one
HOUR_NS = 3.6e12


@dataclass(frozen=True)
class Series:
    """GPU-hours in kernels of one group, by step. `key` None: all groups that are not drawn."""

    key: str | None
    hours: tuple[float, ...]

    @property
    def total(self) -> float:
        return sum(self.hours)


@dataclass(frozen=True)
class OverTime:
    """`starts`: the first hour of each step. `coverage` and `busy_ns`: of all groups; None where kernels are filtered."""

    step_hours: int
    starts: tuple[int, ...]
    series: tuple[Series, ...]
    groups: int
    coverage: Coverage | None
    busy_ns: float
    gaps: tuple[str, ...] = ()          # what cannot be drawn in these steps

    @property
    def has_values(self) -> bool:
        return any(line.total for line in self.series)

    @property
    def unit(self) -> str:
        """Return what heading, axis and legend of these numbers say: seconds where no step reaches 0.01 hours."""
        sums = (sum(line.hours[step] for line in self.series) for step in range(len(self.starts)))
        return "GPU-hours" if max(sums, default=0.0) >= 0.01 else "GPU-seconds"


def over_time(view: View, by: str) -> OverTime | None:
    """Return GPU-hours by step; None where no row can answer."""
    question = question_of({**view.asked, "group": by}, DRAWN)
    if question is None:
        return None
    step = 1 if question.window.to_hour - question.window.from_hour <= HOURLY_HOURS else DAY_HOURS
    values: dict[tuple[int, str], float] = defaultdict(float)
    windows, observed_ns, wall_ns = 0, 0, 0
    of_kernels = bool(set(question.where) & {"kernel", "signature"})
    keys = [row.key for row in fleet_store().top(Question(question.window, by, question.where, None))[0]] if of_kernels else []
    whole_question = Question(question.window, by, question.where, None)
    if of_kernels:
        for hour, key, _, _, estimate_ns in fleet_store().over_time(whole_question, keys, step):
            values[hour, key] += estimate_ns
    else:
        for hour, key, coverage, _, estimate_ns in fleet_store().watched(whole_question, step):
            values[hour // step * step, key] += estimate_ns
            windows += coverage.windows
            observed_ns += coverage.observed_ns
            wall_ns += coverage.wall_ns
    starts = tuple(range(question.window.from_hour // step * step, question.window.to_hour, step))
    totals: dict[str, float] = defaultdict(float)
    for (_, key), ns in values.items():
        totals[key] += ns
    ranked = sorted(totals, key=lambda key: (-totals[key], key))
    series = [Series(key, tuple(values.get((start, key), 0.0) / HOUR_NS for start in starts)) for key in ranked[:DRAWN]]
    if len(ranked) > DRAWN:
        series.append(Series(None, _rest(values, starts, ranked[DRAWN:])))
    return OverTime(step, starts, tuple(series), len(ranked), None if of_kernels else Coverage(windows, observed_ns, wall_ns),
                    sum(totals.values()), gap_words(too_coarse(question.window, "day" if step == DAY_HOURS else "hour")))


def _rest(values: dict[tuple[int, str], float], starts: Sequence[int], keys: Sequence[str]) -> tuple[float, ...]:
    return tuple(sum(values.get((start, key), 0.0) for key in keys) / HOUR_NS for start in starts)
