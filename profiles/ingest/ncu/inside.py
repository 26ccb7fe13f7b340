"""Inside the launches of a report: instructions with their counters, source files, series over time, as columns.

The reader's process (`ncu_child_source`) says them as JSON within bounds per launch; here they are bounded per report, so
that a report of ten thousand launches keeps the first ones of every kernel.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from profiles.ingest.trace import INSTRUCTIONS, PERIODIC, CounterLaunch, Report, SourceFile, SourceMark

LAUNCHES_PER_KERNEL = 12           # of one name, grid and block: more of the same tell nothing new
MAX_ROWS = 400_000                 # instructions of all launches together: some 200 MB while the ingest runs
MAX_SAMPLES = 2_000_000
ABSOLUTE_NS = 10**13               # a "time in the launch" beyond this is the GPU's clock: the reader could not align it
_CUT = "instructions beyond the bound of one kernel"
_BEYOND = "launches whose instructions were not kept (the first of each kernel are)"


class Inside:
    """Takes what is inside each launch, as long as there is room in the report."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.taken: Counter[tuple[Any, ...]] = Counter()
        self.rows = self.samples = 0

    def take(self, document: dict[str, Any], launch: CounterLaunch) -> None:
        """Fill `launch.instructions`, `.periodic` and `.marks`; files go to the report."""
        for each in document.get("files", ()):
            self._file(each)
        if "instructions" not in document and "sampling" not in document:
            return
        kind = (launch.kernel, launch.grid, launch.block)
        size, samples = len(document.get("instructions", {}).get("address", ())), sum(
            len(series["times"]) for series in document.get("sampling", ()))
        if self.taken[kind] >= LAUNCHES_PER_KERNEL or self.rows + size > MAX_ROWS or self.samples + samples > MAX_SAMPLES:
            self.report.integrity.remark(_BEYOND, 1)
            return
        self.taken[kind] += 1
        self.rows += size
        self.samples += samples
        if size:
            launch.instructions = instructions(document["instructions"])
            self.report.integrity.remark(_CUT, document["instructions"]["cut"])
            launch.marks = tuple(SourceMark(**mark) for mark in document.get("marks", ()))
        if samples:
            launch.periodic = periodic(document["sampling"])

    def _file(self, said: dict[str, Any]) -> None:
        """Numbers come in order; a hole (never seen) would shift every later file."""
        while len(self.report.files) <= said["number"]:
            self.report.files.append(SourceFile("(unnamed)"))
        self.report.files[said["number"]] = SourceFile(said["name"], said["text"])


def instructions(said: dict[str, Any]) -> pa.Table:
    """Return INSTRUCTIONS with a column per metric.

    Null where the metric says nothing of an instruction.
    """
    size = len(said["address"])
    columns: dict[str, pa.Array] = {
        name: pa.array(said[name], field.type) for name, field in zip(INSTRUCTIONS.names, INSTRUCTIONS, strict=True)}
    for name, given in sorted(said["metrics"].items()):
        if name in columns:
            continue
        values, known = np.zeros(size), np.zeros(size, np.bool_)
        values[given["rows"]] = given["values"]
        known[given["rows"]] = True
        columns[name] = pa.array(values, mask=~known)
    return pa.table(columns)


def periodic(said: list[dict[str, Any]]) -> pa.Table:
    """Return PERIODIC of all series.

    Series that the reader could not align begin at their own first sample.
    """
    parts = [part for part in map(_series, said) if part.num_rows]
    return pa.concat_tables(parts).cast(PERIODIC) if parts else PERIODIC.empty_table()


def _series(series: dict[str, Any]) -> pa.Table:
    times = np.array(series["times"], np.int64)
    values = np.array([np.nan if value is None else value for value in series["values"]], np.float64)
    kept = np.isfinite(values)
    if times.size and times.max() > ABSOLUTE_NS:
        kept &= times > 0                              # the reader's first point has no time
        times = times - (times[kept].min() if kept.any() else 0)
    count = int(kept.sum())
    return pa.table({
        "metric": pa.array([series["metric"]] * count, pa.string()), "unit": pa.array([series["unit"]] * count, pa.string()),
        "label": pa.array([series["label"]] * count, pa.string()), "time_ns": times[kept], "value": values[kept],
    })
