"""What a person does to a gate: stop it, or ask for more runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from profiles.analysis.gate.plan import plan
from profiles.analysis.gate.rule import Verdict
from tuner.gates import rounds_selectors
from tuner.gates.decide_services import GOING, JOB_LIVE, gate_advance, gate_published, round_queued
from tuner.gates.refusal_services import GateRefused
from tuner.gates.rounds_selectors import MOST_FRESH
from tuner.gates.rules_selectors import rule_of
from tuner.gates.verdict_services import gate_judged
from tuner.models import Gate, Suite
from tuner.suites.services import job_stop

DOUBTFUL = (Verdict.SLOWER, Verdict.AMBIGUOUS, Verdict.NO_DATA)


def gate_stop(gate: Gate) -> bool:
    """End a gate that waits or measures; what was measured stays. False: it had ended already."""
    with transaction.atomic():
        stopped = Gate.objects.filter(pk=gate.pk, status__in=GOING).update(
            status=Gate.Status.STOPPED, finished=timezone.now(), reason="stopped before it was decided")
        for job in gate.jobs.filter(status__in=JOB_LIVE) if stopped else []:
            job_stop(job)
        gate.refresh_from_db()
        if stopped:
            transaction.on_commit(lambda: gate_published(gate), robust=True)
    return bool(stopped)


def gate_again(gate: Gate, *, owner: Any = None, runs: int | None = None, kernels: Sequence[str] | None = None) -> Gate:
    """Another round of a gate that has ended: in turn with the baseline's build where that can be run, then judged anew.

    runs     fresh runs of each build; None: as many as can decide
    kernels  keys; None: those that are SLOWER, AMBIGUOUS or without data, else all
    An uploaded suite's gate is judged again with all runs that are there by now. Raises GateRefused.
    """
    if runs is not None and not (isinstance(runs, int) and not isinstance(runs, bool) and 1 <= runs <= MOST_FRESH):
        raise GateRefused({"runs": f"a whole number from 1 to {MOST_FRESH}"})
    with transaction.atomic():
        row = Gate.objects.select_for_update(of=("self",)).select_related("suite", "build", "against").get(pk=gate.pk)
        if row.status in GOING:
            raise GateRefused({"gate": "it is still going on"}, 409)
        if row.suite.kind == Suite.Kind.UPLOADED:
            Gate.objects.filter(pk=row.pk).update(status=Gate.Status.WAITING, finished=None)
        else:
            _measured_again(row, owner, runs, kernels)
            transaction.on_commit(lambda: gate_published(row), robust=True)
    if row.suite.kind == Suite.Kind.UPLOADED:
        gate_advance(row.pk)
    gate.refresh_from_db()
    return gate


def _measured_again(gate: Gate, owner: Any, runs: int | None, kernels: Sequence[str] | None) -> None:
    judged = gate_judged(gate)
    known = {one.kernel.key: one for one in judged.sides.kernels}
    if kernels is not None and (wrong := [key for key in kernels if key not in known] if kernels else [""]):
        raise GateRefused({"kernels": f"no kernel {wrong[0][:80]!r}; choose among {', '.join(list(known)[:20])}"})
    doubtful = [one for key, one in known.items() if key in judged.of and judged.of[key].verdict in DOUBTFUL]
    chosen = [known[key] for key in kernels] if kernels else doubtful or list(known.values())
    rule = rule_of(gate.suite.rule)
    if runs is not None and not (planned := plan(len(chosen), runs, runs, rule)).enough:
        raise GateRefused({"runs": planned.says})
    offered = (gate.report.get("offer") or {}).get("baseline", "")
    wanted = rounds_selectors.round_of(gate, judged.sides, chosen, rule, runs or 0, "asked for by a person",
                                       offered if not any(one.baseline.runs for one in chosen) else "")
    gate.error = None
    gate.verdict = ""
    if not round_queued(gate, wanted, "again", owner):
        raise GateRefused({"suite": "it cannot be measured now: it is switched off, or its kernels have changed"}, 409)
