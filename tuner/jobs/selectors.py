"""Read tune jobs and their trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Count, F, Func, JSONField, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from tuner.ceilings.selectors import Ceilings, job_ceiling
from tuner.devices import GPU
from tuner.jobs.outcomes import job_outcome, library_text
from tuner.models import TrialRow, TuneJob, TuneMember
from tuner.texts import config_in_order, in_order, rate
from tuner.tuning.measure.quantiles import median_interval
from tuner.tuning.search.strategies import plateau_of
from tuner.tuning.trial import Measured, Outcome, Reason, Rejected, Trial

LEAST_SAMPLES = 6        # of fewer not even least and greatest hold the median with 95 %: 2 · 0.5⁶ = 3 %
ENDED = (TuneJob.Status.DONE, TuneJob.Status.STOPPED, TuneJob.Status.FAILED)


def job_list() -> QuerySet[Any]:
    """Return jobs newest first, with their trials counted."""
    return TuneJob.objects.select_related("owner").annotate(
        n_trials=Count("trials"), n_rejected=Count("trials", filter=Q(trials__outcome="rejected")),
    ).order_by("-created", "-id")


def trial_list(job: TuneJob, after: int = -1) -> QuerySet[TrialRow]:
    """Return trials in the order they were known, after a number only, so a page can catch up."""
    return job.trials.filter(number__gt=after).order_by("number")


def stored_trials(job: TuneJob) -> list[Trial]:
    """Return the trials of earlier attempts for the loop."""
    return [make_trial(row) for row in trial_list(job)]


def make_trial(row: TrialRow) -> Trial:
    """Return a row as a trial."""
    return Trial(row.number, config_in_order(row.config), _make_outcome(row, row.facts), row.at_s)


def lean_trials(job: TuneJob, last: int | None = None) -> list[Trial]:
    """Return the job's trials in order, up to number `last`, without raw samples."""
    rows = lean_rows(job) if last is None else lean_rows(job).filter(number__lte=last)
    return [Trial(row.number, config_in_order(row.config), _make_outcome(row, row.lean), row.at_s) for row in rows]


def lean_rows(job: TuneJob, after: int = -1) -> QuerySet[Any]:
    """Return trials after a number with `lean` for their facts: the database leaves out the samples, most of a row."""
    lean = Func(F("facts"), Value("samples_ms"), template="(%(expressions)s)", arg_joiner=" - ", output_field=JSONField())
    return trial_list(job, after).defer("facts", "created").annotate(lean=lean)


def job_with_last(pk: int) -> TuneJob | None:
    """Return a job with `last`, the number of its newest trial (-1: none), as one statement of the database saw both.

    Trials are only added, and never without a change of the job's row: the row and the trials up to `last` say the same.
    """
    last = TrialRow.objects.filter(job=OuterRef("pk")).order_by("-number").values("number")[:1]
    return TuneJob.objects.select_related("owner", "group").annotate(last=Coalesce(Subquery(last), -1)).filter(pk=pk).first()


def _make_outcome(row: TrialRow, facts: dict[str, Any]) -> Outcome:
    if row.outcome == "measured" and row.median_ms is not None:
        low, high = row.min_ms or row.median_ms, row.p90_ms or row.median_ms
        return Measured(row.median_ms, low, high, row.n or 1, facts)
    return Rejected(Reason(row.reason or Reason.OTHER), row.message, facts)


def trial_json(row: TrialRow) -> dict[str, Any]:
    """Return a trial as pages and API send it, without raw samples."""
    names = ("number", "outcome", "reason", "message", "median_ms", "min_ms", "p90_ms", "n", "at_s", "worker", "gpu_uuid")
    facts = {name: value for name, value in row.facts.items() if name != "samples_ms"}
    return {"id": row.number, "config": config_in_order(row.config), **{name: getattr(row, name) for name in names},
            "interval_ms": median_interval_ms(row.facts), "facts": facts}


def median_interval_ms(facts: Mapping[str, Any]) -> list[float] | None:
    """Return the ends of the 95 % interval of a trial's median in ms; None where neither it nor its samples were kept."""
    stored, samples = facts.get("interval_ms"), facts.get("samples_ms")
    if isinstance(stored, list):
        return stored
    return list(median_interval(sorted(samples))) if isinstance(samples, list) and len(samples) >= LEAST_SAMPLES else None


def page_trial(row: Any) -> dict[str, Any]:
    """Return a row of `lean_rows` as the job's page needs it: of the facts the plain numbers and words."""
    names = ("number", "outcome", "reason", "message", "median_ms", "min_ms", "p90_ms", "n", "at_s")
    facts = {name: value for name, value in row.lean.items() if isinstance(value, int | float | str)}
    return {**{name: getattr(row, name) for name in names}, "config": config_in_order(row.config),
            "interval_ms": median_interval_ms(row.lean), "facts": facts}


