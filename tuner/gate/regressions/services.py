"""Regressions as rows: found by gates, narrowed down, fixed, and answered by people; an accepted change answers those it covers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.gate.baselines.services import record_baseline_change
from tuner.gate.builds.answers import check_answer
from tuner.gate.builds.selectors import ENVIRONMENT, branch_line, has_code_of, position
from tuner.gate.channels.services import write_regression_messages
from tuner.gate.stats.rule import Verdict, rule_of
from tuner.models import BaselineChange, Build, Gate, GateKernel, KernelRun, Regression, Suite
from tuner.tuning.trial import storable
from workers import jobs

FINE = (Verdict.PASS, Verdict.FASTER)
MOST_HISTORY = 200


def lock_regressions(suite_id: int) -> None:
    """Lock a suite's regressions: gates, series and people change them one after the other."""
    Suite.objects.select_for_update(no_key=True).get(pk=suite_id)


@transaction.atomic
def update_regressions(gate: Gate) -> list[Regression]:
    """Update the suite's regressions by a decided gate; return rows that are new or changed. Safe to call again.

    SLOWER kernels of one family are one row. It is the row of an earlier build where this build holds that one's code; where it is
    slower still, that row grows. Kernels that pass against runs from before a regression say that it is fixed, or began later.
    """
    lock_regressions(gate.suite_id)
    if not _is_of_its_past(gate):
        return []
    lines = list(gate.kernels.select_related("kernel").order_by("place", "pk"))
    baselines = _baseline_builds(lines)
    families: dict[str, list[GateKernel]] = {}
    for line in lines:
        if line.verdict == Verdict.SLOWER and not line.facts.get("stays"):       # said before, not found anew
            families.setdefault(line.kernel.family, []).append(line)
    touched = [_record_slowdown(gate, family, slower, baselines) for family, slower in families.items()]
    touched += _close_passed(gate, lines, baselines)
    for row in touched:
        publish_regression(row)
    return touched


def _is_of_its_past(gate: Gate) -> bool:
    """Return whether the gate compares with what its build comes from: beside a faster side branch it is no regression."""
    other = gate.against
    return other is None or (position(other) < position(gate.build) and branch_line(other) in ("", branch_line(gate.build)))


def _baseline_builds(lines: Sequence[GateKernel]) -> dict[int, list[Build]]:
    """GateKernel id -> the builds whose runs it was compared with."""
    ids = {run for line in lines for run in line.baseline_runs}
    build_of = dict(KernelRun.objects.filter(pk__in=ids).values_list("pk", "build_id"))
    builds = Build.objects.in_bulk(set(build_of.values()))
    return {line.pk: [builds[build] for build in sorted({build_of[run] for run in line.baseline_runs if run in build_of})]
            for line in lines}


def _record_slowdown(gate: Gate, family: str, slower: Sequence[GateKernel], baselines: Mapping[int, Sequence[Build]]) -> Regression:
    worst = max(slower, key=lambda each: each.decided.ratio or 0.0)
    by = worst.decided
    row = _matching_regression(gate, family, worst)
    good = _newest_good(gate.build, [build for line in slower for build in baselines[line.pk]])
    fields: dict[str, Any] = {"ratio": by.ratio, "low": by.low, "high": by.high, "why": worst.reason}
    keys = [line.kernel.key for line in slower]
    if row is None:
        row = Regression.objects.create(
            suite=gate.suite, family=family, build=gate.build, good=good, kernels=keys, found_by="gate", **fields,
            **{name: getattr(gate, name) for name in ENVIRONMENT})
    else:
        row.kernels = keys + [key for key in row.kernels if key not in keys]
        is_first = position(gate.build) <= position(row.build)    # measured again, or known to begin earlier
        if is_first:
            row.build = gate.build
        elif (grows := row.state in row.WATCHED and _is_slower_still(gate, row, worst)):
            note_growth(row, gate.build, by.ratio, f"gate {gate.pk}")
        if is_first or grows:
            for name, value in fields.items():
                setattr(row, name, value)
        row.good = _newest_good(row.build, [build for build in (good, row.good) if build is not None])
        row.save()
    GateKernel.objects.filter(pk__in=[line.pk for line in slower]).update(regression=row)
    return row


