"""What a job's page shows, from its rows; the API sends the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from django.db.models import Count
from django.utils import timezone

from profiles.base.numbers import finite_number
from tuner import devices, texts
from tuner.ceilings.selectors import job_ceiling, job_grid
from tuner.jobs import control_services, insight, selectors
from tuner.jobs.outcomes import job_outcome, library_text
from tuner.models import TrialRow, TuneGroup, TuneJob
from tuner.spaces.edit import edit_text
from tuner.tuning.search.loop import PLATEAU_GAIN, Progress
from tuner.tuning.search.strategies import plateau_of
from tuner.tuning.trial import Trial

FASTEST = 12             # rows of the table that stands before the script fills it
LEVELS_SHOWN = 12        # values of one parameter in the table of effects
QUEUE_SHOWN = 100
MOST_LISTED = 20         # jobs to compare with, newest groups
LEAST_RATED_S = 0.5      # job time before a rate is said


@dataclass(frozen=True)
class Savings:
    """Where a job's time went and what was saved, in s; None is unknown."""

    spent: insight.TimeSpent
    busy: float | None               # share of the job's time that a GPU was measured on, 0-1
    compile_s: float | None
    compilers: int | None
    replaced: int | None             # children that died and were replaced
    prepare_s: float | None          # from the claim to the search: GPU child, library, compilers; no part of the budget
    pruned: int                      # configurations that constraints removed before anything was compiled
    pruned_saved_s: float | None     # at the mean job time of a trial

    @property
    def busy_pct(self) -> float | None:
        """Return the busy share of the GPU in percent."""
        return None if self.busy is None else 100 * self.busy


def job_savings(job: TuneJob, trials: Sequence[Trial]) -> Savings:
    """Return the runner's own counts where kept, else the trials'; a replay spends no GPU."""
    spending = insight.time_spent(trials, job.elapsed_s)
    use = job.counters or {}
    pruned = sum(job.pruned.values()) if job.pruned else 0
    per_trial = job.elapsed_s / len(trials) if trials and job.elapsed_s and not job.recorded else None
    busy = finite_number(use.get("busy_share")) if use.get("busy_s") else spending.busy
    return Savings(spending, busy, finite_number(use.get("compile_s")) or spending.compile_s,
                 use.get("compilers"), use.get("replaced"), finite_number(use.get("prepare_s")), pruned,
                 pruned * per_trial if per_trial and pruned else None)


def member_rows(job: TuneJob) -> list[dict[str, Any]]:
    """Return workers of the job with the GPU state of their last heartbeat."""
    now = timezone.now()
    rows = []
    for member in job.members.all():
        reading = member.reading or {}
        rows.append({"member": member, "active": member.left is None, "reading": reading,
                     "silent_s": (now - member.heartbeat).total_seconds() if member.heartbeat and member.left is None else None})
    return rows


class ClockRangeJson(TypedDict):
    """Lowest and highest SM clock (MHz), highest °C, and trials that were throttled."""

    low: float | None
    high: float | None
    heat: float | None
    throttled: int


def clock_range(trials: Sequence[Trial]) -> ClockRangeJson | None:
    """Return the clocks of trials; None if unread."""
    readings: list[tuple[float | None, float | None, float | None]] = []
    for trial in trials:
        clocks = trial.outcome.facts.get("clocks")
        if isinstance(clocks, dict):
            clock = clocks.get("sm_clock_mhz")
            low, high = (clock.get("min"), clock.get("max")) if isinstance(clock, dict) else (clock, clock)
            heat = clocks.get("temperature_c")
            heats = heat.get("max") if isinstance(heat, dict) else heat
            readings.append((finite_number(low), finite_number(high), finite_number(heats)))
    columns = [[value for value in column if value is not None] for column in zip(*readings, strict=True)] if readings else []
    if not any(columns):
        return None
    low, high, heat = columns
    return {"low": min(low, default=None), "high": max(high, default=None), "heat": max(heat, default=None),
            "throttled": sum("throttled" in trial.outcome.facts for trial in trials)}


