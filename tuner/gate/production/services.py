"""Regressions of production: found when a day was summed, told, answered by people, closed when they are over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.fleet.models import FleetDay, FleetSignature
from profiles.running.schedule_services import regression_opened
from tuner.gate.builds.answers import check_answer
from tuner.gate.builds.services import ensure_build
from tuner.gate.channels.services import write_production_messages
from tuner.gate.production.point_services import EPOCH, days_to_keep, keep_day
from tuner.gate.production.series import FLOOR, LEAST_DAYS, Day, ProductionStep, in_order, steps
from tuner.gate.suites.definition import NAME, kernel_key
from tuner.models import ProductionDay, ProductionPoint, ProductionRegression, Suite, SuiteKernel
from workers import jobs

WINDOW_DAYS = 42                # of a series, its newest: what is older is no news
SeriesKey = tuple[int, str, str, bool]      # signature, GPU model, model, simulated


def watch_production() -> tuple[int, int]:
    """Keep the points of days that were summed, then look for changes once; return (days, regressions that are new)."""
    days = days_to_keep()
    for day in days:
        keep_day(day)
    return len(days), look_for_changes(max(days)) if days else 0


@transaction.atomic
def look_for_changes(newest: date) -> int:
    """Look at every series with a point in the window that ends with `newest`; return how many regressions are new."""
    list(ProductionRegression.objects.select_for_update().order_by("pk").values_list("pk"))     # one look at a time
    found: dict[SeriesKey, list[ProductionPoint]] = defaultdict(list)
    for point in ProductionPoint.objects.filter(day__gt=newest - timedelta(days=WINDOW_DAYS), day__lte=newest):
        found[point.signature, point.gpu_model, point.model, point.simulated].append(point)
    known: dict[SeriesKey, list[ProductionRegression]] = defaultdict(list)
    for row in ProductionRegression.objects.all():
        known[row.signature, row.gpu_model, row.model, row.simulated].append(row)
    count = len(found)
    return sum(_look_at(key, points, known[key], count) for key, points in sorted(found.items(), key=lambda each: each[0]))


def _look_at(key: SeriesKey, points: Sequence[ProductionPoint], rows: list[ProductionRegression], series: int) -> int:
    days = in_order([Day((point.day - EPOCH).days, point.build, point.us, point.first_hour) for point in points])
    series_steps = steps(days, series)
    new: list[ProductionRegression] = []
    matched: set[int] = set()
    for step in series_steps:
        if step.change.ratio < 1 + FLOOR:
            continue
        row = next((regression for regression in rows if regression.pk not in matched and _is_same(regression, step, days)), None)
        facts = _facts(step, days, points, series)
        if row is None:
            row = _create(key, step, facts)
            if row is not None:
                rows.append(row)
                new.append(row)
        elif row.state in row.WATCHED:
            for name, value in facts.items():
                setattr(row, name, value)
            row.save()
        if row is not None:
            matched.add(row.pk)
    for row in rows:
        if row.state in row.WATCHED:
            _close_if_over(row, row.pk in matched, series_steps, days)
    for row in new:
        if row.state in row.WATCHED:                # not what was over when it was first seen
            write_production_messages(row)
            if not row.simulated:
                transaction.on_commit(partial(regression_opened, row.gpu_model, row.model, row.to_build,
                                              f"{row.short_name or row.kernel[:80]} became slower"), robust=True)
        transaction.on_commit(partial(jobs.publish, "home", "production", {"id": row.pk, "state": str(row.state)}), robust=True)
    return len(new)


def _facts(step: ProductionStep, days: Sequence[Day], points: Sequence[ProductionPoint], series: int) -> dict[str, Any]:
    change = step.change
    newest = max((point for point in points if point.build == days[-1].build), key=lambda each: each.day)
    return {"ratio": change.ratio, "low": change.low if change.low > 0 else None,
            "high": change.high if change.high < float("inf") else None, "before_us": change.before_us, "after_us": change.after_us,
            "p_value": change.p_value, "days_before": change.index, "days_after": len(days) - change.index,
            "day_ns": newest.total_ns, "gpus": max(point.gpus for point in points), "series": series}


def _is_same(row: ProductionRegression, step: ProductionStep, days: Sequence[Day]) -> bool:
    """Return whether a known regression is this step: by its build, or within a day of it (more days move it by one)."""
    if row.to_build == step.at.build and (row.from_build != row.to_build) == (not step.same_build):
        return True
    since_day = (row.since - EPOCH).days
    near = next((place for place, day in enumerate(days) if day.day == since_day and day.build == row.to_build), None)
    return near is not None and (abs(near - step.change.index) <= 1 or step.change.good < near <= step.change.bad)


def _create(key: SeriesKey, step: ProductionStep, facts: Mapping[str, Any]) -> ProductionRegression | None:
    signature = FleetSignature.objects.select_related("kernel").filter(pk=key[0]).first()
    if signature is None:           # forgotten meanwhile
        return None
    shape = {"grid": signature.grid, "block": signature.block, "shared_bytes": signature.shared_bytes}
    row, is_new = ProductionRegression.objects.get_or_create(
        signature=key[0], gpu_model=key[1], model=key[2], simulated=key[3], to_build=step.at.build,
        since=EPOCH + timedelta(days=step.at.day),
        defaults={"kernel": signature.kernel.name, "short_name": signature.kernel.short_name, "shape": shape,
                  "from_build": step.good.build, **facts})
    if not is_new:                    # answered before
        return None
    if not row.simulated:
        _know_builds(row)
    return row


def _know_builds(row: ProductionRegression) -> None:
    """Make the two builds known, so that their pages answer; a name that no build can have is left alone."""
    for name in (row.from_build, row.to_build):
        if name:
            try:
                ensure_build(name)
            except Refused:
                continue


def _close_if_over(row: ProductionRegression, matched: bool, seen: Sequence[ProductionStep], days: Sequence[Day]) -> None:
    """Fixed: a later step brought it back within the floor. Gone: the days around it are in view, and no longer show it."""
    since = (row.since - EPOCH).days
    index = next((place for place, day in enumerate(days) if day.build == row.to_build and day.day >= since), None)
    if index is None:
        return
    later = [step for step in seen if step.change.index > index]
    ratio = row.ratio
    for step in later:
        ratio *= step.change.ratio
        if ratio <= 1 + FLOOR:
            _set_state(row, ProductionRegression.State.FIXED, f"back at its old speed with {step.at.build or 'the same build'}",
                       fixed_in=step.at.build)
            return
    if not matched and index >= LEAST_DAYS and len(days) - index >= LEAST_DAYS:
        _set_state(row, ProductionRegression.State.GONE, "more days no longer show it")


def _set_state(row: ProductionRegression, state: str, note: str, *, fixed_in: str = "", by: Any = None) -> None:
    row.state, row.note, row.fixed_in, row.changed_by = state, note, fixed_in, by
    row.save()


def change_production(row: ProductionRegression, state: str, note: str = "", by: Any = None) -> ProductionRegression:
    """Set a regression's state as a person says. Raises Refused."""
    answers = [value for value in ProductionRegression.State.values if value != ProductionRegression.State.GONE]
    _set_state(row, state, check_answer(state, note, answers), by=by)
    return row


