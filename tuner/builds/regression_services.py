"""What gates and series tell of slower kernels becomes one row each: found, told again, narrowed down, fixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone

from profiles.analysis.gate.rule import Rule, Verdict
from tuner.baselines.services import baseline_change
from tuner.builds.order_selectors import holds, position
from tuner.models import BaselineChange, Build, Gate, GateKernel, KernelRun, Regression, Suite
from tuner.notify.services import regression_told
from tuner.trial import storable
from workers import jobs

WATCHED = (Regression.State.OPEN, Regression.State.ACKNOWLEDGED)       # not answered yet
FINE = (Verdict.PASS, Verdict.FASTER)
ENVIRONMENT = ("gpu", "toolkit", "driver", "recorded")
MOST_HISTORY, MOST_NOTE_CHARS = 200, 2000


class RegressionRefused(ValueError):
    """Nothing was changed: `field` is wrong, `what` would be right."""

    def __init__(self, field: str, what: str) -> None:
        self.field, self.what = field, what
        super().__init__(f"{field}: {what}")


def regressions_locked(suite_id: int) -> None:
    """Gates, series and people change a suite's regressions one after the other: none writes over what another has just said."""
    Suite.objects.select_for_update(no_key=True).get(pk=suite_id)


@transaction.atomic
def regressions_found(gate: Gate) -> list[Regression]:
    """What a decided gate says of the suite's regressions; the rows that are new or changed. Safe to call again.

    SLOWER kernels of one family are one row. It is the row of an earlier build where this build holds that one's code and is
    not slower still. Kernels that pass against runs from before a regression say that it is fixed, or began later.
    """
    regressions_locked(gate.suite_id)
    lines = list(gate.kernels.select_related("kernel").order_by("place", "pk"))
    baselines = _baseline_builds(lines)
    families: dict[str, list[GateKernel]] = {}
    for each in lines:
        if each.verdict == Verdict.SLOWER:
            families.setdefault(each.kernel.family, []).append(each)
    touched = [_told(gate, family, slower, baselines) for family, slower in families.items()]
    touched += _passed(gate, lines, baselines)
    for row in touched:
        regression_published(row)
    return touched


def _baseline_builds(lines: Sequence[GateKernel]) -> dict[int, list[Build]]:
    """GateKernel id -> the builds whose runs it was compared with."""
    ids = {run for line in lines for run in line.baseline_runs}
    build_of = dict(KernelRun.objects.filter(pk__in=ids).values_list("pk", "build_id"))
    builds = Build.objects.in_bulk(set(build_of.values()))
    return {line.pk: [builds[build] for build in sorted({build_of[run] for run in line.baseline_runs if run in build_of})]
            for line in lines}


def _told(gate: Gate, family: str, slower: Sequence[GateKernel], baselines: Mapping[int, Sequence[Build]]) -> Regression:
    worst = max(slower, key=lambda each: each.ratio_p50 or 0.0)
    row = _same(gate, family, worst)
    good = _newest_good(gate.build, [build for each in slower for build in baselines[each.pk]])
    found: dict[str, Any] = {"ratio": worst.ratio_p50, "low": worst.low, "high": worst.high, "why": worst.reason}
    keys = [each.kernel.key for each in slower]
    if row is None:
        row = Regression.objects.create(
            suite=gate.suite, family=family, build=gate.build, good=good, kernels=keys, found_by="gate", **found,
            **{name: getattr(gate, name) for name in ENVIRONMENT})
    else:
        row.kernels = keys + [key for key in row.kernels if key not in keys]
        if position(gate.build) <= position(row.build):           # measured again, or known to begin earlier
            row.build = gate.build
            for name, value in found.items():
                setattr(row, name, value)
        row.good = _newest_good(row.build, [build for build in (good, row.good) if build is not None])
        row.save()
    GateKernel.objects.filter(pk__in=[each.pk for each in slower]).update(regression=row)
    return row


def _same(gate: Gate, family: str, worst: GateKernel) -> Regression | None:
    """The row that this slowdown belongs to: of this very build, or of a watched one that shares its code and its size."""
    rows = list(_of(gate).filter(family=family).select_related("build", "good"))
    own = next((row for row in rows if row.build_id == gate.build_id), None)
    if own is not None:
        return own
    for row in sorted(rows, key=lambda each: position(each.build), reverse=True):
        if row.state not in WATCHED:
            continue
        inside = holds(gate.build, row.build)
        if (inside or (inside is None and row.build.branch == "")) and not _slower_still(gate, row, worst):
            return row
        if holds(row.build, gate.build) and (row.good is None or position(row.good) < position(gate.build)):
            return row
    return None


def _slower_still(gate: Gate, row: Regression, worst: GateKernel) -> bool:
    """Whether this is more than the regression that is known: the intervals lie apart, by more than the rule's floor."""
    if worst.low is None or row.high is None or worst.ratio_p50 is None or row.ratio is None:
        return False
    return worst.low > row.high and worst.ratio_p50 > row.ratio * (1 + floor_of(gate.suite))


