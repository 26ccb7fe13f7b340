"""Whether a launch fills its GPU: programs of a configuration's grid beside SMs and beside what production launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypedDict

from profiles.models import KernelShape, Profile
from tuner.models import TuneJob
from tuner.tuning.operators import find, limits
from tuner.tuning.trial import Config

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
    known = find(operator) if count is not None else None
    if known is None or count is None or not config:
        return None
    try:
        return count(shape, known.named(config))
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
    known = find(job.operator)
    if known is None or not job.gpu or known.problems(job.shape, job.dtype):
        return None
    card = limits(job.gpu, job.environment.get("compute_capability"), job.environment.get("sms"))
    of, config = ("best", job.best_config) if job.best_config else ("default", known.default_config(job.shape, job.dtype, card))
    launched = programs(job.operator, job.shape, config)
    if launched is None or card.sms <= 1 or launched >= card.sms:
        return None
    seen = (KernelShape.objects.filter(tune__operator=job.operator, tune__dtype=job.dtype, kernel__profile__gpu=job.gpu,
                                       kernel__profile__status=Profile.Status.READY)
            .exclude(grid="").order_by("-total_ns", "id").first())
    production = grid_programs(seen.grid) if seen else None
    warns = production is not None and production >= card.sms
    text = f"{launched:,} program{'s' * (launched != 1)} on {card.sms:,} SMs: {card.sms - launched:,} have nothing to do"
    if seen is not None and warns:
        shape = " ".join(f"{dim.name}={seen.tune[dim.name]}" for dim in known.dims if dim.name in seen.tune)
        text += f". Most of its time in profiles it has {production:,} ({shape}): a winner here may not win there"
    return {"programs": launched, "sms": card.sms, "of": of, "production": production, "text": text, "warns": warns}
