"""Two recordings by what they compute, without a server: launches with the columns that a comparison reads."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from profiles import ingest
from profiles.analysis.compare.comparison import Comparison, launches_of_trace
from profiles.analysis.compare.kernels import compare
from profiles.analysis.compare.launch_operations import LaunchOperations, launch_operations
from profiles.analysis.compare.operations import OperationRow, compare_operations
from profiles.analysis.core.frame import frame_of
from profiles.ingest.trace import Trace
from tests.profiles.needed.natural import DATA


@cache
def side(file: str) -> tuple[pa.Table, LaunchOperations, int]:
    """Return the launches of a file of tests/data with what they compute, and its marked steps."""
    trace = ingest.read(str(DATA / file))
    assert isinstance(trace, Trace)
    frame = frame_of(trace)
    made = launch_operations(frame)
    assert made is not None
    table = launches_of_trace(trace)
    index = table["index"].to_numpy()
    texts = [each.text for each in made.operations]
    for name in ("operation", "by_kernel"):
        table = table.append_column(name, pa.array([texts[code] for code in getattr(made, name)[index].tolist()], pa.string()))
    table = table.append_column("has_operator", pa.array(made.has_operator[index]))
    for name, amounts in (("flop", made.flop), ("bytes", made.bytes), ("work", made.call_work)):
        table = table.append_column(name, pa.array(amounts[index]))
    return table, made, sum(name.startswith("ProfilerStep#") for name in frame.names)


@cache
def compared(old: str, new: str) -> tuple[dict[str, OperationRow], Comparison]:
    """Return the kinds of operations by name, a step, and the kernels in all."""
    (a, made_a, steps_a), (b, made_b, steps_b) = side(old), side(new)
    rows = compare_operations(a, b, [*made_a.operations, *made_b.operations], old_units=steps_a or 1, new_units=steps_b or 1)
    return {row.kind: row for row in rows}, compare(a, b)
