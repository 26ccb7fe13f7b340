"""Two jobs compared: how soon each was how good, what both measured, their winners.

Jobs to compare, to choose from: searched and bounded, the likeliest first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from django.db.models import Case, Q, TextField, When
from django.db.models.functions import Cast

from profiles.base.answers import Choice, make_answer
from profiles.base.words import pairs_text
from tuner import texts
from tuner.jobs import selectors
from tuner.jobs.insight import Milestone, milestones
from tuner.models import TuneJob
from tuner.spaces.edit import edit_text
from tuner.tuning.trial import Config, Rejected, Trial, config_key

LISTED = 100             # options of the form, which works without a script
FOUND = 30               # answers to a search


def job_choices(find: str = "", beside: str = "", limit: int = FOUND) -> list[Choice]:
    """Return jobs that have every word of `find`, those of the operator of the job `beside` first, then the newest."""
    jobs = TuneJob.objects.annotate(shape_text=Cast("shape", TextField()), id_text=Cast("pk", TextField())).order_by("-id")
    for word in find[:200].split()[:6]:
        anywhere = Q(id_text=word)
        for name in ("operator", "dtype", "strategy", "gpu", "device", "status", "shape_text"):
            anywhere |= Q(**{f"{name}__icontains": word})
        jobs = jobs.filter(anywhere)
    other = TuneJob.objects.filter(pk=int(beside)).first() if beside.isdecimal() and len(beside) < 12 else None
    if other is not None:
        same = Case(When(operator=other.operator, shape=other.shape, then=2), When(operator=other.operator, then=1), default=0)
        jobs = jobs.exclude(pk=other.pk).annotate(same=same).order_by("-same", "-id")
    return [job_choice(job) for job in jobs[:limit]]


def job_choice(job: TuneJob) -> Choice:
    """Return a job as a line of a list."""
    shape = pairs_text(texts.in_order(job.operator, job.shape))
    note = [job.strategy, job.gpu or job.device, *(["space edited"] if job.space else []), job.status, f"{job.created:%Y-%m-%d}"]
    return Choice(str(job.pk), f"{job.pk} · {job.operator} {shape}", " · ".join(note))


LEAST_PAIRS = 5          # configurations that both measured, for an interval and a rank correlation
Z95 = 1.96


@dataclass(frozen=True)
class Pair:
    """A configuration that both measured; times in ms."""

    config: Config
    a_ms: float
    b_ms: float


@dataclass(frozen=True)
class CarriedWinner:
    """A job's winner in the other job; `loss`: ÷ the other's best, None if never measured."""

    ms: float | None
    loss: float | None


@dataclass(frozen=True)
class Comparison:
    """`ratio`: geometric mean of b / a over what both measured, with its 95 % interval."""

    best_ms: tuple[float | None, float | None]
    reached: tuple[tuple[Milestone, ...], tuple[Milestone, ...]]
    pairs: tuple[Pair, ...]
    ratio: float | None
    interval: tuple[float, float] | None
    rank: float | None                       # Spearman's correlation of the two orders, -1 to 1
    crossed: tuple[CarriedWinner, CarriedWinner]         # a's winner in b, b's winner in a
    failures: tuple[tuple[str, int, int], ...]      # reason, in a, in b


def compare(a: Sequence[Trial], b: Sequence[Trial], same_problem: bool) -> Comparison:
    """Compare two jobs' trials; with `same_problem` both are measured by the better winner."""
    timed = [_full_trials(a), _full_trials(b)]
    bests = [min(trials.values(), default=None, key=lambda trial: trial.median_ms or math.inf) for trials in timed]
    best_ms = (_median_ms(bests[0]), _median_ms(bests[1]))
    times_ms = [ms for ms in best_ms if ms is not None]
    goals = [min(times_ms) if same_problem and times_ms else ms for ms in best_ms]
    soon = [tuple(milestones(trials, goal)) if goal is not None else () for trials, goal in zip((a, b), goals, strict=True)]
    pairs = tuple(Pair(trial.config, trial.median_ms or 0.0, timed[1][key].median_ms or 0.0)
                  for key, trial in timed[0].items() if key in timed[1])
    ratio, interval = _mean_ratio(pairs)
    return Comparison(best_ms, (soon[0], soon[1]), pairs, ratio, interval, _rank_correlation(pairs),
                      (_carry_winner(bests[0], timed[1], best_ms[1]), _carry_winner(bests[1], timed[0], best_ms[0])),
                      _failure_counts(a, b))


