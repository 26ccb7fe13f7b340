"""Periodic samples inside a launch (PM sampling): what ran when within one kernel.

Source: Nsight Compute documentation, Kernel Profiling Guide, "PM Sampling". A sample is the value over one interval of the
sampler, of the whole GPU. The sampler runs in passes of its own and starts before the kernel: the *window* is the part in
which SMs were active. Sums over all samples are held against the launch's totals (blocks launched = grid size).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]
Times = np.ndarray[tuple[int], np.dtype[np.int64]]
ACTIVE = ("sm__cycles_active.avg", "smsp__cycles_active.avg")
ANYTHING = ("sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed", "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
            "l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "dramc__throughput.avg.pct_of_peak_sustained_elapsed")
BLOCKS = ("gr__ctas_launched_realtime.sum", "sm__ctas_launched.sum")
HALF = 0.5                   # of full activity: below it at either end is start and tail
FULL_QUANTILE = 0.9          # what full activity is: single samples are merged ones and stand out
AGREES_PCT = 10.0
BLOCKS_STEP = 128            # on an H200, as reports with known grids show (16 blocks: 0 seen; 133: 128)

# (part of the metric's name, panel, label): the first that matches.
WORDS: tuple[tuple[str, str, str], ...] = (
    ("pipe_tensor_cycles_active", "SM", "Tensor pipe"),
    ("pipe_tensor_op", "", ""),
    ("pipe_fp64", "SM", "FP64 pipe"),
    ("pipe_fmaheavy", "", ""), ("pipe_fmalite", "", ""),
    ("pipe_fma", "SM", "FMA pipe"),
    ("pipe_alu", "SM", "ALU pipe"),
    ("pipe_xu", "SM", "XU pipe"),
    ("pipe_uniform", "SM", "Uniform pipe"),
    ("inst_executed_realtime.avg.pct", "SM", "Instructions issued"),
    ("inst_executed.avg.pct", "SM", "Instructions issued"),
    ("dramc__read_throughput", "Memory", "DRAM read"),
    ("dramc__write_throughput", "Memory", "DRAM write"),
    ("dramc__throughput", "", ""),
    ("lts__throughput", "Memory", "L2"),
    ("l1tex__throughput", "Memory", "L1 / TEX"),
    ("l1tex__lsu_writeback_active", "Memory", "L1 writeback"),
    ("lts__average_t_sector_hit_rate_realtime", "Hit rates", "L2 hit rate, sampled"),
    ("lts__average_t_sector_hit_rate_srcunit_tex", "", ""),
    ("l1tex__t_sector_hit_rate", "Hit rates", "L1 hit rate"),
    ("ctas_launched", "Blocks", "Blocks started"),
)
PANELS = ("SM", "Memory", "Hit rates", "Blocks")


@dataclass(frozen=True)
class Series:
    """One sampled metric over the launch. `panel` is "" where no figure shows it."""

    metric: str                  # as the report names it
    name: str                    # without the prefix of the sampler's configuration
    unit: str
    panel: str
    label: str
    time_ns: Times               # since the launch's first sample
    values: Numbers

    @property
    def mean(self) -> float:
        return float(self.values.mean()) if self.values.size else 0.0


@dataclass(frozen=True)
class Window:
    """The part of the samples in which the kernel ran. Times in ns since the first sample."""

    start_ns: int
    end_ns: int
    step_ns: int                 # between two samples
    start_up_ns: int             # until half of full activity is reached
    tail_ns: int                 # after it is left for good
    active_pct: float | None     # mean SM activity within the window, of its 90th percentile; None: not sampled
    tail_lost_pct: float | None  # of the window's SM time: what stands idle in the tail

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Check:
    """A sum over all samples beside the launch's own figure from other passes."""

    label: str
    sampled: float
    counted: float
    step: float = 0.0            # the sampler's counter moves in such steps: less cannot be seen

    @property
    def off_pct(self) -> float:
        """Return the difference in percent of the launch's own figure.

        The sampler sees another run of the kernel than the counters, and its counters of the whole GPU are extrapolated from some
        units: some percent are no fault.
        """
        return 100.0 * (self.sampled - self.counted) / self.counted

    @property
    def agrees(self) -> bool:
        return abs(self.off_pct) <= AGREES_PCT or abs(self.sampled - self.counted) <= self.step