def _newest_good(build: Build, builds: Iterable[Build]) -> Build | None:
    return max((each for each in builds if position(each) < position(build)), key=position, default=None)


def _passed(gate: Gate, lines: Sequence[GateKernel], baselines: Mapping[int, Sequence[Build]]) -> list[Regression]:
    """Regressions whose kernels this gate found at their old speed: fixed by this build, or begun after it."""
    touched = []
    fine = {each.kernel.key: each for each in lines if each.verdict in FINE}
    for row in _of(gate).filter(state__in=WATCHED).select_related("build", "good"):
        if not row.kernels or not all(key in fine and _at_old_speed(fine[key], row, baselines[fine[key].pk], gate)
                                      for key in row.kernels):
            continue
        if position(gate.build) > position(row.build) and holds(gate.build, row.build):
            regression_fixed(row, gate.build, f"gate {gate.pk} finds {gate.build.name} at the old speed")
            touched.append(row)
        elif position(gate.build) < position(row.build) and holds(row.build, gate.build) and (
                row.good is None or position(row.good) < position(gate.build)):
            row.good = gate.build
            row.save(update_fields=["good", "changed"])
            touched.append(row)
    return touched


def _at_old_speed(line: GateKernel, row: Regression, builds: Sequence[Build], gate: Gate) -> bool:
    """Whether a PASS or FASTER speaks of the speed before the regression, not of the slow one that became the baseline."""
    slow = [position(each) >= position(row.build) for each in builds]
    if not slow:
        return False
    if not any(slow):
        return True
    return all(slow) and None not in (line.ratio_p50, row.ratio) and line.ratio_p50 * row.ratio <= 1 + floor_of(gate.suite)


def _of(gate: Gate) -> Any:
    return Regression.objects.filter(suite=gate.suite, **{name: getattr(gate, name) for name in ENVIRONMENT})


def floor_of(suite: Suite) -> float:
    """The suite's floor on a change of the p50, as a fraction: 0.02 is 2 %."""
    floor = suite.rule.get("floor") if isinstance(suite.rule, Mapping) else None
    return float(floor) if isinstance(floor, int | float) and not isinstance(floor, bool) and floor >= 0 else Rule.floor


def regression_change(row: Regression, state: str, *, note: str = "", by: Any = None, fixed_in: Build | None = None) -> Regression:
    """A person's word on a regression: open, acknowledged, intended, fixed (in a build, where known), environment.

    `intended` also makes the build the start of the kernels' baselines (BaselineChange). Raises RegressionRefused.
    """
    note = note.strip()
    if state not in Regression.State.values:
        raise RegressionRefused("state", f"one of {', '.join(Regression.State.values)}")
    if not storable(note) or len(note) > MOST_NOTE_CHARS:
        raise RegressionRefused("note", f"a text of at most {MOST_NOTE_CHARS:,} characters")
    if state == Regression.State.INTENDED and not note:
        raise RegressionRefused("note", "why the new speed is meant: whoever reads the history next asks that")
    if fixed_in is not None and position(fixed_in) <= position(row.build):
        raise RegressionRefused("fixed_in", f"a build after {row.build.name}")
    with transaction.atomic():
        regressions_locked(row.suite_id)
        row = Regression.objects.select_related("suite", "build").get(pk=row.pk)
        if state == Regression.State.INTENDED and row.state != state:
            for kernel in row.suite.kernels.filter(key__in=row.kernels):
                baseline_change(row.suite, BaselineChange.Action.INTENDED, kernel=kernel, gpu=row.gpu, build=row.build, note=note,
                                author=by)
        row.state, row.changed_by = state, by
        row.fixed_in = fixed_in if state == Regression.State.FIXED else None
        noted(row, note, by=by)
        row.save()
        regression_told(row, state)
        regression_published(row)
    return row


def regression_fixed(row: Regression, build: Build | None, note: str, *, by: Any = None) -> None:
    row.state, row.fixed_in, row.changed_by = Regression.State.FIXED, build, by
    noted(row, note, by=by)
    row.save()
    regression_told(row, "fixed")


def noted(row: Regression, note: str, *, by: Any = None, at: datetime | None = None) -> None:
    """What was done to a regression, kept with it; a note of a person stands on the row as well."""
    row.history = [*row.history, {"at": (at or timezone.now()).isoformat(), "who": by.get_username() if by else "",
                                  "state": str(row.state), "note": note}][-MOST_HISTORY:]
    if note:
        row.note = note


def regression_published(row: Regression) -> None:
    data = {"id": row.pk, "state": str(row.state), "suite": row.suite_id, "build": row.build.name, "family": row.family}
    for topic in ("home", f"suite.{row.suite_id}"):
        transaction.on_commit(partial(jobs.publish, topic, "regression", data))
