"""A group of tune jobs for its page: its shapes, what each won, and how far one winner carries to the other shapes."""

from __future__ import annotations

from collections import defaultdict
from math import exp, log
from typing import Any

from tuner import texts
from tuner.jobs import page_selectors, selectors
from tuner.jobs.comparison import carried, one_for_all
from tuner.models import TuneGroup, TuneJob

CARRIED_SHOWN = 12       # shapes of one operator in the table of what carries
LIVE_STATUSES = (TuneJob.Status.QUEUED, TuneJob.Status.RUNNING, TuneJob.Status.PAUSED)


def rows(group: TuneGroup) -> list[dict[str, Any]]:
    """Its jobs in their order."""
    jobs = selectors.job_list().filter(group=group).order_by("group_place", "id")
    return [{"job": job, "shape": texts.in_order(job.operator, job.shape), **selectors.speedups(job),
             "rate": texts.rate(job, job.best_ms), "progress": selectors.progress(job, job.n_trials),
             "config": texts.config_in_order(job.best_config) if job.best_config else None} for job in jobs]


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    jobs = [row["job"] for row in found]
    gains = [row["default"] for row in found if row["default"]]
    return {"jobs": len(jobs), "ended": sum(job.status in selectors.ENDED for job in jobs),
            "done": sum(job.status == TuneJob.Status.DONE for job in jobs),
            "running": sum(job.status == TuneJob.Status.RUNNING for job in jobs),
            "paused": sum(job.status == TuneJob.Status.PAUSED for job in jobs),
            "failed": sum(job.status == TuneJob.Status.FAILED for job in jobs),
            "active": any(job.status in LIVE_STATUSES for job in jobs), "trials": sum(job.n_trials for job in jobs),
            "elapsed_s": sum(job.elapsed_s for job in jobs), "gain": exp(sum(map(log, gains)) / len(gains)) if gains else None,
            "recorded": next((job.recorded for job in jobs if job.recorded), "")}


def carries(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each operator and type with two winners or more: the table of what carries, and one configuration for all."""
    kinds: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        if row["job"].best_ms is not None:
            kinds[row["job"].operator, row["job"].dtype, row["job"].gpu].append(row)
    told = []
    for (operator, dtype, gpu), members in kinds.items():
        if len(members) < 2:
            continue
        shown = members[:CARRIED_SHOWN]
        trials = [page_selectors.trials_of(row["job"]) for row in shown]
        one = one_for_all(trials)
        told.append({"operator": operator, "dtype": dtype, "gpu": gpu, "rows": [
            {"row": row, "cells": [{"loss": loss, "itself": at == other, "kind": _kind(loss)} for other, loss in enumerate(line)]}
            for at, (row, line) in enumerate(zip(shown, carried(trials), strict=True))],
            "one": one, "one_config": texts.config_in_order(one.config) if one else None, "left_out": len(members) - len(shown)})
    return told


def _kind(loss: float | None) -> str:
    """The class of slowness, as in the pictures of a job (static/js/tune/space.js)."""
    if loss is None:
        return "never"
    return next(f"s{at}" for at, limit in enumerate((1.05, 1.25, 1.5, 2, 4, float("inf"))) if loss <= limit)
