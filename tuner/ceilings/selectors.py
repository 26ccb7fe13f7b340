"""The least time of tune jobs and of problems, from the newest measured ceilings of their GPU's model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from profiles.analysis.core import gpus
from profiles.ceilings.selectors import measured_for
from tuner.ceilings.least_time import COLD, LeastTime, Rates, gpu_rates, least_time, sol_score
from tuner.models import TuneJob
from tuner.tuning.operators import find
from tuner.tuning.trial import Measured, Outcome, Reason, Rejected


class Ceilings:
    """Least times, the rates of each GPU looked up once."""

    def __init__(self) -> None:
        self._rates: dict[str, Rates] = {}

    def rates(self, gpu: str) -> Rates:
        """Return what is known of a model of GPU by the name its driver gives it."""
        if gpu not in self._rates:
            self._rates[gpu] = gpu_rates(gpu, gpus.peaks_of(gpu), measured_for(gpu))
        return self._rates[gpu]

    def of_problem(self, operator: str, dtype: str, shape: Mapping[str, Any], gpu: str, timing: str = COLD) -> LeastTime | None:
        """Return the least time of a problem; None where its work or the rates of the GPU are unknown, or several GPUs share it."""
        known = find(operator)
        if known is None or not gpu or known.problems(shape, dtype):
            return None
        try:
            if known.gpus(shape) > 1:
                return None
            flops, moved = known.flops(shape), known.bytes(shape, dtype)
        except (ValueError, ArithmeticError):        # a team's formula that does not hold for this shape
            return None
        return least_time(flops, moved, dtype, self.rates(gpu), timing=timing)

    def of_job(self, job: TuneJob) -> LeastTime | None:
        """Return the least time of what a job searches; None before its GPU is known."""
        return self.of_problem(job.operator, job.dtype, job.shape, job.gpu, job.timing)


def believe_below(least: LeastTime | None, outcome: Outcome) -> Outcome:
    """Return the outcome, or its rejection where the time is below what the GPU can do."""
    if least is None or not isinstance(outcome, Measured) or not least.is_impossible(outcome.median_ms):
        return outcome
    kept = {name: value for name, value in outcome.facts.items() if name not in ("samples_ms", "interval_ms", "round_ms")}
    return Rejected(Reason.IMPOSSIBLE, least.impossible_text(outcome.median_ms), kept)


def good_ms(job: TuneJob, least: LeastTime | None) -> float | None:
    """Return the time at which a job has reached the share of the ceiling that ends it; None where none was asked for or known."""
    return least.ms * 100 / job.ceiling_pct if least is not None and job.ceiling_pct else None


class CeilingJson(TypedDict):
    """The least time of a job's problem; shares are 0-1 of the best, the default and the library."""

    ms: float
    side: str
    source: str
    flop_ms: float | None
    bytes_ms: float | None
    physical_ms: float | None
    share: float | None
    default_share: float | None
    library_share: float | None
    score: float | None             # the best's SOL score against the baseline
    baseline: str | None            # "library", else "default"


def job_ceiling(job: TuneJob, ceilings: Ceilings | None = None) -> CeilingJson | None:
    """Return what pages, API and commands say of a job's ceiling; None where it is unknown."""
    least = (ceilings or Ceilings()).of_job(job)
    if least is None:
        return None
    base_ms, baseline = (job.library_ms, "library") if job.library_ms else (job.default_ms, "default")
    return {"ms": least.ms, "side": least.side, "source": least.source, "flop_ms": least.flop_ms, "bytes_ms": least.bytes_ms,
            "physical_ms": least.physical_ms, "share": least.share(job.best_ms), "default_share": least.share(job.default_ms),
            "library_share": least.share(job.library_ms), "score": sol_score(job.best_ms, base_ms, least.ms),
            "baseline": baseline if base_ms else None}
