"""Drift as regressions of their own kind: against a pinned baseline, once per drift. No verdict or baseline changes by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models import Q

from tuner.gate.builds.selectors import WATCHED, position
from tuner.gate.history.series_selectors import Point, Series
from tuner.gate.notify.services import write_regression_messages
from tuner.gate.regressions.services import mark_fixed
from tuner.gate.stats.drift import ENDS, Drift, find_drift
from tuner.gate.stats.results import us_text
from tuner.gate.stats.rule import rule_of
from tuner.models import BaselineChange, Regression, Suite

Action = BaselineChange.Action


def update_drifts(suite: Suite, env: Mapping[str, str], found: Sequence[Series]) -> list[Regression]:
    """Open a drift for kernels that moved by more than the floor since their pinned baseline although no gate was SLOWER; close
    those that are back. Returns rows that are new or changed. The caller holds the suite's lock."""
    rows = list(Regression.objects.filter(suite=suite, kind=Regression.Kind.DRIFT, **env).select_related("build", "good"))
    changes = list(BaselineChange.objects.filter(suite=suite, gpu__in=["", env["gpu"]]).select_related("build"))
    touched: dict[int, Regression] = {}
    for one in found:
        floor = rule_of(suite.rule, one.kernel.rule).floor
        own = [row for row in rows if row.family == one.kernel.family]
        watched = next((row for row in own if row.state in WATCHED), None)
        if watched is not None:
            if one.kernel.key in watched.kernels and _is_back(watched, one, floor):
                mark_fixed(watched, one.points[-1].build, f"the newest {ENDS} builds are back at the baseline's level")
                touched[watched.pk] = watched
            continue                                       # once per drift, not with each build
        points = _since_pin(one, changes, own)
        drift = find_drift([point.us for point in points], floor)
        if drift is None or _has_slower_gate(one, env, points):
            continue
        row = Regression.objects.create(
            suite=suite, family=one.kernel.family, kind=Regression.Kind.DRIFT, build=points[-1].build, good=points[0].build,
            kernels=[one.kernel.key], found_by="series", ratio=drift.ratio, low=drift.low, high=drift.high,
            why=_reason(one, points, drift), **env)
        write_regression_messages(row, "found")
        rows.append(row)
        touched[row.pk] = row
    return list(touched.values())


def _since_pin(one: Series, changes: Sequence[BaselineChange], rows: Sequence[Regression]) -> list[Point]:
    """The kernel's builds from its pinned baseline on: what a person pinned or accepted last, else the oldest that is kept; after a
    drift that was answered, from its last build on."""
    starts = [position(row.build) for row in rows if one.kernel.key in row.kernels]
    said = [change for change in changes if change.kernel_id in (None, one.kernel.pk) and change.build is not None]
    last = next((change for change in said if change.action in (Action.PIN, Action.INTENDED)), None)
    if last is not None and last.build is not None:
        starts.append(position(last.build))
    start = max(starts, default=None)
    return [point for point in one.points if point.us and (start is None or position(point.build) >= start)]


def _has_slower_gate(one: Series, env: Mapping[str, str], points: Sequence[Point]) -> bool:
    """Whether a gate said SLOWER of the kernel in one of these builds and that still holds: it is known, and no drift."""
    rows = Regression.objects.filter(suite=one.kernel.suite_id, kind=Regression.Kind.STEP, family=one.kernel.family,
                                     build__in=[point.build.pk for point in points[1:]], **env)
    told = rows.exclude(state=Regression.State.FIXED).filter(Q(found_by="gate") | Q(told_by__isnull=False)).distinct()
    return any(one.kernel.key in row.kernels for row in told)


def _is_back(row: Regression, one: Series, floor: float) -> bool:
    """Whether the newest builds are within the floor of the pinned baseline again."""
    points = [point for point in one.points if point.median_us]
    later = [point for point in points if position(point.build) > position(row.build)]
    first = next((at for at, point in enumerate(points) if row.good is not None and point.build.pk == row.good_id), None)
    if first is None or len(later) < ENDS:
        return False
    level = _middle(points[first:first + ENDS])
    return _middle(points[-ENDS:]) <= level * (1 + floor / 2)


def _middle(points: Sequence[Point]) -> float:
    values = sorted(point.median_us or 0.0 for point in points)
    return values[len(values) // 2]


def _reason(one: Series, points: Sequence[Point], drift: Drift) -> str:
    return (f"{one.kernel.key}: {us_text(drift.before_us)} → {us_text(drift.after_us)} µs, {100 * (drift.ratio - 1):+.1f} % over "
            f"{len(points)} builds from {points[0].build.name} to {points[-1].build.name}, about "
            f"{100 * drift.per_build:+.2f} % a build; no single gate was SLOWER")