def effects_text(insights: insight.Insight) -> str:
    """Return in a sentence which parameters matter; "" while too little is known."""
    effects = [effect for effect in insights.effects if effect.share is not None]
    if not effects or insights.explained is None:
        return ""
    first = effects[0]
    best = f", {first.best.value} is best" if first.best else ""
    rest = [f"{effect.name} {100 * (effect.share or 0):.0f} %" for effect in effects[1:3] if (effect.share or 0) >= 0.01]
    more = f"; then {' and '.join(rest)}" if rest else ""
    return (f"{first.name} matters most: it alone explains {100 * (first.share or 0):.0f} % of the differences in "
            f"time{best}{more}. Parameter by parameter {100 * insights.explained:.0f} % is explained; the rest is how they "
            "combine, and noise.")


def ended_text(job: TuneJob, trials: int) -> str:
    """Return why a search that is done ended; "" for every other job."""
    plateau = plateau_of(job.strategy, job.plateau)
    if job.ended_by == "trials" and job.only is not None:
        return "all that was listed has been measured"
    if job.ended_by == "plateau" and plateau is not None:
        return f"ended on its plateau: the last {plateau} trials gained less than {100 * PLATEAU_GAIN:.0f} %"
    if job.ended_by == "ceiling" and job.ceiling_pct:
        return f"ended at {job.ceiling_pct:g} % of what this GPU can do"
    if job.ended_by in ("trials", "space") and job.only is None and job.valid_size and trials >= job.valid_size:
        return "the whole space was tried"
    if job.ended_by == "trials":
        return f"ended by its budget of {job.budget_trials:,} trial{'s' * (job.budget_trials != 1)}"
    if job.ended_by == "seconds":
        return f"ended by its budget of {job.budget_seconds:,.0f} s"
    if job.ended_by != "space":
        return ""
    return "all that was listed has been measured" if job.only is not None else f"{job.strategy} search had nothing more to propose"


def progress_text(job: TuneJob, trials: Sequence[Trial]) -> str:
    """Return how far a job is, as "41 of 100 trials · 12 of 180 s · 3.4 trials/s · 7 of 40 without a gain · at most 30 s left"."""
    now, plateau = selectors.progress(job, len(trials)), plateau_of(job.strategy, job.plateau)
    parts = [f"{len(trials):,} of {now['most']:,} trials", f"{job.elapsed_s:.0f} of {job.budget_seconds:.0f} s"]
    if job.elapsed_s > LEAST_RATED_S:
        parts.append(f"{len(trials) / job.elapsed_s:.2g} trials/s")
    if plateau is not None and (idle := trials_without_gain(trials)) > 1:
        parts.append(f"{idle} of {plateau} without a gain")
    if (left_s := now["left_s"]) is not None:
        left = f"{left_s:.0f} s" if left_s < 90 else f"{left_s / 60:.0f} min"
        parts.append("about to end" if left_s < 1 else f"{'at most' if plateau is not None else 'about'} {left} left")
    return " · ".join(parts)


def trials_without_gain(trials: Sequence[Trial]) -> int:
    """Return what a plateau counts: trials in a row that gained less than 1 %."""
    counted = Progress()
    for trial in trials:
        counted.add(trial)
    return counted.without_gain


