"""The least time of every launch by its work from shapes and the GPU's data sheet: what a ranking holds launches against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.layer.ceilings import Ceilings, ceilings_of
from profiles.analysis.trace.layer.launches import LaunchWork, gpu_of_rows, launch_work, precision_of
from profiles.analysis.trace.layer.work import PRODUCTS
from profiles.ingest.trace import Category

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LaunchFloors:
    """Of every launch in the order of `frame.kernels`: its least time in ns, and the FLOP of a product; NaN where unknown."""

    floor_ns: Floats
    flop: Floats


def launch_floors(frame: Frame) -> Floats:
    """Return ns for every launch in the order of `frame.kernels`: the longer of FLOP at the peak and bytes at DRAM bandwidth.

    NaN where the work or the ceiling is not known, and of what only helps an operator whose work another kernel does.
    """
    return floors_of(frame).floor_ns


def floors_of(frame: Frame) -> LaunchFloors:
    """Return the least times, as `launch_floors` has them, and the FLOP that matrix products, convolutions and attention take."""
    kernels = frame.kernels
    floors, flop = np.full(kernels.size, np.nan), np.full(kernels.size, np.nan)
    every = launch_work(frame)
    if not every.rows.size:
        return LaunchFloors(floors, flop)
    gpu, models = gpu_of_rows(frame, every.rows)
    ceilings = [ceilings_of(model) for model in models]
    names = frame["name"][every.rows].astype(np.int64)
    packed = (names * (len(every.works) + 1) + every.work + 1) * len(models) + gpu      # `np.unique(axis=0)` is 20 times slower
    _, first, kind = np.unique(packed, return_index=True, return_inverse=True)
    rates = np.array([_rates(every, frame, at, ceilings[int(gpu[at])]) for at in first.tolist()])[kind.reshape(-1)]
    peak, dram = rates[:, 0], rates[:, 1]
    compute = frame["category"][kernels] == Category.COMPUTE
    floors[compute] = 1e9 * np.fmax(every.flop / peak, every.bytes / dram)
    is_product = np.array([one.kind in PRODUCTS for one in every.works] + [False], np.bool_)[every.work]
    flop[compute] = np.where(is_product, every.flop, np.nan)
    return LaunchFloors(floors, flop)


def _rates(every: LaunchWork, frame: Frame, at: int, ceilings: Ceilings) -> tuple[float, float]:
    """Operations and bytes per second that the launch at `at` could reach; NaN where the GPU or the type is not known."""
    number = int(every.work[at])
    precision = precision_of(every.works[number], frame.text(int(every.rows[at]))) if number >= 0 else ""
    known = ceilings.rate(precision) if precision else None, ceilings.rate("dram")
    peak, dram = (each[0] if each else float("nan") for each in known)
    return peak, dram