def _matching_regression(gate: Gate, family: str, worst: GateKernel) -> Regression | None:
    """Return the row of this slowdown: of this very build, or a watched one that shares its code and size."""
    rows = list(_regressions_here(gate).filter(family=family).select_related("build", "good"))
    own = next((row for row in rows if row.build_id == gate.build_id), None)
    if own is not None:
        return own
    for row in sorted(rows, key=lambda each: position(each.build), reverse=True):
        if row.state not in row.WATCHED:
            continue
        inside = has_code_of(gate.build, row.build)
        if inside or (inside is None and row.build.branch == ""):
            return row
        if has_code_of(row.build, gate.build) and (row.good is None or position(row.good) < position(gate.build)):
            return row
    return None


def _is_slower_still(gate: Gate, row: Regression, worst: GateKernel) -> bool:
    """Return whether this is more than the known regression: intervals apart by more than the rule's floor."""
    by = worst.quantity(row.quantity)
    if by.low is None or row.high is None or by.ratio is None or row.ratio is None:
        return False
    return by.low > row.high and by.ratio > row.ratio * (1 + rule_of(gate.suite.rule).floor)


def _newest_good(build: Build, builds: Iterable[Build]) -> Build | None:
    return max((other for other in builds if position(other) < position(build)), key=position, default=None)


def _close_passed(gate: Gate, lines: Sequence[GateKernel], baselines: Mapping[int, Sequence[Build]]) -> list[Regression]:
    """Close or narrow down regressions whose kernels this gate found at their old speed; return those changed."""
    touched = []
    fine = {line.kernel.key: line for line in lines if line.verdict in FINE}
    for row in _regressions_here(gate).filter(state__in=Regression.WATCHED).select_related("build", "good"):
        if not row.kernels or not all(key in fine and _is_at_old_speed(fine[key], row, baselines[fine[key].pk], gate)
                                      for key in row.kernels):
            continue
        if position(gate.build) > position(row.build) and has_code_of(gate.build, row.build):
            mark_fixed(row, gate.build, f"gate {gate.pk} finds {gate.build.name} at the old speed")
            touched.append(row)
        elif position(gate.build) < position(row.build) and has_code_of(row.build, gate.build) and (
                row.good is None or position(row.good) < position(gate.build)):
            row.good = gate.build
            row.save(update_fields=["good", "changed"])
            touched.append(row)
    return touched


def _is_at_old_speed(line: GateKernel, row: Regression, builds: Sequence[Build], gate: Gate) -> bool:
    """Return whether a PASS or FASTER speaks of the speed before the regression, not of the slow one since."""
    slow = [position(build) >= position(row.build) for build in builds]
    if not slow:
        return False
    if not any(slow):
        return True
    floor, now = rule_of(gate.suite.rule).floor, line.quantity(row.quantity).ratio
    return all(slow) and now is not None and row.ratio is not None and now * row.ratio <= 1 + floor


def _regressions_here(gate: Gate) -> QuerySet[Regression]:
    where = {name: getattr(gate, name) for name in ENVIRONMENT}
    return Regression.objects.filter(suite=gate.suite, kind=Regression.Kind.STEP, **where)


def change_regression(row: Regression, state: str, *, note: str = "", by: Any = None, fixed_in: Build | None = None) -> Regression:
    """Set a regression's state as a person says: open, acknowledged, intended, fixed or environment.

    `intended` also makes the build the start of the kernels' baselines (BaselineChange). Raises Refused.
    """
    note = check_answer(state, note, Regression.State.values)
    if fixed_in is not None and position(fixed_in) <= position(row.build):
        raise Refused({"fixed_in": f"a build after {row.build.name}"})
    with transaction.atomic():
        lock_regressions(row.suite_id)
        row = Regression.objects.select_related("suite", "build").get(pk=row.pk)
        if state == Regression.State.INTENDED and row.state != state:
            for kernel in row.suite.kernels.filter(key__in=row.kernels):
                record_baseline_change(row.suite, BaselineChange.Action.INTENDED, kernel=kernel, gpu=row.gpu, build=row.build,
                                       note=note, author=by)
        row.state, row.changed_by = state, by
        row.fixed_in = fixed_in if state == Regression.State.FIXED else None
        add_to_history(row, note, by=by)
        row.save()
        write_regression_messages(row, state)
        publish_regression(row)
    return row


