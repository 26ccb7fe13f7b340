"""Kernel launches one by one, as columns: what a comparison of two profiles is made from.

Kept beside the profile (a few bytes per launch), so that comparing reads nothing else.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from profiles.analysis.core.digest import SHAPE, digest_of
from profiles.analysis.core.kernels import dictionary, numbers
from profiles.analysis.kernel.counters import MOST_NS, block_number
from profiles.ingest.trace import KERNELS, Report, Trace
from profiles.ingest.windows import MISSING, MISSING32

__all__ = ["LAUNCHES", "launches_of_report", "launches_of_trace"]
_name = pa.dictionary(pa.int32(), pa.string())
# Ordered by kernel, within a kernel by start: the order is the only trace of which problem a launch worked on.
LAUNCHES = pa.schema([
    ("name", _name),                    # demangled, full
    ("grid_x", pa.int32()), ("grid_y", pa.int32()), ("grid_z", pa.int32()),
    ("block_x", pa.int32()), ("block_y", pa.int32()), ("block_z", pa.int32()),
    ("registers_per_thread", pa.int32()),
    ("smem_bytes", pa.int64()),
    ("dur_ns", pa.float64()),           # null: not measured (counters alone)
    ("index", pa.int64()),              # position among the kernels of the profile, by start
])


def launches_of_trace(trace: Trace) -> pa.Table:
    """LAUNCHES of every kernel of the trace (annotations, copies and instants are no launches)."""
    work, names = digest_of(trace).work, trace.parts.names
    rows = np.flatnonzero(np.isin(work["category"], [int(each) for each in KERNELS]) & ~work["instant"])
    used, code = np.unique(work["name"][rows], return_inverse=True)
    texts = pa.array([names[each] for each in used.tolist()], pa.string())
    arrays = {"name": pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), texts),
              "dur_ns": pa.array(work["dur_ns"][rows]), "index": pa.array(np.arange(rows.size))}
    for name in SHAPE:
        values = work[name][rows]
        arrays[name] = pa.array(values, mask=values == (MISSING if name == "smem_bytes" else MISSING32))
    return _sort_launches(pa.table({name: arrays[name] for name in LAUNCHES.names}))


def launches_of_report(report: Report) -> pa.Table:
    """LAUNCHES of all launches; `dur_ns` is null where the report states none, or broke off in the launch."""
    rows = []
    for launch in report.launches:
        duration = launch.metrics.get("gpu__time_duration.sum")
        if launch.incomplete or not isinstance(duration, (int, float)) or not 0 <= duration < MOST_NS:
            duration = None
        grid, block = ([block_number(side) or None for side in sides or (None,) * 3] for sides in (launch.grid, launch.block))
        rows.append({
            "name": launch.kernel, "grid_x": grid[0], "grid_y": grid[1], "grid_z": grid[2],
            "block_x": block[0], "block_y": block[1], "block_z": block[2],
            "registers_per_thread": block_number(launch.metrics.get("launch__registers_per_thread")),
            "smem_bytes": _smem_bytes(launch.metrics), "dur_ns": duration, "index": launch.index,
        })
    return _sort_launches(pa.Table.from_pylist(rows, LAUNCHES))


def _sort_launches(table: pa.Table) -> pa.Table:
    """By name, then by position; one chunk, and a dictionary of the names that occur."""
    codes, names = dictionary(table, "name")
    used, ranks = np.unique(codes, return_inverse=True)
    order = np.lexsort((numbers(table, "index"), ranks))
    name = pa.DictionaryArray.from_arrays(pa.array(ranks[order], pa.int32()),
                                          pa.array([names[code] for code in used.tolist()], pa.string()))
    return table.take(pa.array(order)).set_column(0, "name", name).cast(LAUNCHES).combine_chunks()


def _smem_bytes(metrics: dict[str, float | str]) -> int | None:
    """Static and dynamic shared memory of a block, without what the driver adds."""
    parts = [block_number(metrics.get(f"launch__shared_mem_per_block_{kind}")) for kind in ("static", "dynamic")]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
