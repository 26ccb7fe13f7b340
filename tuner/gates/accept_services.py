"""What people and programs say of baselines by name; an accepted change answers the regressions that it covers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from tuner.baselines.services import baseline_change
from tuner.builds.order_selectors import position
from tuner.builds.regression_services import WATCHED, noted, regression_published, regressions_locked
from tuner.gates.refusal_services import GateRefused
from tuner.models import BaselineChange, Build, Regression, Suite
from tuner.notify.services import regression_told
from tuner.trial import storable


def baseline_said(suite: Suite, said: Mapping[str, str], author: Any) -> BaselineChange:
    """The same from names, as pages and programs send them: action, build, kernel (its key), gpu, note. Raises GateRefused."""
    build = kernel = None
    if said.get("build"):
        build = Build.objects.filter(name=said["build"]).first() if storable(said["build"]) else None
        if build is None:
            raise GateRefused({"build": "no build of this name is known"})
    if said.get("kernel"):
        kernel = suite.kernels.filter(key=said["kernel"]).first() if storable(said["kernel"]) else None
        if kernel is None:
            raise GateRefused({"kernel": f"no kernel of suite {suite.name} has this key"})
    with transaction.atomic():
        change = baseline_change(suite, said.get("action", ""), build=build, kernel=kernel, gpu=said.get("gpu", ""),
                                 note=said.get("note", ""), author=author)
        if change.action == BaselineChange.Action.INTENDED:
            _answered(change)
    return change


def _answered(change: BaselineChange) -> None:
    """Open regressions that began no later than the accepted build, of kernels that are all covered, are intended from now on."""
    regressions_locked(change.suite_id)
    rows = Regression.objects.filter(suite=change.suite, state__in=WATCHED).select_related("suite", "build")
    for row in rows.filter(gpu=change.gpu) if change.gpu else rows:
        covered = change.kernel is None or set(row.kernels) <= {change.kernel.key}
        if change.build is None or not covered or position(row.build) > position(change.build):
            continue
        row.state, row.changed_by = Regression.State.INTENDED, change.author
        noted(row, change.note, by=change.author)
        row.save()
        regression_told(row, Regression.State.INTENDED)
        regression_published(row)
