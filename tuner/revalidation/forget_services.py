"""Forget an environment that should never have been taken for one of a GPU model's: a trial of a toolkit, a host that is gone."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from tuner.cache.entries.services import initial_state, state_set, why_older
from tuner.cache.rules import State
from tuner.models import CachedConfig, GpuEnvironment
from workers.scope import EVERYTHING, within


@transaction.atomic
def environment_forget(environment: GpuEnvironment, by: Any) -> int:
    """Delete it; entries of all projects that it alone made unverified are verified again. Returns how many.

    An entry stays unverified, and says so, where another environment is newer too or its kernel has another source by now. A job
    that runs with this toolkit and driver makes the environment known again.
    """
    who = by.get_username() if by else "the command line"
    gone, back = str(environment), 0
    environment.delete()
    with within(EVERYTHING):
        doubtful = CachedConfig.objects.filter(gpu=environment.gpu, recorded="", state=State.UNVERIFIED)
        for row in doubtful.select_for_update(of=("self",)):
            why = why_older(row.toolkit, row.driver, environment.toolkit, environment.driver)
            if not why or row.state_why != why[:300]:
                continue
            state, left = initial_state(row.gpu, row.toolkit, row.driver)
            if state == State.VERIFIED and (left := _why_other_source(row)):
                state = State.UNVERIFIED
            state_set(row, state, left or f"{gone} was forgotten by {who}")
            back += state == State.VERIFIED
    return back


def _why_other_source(row: CachedConfig) -> str:
    """Return why an entry's kernel is another by now; "" where it is not, or its source is unknown."""
    newest = CachedConfig.objects.filter(project=row.project_id, operator=row.operator, recorded="", origin=row.origin).exclude(
        source_hash="").order_by("-pk").values_list("source_hash", flat=True).first()
    if not row.source_hash or not newest or newest == row.source_hash:
        return ""
    return f"the kernel's source changed: {row.source_hash[:12]} then, {newest[:12]} now"
