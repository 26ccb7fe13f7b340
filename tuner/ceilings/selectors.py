"""The least time of tune jobs and of problems, from the newest measured ceilings of their GPU's model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from profiles.analysis.core import gpus
from profiles.ceilings.selectors import measured_for
from profiles.models import KernelShape, Profile
from tuner.ceilings.least_time import COLD, LeastTime, Rates, gpu_rates, least_time, sol_score
from tuner.models import TuneJob
from tuner.tuning.operators import find, limits
from tuner.tuning.trial import Config, Measured, Outcome, Reason, Rejected

# Whether a launch fills its GPU: programs of a configuration's grid beside SMs and beside what production launches.

Shape = Mapping[str, int]
_EXTENTS = re.compile(r"\d{1,10}(?:\D+\d{1,10}){0,2}\Z")
WHOLE_TILES = ("tiles", "tma", "persistent", "specialised")      # kernels whose work is tiles × splits


def _tiles(shape: Shape, config: Config) -> int | None:
    """Return the programs of a product as tuner.tuning.kernels.matmul launches it; None where a kernel cuts its tail by itself."""
    if config.get("KERNEL", "tiles") not in WHOLE_TILES:
        return None
    split = int(config.get("SPLIT_K", 1)) if config.get("KERNEL", "tiles") in ("tiles", "tma") else 1
    return -(-shape["M"] // int(config["BM"])) * -(-shape["N"] // int(config["BN"])) * split


def _queries(shape: Shape, config: Config) -> int:
    return -(-shape["N"] // int(config["BM"])) * shape["B"] * shape["H"]


def _rows(shape: Shape, config: Config) -> int:
    return -(-shape["R"] // int(config.get("ROWS", 1)))


# Grids that follow from shape and configuration alone, as the kernels launch them. Of others nothing is said.
PROGRAMS: Mapping[str, Callable[[Shape, Config], int | None]] = {
    "matmul": _tiles, "matmul_bias_act": _tiles, "attention": _queries, "gqa_attention": _queries, "softmax": _rows,
    "layernorm": _rows}


def programs(operator: str, shape: Shape, config: Config | None) -> int | None:
    """Return how many programs a launch has that could work at once; None where the configuration does not tell."""
    count = PROGRAMS.get(operator)
    definition = find(operator) if count is not None else None
    if definition is None or count is None or not config:
        return None
    try:
        return count(shape, definition.named(config))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):      # a configuration of another source than ours
        return None


def grid_programs(grid: str) -> int | None:
    """Return the blocks of a grid that a profile tells, as "512×1×1"; None where it tells none."""
    if not _EXTENTS.match(grid):
        return None
    total = 1
    for extent in re.findall(r"\d+", grid):
        total *= int(extent)
    return total or None


class GridJson(TypedDict):
    """A grid that leaves SMs empty."""

    programs: int
    sms: int
    of: str                     # the best configuration or, before one is known, the default
    production: int | None      # programs that profiles of this GPU model saw the operator launch for most of its time
    text: str
    warns: bool                 # those would fill the GPU


def job_grid(job: TuneJob) -> GridJson | None:
    """Return what is said of a job's grid; None where it fills the GPU or is unknown."""
    entry = find(job.operator)
    if entry is None or not job.gpu or entry.problems(job.shape, job.dtype):
        return None
    card = limits(job.gpu, job.environment.get("compute_capability"), job.environment.get("sms"))
    of, config = ("best", job.best_config) if job.best_config else ("default", entry.default_config(job.shape, job.dtype, card))
    launched = programs(job.operator, job.shape, config)
    if launched is None or card.sms <= 1 or launched >= card.sms:
        return None
    row = (KernelShape.objects.filter(tune__operator=job.operator, tune__dtype=job.dtype, kernel__profile__gpu=job.gpu,
                                      kernel__profile__status=Profile.Status.READY)
           .exclude(grid="").order_by("-total_ns", "id").first())
    production = grid_programs(row.grid) if row else None
    warns = production is not None and production >= card.sms
    text = f"{launched:,} program{'s' * (launched != 1)} on {card.sms:,} SMs: {card.sms - launched:,} have nothing to do"
    if row is not None and warns:
        shape = " ".join(f"{dim.name}={row.tune[dim.name]}" for dim in entry.dims if dim.name in row.tune)
        text += f". Most of its time in profiles it has {production:,} ({shape}): a winner here may not win there"
    return {"programs": launched, "sms": card.sms, "of": of, "production": production, "text": text, "warns": warns}


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
        definition = find(operator)
        if definition is None or not gpu or definition.problems(shape, dtype):
            return None
        try:
            if definition.gpus(shape) > 1:
                return None
            flops, moved = definition.flops(shape), definition.bytes(shape, dtype)
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
    facts = {name: value for name, value in outcome.facts.items() if name not in ("samples_ms", "interval_ms", "round_ms")}
    return Rejected(Reason.IMPOSSIBLE, least.impossible_text(outcome.median_ms), facts)


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
