"""A critical path as the timeline draws it: its segments in a window, few enough for a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.columns import rows_by_value
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.critical.walk import BEFORE, BETWEEN, CPU, DEPENDENCY, HANDED, LAUNCHING, RETURNING, UNEXPLAINED, Path

MOST = 3000                         # segments that are given one by one
PIXELS = 1500
WORDS = {CPU: "host", LAUNCHING: "launch latency", BETWEEN: "between kernels", DEPENDENCY: "waits for another stream",
         RETURNING: "return from wait", HANDED: "between threads", UNEXPLAINED: "not explained", BEFORE: "not explained"}


def path_segments(frame: Frame, path: Path, start_ns: int, end_ns: int) -> dict[str, Any]:
    """Return a critical path in a window as segments for the timeline.

    `segments`: [track, depth, start_ns, end_ns, what, slice or null] in order of time, `exact` true; of more than MOST the
    stretches that the path covers on each track, closer than a pixel joined.
    """
    inside = np.flatnonzero((path.from_ns < end_ns) & (path.to_ns > start_ns) & (path.track >= 0))
    if inside.size <= MOST:
        row = path.row[inside]
        known = row >= 0
        depth = np.where(known, frame["depth"][np.maximum(row, 0)], 0)
        ids = np.where(known, frame["id"][np.maximum(row, 0)], -1)
        return {"exact": True, "segments": [
            [track, deep, lo, hi, WORDS.get(kind, "GPU"), slice_id if slice_id >= 0 else None]
            for track, deep, lo, hi, kind, slice_id in zip(path.track[inside].tolist(), depth.tolist(),
                                                           path.from_ns[inside].tolist(),
                                                           path.to_ns[inside].tolist(), path.kind[inside].tolist(), ids.tolist(),
                                                           strict=True)]}
    pixel = max(1, (end_ns - start_ns) // PIXELS)
    segments = []
    for track, places in rows_by_value(path.track[inside]).items():
        mine = inside[places]
        joined = intervals.union(path.from_ns[mine], path.to_ns[mine] + pixel)
        what = "host" if frame.tracks[track].kind == "thread" else "GPU"
        segments += [[track, 0, lo, hi - pixel, what, None] for lo,
                     hi in zip(joined.start_ns.tolist(), joined.end_ns.tolist(), strict=True)]
    return {"exact": False, "segments": sorted(segments, key=lambda segment: segment[2])}
