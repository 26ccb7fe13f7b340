"""What happens to a gate when runs are there: it is judged, measured once more where the verdict is in doubt, or decided.

Everything is worked out from rows, with the gate's row locked: two workers that advance one gate do it once, and a worker that died
between a job's end and the verdict is made up for by the sweep.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from profiles.analysis.gate.rule import Verdict
from tuner.builds.regression_services import regressions_found
from tuner.gates import rounds_selectors, sides_selectors
from tuner.gates.counter_services import counters_wanted
from tuner.gates.rounds_selectors import Round
from tuner.gates.rules_selectors import rule_of
from tuner.gates.selectors import gate_short
from tuner.gates.verdict_services import Judged, gate_judged, verdict_written
from tuner.models import Build, Gate, KernelRun, Suite, SuiteJob
from tuner.notify.services import gate_told
from tuner.suites.services import SuiteError, job_create
from workers import jobs

log = logging.getLogger(__name__)
Status = Gate.Status
GOING = (Status.WAITING, Status.MEASURING)
JOB_LIVE = (SuiteJob.Status.QUEUED, SuiteJob.Status.RUNNING)


def gate_advance(gate_id: int) -> Gate | None:
    """Take the gate as far as its runs allow. None where it has ended, or a job of it still lives. Safe at any time, twice.

    An error in judging ends the gate as failed: it would come again at every try, and a pipeline waits for an answer.
    """
    try:
        return _advance(gate_id)
    except (OperationalError, InterfaceError):          # the database was away: the sweep tries again
        raise
    except Exception as error:
        log.exception("gate %s could not be judged", gate_id)
        return _failed(gate_id, f"{type(error).__name__}: {error}"[:500])


def _failed(gate_id: int, what: str) -> Gate | None:
    Gate.objects.filter(pk=gate_id, status__in=GOING).update(
        status=Status.FAILED, finished=timezone.now(), reason="it could not be judged: this is a mistake of Ridgepoint's",
        error={"where": "judging", "what": what, "hint": "the server's log has the trace; the runs are kept"})
    gate = Gate.objects.select_related("suite", "build", "against").filter(pk=gate_id).first()
    if gate is not None:
        gate_published(gate)
    return gate


def _advance(gate_id: int) -> Gate | None:
    with transaction.atomic():
        gate = Gate.objects.select_for_update(of=("self",)).select_related("suite", "build", "against").filter(
            pk=gate_id, status__in=GOING).first()
        if gate is None or gate.jobs.filter(status__in=JOB_LIVE).exists():
            return None
        if gate.status == Status.WAITING and not sides_selectors.candidate_rows(gate):
            return None
        _advanced(gate)
        transaction.on_commit(lambda: gate_published(gate), robust=True)       # a page that hears nothing is no reason to fail
    return gate


def _advanced(gate: Gate) -> None:
    last = gate.jobs.order_by("-id").first()
    if last is not None and last.status == SuiteJob.Status.STOPPED:
        gate.status, gate.reason, gate.finished = Status.STOPPED, "stopped before it was decided", timezone.now()
        gate.save()
        return
    judged = gate_judged(gate)
    if last is not None and last.status == SuiteJob.Status.FAILED and judged.sides.env is None:
        error = last.error or {}
        gate.status, gate.finished = Status.FAILED, timezone.now()
        gate.error = error or {"where": "suite job", "what": "it failed and gave no reason", "hint": "see the job"}
        gate.reason = f"could not be measured: {gate.error.get('what', '')}"
        gate.save()
        _told(gate)
        return
    failed = last is not None and last.status == SuiteJob.Status.FAILED
    again = None if failed else rounds_selectors.next_round(gate, judged.sides, judged.of, rule_of(gate.suite.rule))
    if again is not None and round_queued(gate, again, "gate"):
        verdict_written(gate, judged)           # what is known so far; the gate has no verdict yet
        Gate.objects.filter(pk=gate.pk).update(report=gate.report, gpu=gate.gpu, toolkit=gate.toolkit, driver=gate.driver,
                                               recorded=gate.recorded)
        return
    why = (last.error or {}).get("what", "no reason given") if last is not None and failed else ""
    decided(gate, judged, [f"a further round failed, decided without it: {why}"] if failed else [])


def round_queued(gate: Gate, wanted: Round, reason: str, owner: Any = None) -> bool:
    """Order the runs of a round. False where the suite cannot be measured any more: the gate is decided with what it has."""
    env = {"gpu": gate.gpu} if gate.gpu and not gate.recorded else gate.environment
    try:
        job_create(gate.suite, builds=wanted.builds, runs=wanted.runs, kernels=wanted.kernels, gate=gate, reason=reason,
                   device=device_of(gate.suite, env), owner=owner or gate.owner)
    except SuiteError as error:
        log.warning("gate %s: no further round: %s", gate.pk, error)
        return False
    gate.rounds += 1
    gate.status, gate.finished = Status.MEASURING, None
    gate.reason = f"measuring again: {wanted.why}"
    gate.save()
    return True


def device_of(suite: Suite, environment: dict[str, Any]) -> str:
    """Which worker: what was asked for, else the suite's; "gpu" of one model where a GPU is named."""
    if environment.get("device"):
        return str(environment["device"])
    if environment.get("gpu") and suite.device.partition(":")[0] == "gpu":
        return f"gpu:{environment['gpu']}"
    return suite.device


