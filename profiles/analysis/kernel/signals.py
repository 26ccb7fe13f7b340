"""Single counters that advice rests on beside the facts of a launch: a visible table, kept with the facts.

Names of metrics: Nsight Compute, "Kernel Profiling Guide", "Metrics Structure". An instance of a metric is one unit (one slice
of the L2): `.max` is the busiest unit, `.avg` the mean of all. Where they lie far apart, the work lies on few units.
"""

from __future__ import annotations

from profiles.analysis.kernel.metrics import number
from profiles.analysis.kernel.sass.loads import load_signals
from profiles.ingest.trace import CounterLaunch

_PEAK = ".pct_of_peak_sustained_elapsed"
SIGNALS: dict[str, tuple[str, ...]] = {
    # of the L2 slices' atomic units: the busiest one, and their mean
    "atomic_busiest_pct": (f"lts__d_atomic_input_cycles_active.max{_PEAK}",),
    "atomic_mean_pct": (f"lts__d_atomic_input_cycles_active.avg{_PEAK}", f"lts__d_atomic_input_cycles_active.sum{_PEAK}"),
    "sm_busy_pct": (f"sm__instruction_throughput.avg{_PEAK}", "sm__instruction_throughput.avg.pct_of_peak_sustained_active"),
    "load_hit_pct": ("l1tex__t_sector_pipe_lsu_mem_global_op_ld_hit_rate.pct",),
    "load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
}


def signals(launch: CounterLaunch) -> dict[str, float]:
    """Return the signals that the report holds, by the names of SIGNALS and of `sass.loads`."""
    found = {key: number(launch.metrics, *names) for key, names in SIGNALS.items()}
    return {**load_signals(launch), **{key: value for key, value in found.items() if value is not None}}
