"""Hardware counters that ROCm's tools collected of dispatches, to a `Report`.

Values are what the tool wrote: of a counter with several instances their sum. Names are AMD's (SQ_WAVES, GRBM_COUNT); what they
mean stands in the documentation of rocprofiler-sdk, no unit is stated by any of these files.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from profiles.ingest.ncu.report import UNTIMED
from profiles.ingest.rocm.rows import Dim, blocks_of, is_time, kernel_name
from profiles.ingest.trace import CounterLaunch, Device, Integrity, Report, TraceError

DURATION = "gpu__time_duration.sum"          # the name under which every report holds the time of a launch, in ns
MAX_CELLS = 6_000_000


class CounterRows:
    """Gathers values by dispatch; `report` makes launches of them, in the order of their first row."""

    def __init__(self, integrity: Integrity) -> None:
        self.integrity = integrity
        self._launches: dict[Hashable, CounterLaunch] = {}
        self._cells = 0

    def __len__(self) -> int:
        return len(self._launches)

    def add(self, dispatch: Hashable, name: str, device: Device, values: Sequence[tuple[str, float]], *, start: int | None = None,
            end: int | None = None, work_items: Dim = None, block: Dim = None, registers: int | None = None) -> None:
        """Values of one dispatch, which may come in several rows."""
        self._cells += len(values)
        if self._cells > MAX_CELLS:
            self.integrity.drop(f"beyond the limit of {MAX_CELLS:,} values of counters")
            return
        launch = self._launches.get(dispatch)
        if launch is None:
            metrics: dict[str, float | str] = {}
            if is_time(start) and is_time(end):
                metrics[DURATION] = float((end or 0) - (start or 0))
            if registers:
                metrics["launch__registers_per_thread"] = float(registers)
            launch = self._launches[dispatch] = CounterLaunch(
                len(self._launches), kernel_name(name), device, blocks_of(work_items, block), block, None, None, metrics)
        for counter, value in values:
            before = launch.metrics.get(counter, 0.0)
            launch.metrics[counter] = value + (before if isinstance(before, float) else 0.0)

    def report(self, format: str) -> Report:
        """Return the launches. Raises TraceError where there are none."""
        if not self._launches:
            raise TraceError("the table of counters", "it holds no value of any counter",
                             "Collect some: `rocprofv3 --pmc SQ_WAVES GRBM_COUNT -- ./program`.")
        integrity = self.integrity
        if not any(DURATION in launch.metrics for launch in self._launches.values()):
            integrity.notes.append(UNTIMED)
        integrity.records_kept = integrity.records_read - sum(integrity.not_kept.values())
        return Report(format, list(self._launches.values()), {DURATION: "ns"}, integrity)