@transaction.atomic
def guard_kernel(row: ProductionRegression, suite_name: str, by: Any = None) -> SuiteKernel:
    """Make the kernel an entry of a suite of uploaded runs, so that CI measures it; twice changes nothing. Raises Refused.

    A suite of that name is made where there is none. Its key is that of an uploaded line with `op` and `shape` as stated here.
    """
    if row.simulated:
        raise Refused({"suite": "this kernel is simulated: nothing of a team runs it"})
    if not NAME.match(suite_name):
        raise Refused({"suite": "1 to 60 letters, digits, - and _"})
    suite = Suite.everything.select_for_update().filter(name=suite_name).first()
    if suite is None:
        suite = Suite.objects.create(name=suite_name, kind=Suite.Kind.UPLOADED, owner=by,
                                     title="Kernels that production found slower")
    if suite.kind != Suite.Kind.UPLOADED:
        raise Refused({"suite": f"{suite_name} is a suite of kind {suite.kind}: name one that takes uploaded runs, or a new one"})
    op, shape = suite_entry(row)
    kernel, _ = SuiteKernel.objects.get_or_create(
        suite=suite, key=kernel_key(op, shape, "")[:300],
        defaults={"op": op, "shape": shape, "family": op, "declared": False, "place": suite.kernels.count()})
    ProductionRegression.objects.filter(pk=row.pk).update(guarded_by=kernel, changed=timezone.now())
    return kernel


def suite_entry(row: ProductionRegression) -> tuple[str, dict[str, Any]]:
    """Return the `op` and `shape` that uploaded runs of this kernel state."""
    shape = {"grid": "x".join(map(str, row.shape.get("grid", ()))), "block": "x".join(map(str, row.shape.get("block", ()))),
             "smem": row.shape.get("shared_bytes", 0)}
    return (row.short_name or row.kernel)[:200], shape


@transaction.atomic
def forget_simulated_production() -> dict[str, int]:
    """Remove points and regressions of simulated jobs; return what went and how many of each."""
    regressions = ProductionRegression.objects.filter(simulated=True)
    counts = {"production regressions": regressions.count()}
    regressions.delete()
    counts["production points"] = ProductionPoint.objects.filter(simulated=True).delete()[0]
    ProductionDay.objects.exclude(day__in=FleetDay.objects.values("day")).delete()
    return counts