def plain_name(metric: str) -> str:
    """Return a metric's name without the sampler's prefix.

    "TPC.TriageCompute.sm__cycles_active.avg" and "pmsampling:sm__cycles_active.avg" -> "sm__cycles_active.avg".
    """
    return re.sub(r"^(pmsampling:|[A-Z0-9_]+\.Triage\w*\.)", "", metric)


def series_of(table: pa.Table) -> list[Series]:
    """The series of PERIODIC, in the order of the panels, then by name."""
    series_list = []
    for metric in pc.unique(table["metric"]).to_pylist():
        rows = table.filter(pc.equal(table["metric"], metric)).sort_by("time_ns")
        name = plain_name(metric)
        panel, label = next(((panel, label) for part, panel, label in WORDS if part in name), ("", ""))
        series_list.append(Series(
            metric, name, str(rows["unit"][0]), panel, label or str(rows["label"][0]) or name,
            np.asarray(rows["time_ns"].to_numpy(), np.int64), np.asarray(rows["value"].to_numpy(), np.float64)))
    order = {panel: index for index, panel in enumerate(PANELS)}
    return sorted(series_list, key=lambda each: (order.get(each.panel, len(order)), each.name))


def _first_named(series: Sequence[Series], names: Sequence[str]) -> Series | None:
    return next((entry for name in names for entry in series if entry.name == name), None)


def window(series: Sequence[Series]) -> Window | None:
    """Return where the kernel ran: from the first to the last sample with active SMs, or None."""
    active = _first_named(series, ACTIVE)
    shown = active or _first_named(series, ANYTHING)
    if shown is None or shown.time_ns.size < 2 or not shown.values.any():
        return None
    step = int(np.median(np.diff(shown.time_ns)))
    busy = np.flatnonzero(shown.values > 0)
    first, last = int(busy[0]), int(busy[-1])
    inside = np.minimum(1.0, shown.values / np.quantile(shown.values[first:last + 1], FULL_QUANTILE))[first:last + 1]
    half = np.flatnonzero(inside >= HALF)
    start, end = int(shown.time_ns[first]), int(shown.time_ns[last]) + step
    tail = inside[int(half[-1]) + 1:]
    return Window(
        start, end, step, start_up_ns=int(shown.time_ns[first + int(half[0])]) - start,
        tail_ns=end - (int(shown.time_ns[first + int(half[-1])]) + step),
        active_pct=float(100.0 * inside.mean()) if active is not None else None,
        tail_lost_pct=float(100.0 * (1.0 - tail).sum() / inside.size) if active is not None else None)


def samples_within(series: Series, window: Window) -> Numbers:
    """The samples of a series that lie in the window."""
    return series.values[(series.time_ns >= window.start_ns) & (series.time_ns < window.end_ns)]


def checks(series: Sequence[Series], metrics: Mapping[str, float | str | None]) -> list[Check]:
    """Compare samples added up with the launch's totals.

    They show that every block was seen, and that the cycles are those of the launch.
    """
    results = []
    blocks, grid = _first_named(series, BLOCKS), metrics.get("launch__grid_size")
    if blocks is not None and isinstance(grid, int | float) and grid:
        results.append(Check("blocks started", float(blocks.values.sum()), float(grid), step=BLOCKS_STEP))
    cycles, counted = _first_named(series, ACTIVE[:1]), metrics.get("sm__cycles_active.avg")
    if cycles is not None and isinstance(counted, int | float) and counted:
        results.append(Check("active SM cycles", float(cycles.values.sum()), float(counted)))
    return results
