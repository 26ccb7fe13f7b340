"""What the page of one job shows, worked out from its rows. Pages render it, the API tells the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Func, Value
from django.db.models.fields.json import JSONField
from django.utils import timezone

from tuner import texts
from tuner.jobs import devices, insight, selectors, services
from tuner.models import TrialRow, TuneGroup, TuneJob
from tuner.trial import Measured, Outcome, Reason, Rejected, Trial

FASTEST = 12             # rows of the table that stands before the script fills it
LEVELS_SHOWN = 12        # values of one parameter in the table of effects
QUEUE_SHOWN = 100
ENDED_BY = {"trials": "all trials of the budget were used", "seconds": "the seconds of the budget ended it",
            "plateau": "it ended because many trials in a row won nothing", "space": "the whole space was tried"}


def trials_of(job: TuneJob) -> list[Trial]:
    """In the order asked, without the raw samples: the database leaves them out, they are most of a row."""
    lean = Func(F("facts"), Value("samples_ms"), template="(%(expressions)s)", arg_joiner=" - ", output_field=JSONField())
    rows = job.trials.order_by("number").defer("facts", "created").annotate(lean=lean)
    return [Trial(row.number, texts.config_in_order(row.config), _outcome(row), row.at_s) for row in rows]


def _outcome(row: Any) -> Outcome:
    if row.outcome == "measured" and row.median_ms is not None:
        return Measured(row.median_ms, row.min_ms or row.median_ms, row.p90_ms or row.median_ms, row.n or 1, row.lean)
    return Rejected(Reason(row.reason or Reason.OTHER), row.message, row.lean)


@dataclass(frozen=True)
class Saved:
    """Where a job's time went, and what was not spent. Seconds; None is unknown."""

    spent: insight.Spent
    busy: float | None               # share of the job's time that a GPU was measured on, 0-1
    compile_s: float | None
    compilers: int | None
    replaced: int | None             # children that died and were replaced
    pruned: int                      # configurations that constraints removed before anything was compiled
    pruned_saved_s: float | None     # at the mean job time of a trial

    @property
    def busy_pct(self) -> float | None:
        return None if self.busy is None else 100 * self.busy


def saved(job: TuneJob, trials: Sequence[Trial]) -> Saved:
    """The runner's own count where it kept one (`counters`), else what the trials say. A replay spends no GPU."""
    told = insight.spent(trials, job.elapsed_s)
    use = job.counters or {}
    pruned = sum(job.pruned.values()) if job.pruned else 0
    per_trial = job.elapsed_s / len(trials) if trials and job.elapsed_s and not job.recorded else None
    busy = _number(use.get("busy_share")) if use.get("busy_s") else told.busy
    return Saved(told, busy, _number(use.get("compile_s")) or told.compile_s,
                 use.get("compilers"), use.get("replaced"), pruned, pruned * per_trial if per_trial and pruned else None)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def members(job: TuneJob) -> list[dict[str, Any]]:
    """Who measured, and how warm their GPU was at the last heartbeat."""
    now = timezone.now()
    rows = []
    for member in job.members.all():
        reading = member.reading or {}
        rows.append({"member": member, "active": member.left is None, "reading": reading,
                     "silent_s": (now - member.heartbeat).total_seconds() if member.heartbeat and member.left is None else None})
    return rows


