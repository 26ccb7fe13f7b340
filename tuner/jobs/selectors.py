"""Read tune jobs and their trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from django.db.models import Count, F, Func, JSONField, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from profiles.base.answers import ErrorJson, Facts, Scalar, make_answer
from tuner.ceilings.selectors import CeilingJson, Ceilings, GridJson, job_ceiling
from tuner.devices import GPU
from tuner.jobs.outcomes import job_outcome, library_text
from tuner.models import TrialRow, TuneJob, TuneMember
from tuner.spaces.edit import EditedSpaceJson
from tuner.texts import RateJson, config_in_order, in_order, rate
from tuner.tuning.measure.statistics import median_interval
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


class TrialJson(TypedDict):
    """One configuration that was compiled or run, and what came of it; `facts` are its runner's: registers, clocks …"""

    id: int
    config: dict[str, Scalar]
    number: int
    outcome: str
    reason: str
    message: str
    median_ms: float | None
    min_ms: float | None
    p90_ms: float | None
    n: int | None
    at_s: float
    worker: str
    gpu_uuid: str
    interval_ms: list[float] | None
    facts: Facts


def trial_json(row: TrialRow) -> TrialJson:
    """Return a trial as pages and API send it, without raw samples."""
    facts = {name: value for name, value in row.facts.items() if name != "samples_ms"}
    return make_answer(TrialJson, row, id=row.number, config=config_in_order(row.config),
                       interval_ms=median_interval_ms(row.facts), facts=facts)


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


class OutcomeJson(TypedDict):
    """What a job's end means."""

    kind: str
    text: str


class MemberJson(TypedDict):
    """A worker that takes or took part in a job; `reading`: its GPU at the last heartbeat."""

    worker: str
    role: str
    host: str
    gpu: str
    gpu_uuid: str
    trials: int
    reading: Facts
    note: str
    joined: str
    heartbeat: str | None
    left: str | None


class FinalistJson(TypedDict):
    """A configuration measured again, in turn with the others, times of all rounds in `round_ms`; a `reason` where it failed."""

    config: dict[str, Scalar]
    tie: bool
    why: NotRequired[str]
    slower_by: NotRequired[float | None]
    p: NotRequired[float | None]
    library: NotRequired[float | None]
    median_ms: NotRequired[float]
    min_ms: NotRequired[float]
    p90_ms: NotRequired[float]
    n: NotRequired[int]
    registers: NotRequired[int | None]
    spills: NotRequired[int | None]
    smem_bytes: NotRequired[int | None]
    round_ms: NotRequired[list[float]]
    clocks: NotRequired[dict[str, dict[str, float] | list[str] | int]]
    throttled: NotRequired[ThrottledJson]
    library_ms: NotRequired[float | None]
    library_round_ms: NotRequired[list[float]]
    default: NotRequired[bool]
    reason: NotRequired[str]
    message: NotRequired[str]


class ThrottledJson(TypedDict):
    """Samples left out since the GPU held its clock down, why, and whether some of them had to be kept."""

    discarded: int
    reasons: list[str]
    kept: bool | int


class TuneJobJson(TypedDict):
    """A tune job, everything but its trials. Rates and shares are of the best configuration."""

    id: int
    operator: str
    shape: dict[str, int]
    dtype: str
    device: str
    strategy: str
    seed: int
    timing: str
    budget_trials: int
    budget_seconds: float
    status: str
    stop_requested: bool
    error: ErrorJson | None
    gpu: str
    recorded: str
    environment: Facts
    space_size: int | None
    valid_size: int | None
    pruned: dict[str, int]
    library_ms: float | None
    default_ms: float | None
    policy: Facts
    best_ms: float | None
    best_config: dict[str, Scalar] | None
    finalists: list[FinalistJson]
    elapsed_s: float
    worker: str
    attempts: int
    pause_requested: bool
    effort: str
    plateau: int | None
    ceiling_pct: float | None
    priority: float | None
    worth_s: float | None
    purpose: str
    only: list[dict[str, Scalar]] | None
    first: list[dict[str, Scalar]]
    space: EditedSpaceJson | None
    ended_by: str
    counters: dict[str, float | None]
    toolkit: str
    source_hash: str
    group_place: int
    created: str
    started: str | None
    finished: str | None
    trials: int
    rejected: int
    group: int | None
    prepare_s: float | None
    members: list[MemberJson]
    owner: str | None
    rate: RateJson | None
    ceiling: CeilingJson | None
    outcome: OutcomeJson | None
    keep_library: str | None


def job_json(job: TuneJob, ceilings: Ceilings | None = None) -> TuneJobJson:
    """Return everything about a job but its trials; `ceilings` where many are asked for."""
    counts = Counter(job.trials.values_list("outcome", flat=True))
    outcome = job_outcome(job)
    return make_answer(
        TuneJobJson, job, shape=in_order(job.operator, job.shape), trials=sum(counts.values()), rejected=counts["rejected"],
        best_config=config_in_order(job.best_config) if job.best_config else None, group=job.group_id,
        prepare_s=(job.counters or {}).get("prepare_s"), members=[member_json(member) for member in members(job)],
        owner=job.owner.get_username() if job.owner else None, rate=rate(job, job.best_ms), ceiling=job_ceiling(job, ceilings),
        plateau=plateau_of(job.strategy, job.plateau), keep_library=library_text(job) or None,
        outcome={"kind": outcome.kind, "text": outcome.text} if outcome else None)


def members(job: TuneJob) -> QuerySet[TuneMember]:
    """Return workers that take or took part, the present lead first."""
    return job.members.order_by(F("left").desc(nulls_first=True), "-role", "joined", "id")


def member_json(member: TuneMember) -> MemberJson:
    """Return a member as the API sends it."""
    return make_answer(MemberJson, member)


class FailureJson(TypedDict):
    """Rejected trials of one reason, with one of their messages."""

    reason: str
    count: int
    message: str


class WholeTuneJobJson(TuneJobJson):
    """A tune job with its failures, most frequent first; `triton`: text that applies the best configuration."""

    grid: GridJson | None
    failures: list[FailureJson]
    triton: str


def failures_by_reason(job: TuneJob) -> list[FailureJson]:
    """Return rejected trials by reason, most frequent first, each with one message."""
    rejected = list(job.trials.filter(outcome="rejected").order_by("-number").values_list("reason", "message"))
    return _count_reasons(rejected)          # one query: a running job finds new reasons between two


def count_failures(trials: Sequence[Trial]) -> list[FailureJson]:
    """Return what `failures_by_reason` does, of trials that were read already."""
    return _count_reasons([(str(trial.outcome.reason), trial.outcome.message) for trial in reversed(trials)
                           if isinstance(trial.outcome, Rejected)])


def _count_reasons(rejected: Sequence[tuple[str, str]]) -> list[FailureJson]:
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