def _full_trials(trials: Sequence[Trial]) -> dict[str, Trial]:
    """Return trials measured to the end, by key; a raced time is of too few samples."""
    return {config_key(trial.config): trial for trial in trials
            if trial.median_ms is not None and trial.outcome.facts.get("ended") != "raced"}


def _median_ms(trial: Trial | None) -> float | None:
    return trial.median_ms if trial is not None else None


def _mean_ratio(pairs: Sequence[Pair]) -> tuple[float | None, tuple[float, float] | None]:
    if not pairs:
        return None, None
    logs = np.log([pair.b_ms / pair.a_ms for pair in pairs])
    middle = float(logs.mean())
    if len(pairs) < LEAST_PAIRS:
        return math.exp(middle), None
    half = Z95 * float(logs.std(ddof=1)) / math.sqrt(len(pairs))
    return math.exp(middle), (math.exp(middle - half), math.exp(middle + half))


def _rank_correlation(pairs: Sequence[Pair]) -> float | None:
    """Return Spearman's correlation of the times, ties at their mean rank."""
    if len(pairs) < LEAST_PAIRS:
        return None
    left, right = _ranks([pair.a_ms for pair in pairs]), _ranks([pair.b_ms for pair in pairs])
    if left.std() == 0 or right.std() == 0:
        return None
    return float(np.corrcoef(left, right)[0, 1])


def _ranks(values: Sequence[float]) -> Any:
    _, index, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[index]


def _carry_winner(winner: Trial | None, other: Mapping[str, Trial], best_ms: float | None) -> CarriedWinner:
    there = other.get(config_key(winner.config)) if winner is not None else None
    ms = _median_ms(there)
    return CarriedWinner(ms, ms / best_ms if ms is not None and best_ms else None)


def _failure_counts(a: Sequence[Trial], b: Sequence[Trial]) -> tuple[tuple[str, int, int], ...]:
    counts = [Counter(str(trial.outcome.reason) for trial in trials if isinstance(trial.outcome, Rejected)) for trials in (a, b)]
    return tuple((reason, counts[0][reason], counts[1][reason]) for reason, _ in (counts[0] + counts[1]).most_common())


@dataclass(frozen=True)
class SharedConfig:
    """A configuration that every job measured; `worst` and geometric `mean` of its losses."""

    config: Config
    worst: float
    mean: float


def carried_losses(jobs: Sequence[Sequence[Trial]]) -> list[list[float | None]]:
    """Return [i][j]: winner of job i measured in job j ÷ best of j; None if not measured."""
    timed = [_full_trials(trials) for trials in jobs]
    bests = [min(trials.values(), default=None, key=lambda trial: trial.median_ms or math.inf) for trials in timed]
    return [[_carry_winner(winner, other, _median_ms(best)).loss for other, best in zip(timed, bests, strict=True)]
            for winner in bests]


def best_shared_config(jobs: Sequence[Sequence[Trial]]) -> SharedConfig | None:
    """Return the configuration with the smallest worst loss over all jobs; None without any."""
    timed = [_full_trials(trials) for trials in jobs]
    if not timed or not all(timed):
        return None
    bests = [min(trial.median_ms or math.inf for trial in trials.values()) for trials in timed]
    best_config: SharedConfig | None = None
    for key in set.intersection(*(set(trials) for trials in timed)):
        losses = [(trials[key].median_ms or math.inf) / best for trials, best in zip(timed, bests, strict=True)]
        worst, mean = max(losses), math.exp(sum(map(math.log, losses)) / len(losses))
        if best_config is None or (worst, mean) < (best_config.worst, best_config.mean):
            best_config = SharedConfig(timed[0][key].config, worst, mean)
    return best_config


ASKED = ("operator", "shape", "dtype", "gpu", "recorded", "toolkit", "strategy", "seed", "effort", "space",
         "budget_trials", "budget_seconds", "plateau", "source_hash")


@dataclass(frozen=True)
class JobPair:
    """Two jobs with their trials and their comparison."""

    a: TuneJob
    b: TuneJob
    trials: tuple[list[Trial], list[Trial]]
    result: Comparison

    @property
    def same_problem(self) -> bool:
        """Return whether both tuned the same problem."""
        return _problem_key(self.a) == _problem_key(self.b)


def _problem_key(job: TuneJob) -> tuple[Any, ...]:
    return job.operator, job.shape, job.dtype, job.gpu, job.recorded


def compare_jobs(a: TuneJob, b: TuneJob) -> JobPair:
    """Read the trials of two jobs and compare them."""
    trials = (selectors.lean_trials(a), selectors.lean_trials(b))
    return JobPair(a, b, trials, compare(*trials, same_problem=_problem_key(a) == _problem_key(b)))


