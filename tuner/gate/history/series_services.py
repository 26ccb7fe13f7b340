"""Compute and store the change points of each series when runs arrive, and keep regressions in step with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, Q

from tuner.gate.builds.selectors import ENVIRONMENT, MAIN, position
from tuner.gate.builds.services import SERIES_QUEUE, SERIES_TASK
from tuner.gate.channels.services import write_regression_messages
from tuner.gate.history.series_selectors import Point, Series, Step, name_steps, run_medians
from tuner.gate.regressions.services import mark_fixed, note_growth, publish_regression
from tuner.gate.stats.noise import ENDS, Drift, find_drift
from tuner.gate.stats.results import us_text
from tuner.gate.stats.rule import rule_of
from tuner.models import BaselineChange, Build, KernelRun, KernelSeries, Regression, Suite, SuiteJob, SuiteKernel
from workers import jobs

# ---- drift as regressions of their own kind ----
# Against a pinned baseline, once per drift. No verdict or baseline changes by it.

Action = BaselineChange.Action
STILL_SLOW = 0.01           # over the old speed: a kernel that came nearer was over it


def update_drifts(suite: Suite, env: Mapping[str, str], all_series: Sequence[Series]) -> list[Regression]:
    """Open a drift for kernels that moved by more than the floor since their pinned baseline although no gate was SLOWER; close
    those that are back. Returns rows that are new or changed. The caller holds the suite's lock."""
    rows = list(Regression.objects.filter(suite=suite, kind=Regression.Kind.DRIFT, **env).select_related("build", "good"))
    steps = list(Regression.objects.filter(suite=suite, kind=Regression.Kind.STEP, state__in=Regression.WATCHED, **env))
    changes = list(BaselineChange.objects.filter(suite=suite, gpu__in=["", env["gpu"]]).select_related("build"))
    touched: dict[int, Regression] = {}
    for curve in all_series:
        floor = rule_of(suite.rule, curve.kernel.rule).floor
        own = [row for row in rows if row.family == curve.kernel.family]
        watched = next((row for row in own if row.state in row.WATCHED), None)
        if watched is not None:
            if curve.kernel.key in watched.kernels and _is_back(watched, curve, floor):
                mark_fixed(watched, curve.points[-1].build, f"the newest {ENDS} builds are back at the baseline's level")
                touched[watched.pk] = watched
            continue                                       # once per drift, not with each build
        if any(row.state in row.WATCHED and curve.kernel.key in row.kernels for row in steps):
            continue                                       # an open regression of the kernel grows by itself
        points = _since_pin(curve, changes, own)
        drift = find_drift([point.us for point in points], floor)
        if drift is None or _has_slower_gate(curve, env, points):
            continue
        row = Regression.objects.create(
            suite=suite, family=curve.kernel.family, kind=Regression.Kind.DRIFT, build=points[-1].build, good=points[0].build,
            kernels=[curve.kernel.key], found_by="series", ratio=drift.ratio, low=drift.low, high=drift.high,
            why=_reason(curve, points, drift), **env)
        write_regression_messages(row, "found")
        rows.append(row)
        touched[row.pk] = row
    return list(touched.values())


def _since_pin(series: Series, changes: Sequence[BaselineChange], rows: Sequence[Regression]) -> list[Point]:
    """The kernel's builds from its pinned baseline on: what a person pinned or accepted last, else the oldest that is kept; after a
    drift that was answered, from its last build on."""
    starts = [position(row.build) for row in rows if series.kernel.key in row.kernels]
    marks = [change for change in changes if change.kernel_id in (None, series.kernel.pk) and change.build is not None]
    last = next((change for change in marks if change.action in (Action.PIN, Action.INTENDED)), None)
    if last is not None and last.build is not None:
        starts.append(position(last.build))
    start = max(starts, default=None)
    return [point for point in series.points if point.us and (start is None or position(point.build) >= start)]


def _has_slower_gate(series: Series, env: Mapping[str, str], points: Sequence[Point]) -> bool:
    """Whether a gate said SLOWER of the kernel in one of these builds and that still holds: it is known, and no drift."""
    rows = Regression.objects.filter(suite=series.kernel.suite_id, kind=Regression.Kind.STEP, family=series.kernel.family,
                                     build__in=[point.build.pk for point in points[1:]], **env)
    regressions = rows.exclude(state=Regression.State.FIXED).filter(Q(found_by="gate") | Q(told_by__isnull=False)).distinct()
    return any(series.kernel.key in row.kernels for row in regressions)