def job_detail(job: TuneJob, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return everything that the page shows but its pictures, all of it of this row and these trials."""
    insights = insight.explain_trials(trials)
    return {
        "job": job, "shape": texts.in_order(job.operator, job.shape), "n_trials": len(trials),
        "measured_with": texts.measured_with(job), "space_text": edit_text(job.space),
        "finalists": [{**finalist, "config": texts.config_in_order(finalist["config"])} for finalist in job.finalists],
        "fastest": sorted((t for t in trials if t.median_ms is not None), key=lambda t: t.median_ms or 0)[:FASTEST],
        "failures": selectors.count_failures(trials), "progress": selectors.progress(job, len(trials)),
        "progress_text": progress_text(job, trials), "asked": selectors.asked_of(job), "silent_s": silent_seconds(job),
        "speedups": selectors.speedups(job), "ceiling": job_ceiling(job), "grid": job_grid(job),
        "rate": texts.rate(job, job.best_ms),
        "triton": texts.paste_text(job.operator, job.best_config), "default_name": texts.default_name(job.operator),
        "active": job.status not in selectors.ENDED, "no_worker": why_waiting(job), "cached": job.cached.first(),
        "insight": insights, "effects_text": effects_text(insights), "levels_shown": LEVELS_SHOWN,
        "effects": [[effect.name, effect.share] for effect in insights.effects],
        "saved": job_savings(job, trials), "members": member_rows(job), "clocks": clock_range(trials),
        "ended": ended_text(job, len(trials)), "outcome": job_outcome(job), "keep": library_text(job),
        "ahead": jobs_ahead(job), "others": comparable_jobs(job), "edited_job": job.pk if job.space else None}


def silent_seconds(job: TuneJob) -> float | None:
    """Return how long the worker of a running job gave no sign of life, in s; None while it does."""
    if job.status != TuneJob.Status.RUNNING or job.heartbeat is None:
        return None
    silent = timezone.now() - job.heartbeat
    return silent.total_seconds() if silent > control_services.SILENT_AFTER else None


def comparable_jobs(job: TuneJob) -> list[TuneJob]:
    """Return jobs of the same operator, those of the same shape first."""
    others = list(TuneJob.objects.filter(operator=job.operator).exclude(pk=job.pk).order_by("-id")[:200])
    return sorted(others, key=lambda other: (other.shape != job.shape or other.dtype != job.dtype, -other.pk))[:MOST_LISTED]


def jobs_ahead(job: TuneJob) -> int:
    """Return how many waiting jobs stand before this one."""
    if job.status != TuneJob.Status.QUEUED:
        return 0
    order = list(control_services.waiting_jobs().values_list("pk", flat=True))
    return order.index(job.pk) if job.pk in order else 0


def seconds_axis(job: TuneJob) -> float:
    """Return the end of the time axis: the budget while running, then what the job took, in s."""
    return job.elapsed_s if job.status in selectors.ENDED and job.elapsed_s else job.budget_seconds


def parse_extension(given: Mapping[str, str]) -> dict[str, Any]:
    """Return typed extra budget; what is no number counts as nothing."""
    trials, seconds = given.get("trials", "").strip(), given.get("seconds", "").strip()
    try:
        return {"trials": int(trials) if trials else None, "seconds": float(seconds) if seconds else None}
    except ValueError:
        return {"trials": None, "seconds": None}


def why_waiting(job: TuneJob) -> str:
    """Return why a waiting job is not taken; "" where it is only a matter of turn."""
    if job.status != TuneJob.Status.QUEUED:
        return ""
    missing = "no worker with this GPU is running" if devices.is_gpu(job.device) else ""
    return next((device.why_not for device in devices.list_devices() if device.value == job.device), missing)


# ---- the queue and the groups ----

def queue_rows() -> list[dict[str, Any]]:
    """Return running and paused jobs, then waiting ones in order."""
    active = TuneJob.objects.filter(status__in=[TuneJob.Status.RUNNING, TuneJob.Status.PAUSED]).select_related("owner", "group")
    counted = dict(TrialRow.objects.filter(job__status__in=[TuneJob.Status.RUNNING, TuneJob.Status.PAUSED])
                   .values_list("job").annotate(Count("id")))
    waiting = list(control_services.waiting_jobs()[:QUEUE_SHOWN])
    rows = [*sorted(active, key=lambda job: (job.status != TuneJob.Status.RUNNING, job.pk)), *waiting]
    places = {job.pk: index for index, job in enumerate(waiting)}

    def neighbour(job: TuneJob, step: int) -> int | None:
        index = places.get(job.pk, -9) + step
        return waiting[index].pk if 0 <= index < len(waiting) else None

    return [{"job": job, "shape": texts.in_order(job.operator, job.shape), "by_hand": job.priority is not None,
             "waits": job.pk in places, "before": neighbour(job, -1), "after": neighbour(job, 1),
             "progress": selectors.progress(job, counted.get(job.pk, 0))} for job in rows]


def total_worth(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the summed worth of the rows in s; None where none is known."""
    seconds = [row["job"].worth_s for row in rows if row["job"].worth_s]
    return sum(seconds) if seconds else None


def recent_groups() -> list[dict[str, Any]]:
    """Return newest groups, each with how many of its jobs have ended."""
    groups = TuneGroup.objects.select_related("owner").prefetch_related("jobs")[:MOST_LISTED]
    return [{"group": group, "jobs": len(group.jobs.all()),
             "ended": sum(job.status in selectors.ENDED for job in group.jobs.all())} for group in groups]