def mark_fixed(row: Regression, build: Build | None, note: str) -> None:
    """Mark a regression as fixed, by a build where it is known, and write its messages."""
    row.state, row.fixed_in, row.changed_by = Regression.State.FIXED, build, None
    add_to_history(row, note)
    row.save()
    write_regression_messages(row, "fixed")


def add_to_history(row: Regression, note: str, *, by: Any = None) -> None:
    """Keep with a regression what was done to it; a note of a person stands on the row as well."""
    row.history = [*row.history, {"at": timezone.now().isoformat(), "who": by.get_username() if by else "",
                                  "state": str(row.state), "note": note}][-MOST_HISTORY:]
    if note:
        row.note = note


def note_growth(row: Regression, build: Build, ratio: float | None, by: str) -> None:
    """Keep with a regression that a later build made it larger: its history says which build added how much."""
    if ratio is None or any(line.get("grew") == build.name for line in row.history):
        return
    before = f" from {100 * (row.ratio - 1):+.1f} %" if row.ratio else ""
    note = f"{by}: grew{before} to {100 * (ratio - 1):+.1f} % with {build.name}"
    line = {"at": timezone.now().isoformat(), "who": "", "state": str(row.state), "note": note, "grew": build.name}
    row.history = [*row.history, line][-MOST_HISTORY:]


def publish_regression(row: Regression) -> None:
    """Tell the pages that watch the suite or home, on commit."""
    data = {"id": row.pk, "state": str(row.state), "suite": row.suite_id, "build": row.build.name, "family": row.family}
    for topic in ("home", f"suite.{row.suite_id}"):
        transaction.on_commit(partial(jobs.publish, topic, "regression", data), robust=True)


def change_baseline(suite: Suite, said: Mapping[str, str], author: Any) -> BaselineChange:
    """Record a baseline change named by texts: action, build, kernel (its key), gpu, note. Raises Refused."""
    build = kernel = None
    if said.get("build"):
        build = Build.objects.filter(name=said["build"]).first() if storable(said["build"]) else None
        if build is None:
            raise Refused({"build": "no build of this name is known"})
    if said.get("kernel"):
        kernel = suite.kernels.filter(key=said["kernel"]).first() if storable(said["kernel"]) else None
        if kernel is None:
            raise Refused({"kernel": f"no kernel of suite {suite.name} has this key"})
    with transaction.atomic():
        change = record_baseline_change(suite, said.get("action", ""), build=build, kernel=kernel, gpu=said.get("gpu", ""),
                                 note=said.get("note", ""), author=author)
        if change.action == BaselineChange.Action.INTENDED:
            _answer_regressions(change)
    return change


def _answer_regressions(change: BaselineChange) -> None:
    """Mark regressions as intended that began no later than the accepted build and whose kernels are covered."""
    lock_regressions(change.suite_id)
    rows = Regression.objects.filter(suite=change.suite, state__in=Regression.WATCHED).select_related("suite", "build")
    for row in rows.filter(gpu=change.gpu) if change.gpu else rows:
        covered = change.kernel is None or set(row.kernels) <= {change.kernel.key}
        if change.build is None or not covered or position(row.build) > position(change.build):
            continue
        row.state, row.changed_by = Regression.State.INTENDED, change.author
        add_to_history(row, change.note, by=change.author)
        row.save()
        write_regression_messages(row, Regression.State.INTENDED)
        publish_regression(row)
