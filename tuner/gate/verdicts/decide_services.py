"""Advance gates as runs arrive: judge, measure once more where the verdict is in doubt, or conclude.

Everything follows from rows, under a lock of the gate's row: two workers that advance one gate do it once, and the sweep makes up
for a worker that died between a job's end and the verdict.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.gate.baselines.services import record_baseline_change
from tuner.gate.channels.services import FAILED, write_gate_messages
from tuner.gate.regressions.services import update_regressions
from tuner.gate.reports import message
from tuner.gate.stats.rule import Verdict, rule_of
from tuner.gate.suites.counters import (
    AFTER_A_GATE,
    MOST_KERNELS,
    Counters,
    kernel_counters,
    request_counters,
    request_counters_of_slower,
)
from tuner.gate.suites.job_services import job_create
from tuner.gate.suites.selectors import LIVE
from tuner.gate.verdicts import selectors, sides_selectors
from tuner.gate.verdicts.selectors import PlannedRound, gate_document, gate_short
from tuner.gate.verdicts.standing_services import green_ways, keep_verdicts, named_sides, standing_json, weigh_earlier_verdicts
from tuner.gate.verdicts.verdict_services import MOST_NAMED, Judgement, judge_gate, write_verdict
from tuner.models import BaselineChange, Build, Gate, GateKernel, KernelRun, Regression, Suite, SuiteJob, SuiteKernel
from workers import jobs

# Counters of both builds of a verdict: what is stored, and captures asked for by a person or by a gate that ended SLOWER.


def compared_build(row: GateKernel) -> str:
    """Return the name of the build that the verdict compares with, "" without runs."""
    if row.gate.against is not None:
        return row.gate.against.name
    newest = KernelRun.objects.filter(pk__in=row.baseline_runs, rejected="").order_by("-build__at", "-build_id")
    return newest.values_list("build__name", flat=True).first() or ""


def verdict_counters(row: GateKernel, old: str) -> Counters:
    """Return the counters of both builds of a verdict."""
    return kernel_counters(row.kernel, old, row.gate.build.name)


def regression_counters(row: Regression, kernel: SuiteKernel | None) -> Counters | None:
    """Return counters of the first of its kernels; None where the suite lost it or no good build is known."""
    return kernel_counters(kernel, row.good.name, row.build.name) if kernel is not None and row.good is not None else None


def capture_kernel_counters(row: GateKernel, *, owner: Any = None) -> SuiteJob:
    """Queue a capture of both builds of one kernel's verdict. Raises Refused."""
    old = compared_build(row)
    if not old:
        raise Refused({"build": "no run of a baseline is stored for this kernel, so there is nothing to put beside it"}, status=409)
    return _request_or_conflict(row.gate.suite, [row.kernel.key], [old, row.gate.build.name], owner)


def capture_regression_counters(row: Regression, *, owner: Any = None) -> SuiteJob:
    """Queue a capture of a regression's kernels in the last good build and the slower one. Raises Refused."""
    if row.good is None:
        raise Refused({"build": "no build is known that was not slower yet, so there is nothing to put beside it"}, status=409)
    enabled_keys = set(row.suite.kernels.filter(enabled=True).values_list("key", flat=True))
    keys = [key for key in row.kernels if key in enabled_keys][:MOST_KERNELS]
    return _request_or_conflict(row.suite, keys, [row.good.name, row.build.name], owner)


def capture_slower_kernels(gate: Gate) -> SuiteJob | None:
    """Queue counters of the slowest kernels after a gate, where its suite asks for them."""
    if gate.verdict != Verdict.SLOWER or not gate.suite.capture_slower:
        return None
    rows = list(gate.kernels.filter(verdict=Verdict.SLOWER).exclude(facts__has_key="stays")
                .select_related("gate__suite", "gate__against", "kernel").order_by("place", "id")[:AFTER_A_GATE])
    old = compared_build(rows[0]) if rows else ""
    return request_counters_of_slower(gate.suite, [row.kernel.key for row in rows], old, gate.build.name, owner=gate.owner)


def _request_or_conflict(suite: Suite, kernels: Sequence[str], builds: Sequence[str], owner: Any) -> SuiteJob:
    try:
        return request_counters(suite, kernels, builds, owner=owner)
    except Refused as refused:
        raise Refused(refused.fields, status=409) from refused


def notify_followers(gate: Gate) -> int:
    """Write the messages about a gate that has ended; return how many are new. A gate that goes on has none."""
    event = gate.verdict or (FAILED if gate.status == Gate.Status.FAILED else "")
    if not event:
        return 0
    return write_gate_messages(gate, event, lambda: message.gate_message(gate_document(gate, base=settings.PUBLIC_URL)))


log = logging.getLogger(__name__)
Status = Gate.Status


def advance_gate(gate_id: int) -> Gate | None:
    """Take the gate as far as its runs allow. None where it has ended, or a job of it still lives. Safe at any time, twice.

    An error in judging ends the gate as failed: it would come again at every try, and a pipeline waits for an answer.
    """
    try:
        return _advance_locked(gate_id)
    except (OperationalError, InterfaceError):          # the database was away: the sweep tries again
        raise
    except Exception as error:
        log.exception("gate %s could not be judged", gate_id)
        return _fail_gate(gate_id, f"{type(error).__name__}: {error}"[:500])


