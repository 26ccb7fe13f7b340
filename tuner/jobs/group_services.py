"""Many shapes as one order. Each shape is a job of its own, so several workers take several; each starts from what is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from tuner.jobs.control_services import tune_pause, tune_resume, tune_stop
from tuner.jobs.create_services import TuneError, tune_create
from tuner.models import TuneGroup, TuneJob

MAX_SHAPES = 200
Status = TuneJob.Status


def group_create(*, owner: Any, name: str, shapes: Sequence[Mapping[str, Any]], device: str, strategy: str, effort: str = "",
                 budget_trials: int | None = None, budget_seconds: float | None = None, plateau: int | None = None,
                 seed: int = 0, timing: str = "cold", source: Mapping[str, Any] | None = None) -> TuneGroup:
    """One job for each of `shapes` ({"operator", "shape", "dtype"}, perhaps "worth_s"), in their order; budgets are of each.

    All or nothing: TuneError names the shapes that are wrong.
    """
    name = name.strip()[:120]
    if not name:
        raise TuneError({"name": "give the group a name"})
    if not 1 <= len(shapes) <= MAX_SHAPES:
        raise TuneError({"shapes": f"give 1 to {MAX_SHAPES} shapes, not {len(shapes)}"})
    with transaction.atomic():
        group = TuneGroup.objects.create(name=name, owner=owner, source=dict(source or {}))
        for place, item in enumerate(shapes):
            try:
                tune_create(owner=owner, operator=str(item["operator"]), shape=item["shape"], dtype=str(item["dtype"]),
                            device=device, strategy=strategy, effort=effort, budget_trials=budget_trials,
                            budget_seconds=budget_seconds, plateau=plateau, seed=seed, timing=timing,
                            worth_s=item.get("worth_s"), group=group, group_place=place)
            except TuneError as error:
                raise TuneError({f"shapes[{place}].{field}": problem for field, problem in error.fields.items()}) from error
            except KeyError as error:
                raise TuneError({f"shapes[{place}]": f"{error.args[0]} is missing"}) from error
    return group


def group_stop(group: TuneGroup) -> None:
    for job in _in_hand(group):
        tune_stop(job)


def group_pause(group: TuneGroup) -> None:
    for job in _in_hand(group):
        tune_pause(job)


def group_resume(group: TuneGroup) -> None:
    for job in group.jobs.filter(status=Status.PAUSED).order_by("group_place"):
        tune_resume(job)


def _in_hand(group: TuneGroup) -> Sequence[TuneJob]:
    """Those that wait first: a worker that becomes free must not take the next of them."""
    rows = group.jobs.filter(status__in=[Status.QUEUED, Status.RUNNING, Status.PAUSED])
    return sorted(rows, key=lambda job: job.status == Status.RUNNING)
