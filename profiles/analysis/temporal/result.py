"""The topic "time" as one result: what a page, a program and a command say of where the time of a trace went."""

from __future__ import annotations

from typing import Any

from profiles.analysis.found import Result
from profiles.analysis.frame import Frame
from profiles.analysis.sentences import pct_text, plural, time_text
from profiles.analysis.temporal.work import PARTS, DeviceWork, devices
from profiles.trace import SummaryColumn, SummaryTable

MOST_ROWS = 1_000


def time_result(frame: Frame) -> Result:
    """Where the time went."""
    found = devices(frame)
    begin_ns, end_ns = frame.wall
    wall_ns = end_ns - begin_ns
    if not found or wall_ns <= 0:
        return Result(nothing(frame), applies=False)
    busy_pct = 100 * sum(each.busy.length_ns for each in found) / (wall_ns * len(found))
    who = found[0].label if len(found) == 1 else f"{plural(len(found), 'GPU')} on average"
    return Result(
        f"{who} busy {pct_text(busy_pct)} of {time_text(wall_ns)}.",
        numbers={"wall_ns": wall_ns, "start_ns": begin_ns, "devices": [_device(each, wall_ns) for each in found]},
        tables=[device_table(found, wall_ns)])


def nothing(frame: Frame) -> str:
    """Why there is no time of a GPU to divide."""
    if not frame.rows:
        return "This trace holds no slices: record it again with GPU activity (`ProfilerActivity.CUDA`, `nsys profile -t cuda`)."
    return ("No GPU work in this trace: nothing says what a GPU did. Record kernels and copies too "
            "(`ProfilerActivity.CUDA`, `nsys profile -t cuda`).")


def _device(work: DeviceWork, wall_ns: int) -> dict[str, Any]:
    span = work.span
    return {
        "index": work.index, "label": work.label, "name": work.name, "rank": work.rank, "wall_ns": wall_ns,
        "busy_ns": work.busy.length_ns, "idle_ns": wall_ns - work.busy.length_ns,
        **{f"{part}_ns": work.exposed[part].length_ns for part in PARTS},
        **{f"{part}_overlapped_ns": work.overlapped_ns(part) for part in PARTS if part != "compute"},
        "span_ns": span[1] - span[0], "idle_in_span_ns": span[1] - span[0] - work.busy.length_ns}


def device_table(found: list[DeviceWork], wall_ns: int) -> SummaryTable:
    """Parts of wall time per GPU."""
    columns = [SummaryColumn("GPU", text=True), *(SummaryColumn(name, "ns") for name in (
        "wall", "compute", "communication, exposed", "memory, exposed", "idle", "communication, overlapped",
        "memory, overlapped", "first to last work", "idle between work"))]
    rows: list[list[Any]] = []
    for each in found:
        said = _device(each, wall_ns)
        rows.append([each.label, *(said[key] for key in (
            "wall_ns", "compute_ns", "communication_ns", "memory_ns", "idle_ns", "communication_overlapped_ns",
            "memory_overlapped_ns", "span_ns", "idle_in_span_ns"))])
    return SummaryTable("Time of each GPU", columns, rows,
                        "Compute, exposed communication, exposed memory traffic and idle add up to wall time exactly.")