def _fail_gate(gate_id: int, what: str) -> Gate | None:
    Gate.objects.filter(pk=gate_id, status__in=Gate.UNDER_WAY).update(
        status=Status.FAILED, finished=timezone.now(), reason="it could not be judged: this is a mistake of Ridgepoint's",
        error={"where": "judging", "what": what, "hint": "the server's log has the trace; the runs are kept"})
    gate = Gate.objects.select_related("suite", "build", "against").filter(pk=gate_id).first()
    if gate is not None:
        publish_gate(gate)
    return gate


def _advance_locked(gate_id: int) -> Gate | None:
    with transaction.atomic():
        gate = Gate.objects.select_for_update(of=("self",)).select_related("suite", "build", "against").filter(
            pk=gate_id, status__in=Gate.UNDER_WAY).first()
        if gate is None or gate.jobs.filter(status__in=LIVE).exists():
            return None
        if gate.status == Status.WAITING and not _has_all_runs(gate):
            return None
        _advance_row(gate)
        transaction.on_commit(lambda: publish_gate(gate), robust=True)       # a page that hears nothing is no reason to fail
    return gate


def _has_all_runs(gate: Gate) -> bool:
    """Return whether a gate that waits for uploads has runs of all shards; its reason says which are missing."""
    rows = sides_selectors.candidate_runs(gate)
    awaited = sides_selectors.shards_awaited(gate, rows)
    if awaited != gate.reason and (awaited or gate.reason.startswith("waits for shard")):
        Gate.objects.filter(pk=gate.pk).update(reason=awaited)
        transaction.on_commit(lambda: publish_gate(gate), robust=True)
    return bool(rows) and not awaited


def _advance_row(gate: Gate) -> None:
    last = gate.jobs.order_by("-id").first()
    if last is not None and last.status == SuiteJob.Status.STOPPED:
        gate.status, gate.reason, gate.finished = Status.STOPPED, "stopped before it was decided", timezone.now()
        gate.save()
        return
    judged = judge_gate(gate)
    if last is not None and last.status == SuiteJob.Status.FAILED and judged.sides.env is None:
        error = last.error or {}
        gate.status, gate.finished = Status.FAILED, timezone.now()
        gate.error = error or {"where": "suite job", "what": "it failed and gave no reason", "hint": "see the job"}
        gate.reason = f"could not be measured: {gate.error.get('what', '')}"
        gate.save()
        _run_follow_ups(gate)
        return
    failed = last is not None and last.status == SuiteJob.Status.FAILED
    again = None if failed else selectors.next_round(gate, judged.sides, judged.of, rule_of(gate.suite.rule))
    if again is not None and queue_round(gate, again, "gate"):
        write_verdict(gate, judged)           # what is known so far; the gate has no verdict yet
        Gate.objects.filter(pk=gate.pk).update(report=gate.report, gpu=gate.gpu, toolkit=gate.toolkit, driver=gate.driver,
                                               recorded=gate.recorded)
        return
    why = (last.error or {}).get("what", "no reason given") if last is not None and failed else ""
    conclude_gate(gate, judged, [f"a further round failed, decided without it: {why}"] if failed else [])


def queue_round(gate: Gate, wanted: PlannedRound, reason: str, owner: Any = None) -> bool:
    """Order the runs of a round; False where the suite cannot be measured any more, and what there is decides."""
    env = {"gpu": gate.gpu} if gate.gpu and not gate.recorded else gate.environment
    try:
        job_create(gate.suite, builds=wanted.builds, runs=wanted.runs, kernels=wanted.kernels, gate=gate, reason=reason,
                   device=job_device(gate.suite, env), owner=owner or gate.owner)
    except Refused as error:
        log.warning("gate %s: no further round: %s", gate.pk, error)
        return False
    gate.rounds += 1
    gate.status, gate.finished = Status.MEASURING, None
    gate.reason = f"measuring again: {wanted.why}"
    gate.save()
    return True


def job_device(suite: Suite, environment: dict[str, Any]) -> str:
    """Return the device that a job asks for: the request's, else the suite's; "gpu:MODEL" where a GPU is named."""
    if environment.get("device"):
        return str(environment["device"])
    if environment.get("gpu") and suite.device.partition(":")[0] == "gpu":
        return f"gpu:{environment['gpu']}"
    return suite.device


