"""The least time of every launch by its work from shapes and the GPU's data sheet: what a ranking holds launches against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.layer.ceilings import Ceilings, ceilings_of
from profiles.analysis.trace.layer.launches import LaunchWork, gpu_of_rows, launch_work, precision_of
from profiles.ingest.trace import Category


def launch_floors(frame: Frame) -> npt.NDArray[np.float64]:
    """Return ns for every launch in the order of `frame.kernels`: the longer of FLOP at the peak and bytes at DRAM bandwidth.

    NaN where the work or the ceiling is not known, and of what only helps an operator whose work another kernel does.
    """
    kernels = frame.kernels
    floors = np.full(kernels.size, np.nan)
    every = launch_work(frame)
    if not every.rows.size:
        return floors
    gpu, models = gpu_of_rows(frame, every.rows)
    ceilings = [ceilings_of(model) for model in models]
    names = frame["name"][every.rows].astype(np.int64)
    packed = (names * (len(every.works) + 1) + every.work + 1) * len(models) + gpu      # `np.unique(axis=0)` is 20 times slower
    _, first, kind = np.unique(packed, return_index=True, return_inverse=True)
    rates = np.array([_rates(every, frame, at, ceilings[int(gpu[at])]) for at in first.tolist()])[kind.reshape(-1)]
    peak, dram = rates[:, 0], rates[:, 1]
    floors[frame["category"][kernels] == Category.COMPUTE] = 1e9 * np.fmax(every.flop / peak, every.bytes / dram)
    return floors


def _rates(every: LaunchWork, frame: Frame, at: int, ceilings: Ceilings) -> tuple[float, float]:
    """Operations and bytes per second that the launch at `at` could reach; NaN where the GPU or the type is not known."""
    number = int(every.work[at])
    precision = precision_of(every.works[number], frame.text(int(every.rows[at]))) if number >= 0 else ""
    known = ceilings.rate(precision) if precision else None, ceilings.rate("dram")
    peak, dram = (each[0] if each else float("nan") for each in known)
    return peak, dram