def _is_back(row: Regression, series: Series, floor: float) -> bool:
    """Whether the newest builds are within the floor of the pinned baseline again."""
    points = [point for point in series.points if point.median_us]
    later = [point for point in points if position(point.build) > position(row.build)]
    first = next((index for index, point in enumerate(points) if row.good is not None and point.build.pk == row.good_id), None)
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


# ---- series of a suite computed anew ----

LOOKED_AT = 1000            # newest runs that the sweep looks at


def wake_stale_series() -> list[int]:
    """Wake a worker for suites with runs that none has looked at; return their ids. Called by the workers' sweep.

    A suite that is being measured waits for the job's end, which wakes it.
    """
    newest = dict(KernelRun.objects.filter(pk__in=KernelRun.objects.order_by("-pk").values("pk")[:LOOKED_AT]).order_by()
                  .values_list("kernel__suite").annotate(newest=Max("pk")))
    if not newest:
        return []
    last_runs = dict(KernelSeries.objects.filter(kernel__suite__in=newest).order_by()
                     .values_list("kernel__suite").annotate(newest=Max("newest_run")))
    measuring = set(SuiteJob.objects.filter(suite__in=newest, status=SuiteJob.Status.RUNNING).values_list("suite", flat=True))
    watched = set(Suite.objects.filter(pk__in=newest).values_list("pk", flat=True))       # the cache's own have no series
    behind = [suite for suite, run in newest.items() if run > last_runs.get(suite, 0) and suite in watched - measuring]
    woken = sorted(set(behind) - jobs.waiting(SERIES_TASK)) if behind else []
    for suite in woken:
        jobs.enqueue(SERIES_QUEUE, SERIES_TASK, suite)
    return woken


def update_series(suite_id: int) -> int:
    """Compute what has new runs; return how many series. Two workers at once write the same."""
    suite = Suite.objects.filter(pk=suite_id).first()
    if suite is None:
        return 0
    done = 0
    for where in _stale_lines(suite):
        done += _update_line(suite, **where)
    if done:
        jobs.publish(f"suite.{suite.pk}", "series", {"suite": suite.pk, "series": done})
    return done


def _stale_lines(suite: Suite) -> list[dict[str, Any]]:
    """Environments and lines of builds in which some kernel has runs newer than its stored series, or fewer than it had."""
    rows = (KernelRun.objects.filter(kernel__suite=suite).order_by().values("kernel", "build__branch", *ENVIRONMENT)
            .annotate(newest=Max("pk"), runs=Count("pk")))
    have: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        branch = "" if row["build__branch"] in MAIN else row["build__branch"]
        key = (row["kernel"], branch, *(row[name] for name in ENVIRONMENT))
        newest, runs = have.get(key, [0, 0])
        have[key] = [max(newest, row["newest"]), runs + row["runs"]]
    stored = {(row.kernel_id, row.branch, *(getattr(row, name) for name in ENVIRONMENT)): row.newest_run
              for row in KernelSeries.objects.filter(kernel__suite=suite)}
    stale = {key[1:] for key, (newest, _) in have.items() if stored.get(key) != newest}
    return [{"branch": branch, "env": dict(zip(ENVIRONMENT, env, strict=True))} for branch, *env in sorted(stale)]


def _update_line(suite: Suite, branch: str, env: Mapping[str, Any]) -> int:
    """Every kernel of the suite on one line of builds in one environment."""
    from tuner.gate.stats.changes import change_points  # with scipy.stats: whoever only wakes needs none of it

    kernels = list(suite.kernels.all())
    branches = MAIN if branch == "" else (branch,)
    newest = dict(KernelRun.objects.filter(kernel__in=kernels, build__branch__in=branches, **env).order_by()
                  .values_list("kernel").annotate(newest=Max("pk")))
    # second: what comes meanwhile is looked at again
    builds, medians = run_medians([kernel.pk for kernel in kernels], env, branch)
    series = []
    for kernel in kernels:
        if kernel.pk in newest:
            mine = medians.get(kernel.pk, {})
            points = [Point(build, mine[build.pk]) for build in builds if build.pk in mine]
            series.append(Series(kernel, points, name_steps(points, change_points([point.us for point in points]))))
    with transaction.atomic():              # after the work: who asks for a gate of this suite must not wait for it
        Suite.objects.select_for_update(no_key=True).get(pk=suite.pk)
        for line in series:
            KernelSeries.objects.update_or_create(kernel=line.kernel, branch=branch, **env, defaults={
                "changes": [asdict(step) for step in line.steps], "builds": len(line.points), "newest_run": newest[line.kernel.pk],
                "runs": sum(len(point.us) for point in line.points)})
        changed = _update_regressions(suite, env, series, {build.name: build for build in builds})
        for row in changed + (update_drifts(suite, env, series) if branch == "" else []):
            publish_regression(row)
    return len(series)


