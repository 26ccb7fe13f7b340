"""Two jobs for a page and for the API: rows, sentence, differences of what they were asked and measured with."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tuner import texts
from tuner.jobs import page_selectors
from tuner.jobs.comparison import Comparison, compare
from tuner.models import TuneJob
from tuner.trial import Trial

ASKED = ("operator", "shape", "dtype", "gpu", "recorded", "toolkit", "strategy", "seed", "effort", "budget_trials",
         "budget_seconds", "plateau", "source_hash")


@dataclass(frozen=True)
class Two:
    """Both jobs with their trials and what came of comparing them."""

    a: TuneJob
    b: TuneJob
    trials: tuple[list[Trial], list[Trial]]
    result: Comparison

    @property
    def same_problem(self) -> bool:
        return _problem(self.a) == _problem(self.b)


def _problem(job: TuneJob) -> tuple[Any, ...]:
    return job.operator, job.shape, job.dtype, job.gpu, job.recorded


def two(a: TuneJob, b: TuneJob) -> Two:
    trials = (page_selectors.trials_of(a), page_selectors.trials_of(b))
    return Two(a, b, trials, compare(*trials, same_problem=_problem(a) == _problem(b)))


def answer(found: Two) -> str:
    """Which was better, and which was sooner, in a sentence."""
    a_ms, b_ms = found.result.best_ms
    if a_ms is None or b_ms is None:
        silent = [job for job, ms in ((found.a, a_ms), (found.b, b_ms)) if ms is None]
        missing = " and ".join(f"job {job.pk}" for job in silent).capitalize()
        return f"{missing} measured nothing: there is nothing to compare yet."
    if not found.same_problem:
        return (f"They tuned different problems: job {found.a.pk} ended at {_time(a_ms)}, job {found.b.pk} at {_time(b_ms)}. "
                f"Each is compared with its own best.{_carries(found)}")
    if abs(a_ms / b_ms - 1) < 0.005:
        best = f"Both found {_time(min(a_ms, b_ms))}"
    else:
        better, worse = (found.a, found.b) if a_ms < b_ms else (found.b, found.a)
        times = max(a_ms, b_ms) / min(a_ms, b_ms)
        best = f"Job {better.pk} found {_time(min(a_ms, b_ms))}, {times:.2f}× faster than job {worse.pk}"
    soon = [next(each for each in side if each.within == 1.05) for side in found.result.reached]
    told = [f"job {job.pk} after {each.trials} trial{'s' * (each.trials != 1)}" if each.trials else f"job {job.pk} never"
            for job, each in zip((found.a, found.b), soon, strict=True)]
    return f"{best}. Within 5 % of it: {told[0]}, {told[1]}."


def _carries(found: Two) -> str:
    loss = found.result.crossed[0].loss
    return "" if loss is None else f" The winner of job {found.a.pk} is {loss:.2f}× the best of job {found.b.pk}."


def _time(ms: float) -> str:
    return f"{ms:.3g} ms" if ms >= 1 else f"{ms * 1e3:.3g} µs"


def differences(found: Two) -> list[tuple[str, str, str, bool]]:
    """What they were asked and measured with: name, a, b, whether they differ. Differences first."""
    rows = [(name.replace("_", " "), _text(found.a, name), _text(found.b, name)) for name in ASKED]
    left, right = dict(texts.measured_with(found.a)), dict(texts.measured_with(found.b))
    rows += [(name, left.get(name, ""), right.get(name, "")) for name in dict.fromkeys((*left, *right))]
    told = [(name, a or "—", b or "—", a != b) for name, a, b in rows if a or b]
    return sorted(told, key=lambda row: not row[3])


def _text(job: TuneJob, name: str) -> str:
    value = getattr(job, name)
    if name == "shape":
        return " ".join(f"{dim}={size}" for dim, size in texts.in_order(job.operator, value).items())
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def winners(found: Two) -> list[dict[str, Any]]:
    """Each parameter of the two winners."""
    configs = [texts.config_in_order(job.best_config or {}) for job in (found.a, found.b)]
    return [{"name": name, "a": configs[0].get(name, "—"), "b": configs[1].get(name, "—"),
             "differs": configs[0].get(name) != configs[1].get(name)} for name in dict.fromkeys((*configs[0], *configs[1]))]


def choices(limit: int) -> list[dict[str, Any]]:
    """Jobs to choose from, newest first."""
    return [{"job": job, "shape": texts.in_order(job.operator, job.shape)} for job in TuneJob.objects.order_by("-id")[:limit]]


def as_json(found: Two) -> dict[str, Any]:
    return {"a": found.a.pk, "b": found.b.pk, "answer": answer(found), "same_problem": found.same_problem, **asdict(found.result),
            "differences": [{"name": name, "a": a, "b": b} for name, a, b, differ in differences(found) if differ]}