def clocks(trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Lowest and highest SM clock and temperature over the job, and how many trials were throttled; None: nobody said."""
    found: list[tuple[float | None, float | None, float | None]] = []
    for trial in trials:
        seen = trial.outcome.facts.get("clocks")
        if isinstance(seen, dict):
            clock = seen.get("sm_clock_mhz")
            low, high = (clock.get("min"), clock.get("max")) if isinstance(clock, dict) else (clock, clock)
            heat = seen.get("temperature_c")
            found.append((_number(low), _number(high), _number(heat.get("max") if isinstance(heat, dict) else heat)))
    columns = [[value for value in column if value is not None] for column in zip(*found, strict=True)] if found else []
    if not any(columns):
        return None
    low, high, heat = columns
    return {"low": min(low, default=None), "high": max(high, default=None), "heat": max(heat, default=None),
            "throttled": sum("throttled" in trial.outcome.facts for trial in trials)}


def effects_text(found: insight.Insight) -> str:
    """What matters, in a sentence; "" while too little is known."""
    known = [effect for effect in found.effects if effect.share is not None]
    if not known or found.explained is None:
        return ""
    first = known[0]
    best = f", {first.best.value} is best" if first.best else ""
    rest = [f"{effect.name} {100 * (effect.share or 0):.0f} %" for effect in known[1:3] if (effect.share or 0) >= 0.01]
    more = f"; then {' and '.join(rest)}" if rest else ""
    return (f"{first.name} matters most: it alone explains {100 * (first.share or 0):.0f} % of the differences in "
            f"time{best}{more}. Parameter by parameter {100 * found.explained:.0f} % is explained; the rest is how they "
            "combine, and noise.")


def detail(job: TuneJob, trials: Sequence[Trial]) -> dict[str, Any]:
    """Everything that the page shows but its figure."""
    found = insight.insight(trials)
    return {
        "job": job, "shape": texts.in_order(job.operator, job.shape), "n_trials": len(trials),
        "measured_with": texts.measured_with(job),
        "finalists": [{**each, "config": texts.config_in_order(each["config"])} for each in job.finalists],
        "fastest": sorted((t for t in trials if t.median_ms is not None), key=lambda t: t.median_ms or 0)[:FASTEST],
        "failures": selectors.failures(job), "progress": selectors.progress(job, len(trials)),
        "speedups": selectors.speedups(job), "rate": texts.rate(job, job.best_ms), "triton": texts.triton_config(job.best_config),
        "active": job.status not in selectors.ENDED, "no_worker": why_waiting(job), "cached": job.cached.first(),
        "insight": found, "effects_text": effects_text(found), "levels_shown": LEVELS_SHOWN,
        "effects": [[effect.name, effect.share] for effect in found.effects],
        "saved": saved(job, trials), "members": members(job), "clocks": clocks(trials), "ended": ENDED_BY.get(job.ended_by, ""),
        "ahead": ahead(job), "others": comparable(job)}


def comparable(job: TuneJob, limit: int = 20) -> list[TuneJob]:
    """Jobs that a comparison with this one makes sense for: same operator, those of the same shape first."""
    others = list(TuneJob.objects.filter(operator=job.operator).exclude(pk=job.pk).order_by("-id")[:200])
    return sorted(others, key=lambda other: (other.shape != job.shape or other.dtype != job.dtype, -other.pk))[:limit]


def ahead(job: TuneJob) -> int:
    """Waiting jobs that stand before this one."""
    if job.status != TuneJob.Status.QUEUED:
        return 0
    order = list(services.queue().values_list("pk", flat=True))
    return order.index(job.pk) if job.pk in order else 0


def seconds_axis(job: TuneJob) -> float:
    """The budget while a job goes on; afterwards what it took, so that a search that ended early fills the picture."""
    return job.elapsed_s if job.status in selectors.ENDED and job.elapsed_s else job.budget_seconds


def extension(given: Mapping[str, str]) -> dict[str, Any]:
    """What was typed as more budget; what is no number counts as nothing, and the service says what would be valid."""
    trials, seconds = given.get("trials", "").strip(), given.get("seconds", "").strip()
    try:
        return {"trials": int(trials) if trials else None, "seconds": float(seconds) if seconds else None}
    except ValueError:
        return {"trials": None, "seconds": None}


def why_waiting(job: TuneJob) -> str:
    """Why a waiting job is not taken; "" where it is only a matter of turn."""
    if job.status != TuneJob.Status.QUEUED:
        return ""
    missing = "no worker with this GPU is running" if devices.is_gpu(job.device) else ""
    return next((device.why_not for device in devices.devices() if device.value == job.device), missing)


# ---- the queue and the groups ----

def queue_rows() -> list[dict[str, Any]]:
    """What runs and rests, then what waits in the order in which workers take it."""
    active = TuneJob.objects.filter(status__in=[TuneJob.Status.RUNNING, TuneJob.Status.PAUSED]).select_related("owner", "group")
    counted = dict(TrialRow.objects.filter(job__status__in=[TuneJob.Status.RUNNING, TuneJob.Status.PAUSED])
                   .values_list("job").annotate(Count("id")))
    waiting = list(services.queue()[:QUEUE_SHOWN])
    rows = [*sorted(active, key=lambda job: (job.status != TuneJob.Status.RUNNING, job.pk)), *waiting]
    places = {job.pk: at for at, job in enumerate(waiting)}

    def neighbour(job: TuneJob, step: int) -> int | None:
        at = places.get(job.pk, -9) + step
        return waiting[at].pk if 0 <= at < len(waiting) else None

    return [{"job": job, "shape": texts.in_order(job.operator, job.shape), "by_hand": job.priority is not None,
             "waits": job.pk in places, "before": neighbour(job, -1), "after": neighbour(job, 1),
             "progress": selectors.progress(job, counted.get(job.pk, 0))} for job in rows]


def total_worth(rows: Sequence[Mapping[str, Any]]) -> float | None:
    known = [row["job"].worth_s for row in rows if row["job"].worth_s]
    return sum(known) if known else None


def group_rows(limit: int = 20) -> list[dict[str, Any]]:
    """Newest first, each with how many of its jobs have ended."""
    groups = TuneGroup.objects.select_related("owner").prefetch_related("jobs")[:limit]
    return [{"group": group, "jobs": len(group.jobs.all()),
             "ended": sum(job.status in selectors.ENDED for job in group.jobs.all())} for group in groups]
