"""Which call launched which GPU work, by correlation ids alone: what a trace's readers must have kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.columns import NONE, match, numbers
from profiles.ingest.trace import GPU_WORK, Category, Trace


def launch_calls(trace: Trace) -> npt.NDArray[np.int64]:
    """Return, for each slice, the row of the runtime call that launched it; -1 for CPU slices and where no call is known.

    One call may own many: a graph launch owns every kernel of its graph.
    """
    category, correlation = numbers(trace.slices, "category"), numbers(trace.slices, "correlation", -(2**63))
    calls = np.full(correlation.size, NONE, np.int64)
    work = np.flatnonzero(np.isin(category, [int(kind) for kind in GPU_WORK]))
    callers = np.flatnonzero(category == Category.RUNTIME)
    matched = match(correlation[work], correlation[callers])
    calls[work[matched >= 0]] = callers[matched[matched >= 0]]
    return calls
