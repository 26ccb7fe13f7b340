"""What a trace holds that is kept and yet remarkable, counted into its integrity report."""

from __future__ import annotations

import numpy as np

from profiles.analysis.breakdown import MAX_DEVICES, STEP
from profiles.analysis.correlate import launch_calls
from profiles.analysis.intervals import overlap_ns, union
from profiles.analysis.kernels import dictionary, numbers
from profiles.trace import GPU_WORK, Category, Trace


def remark(trace: Trace) -> None:
    """GPU work that nothing launched, that took no time, that began outside every step (where there are steps)."""
    slices, integrity = trace.slices, trace.integrity
    category, start, dur = (numbers(slices, name) for name in ("category", "start_ns", "dur_ns"))
    work = np.flatnonzero(np.isin(category, [int(kind) for kind in GPU_WORK]))
    known = ~slices["correlation"].combine_chunks().is_null().to_numpy(zero_copy_only=False)[work]
    launched = launch_calls(trace)[work] >= 0
    integrity.remark("GPU work without a correlation id", int(np.count_nonzero(~known)))
    integrity.remark("GPU work whose launch call is not in the file", int(np.count_nonzero(known & ~launched)))
    integrity.remark("GPU work of no duration", int(np.count_nonzero(dur[work] == 0)))
    devices = np.unique(numbers(slices, "device")[work])
    integrity.remark(f"GPUs beyond the {MAX_DEVICES} that are broken down", max(0, devices.size - MAX_DEVICES))
    codes, names = dictionary(slices, "name")
    named = np.array([bool(STEP.match(name)) for name in names] or [False], np.bool_)
    steps = np.flatnonzero((category == Category.ANNOTATION) & named[codes])
    if steps.size:
        inside = overlap_ns(union(start[steps], start[steps] + dur[steps]), start[work], start[work] + 1)
        integrity.remark("GPU work that began outside every step", int(np.count_nonzero(inside == 0)))