def answer_text(pair: JobPair) -> str:
    """Return in a sentence which job was better and which sooner."""
    a_ms, b_ms = pair.result.best_ms
    if a_ms is None or b_ms is None:
        silent = [job for job, ms in ((pair.a, a_ms), (pair.b, b_ms)) if ms is None]
        missing = " and ".join(f"job {job.pk}" for job in silent).capitalize()
        return f"{missing} measured nothing: there is nothing to compare yet."
    if not pair.same_problem:
        return (f"They tuned different problems: job {pair.a.pk} ended at {_time_text(a_ms)}, job {pair.b.pk} at "
                f"{_time_text(b_ms)}. Each is compared with its own best.{_carry_text(pair)}")
    if abs(a_ms / b_ms - 1) < 0.005:
        best = f"Both found {_time_text(min(a_ms, b_ms))}"
    else:
        better, worse = (pair.a, pair.b) if a_ms < b_ms else (pair.b, pair.a)
        times = max(a_ms, b_ms) / min(a_ms, b_ms)
        best = f"Job {better.pk} found {_time_text(min(a_ms, b_ms))}, {times:.2f}× faster than job {worse.pk}"
    soon = [next(milestone for milestone in side if milestone.within == 1.05) for side in pair.result.reached]
    sooner = [f"job {job.pk} after {each.trials} trial{'s' * (each.trials != 1)}" if each.trials else f"job {job.pk} never"
              for job, each in zip((pair.a, pair.b), soon, strict=True)]
    return f"{best}. Within 5 % of it: {sooner[0]}, {sooner[1]}."


def _carry_text(pair: JobPair) -> str:
    loss = pair.result.crossed[0].loss
    return "" if loss is None else f" The winner of job {pair.a.pk} is {loss:.2f}× the best of job {pair.b.pk}."


def _time_text(ms: float) -> str:
    return f"{ms:.3g} ms" if ms >= 1 else f"{ms * 1e3:.3g} µs"


def differences(pair: JobPair) -> list[tuple[str, str, str, bool]]:
    """Return (name, a, b, differ) of what the jobs were asked and measured with; differing first."""
    rows = [(name.replace("_", " "), _field_text(pair.a, name), _field_text(pair.b, name)) for name in ASKED]
    left, right = dict(texts.measured_with(pair.a)), dict(texts.measured_with(pair.b))
    rows += [(name, left.get(name, ""), right.get(name, "")) for name in dict.fromkeys((*left, *right))]
    shown = [(name, a or "—", b or "—", a != b) for name, a, b in rows if a or b]
    return sorted(shown, key=lambda row: not row[3])


def _field_text(job: TuneJob, name: str) -> str:
    value = getattr(job, name)
    if name == "shape":
        return " ".join(f"{dim}={size}" for dim, size in texts.in_order(job.operator, value).items())
    if name == "space":
        return edit_text(value) or "the operator's own"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def winner_parameters(pair: JobPair) -> list[dict[str, Any]]:
    """Return each parameter of the two winners."""
    configs = [texts.config_in_order(job.best_config or {}) for job in (pair.a, pair.b)]
    return [{"name": name, "a": configs[0].get(name, "—"), "b": configs[1].get(name, "—"),
             "differs": configs[0].get(name) != configs[1].get(name)} for name in dict.fromkeys((*configs[0], *configs[1]))]


class DifferenceJson(TypedDict):
    """What two jobs were not asked, or not measured with, alike."""

    name: str
    a: str
    b: str


class ComparisonJson(TypedDict):
    """Two jobs compared: `Comparison` with what is said of it."""

    a: int
    b: int
    answer: str
    same_problem: bool
    best_ms: tuple[float | None, float | None]
    reached: tuple[list[Milestone], list[Milestone]]
    pairs: list[Pair]
    ratio: float | None
    interval: tuple[float, float] | None
    rank: float | None
    crossed: tuple[CarriedWinner, CarriedWinner]
    failures: list[tuple[str, int, int]]
    differences: list[DifferenceJson]


def comparison_json(pair: JobPair) -> ComparisonJson:
    """Return the comparison as the API sends it."""
    return make_answer(ComparisonJson, pair.result, a=pair.a.pk, b=pair.b.pk, answer=answer_text(pair),
                       same_problem=pair.same_problem,
                       differences=[{"name": name, "a": a, "b": b} for name, a, b, differ in differences(pair) if differ])
