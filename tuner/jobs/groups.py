"""Groups of jobs: many shapes in one order, each a job that starts from what is known."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any, TypedDict

from django.db import transaction

from profiles.base.answers import Scalar, make_answer
from profiles.base.refused import Refused
from tuner import texts
from tuner.ceilings.selectors import CeilingJson, Ceilings, job_ceiling
from tuner.jobs import selectors
from tuner.jobs.comparison import best_shared_config, carried_losses
from tuner.jobs.control_services import tune_pause, tune_resume, tune_stop
from tuner.jobs.create_services import tune_create
from tuner.jobs.outcomes import LIVE_STATUSES, job_outcome, library_text
from tuner.jobs.selectors import ENDED
from tuner.models import TuneGroup, TuneJob
from tuner.texts import config_in_order, in_order

MAX_SHAPES = 200
MAX_EDITED = 20          # shapes with one edited space: each is counted before a job is made
Status = TuneJob.Status


def group_create(*, owner: Any, name: str, shapes: Sequence[Mapping[str, Any]], device: str, strategy: str, effort: str = "",
                 budget_trials: int | None = None, budget_seconds: float | None = None, plateau: int | None = None,
                 seed: int = 0, timing: str = "cold", source: Mapping[str, Any] | None = None,
                 space: Mapping[str, Any] | None = None, ceiling_pct: float | None = None) -> TuneGroup:
    """Create a job per shape ({"operator", "shape", "dtype"}, maybe "worth_s", "space"); budgets are each's.

    `space` is that of shapes that name none.

    All or nothing: Refused names the shapes that are wrong.
    """
    name = name.strip()[:120]
    if not name:
        raise Refused({"name": "give the group a name"})
    if not 1 <= len(shapes) <= MAX_SHAPES:
        raise Refused({"shapes": f"give 1 to {MAX_SHAPES} shapes, not {len(shapes)}"})
    if sum(item.get("space", space) is not None for item in shapes) > MAX_EDITED:
        raise Refused({"space": f"an edited space is for at most {MAX_EDITED} shapes at once"})
    with transaction.atomic():
        group = TuneGroup.objects.create(name=name, owner=owner, source=dict(source or {}))
        for place, item in enumerate(shapes):
            try:
                tune_create(owner=owner, operator=str(item["operator"]), shape=item["shape"], dtype=str(item["dtype"]),
                            device=device, strategy=strategy, effort=effort, budget_trials=budget_trials,
                            budget_seconds=budget_seconds, plateau=plateau, ceiling_pct=ceiling_pct, seed=seed, timing=timing,
                            worth_s=item.get("worth_s"), space=item.get("space", space), group=group, group_place=place)
            except Refused as error:
                raise Refused({f"shapes[{place}].{field}": problem for field, problem in error.fields.items()}) from error
            except KeyError as error:
                raise Refused({f"shapes[{place}]": f"{error.args[0]} is missing"}) from error
    return group


def group_stop(group: TuneGroup) -> None:
    """Stop every active job of the group."""
    for job in _active_jobs(group):
        tune_stop(job)


def group_pause(group: TuneGroup) -> None:
    """Pause every active job of the group."""
    for job in _active_jobs(group):
        tune_pause(job)


def group_resume(group: TuneGroup) -> None:
    """Resume every paused job of the group."""
    for job in group.jobs.filter(status=Status.PAUSED).order_by("group_place"):
        tune_resume(job)


def _active_jobs(group: TuneGroup) -> Sequence[TuneJob]:
    """Return active jobs, waiting ones first: a worker that becomes free must not take the next."""
    rows = group.jobs.filter(status__in=[Status.QUEUED, Status.RUNNING, Status.PAUSED])
    return sorted(rows, key=lambda job: job.status == Status.RUNNING)


CARRIED_SHOWN = 12       # shapes of one operator in the table of what carries


def group_rows(group: TuneGroup) -> list[dict[str, Any]]:
    """Return the group's jobs in order, as rows."""
    jobs = selectors.job_list().filter(group=group).order_by("group_place", "id")
    ceilings = Ceilings()
    return [{"job": job, "shape": texts.in_order(job.operator, job.shape), "outcome": job_outcome(job), **selectors.speedups(job),
             "ceiling": job_ceiling(job, ceilings), "keep": library_text(job),
             "rate": texts.rate(job, job.best_ms), "progress": selectors.progress(job, job.n_trials),
             "config": texts.config_in_order(job.best_config) if job.best_config else None} for job in jobs]


