"""What may go from a run's time, of work that several GPUs do side by side: their mean, not their sum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame

Ints = npt.NDArray[np.int64]


def gpus_of(frame: Frame) -> int:
    """Return how many GPUs work in a trace, 1 at least."""
    return max(1, int(np.unique(frame["device"][frame.work]).size))


def mean_covered_ns(start_ns: Ints, end_ns: Ints, device: Ints, gpus: int) -> float:
    """Return the time that intervals cover on a GPU, in the mean over `gpus`.

    Several at once on one GPU (streams) count once: with them goes the time of one.
    """
    on_each = [device == each for each in np.unique(device).tolist()]
    return sum(intervals.union(start_ns[rows], end_ns[rows]).length_ns for rows in on_each) / max(1, gpus)
