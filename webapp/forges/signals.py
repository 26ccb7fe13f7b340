"""Verdicts of gates, told at forges when they are known."""

from __future__ import annotations

import logging
from typing import Any

from django.db import transaction
from django.db.models.signals import post_save

from tuner.models import Gate
from workers.scope import current, project_of, within

log = logging.getLogger(__name__)


def connect() -> None:
    """Listen to gates."""
    post_save.connect(gate_saved, sender=Gate, dispatch_uid="ridgepoint forges")


def gate_saved(instance: Gate, raw: bool = False, update_fields: Any = None, **signal: Any) -> None:
    """Say the verdict of a gate that ended, once the rows that it rests on are committed."""
    if raw or instance.status not in (Gate.Status.DONE, Gate.Status.FAILED):
        return
    transaction.on_commit(lambda: _tell(instance), robust=True)


def _tell(gate: Gate) -> None:
    from webapp.forges.services import gate_tell  # with what pages show: no other process needs it

    with within(project_of(gate) or current().project), transaction.atomic():
        gate_tell(gate)