# ---- regressions ----

def _update_regressions(suite: Suite, env: Mapping[str, str], all_series: Sequence[Series],
                        builds: Mapping[str, Build]) -> list[Regression]:
    """Slower steps as rows, one for each family and range of builds; what is back at its old speed, or did not last, is closed."""
    rows = list(Regression.objects.filter(suite=suite, kind=Regression.Kind.STEP, **env).select_related("build", "good"))
    meant, floor = _intended_changes(suite, env["gpu"]), rule_of(suite.rule).floor
    touched: dict[int, Regression] = {}
    for curve in all_series:
        for step in curve.steps:
            if step.ratio < 1 + floor or _is_intended(curve.kernel, step, meant, builds):
                continue
            row = _regression_of_step(curve.kernel, step, rows, builds)
            if row is None and (grown := _standing_regression(curve, step, rows, builds)) is not None:
                if _grow(grown, curve, step, builds, floor):
                    touched[grown.pk] = grown
            elif row is None:
                row = _create_regression(suite, env, curve.kernel, step, builds)
                rows.append(row)
                touched[row.pk] = row
            elif _narrow_down(row, curve.kernel, step, builds):
                touched[row.pk] = row
    of_key = {curve.kernel.key: curve for curve in all_series}
    for row in rows:
        if row.state in row.WATCHED and row.build.name in builds and _close_if_over(row, of_key, builds, floor):
            touched[row.pk] = row
    return list(touched.values())


def _intended_changes(suite: Suite, gpu: str) -> list[BaselineChange]:
    return list(BaselineChange.objects.filter(suite=suite, action=BaselineChange.Action.INTENDED, gpu__in=["", gpu])
                .exclude(build=None).select_related("build"))


def _is_intended(kernel: SuiteKernel, step: Step, meant: Iterable[BaselineChange], builds: Mapping[str, Build]) -> bool:
    """Whether somebody said of a build within the range that its change is intended."""
    return any(change.build is not None and change.kernel_id in (None, kernel.pk)
               and position(builds[step.good]) < position(change.build) <= position(builds[step.bad]) for change in meant)


def _regression_of_step(kernel: SuiteKernel, step: Step, rows: Iterable[Regression],
                        builds: Mapping[str, Build]) -> Regression | None:
    """The regression of this family whose range of builds (good, build] meets the step's (good, bad].

    Where the series alone told of it, a neighbouring build is the same change: more runs move it by one.
    """
    places = {name: place for place, name in enumerate(builds)}
    good, bad = places[step.good], places[step.bad]
    for row in rows:
        near = 1 if _found_by_series_alone(row) else 0
        last = places.get(row.build.name)
        first = places.get(row.good.name, -1) if row.good else -1
        if row.family == kernel.family and last is not None and first < bad + near and good < last + near:
            return row
    return None


def _standing_regression(one: Series, step: Step, rows: Iterable[Regression], builds: Mapping[str, Build]) -> Regression | None:
    """The open regression of the kernel that began before the step and was not over by then: the step adds to it."""
    steps = [other for other in one.steps if position(builds[other.bad]) < position(builds[step.bad])]
    for row in sorted(rows, key=lambda each: position(each.build), reverse=True):
        if row.state not in row.WATCHED or one.kernel.key not in row.kernels or position(row.build) >= position(builds[step.bad]):
            continue
        before = _speed_before(row, one, steps, builds)
        if before is None or all(other.after_us > before * (1 + STILL_SLOW) for other in steps
                                 if position(builds[other.bad]) >= position(row.build)):
            return row
    return None


def _speed_before(row: Regression, series: Series, steps: Iterable[Step], builds: Mapping[str, Build]) -> float | None:
    """Of the series before the regression, µs; None where the series shows no step there."""
    return next((step.before_us for step in steps if step.slower and _regression_of_step(series.kernel, step, [row], builds)), None)


