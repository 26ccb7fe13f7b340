"""Accept that kernels are gone: by a click or by the API, for this build and those after it."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from profiles.base.refused import Refused
from tuner.gate.baselines.services import record_baseline_change
from tuner.gate.verdicts.decide_services import conclude_gate, publish_gate
from tuner.gate.verdicts.verdict_services import judge_gate
from tuner.models import BaselineChange, Gate


def accept_gone(gate: Gate, *, by: Any = None) -> Gate:
    """Record that the gate's kernels which are gone were meant to go, and judge its runs again. Raises Refused."""
    with transaction.atomic():
        row = Gate.objects.select_for_update(of=("self",)).select_related("suite", "build", "against").get(pk=gate.pk)
        if row.status in Gate.UNDER_WAY:
            raise Refused({"gate": "it is still going on"}, status=409)
        gone = [each.kernel for each in row.kernels.filter(facts__gone=True).select_related("kernel")]
        if not gone:
            raise Refused({"gate": "none of its kernels is gone"}, status=409)
        for kernel in gone:
            record_baseline_change(row.suite, BaselineChange.Action.GONE, kernel=kernel, gpu="", build=row.build,
                                   note=f"accepted with gate {row.pk}", author=by)
        conclude_gate(row, judge_gate(row), [])
        transaction.on_commit(lambda: publish_gate(row), robust=True)
    gate.refresh_from_db()
    return gate