def conclude_gate(gate: Gate, judged: Judgement, notes: list[str]) -> None:
    """Write the verdict and run what follows on it; an error there does not take the verdict back."""
    own = judged
    judged, earlier = weigh_earlier_verdicts(gate, own)
    if judged.verdict.verdict == Verdict.SLOWER:
        rows = [standing.row for standing in earlier if standing.row.build_id == gate.build_id]
        judged = replace(judged, green=green_ways(gate, rows))
    judged = replace(judged, standing=[standing_json(standing) for standing in earlier])
    write_verdict(gate, judged, [*notes, *named_sides(gate, own)], baseline_offer(gate, own))
    keep_verdicts(gate, own, earlier)
    if gate.report["offer"] and judged.verdict.verdict == Verdict.NO_DATA:
        gate.reason = gate.report["offer"]["says"]
    if gate.report["offer"] or judged.verdict.verdict != Verdict.NO_DATA:          # else the reason is theirs already
        gate.reason += _gone_text([comparison.kernel.key for comparison in own.sides.kernels if comparison.gone])
    gate.status, gate.finished = Status.DONE, timezone.now()
    gate.save()
    _run_follow_ups(gate)


def _gone_text(keys: list[str]) -> str:
    if not keys:
        return ""
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    return f"; gone since the build before: {', '.join(keys[:MOST_NAMED])}{more}"


def _run_follow_ups(gate: Gate) -> None:
    for follow_up in (update_regressions, notify_followers, capture_slower_kernels):
        if follow_up is not notify_followers and gate.status != Status.DONE:
            continue
        try:
            with transaction.atomic():
                follow_up(gate)
        except Exception:
            log.exception("gate %s is decided, but %s failed", gate.pk, follow_up.__name__)


def baseline_offer(gate: Gate, judged: Judgement) -> dict[str, Any] | None:
    """Return what can be measured here so that there is a baseline, None where there is one."""
    env = judged.sides.env
    if env is None or judged.verdict.verdict != Verdict.NO_DATA or any(
            comparison.baseline.runs and not comparison.gone for comparison in judged.sides.kernels):
        return None
    nearest = sides_selectors.nearest_measured_build(gate, env)
    others = KernelRun.objects.filter(kernel__suite=gate.suite, rejected="").exclude(build=gate.build_id)
    has_runs = nearest is not None or others.exists()
    is_first = not has_runs and all(comparison.candidate for comparison in judged.sides.kernels)
    if nearest is not None:
        there, build = nearest
        says = f"no baseline on {env.text}: {build.name}, the newest build before, was measured elsewhere " \
               f"({', '.join(env.differs(there))})"
    else:
        parent = Build.objects.filter(name=gate.build.parent).exclude(pk=gate.build_id).first() if gate.build.parent else None
        if parent is None:
            of = "these kernels" if has_runs else "this suite"
            return {"says": f"no baseline yet: the runs of {gate.build.name} are the first of {of}, and later builds are "
                            "compared with them", "baseline": "", "measurable": False, "first": is_first}
        build, says = parent, f"no baseline yet: no build of this suite was measured before {gate.build.name}"
    able = selectors.can_measure_again(gate.suite)
    what = f"measure {build.name} here, in turn with {gate.build.name}" if able else f"send runs of {build.name} taken here"
    return {"says": f"{says}. For a verdict, {what}", "baseline": build.name, "measurable": able, "first": is_first}


# ---- what wakes gates ----

def advance_gates_of_build(suite: Suite, build: Build | str) -> list[Gate]:
    """Advance the gates of the build that wait for uploaded runs; return those that went on."""
    name = build if isinstance(build, str) else build.name
    waiting = Gate.objects.filter(suite=suite, build__name=name, status=Status.WAITING).values_list("pk", flat=True)
    return [gate for pk in list(waiting) if (gate := advance_gate(pk)) is not None]


def wake_gates() -> list[int]:
    """Advance gates whose jobs have all ended and whose worker died before it said so; return their ids."""
    live = SuiteJob.objects.filter(gate=OuterRef("pk"), status__in=LIVE)
    left = Gate.objects.filter(~Exists(live), status=Status.MEASURING).order_by("pk").values_list("pk", flat=True)[:50]
    return [pk for pk in list(left) if advance_gate(pk) is not None]


def publish_gate(gate: Gate) -> None:
    """Tell the pages that watch the gate."""
    payload = gate_short(gate)
    jobs.publish(f"gate.{gate.pk}", "status", payload)
    jobs.publish("home", "gate", payload)


# Accept that kernels are gone: by a click or by the API, for this build and those after it.


def accept_gone(gate: Gate, *, by: Any = None) -> Gate:
    """Record that the gate's kernels which are gone were meant to go, and judge its runs again. Raises Refused."""
    with transaction.atomic():
        row = Gate.objects.select_for_update(of=("self",)).select_related("suite", "build", "against").get(pk=gate.pk)
        if row.status in Gate.UNDER_WAY:
            raise Refused({"gate": "it is still going on"}, status=409)
        gone = [line.kernel for line in row.kernels.filter(facts__gone=True).select_related("kernel")]
        if not gone:
            raise Refused({"gate": "none of its kernels is gone"}, status=409)
        for kernel in gone:
            record_baseline_change(row.suite, BaselineChange.Action.GONE, kernel=kernel, gpu="", build=row.build,
                                   note=f"accepted with gate {row.pk}", author=by)
        conclude_gate(row, judge_gate(row), [])
        transaction.on_commit(lambda: publish_gate(row), robust=True)
    gate.refresh_from_db()
    return gate