def group_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return counts, time and mean gain of the rows."""
    jobs = [row["job"] for row in rows]
    gains = [row["default"] for row in rows if row["default"]]
    return {"jobs": len(jobs), "ended": sum(job.status in selectors.ENDED for job in jobs),
            "done": sum(job.status == TuneJob.Status.DONE for job in jobs),
            "running": sum(job.status == TuneJob.Status.RUNNING for job in jobs),
            "paused": sum(job.status == TuneJob.Status.PAUSED for job in jobs),
            "failed": sum(job.status == TuneJob.Status.FAILED for job in jobs),
            "active": any(job.status in LIVE_STATUSES for job in jobs), "trials": sum(job.n_trials for job in jobs),
            "elapsed_s": sum(job.elapsed_s for job in jobs), "gain": exp(sum(map(log, gains)) / len(gains)) if gains else None,
            "recorded": next((job.recorded for job in jobs if job.recorded), "")}


def winner_transfers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, per operator and type with two winners, what carries over and one config for all."""
    kinds: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["job"].best_ms is not None:
            kinds[row["job"].operator, row["job"].dtype, row["job"].gpu].append(row)
    tables = []
    for (operator, dtype, gpu), members in kinds.items():
        if len(members) < 2:
            continue
        shown = members[:CARRIED_SHOWN]
        trials = [selectors.lean_trials(row["job"]) for row in shown]
        one = best_shared_config(trials)
        tables.append({"operator": operator, "dtype": dtype, "gpu": gpu, "rows": [
            {"row": row, "cells": [{"loss": loss, "itself": index == other, "kind": _loss_class(loss)}
                                   for other, loss in enumerate(line)]}
            for index, (row, line) in enumerate(zip(shown, carried_losses(trials), strict=True))],
            "one": one, "one_config": texts.config_in_order(one.config) if one else None, "left_out": len(members) - len(shown)})
    return tables


def _loss_class(loss: float | None) -> str:
    """Return the class of slowness, as in static/js/tune/space.js."""
    if loss is None:
        return "never"
    return next(f"s{index}" for index, limit in enumerate((1.05, 1.25, 1.5, 2, 4, float("inf"))) if loss <= limit)


def mean_speedup(jobs: list[TuneJob]) -> float | None:
    """Return the geometric mean of default / best over jobs that know both; None without any."""
    gains = [job.default_ms / job.best_ms for job in jobs if job.default_ms and job.best_ms]
    return math.exp(sum(map(math.log, gains)) / len(gains)) if gains else None


class GroupJobJson(TypedDict):
    """A job of a group."""

    id: int
    operator: str
    shape: dict[str, int]
    dtype: str
    status: str
    best_ms: float | None
    default_ms: float | None
    library_ms: float | None
    keep_library: str | None
    ceiling: CeilingJson | None
    best_config: dict[str, Scalar] | None


class GroupSourceJson(TypedDict, total=False):
    """The profile whose shapes are searched; nothing for a list that somebody typed."""

    profile: int
    name: str


class GroupJson(TypedDict):
    """Jobs that were asked for together; `statuses`: how many are in which; `speedup`: geometric mean of default / best."""

    id: int
    name: str
    source: GroupSourceJson
    created: str
    owner: str | None
    statuses: dict[str, int]
    ended: bool
    speedup: float | None
    jobs: list[GroupJobJson]


def group_json(group: TuneGroup) -> GroupJson:
    """Return the group as the API sends it."""
    jobs, ceilings = sorted(group.jobs.all(), key=lambda job: (job.group_place, job.pk)), Ceilings()
    return make_answer(
        GroupJson, group, owner=group.owner.get_username() if group.owner else None,
        statuses=dict(Counter(job.status for job in jobs)), ended=all(job.status in ENDED for job in jobs),
        speedup=mean_speedup(jobs),
        jobs=[make_answer(GroupJobJson, job, shape=in_order(job.operator, job.shape), keep_library=library_text(job) or None,
                          ceiling=job_ceiling(job, ceilings),
                          best_config=config_in_order(job.best_config) if job.best_config else None) for job in jobs])