def _grow(row: Regression, series: Series, step: Step, builds: Mapping[str, Build], floor: float) -> bool:
    before = _speed_before(row, series, series.steps, builds)
    ratio = step.after_us / before if before else (row.ratio or 1.0) * step.ratio
    if row.ratio is not None and ratio <= row.ratio * (1 + floor):
        return False
    note_growth(row, builds[step.bad], ratio, "the series")
    row.ratio, row.low, row.high, row.why = ratio, None, None, _step_reason(series.kernel, step)
    row.save()
    return True


def _found_by_series_alone(row: Regression) -> bool:
    """No gate told of it."""
    return row.found_by == "series" and not row.told_by.exists()


def _create_regression(suite: Suite, env: Mapping[str, str], kernel: SuiteKernel, step: Step,
                       builds: Mapping[str, Build]) -> Regression:
    row = Regression.objects.create(
        suite=suite, family=kernel.family, build=builds[step.bad], good=builds[step.good], kernels=[kernel.key], found_by="series",
        ratio=step.ratio, low=step.low, high=step.high, why=_step_reason(kernel, step), **env)
    write_regression_messages(row, "found")
    return row


def _step_reason(kernel: SuiteKernel, step: Step) -> str:
    interval = f" ({100 * (step.low - 1):+.1f} to {100 * (step.high - 1):+.1f} %)" if step.low and step.high else ""
    return (f"{kernel.key}: {us_text(step.before_us)} → {us_text(step.after_us)} µs, {step.change_pct:+.1f} %{interval}, "
            "most likely from "
            f"{step.build} on; {step.runs_before} runs before it, {step.runs_after} since")


def _narrow_down(row: Regression, kernel: SuiteKernel, step: Step, builds: Mapping[str, Build]) -> bool:
    """A step that is known: the worst kernel's newest numbers where the series alone tells of it, else a narrower range."""
    before = (row.build_id, row.good_id, list(row.kernels), row.ratio)
    good, bad = builds[step.good], builds[step.bad]
    if _found_by_series_alone(row) and not any(line.get("grew") for line in row.history):
        if row.kernels[:1] == [kernel.key] or row.ratio is None or step.ratio > row.ratio:
            row.kernels = [kernel.key, *(key for key in row.kernels if key != kernel.key)]
            row.ratio, row.low, row.high, row.why = step.ratio, step.low, step.high, _step_reason(kernel, step)
            row.good, row.build = good, row.build if _begins_another(row, bad) else bad
    else:
        if position(bad) < position(row.build) and not _begins_another(row, bad):
            row.build = bad
        if position(good) < position(row.build) and (row.good is None or position(good) > position(row.good)):
            row.good = good
    if kernel.key not in row.kernels:
        row.kernels = [*row.kernels, kernel.key]
    if before == (row.build_id, row.good_id, row.kernels, row.ratio):
        return False
    row.save()
    return True


def _begins_another(row: Regression, build: Build) -> bool:
    same = {name: getattr(row, name) for name in ("suite", "family", *ENVIRONMENT)}
    return Regression.objects.filter(build=build, kind=Regression.Kind.STEP, **same).exclude(pk=row.pk).exists()


def _close_if_over(row: Regression, of_key: Mapping[str, Series], builds: Mapping[str, Build], floor: float) -> bool:
    """Fixed: every kernel is back at its speed from before the step. Gone: the series alone told of it, and no longer does."""
    back, shown = [], False
    for key in row.kernels:
        if (curve := of_key.get(key)) is None:
            continue
        steps = list(curve.steps)
        index = next((place for place, step in enumerate(steps) if step.slower and _regression_of_step(curve.kernel, step, [row],
                                                                                                       builds)), None)
        if index is None:
            continue
        shown = True
        later = steps[index + 1:]
        back.append(next((step for step in later if step.after_us <= steps[index].before_us * (1 + floor)), None))
    if back and len(back) == len(row.kernels) and all(back):
        build = max((builds[step.bad] for step in back if step), key=position)
        mark_fixed(row, build, f"the series is back at the old speed from {build.name} on")
        return True
    if not shown and row.state == Regression.State.OPEN and _found_by_series_alone(row):
        mark_fixed(row, None, "with more runs the series shows no such change any more")
        return True
    return False