def decided(gate: Gate, judged: Judged, notes: list[str]) -> None:
    """Write the verdict; tell regressions and whoever is to be told. Their errors do not take the verdict back."""
    verdict_written(gate, judged, notes, offer_of(gate, judged))
    if gate.report["offer"]:
        gate.reason = gate.report["offer"]["says"]
    gate.status, gate.finished = Status.DONE, timezone.now()
    gate.save()
    _told(gate)


def _told(gate: Gate) -> None:
    for told in (regressions_found, gate_told, counters_wanted):
        if told is not gate_told and gate.status != Status.DONE:
            continue
        try:
            with transaction.atomic():
                told(gate)
        except Exception:
            log.exception("gate %s is decided, but %s failed", gate.pk, told.__name__)


def offer_of(gate: Gate, judged: Judged) -> dict[str, Any] | None:
    """Where no baseline is there in this environment: what can be measured here so that there is one."""
    env = judged.sides.env
    if env is None or judged.verdict.verdict != Verdict.NO_DATA or any(one.baseline.runs for one in judged.sides.kernels):
        return None
    found = sides_selectors.elsewhere(gate, env)
    if found is not None:
        there, build = found
        says = f"no baseline on {env.text}: {build.name}, the newest build before, was measured elsewhere " \
               f"({', '.join(env.differs(there))})"
    else:
        parent = Build.objects.filter(name=gate.build.parent).exclude(pk=gate.build_id).first() if gate.build.parent else None
        if parent is None:
            seen = KernelRun.objects.filter(kernel__suite=gate.suite, rejected="").exclude(build=gate.build_id).exists()
            of = "these kernels" if seen else "this suite"
            return {"says": f"no baseline yet: the runs of {gate.build.name} are the first of {of}, and later builds are "
                            "compared with them", "baseline": "", "measurable": False}
        build, says = parent, f"no baseline yet: no build of this suite was measured before {gate.build.name}"
    able = rounds_selectors.measurable_again(gate.suite)
    what = f"measure {build.name} here, in turn with {gate.build.name}" if able else f"send runs of {build.name} taken here"
    return {"says": f"{says}. For a verdict, {what}", "baseline": build.name, "measurable": able}


# ---- what wakes gates ----

def runs_arrived(suite: Suite, build: Build | str) -> list[Gate]:
    """Runs were uploaded: gates of the build that wait for them are decided now."""
    name = build if isinstance(build, str) else build.name
    waiting = Gate.objects.filter(suite=suite, build__name=name, status=Status.WAITING).values_list("pk", flat=True)
    return [gate for pk in list(waiting) if (gate := gate_advance(pk)) is not None]


def gates_wake() -> list[int]:
    """Gates whose jobs have all ended, and whose worker died before it said so; ids of those that went on."""
    live = SuiteJob.objects.filter(gate=OuterRef("pk"), status__in=JOB_LIVE)
    left = Gate.objects.filter(~Exists(live), status=Status.MEASURING).order_by("pk").values_list("pk", flat=True)[:50]
    return [pk for pk in list(left) if gate_advance(pk) is not None]


def gate_published(gate: Gate) -> None:
    """Tell the pages that watch it."""
    told = gate_short(gate)
    jobs.publish(f"gate.{gate.pk}", "status", told)
    jobs.publish("home", "gate", told)
