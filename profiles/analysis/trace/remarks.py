"""What a trace holds that is kept and yet remarkable, counted into its integrity report."""

from __future__ import annotations

import numpy as np

from profiles.analysis.core.digest import digest_of
from profiles.analysis.core.intervals import overlap_ns, union
from profiles.analysis.trace.breakdown import MAX_DEVICES
from profiles.ingest.trace import Trace
from profiles.ingest.windows import MISSING


def remark(trace: Trace) -> None:
    """Count remarkable GPU work into the integrity report.

    Work that nothing launched, that took no time, that began outside every step (where there are steps).
    """
    digest, integrity = digest_of(trace), trace.integrity
    work = digest.work
    known, launched = work["correlation"] != MISSING, digest.call >= 0
    integrity.remark("GPU work without a correlation id", int(np.count_nonzero(~known)))
    integrity.remark("GPU work whose launch call is not in the file", int(np.count_nonzero(known & ~launched)))
    integrity.remark("GPU work of no duration", int(np.count_nonzero(work["dur_ns"] == 0)))
    devices = np.unique(work["device"])
    integrity.remark(f"GPUs beyond the {MAX_DEVICES} that are broken down", max(0, devices.size - MAX_DEVICES))
    steps = digest.steps()
    if steps:
        start, end = (np.array([step[i] for step in steps], np.int64) for i in (1, 2))
        inside = overlap_ns(union(start, end), work["start_ns"], work["start_ns"] + 1)
        integrity.remark("GPU work that began outside every step", int(np.count_nonzero(inside == 0)))
