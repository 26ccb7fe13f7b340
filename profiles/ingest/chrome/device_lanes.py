"""Records on lanes of a device of which nobody here knows what they are: said, so that none of them passes for CPU work."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiles.ingest.chrome.kinds import STRANGE, is_strange_device, own_name
from profiles.ingest.trace import Trace


def count_strange_lanes(trace: Trace, processes: Mapping[str, str]) -> None:
    """Count what lies on threads of processes that are called after a device. `processes`: their names by pid."""
    strange = [number for number, track in enumerate(trace.tracks)
               if track.kind == "thread" and track.pid is not None and _is_device(processes.get(track.pid, ""))]
    if strange:
        count = sum(int(np.count_nonzero(np.isin(window.columns["track"], strange))) for window in trace.windows())
        trace.integrity.remark(STRANGE, count)


def _is_device(process: str) -> bool:
    return bool(own_name(process)) or is_strange_device(process)