def job_json(job: TuneJob, ceilings: Ceilings | None = None) -> dict[str, Any]:
    """Return everything about a job but its trials; `ceilings` where many are asked for."""
    names = ("id", "operator", "shape", "dtype", "device", "strategy", "seed", "timing", "budget_trials", "budget_seconds",
             "status", "stop_requested", "error", "gpu", "recorded", "environment", "space_size", "valid_size",
             "pruned", "library_ms", "default_ms", "policy", "best_ms", "best_config", "finalists", "elapsed_s",
             "worker", "attempts", "pause_requested", "effort", "plateau", "ceiling_pct", "priority", "worth_s", "purpose", "only",
             "first", "space", "ended_by", "counters", "toolkit", "source_hash", "group_place")
    dates = {name: value.isoformat() if (value := getattr(job, name)) else None
             for name in ("created", "started", "finished")}
    ordered = {"shape": in_order(job.operator, job.shape),
               "best_config": config_in_order(job.best_config) if job.best_config else None}
    counts = Counter(job.trials.values_list("outcome", flat=True))
    outcome = job_outcome(job)
    return {**{name: getattr(job, name) for name in names}, **ordered, **dates, "trials": sum(counts.values()),
            "rejected": counts["rejected"], "group": job.group_id, "prepare_s": (job.counters or {}).get("prepare_s"),
            "members": [member_json(one) for one in members(job)], "owner": job.owner.get_username() if job.owner else None,
            "rate": rate(job, job.best_ms), "ceiling": job_ceiling(job, ceilings), "plateau": plateau_of(job.strategy, job.plateau),
            "outcome": {"kind": outcome.kind, "text": outcome.text} if outcome else None,
            "keep_library": library_text(job) or None}


def members(job: TuneJob) -> QuerySet[TuneMember]:
    """Return workers that take or took part, the present lead first."""
    return job.members.order_by(F("left").desc(nulls_first=True), "-role", "joined", "id")


def member_json(member: TuneMember) -> dict[str, Any]:
    """Return a member as the API sends it."""
    names = ("worker", "role", "host", "gpu", "gpu_uuid", "trials", "reading", "note")
    dates = {name: value.isoformat() if (value := getattr(member, name)) else None for name in ("joined", "heartbeat", "left")}
    return {**{name: getattr(member, name) for name in names}, **dates}


def failures_by_reason(job: TuneJob) -> list[dict[str, Any]]:
    """Return rejected trials by reason, most frequent first, each with one message."""
    rejected = list(job.trials.filter(outcome="rejected").order_by("-number").values_list("reason", "message"))
    return _count_reasons(rejected)          # one query: a running job finds new reasons between two


def count_failures(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Return what `failures_by_reason` does, of trials that were read already."""
    return _count_reasons([(str(trial.outcome.reason), trial.outcome.message) for trial in reversed(trials)
                           if isinstance(trial.outcome, Rejected)])


def _count_reasons(rejected: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    first = dict(rejected)
    counts = Counter(reason for reason, _ in rejected)
    return [{"reason": reason, "count": count, "message": first[reason]}
            for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def gpu_seconds_per_trial(operator: str | None = None) -> float | None:
    """Return mean GPU seconds per trial, compiling included; None where no job ran."""
    done = job_list().filter(device__startswith=GPU, status=TuneJob.Status.DONE, elapsed_s__gt=0)
    done = done.filter(operator=operator)[:20] if operator else done[:20]
    trials = sum(job.n_trials for job in done)
    return sum(job.elapsed_s for job in done) / trials if trials else None


def progress(job: TuneJob, trials: int) -> dict[str, Any]:
    """Return the share of the part of the budget that ends first, and seconds left."""
    most = min(job.budget_trials, job.valid_size or job.budget_trials)
    by_trials, by_seconds = trials / most if most else 0.0, job.elapsed_s / job.budget_seconds
    left = None
    if trials and job.elapsed_s:
        left = max(0.0, min((most - trials) * job.elapsed_s / trials, job.budget_seconds - job.elapsed_s))
    return {"trials": trials, "most": most, "share_pct": min(100.0, 100 * max(by_trials, by_seconds)), "left_s": left}


def asked_of(job: TuneJob) -> str:
    """Return "stop" or "pause" where a person asked for it and the job's worker has not followed yet, else ""."""
    if job.status != TuneJob.Status.RUNNING:
        return ""
    return "stop" if job.stop_requested else "pause" if job.pause_requested else ""


def speedups(job: TuneJob) -> dict[str, float | None]:
    """Return default and library time ÷ best time, of the same session."""
    return {name: ms / job.best_ms if ms and job.best_ms else None
            for name, ms in (("default", job.default_ms), ("library", job.library_ms))}
