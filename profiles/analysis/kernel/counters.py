"""What the counters of one launch say: speed of light, occupancy, stalls, roofline point, and what bounds it.

Metric names and sections are those of Nsight Compute ("Kernel Profiling Guide", sections SpeedOfLight, Occupancy,
WarpStateStats, SchedulerStats, MemoryWorkloadAnalysis); the vendor's own details page is the oracle of the tests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from profiles.analysis.core import gpus
from profiles.analysis.core.kernels import KernelRow, labelled
from profiles.analysis.core.sentences import pct_of
from profiles.analysis.kernel import roofline, stalls
from profiles.analysis.kernel.bounds import THRESHOLDS, classify
from profiles.analysis.kernel.facts import Bound, Caches, LaunchFacts, OccupancyFacts, Scheduler, SpeedOfLight
from profiles.analysis.kernel.metrics import number
from profiles.analysis.kernel.occupancy import Occupancy, from_limits, occupancy, waves
from profiles.analysis.kernel.roofline import Level, Metrics, Point, Roofs, combine_levels, levels
from profiles.analysis.kernel.sass.loads import load_signals
from profiles.ingest.naming.names import is_collective
from profiles.ingest.trace import CounterLaunch, Report

# Single counters that advice rests on beside the facts of a launch: a visible table, kept with the facts.
#
# Names of metrics: Nsight Compute, "Kernel Profiling Guide", "Metrics Structure". An instance of a metric is one unit (one slice
# of the L2): `.max` is the busiest unit, `.avg` the mean of all. Where they lie far apart, the work lies on few units.

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
    values_by_key = {key: number(launch.metrics, *names) for key, names in SIGNALS.items()}
    return {**load_signals(launch), **{key: value for key, value in values_by_key.items() if value is not None}}


MOST_NS = 1e15          # of one launch: eleven days
_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
__all__ = ["THRESHOLDS", "LaunchFacts", "classify", "combine_launches", "from_json", "kernel_table", "launch_facts"]
LIMITERS = ("warps", "registers", "shared_mem", "blocks", "barriers")


LAUNCH_PARAMETERS: dict[str, tuple[str, str]] = {
    # key -> metric, label
    "grid_size": ("launch__grid_size", "Blocks"),
    "block_size": ("launch__block_size", "Threads per block"),
    "thread_count": ("launch__thread_count", "Threads"),
    "cluster_size": ("launch__cluster_size", "Blocks per cluster"),
    "registers_per_thread": ("launch__registers_per_thread", "Registers per thread"),
    "smem_static_bytes": ("launch__shared_mem_per_block_static", "Static shared memory per block"),
    "smem_dynamic_bytes": ("launch__shared_mem_per_block_dynamic", "Dynamic shared memory per block"),
    "smem_driver_bytes": ("launch__shared_mem_per_block_driver", "Driver shared memory per block"),
    "smem_config_bytes": ("launch__shared_mem_config_size", "Shared memory configured per SM"),
    "stack_bytes": ("launch__stack_size", "Stack size"),
    "barriers": ("launch__barrier_count", "Barriers"),
    "waves_per_sm": ("launch__waves_per_multiprocessor", "Waves per SM"),
    "sm_count": ("launch__sm_count", "SMs used"),
    "cache_config": ("launch__func_cache_config", "Cache configuration"),
    "green_context": ("launch__uses_green_context", "Green context"),
}


def launch_facts(launch: CounterLaunch) -> LaunchFacts:
    """Return what the counters of one launch say.

    Metrics that were not collected leave None, never 0.
    """
    metrics, device = launch.metrics, launch.device
    roofs = roofline.roofs(metrics, device.name, device.compute_capability, device.sm_count)
    duration = None if launch.incomplete else _possible_ns(number(metrics, roofline.DURATION))
    point = roofline.point(duration, roofline.work(metrics, launch.instructions), roofline.dram_bytes(metrics), roofs)
    sol, occupied, waiting = _sol(metrics), _occupancy(launch), stalls.stalls(metrics)
    scheduler = Scheduler(
        number(metrics, "smsp__warps_active.avg.per_cycle_active"),
        number(metrics, "smsp__warps_eligible.avg.per_cycle_active"),
        number(metrics, "smsp__issue_active.avg.per_cycle_active"),
        number(metrics, "sm__inst_executed.avg.per_cycle_active"))
    bounded = classify(sol, point, occupied, waiting, roofs)
    return LaunchFacts(
        index=launch.index,
        kernel=launch.kernel,
        device=device.name,
        compute_capability=device.compute_capability,
        duration_ns=duration,
        sm_clock_hz=number(metrics, "gpc__cycles_elapsed.avg.per_second") or roofs.sm_clock_hz,
        dram_clock_hz=number(metrics, "dram__cycles_elapsed.avg.per_second"),
        grid=list(launch.grid) if launch.grid else None,
        block=list(launch.block) if launch.block else None,
        sol=sol,
        occupancy=occupied,
        launch=_launch_parameters(metrics),
        stalls=waiting,
        samples=stalls.samples(metrics),
        scheduler=scheduler,
        caches=_caches(metrics),
        roofs=roofs,
        point=point,
        tensor_instructions=roofline.tensor_instructions(metrics),
        bound="" if launch.incomplete else bounded.kind,
        bound_reason=launch.incomplete or bounded.reason,
        incomplete=launch.incomplete,
        bounded=None if launch.incomplete else bounded,
        levels=levels(metrics, duration, point.flop, roofs),
        signals=signals(launch),
    )


def _possible_ns(value: float | None) -> float | None:
    """Unknown where nothing can take as long."""
    return value if value is not None and 0 <= value < MOST_NS else None


def block_number(value: object) -> int | None:
    """A number of registers or bytes of a block; unknown where nothing has as many."""
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 2**31 else None


def _sol(metrics: Metrics) -> SpeedOfLight:
    return SpeedOfLight(
        sm_pct=number(metrics, "sm__throughput" + _ELAPSED),
        memory_pct=number(metrics, "gpu__compute_memory_throughput" + _ELAPSED),
        dram_pct=number(metrics, "gpu__dram_throughput" + _ELAPSED, "dram__throughput" + _ELAPSED),
        l2_pct=number(metrics, "lts__throughput" + _ELAPSED),
        l1_pct=number(metrics, "l1tex__throughput.avg.pct_of_peak_sustained_active", "l1tex__throughput" + _ELAPSED),
    )


def _caches(metrics: Metrics) -> Caches:
    return Caches(
        number(metrics, "l1tex__t_sector_hit_rate.pct"), number(metrics, "lts__t_sector_hit_rate.pct"),
        number(metrics, "dram__bytes_read.sum"), number(metrics, "dram__bytes_write.sum"))


def _launch_parameters(metrics: Metrics) -> dict[str, float | str]:
    return {key: metrics[metric] for key, (metric, _) in LAUNCH_PARAMETERS.items() if metric in metrics}


def _whole(metrics: Metrics, name: str) -> int | None:
    value = number(metrics, name)
    return None if value is None else int(value)


def _occupancy(launch: CounterLaunch) -> OccupancyFacts:
    """The report's own limits first; where it has none, CUDA's rules on the launch parameters."""
    metrics = launch.metrics
    limits = gpus.limits(launch.device.compute_capability)
    limits_of_blocks, source = _stated_occupancy(launch, limits), "report"
    if limits_of_blocks is None:
        limits_of_blocks, source = _computed_occupancy(launch, limits), "computed"
    blocks, sms = _whole(metrics, "launch__grid_size"), launch.device.sm_count
    spread = waves(blocks, limits_of_blocks.blocks_per_sm, sms) if limits_of_blocks and blocks and sms else None
    stated = number(metrics, "sm__maximum_warps_per_active_cycle_pct")
    return OccupancyFacts(
        theoretical_pct=stated if stated is not None else limits_of_blocks.theoretical_pct if limits_of_blocks else None,
        achieved_pct=number(metrics, "sm__warps_active.avg.pct_of_peak_sustained_active"),
        blocks_per_sm=limits_of_blocks.blocks_per_sm if limits_of_blocks else None,
        warps_per_sm=limits_of_blocks.warps_per_sm if limits_of_blocks else None,
        limits=limits_of_blocks.limits if limits_of_blocks else {},
        limiters=list(limits_of_blocks.limiters) if limits_of_blocks else [],
        # computed where it can be, so that waves, tail and the picture of the waves are of one number; else as stated
        waves=spread.waves if spread else number(metrics, "launch__waves_per_multiprocessor") or None,
        tail_pct=spread.tail_pct if spread else None, tail_loss_pct=spread.loss_pct if spread else None,
        source=source if limits_of_blocks else "",
    )


def _threads(launch: CounterLaunch) -> int | None:
    """Of a block, None where it can be none; a details page may give only its three sides."""
    threads = _whole(launch.metrics, "launch__block_size") or (math.prod(launch.block) if launch.block else None)
    return threads if threads and threads > 0 else None


def _stated_occupancy(launch: CounterLaunch, limits: gpus.Limits | None) -> Occupancy | None:
    stated = {name: value for name in LIMITERS
              if (value := _whole(launch.metrics, f"launch__occupancy_limit_{name}")) is not None and value >= 0}
    threads = _threads(launch)
    if limits is None or not threads or not {"warps", "registers", "shared_mem", "blocks"} <= stated.keys():
        return None
    return from_limits(limits, -(-threads // limits.warp_threads), stated)


def _computed_occupancy(launch: CounterLaunch, limits: gpus.Limits | None) -> Occupancy | None:
    metrics = launch.metrics
    threads = _threads(launch)
    registers = _whole(metrics, "launch__registers_per_thread")
    if limits is None or not threads or registers is None:
        return None
    smem = sum(_whole(metrics, f"launch__shared_mem_per_block_{part}") or 0 for part in ("static", "dynamic"))
    return occupancy(
        limits, threads, registers, smem, smem_config_bytes=_whole(metrics, "launch__shared_mem_config_size")
    )


def combine_launches(launches: Sequence[LaunchFacts]) -> LaunchFacts | None:
    """Return one kernel from its complete launches.

    The longest one's facts with summed work and time-weighted shares. Where no launch states a duration: the first one's facts with
    the plain mean of the shares.
    """
    whole = [launch for launch in launches if launch.duration_ns] or list(launches)
    if not whole:
        return None
    longest = max(whole, key=lambda each: each.duration_ns or 0.0)
    sol = SpeedOfLight(**{f.name: _weighted_mean((getattr(x.sol, f.name), _weight(x, longest)) for x in whole)
                          for f in fields(SpeedOfLight)})
    point = combine_points(whole)
    roofs = combine_roofs(whole)
    mean_ns = sum(launch.duration_ns or 0.0 for launch in whole) / len(whole)
    bounded = classify(sol, point, longest.occupancy, longest.stalls, roofs, mean_ns or None)
    tail_loss = _weighted_mean((launch.occupancy.tail_loss_pct, _weight(launch, longest)) for launch in whole)
    all_signals = longest.signals if tail_loss is None else {**longest.signals, "tail_loss_pct": tail_loss}
    return LaunchFacts(**{**{f.name: getattr(longest, f.name) for f in fields(LaunchFacts)},
                          "sol": sol, "point": point, "bound": bounded.kind, "bound_reason": bounded.reason, "bounded": bounded,
                          "signals": all_signals,
                          "levels": combine_levels([(launch.duration_ns, launch.levels) for launch in whole], point.flop, roofs)})


def combine_roofs(launches: Sequence[LaunchFacts]) -> Roofs:
    """Time-weighted roofs of several launches."""
    if len(launches) == 1:
        return launches[0].roofs
    longest = max(launches, key=lambda each: each.duration_ns or 0.0)
    return Roofs(
        **{f"{name}_bytes_s": _weighted_mean((getattr(x.roofs, f"{name}_bytes_s"), _weight(x, longest)) for x in launches)
           for name in ("dram", "l2", "l1")},
        compute={p: value for p in gpus.PRECISIONS
                 if (value := _weighted_mean((x.roofs.compute.get(p), _weight(x, longest)) for x in launches)) is not None},
        per_cycle=launches[0].roofs.per_cycle,
        sm_clock_hz=_weighted_mean((x.sm_clock_hz, _weight(x, longest)) for x in launches),
        source=launches[0].roofs.source)


def combine_points(launches: Sequence[LaunchFacts]) -> Point:
    """Return the point of Σ work, Σ bytes and Σ time under the time-weighted roofs.

    One launch without counts makes the sum unknown. `roof_pct` is the time-weighted mean of what each launch reaches of its own
    roof: launches of different shapes stand under different ones, and the dot of their sum may be far from a roof that none has.
    """
    if len(launches) == 1:
        return launches[0].point
    flop: dict[str, float] = defaultdict(float)
    for launch in launches:
        for precision, amount in launch.point.by_precision.items():
            flop[precision] += amount
    unknown = next((x.point.reason for x in launches if x.point.reason
                    and (x.point.flop is None or (x.point.flop and x.point.dram_bytes))), None)
    note = next((x.point.notes[0] for x in launches if x.point.notes), None)
    moved = [x.point.dram_bytes for x in launches]
    whole = roofline.point(sum(x.duration_ns or 0.0 for x in launches) or None, roofline.Work(dict(flop), {}, unknown, note),
                           None if None in moved else float(sum(m for m in moved if m is not None)), combine_roofs(launches))
    own = [(x.point.roof_pct, x.duration_ns) for x in launches]
    if whole.roof_pct is None or any(pct is None or not ns for pct, ns in own):
        return whole
    return replace(whole, roof_pct=_weighted_mean(own))


def _weight(launch: LaunchFacts, longest: LaunchFacts) -> float | None:
    """Its time; where not even the longest launch states one, each counts alike."""
    return launch.duration_ns if longest.duration_ns else 1.0


def _weighted_mean(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    weight_pairs = [(value, weight) for value, weight in pairs if value is not None and weight]
    total = sum(weight for _, weight in weight_pairs)
    return sum(value * weight for value, weight in weight_pairs) / total if total else None


def kernel_table(report: Report) -> list[KernelRow]:
    """Return the kernels of a report, most time first.

    A launch that profiling broke off counts as one and has no part in times and counters. A kernel whose launches state no
    duration has None for its times and comes last.
    """
    groups: dict[str, list[LaunchFacts]] = defaultdict(list)
    for launch in report.launches:
        groups[launch.kernel].append(launch_facts(launch))
    everything = sum(facts.duration_ns or 0.0 for group in groups.values() for facts in group)
    rows = [_kernel_row(name, group, everything) for name, group in groups.items()]
    return labelled(sorted(rows, key=lambda row: -row.time_ns))


def _kernel_row(name: str, group: list[LaunchFacts], everything_ns: float) -> KernelRow:
    durations = np.array([facts.duration_ns for facts in group if facts.duration_ns is not None])
    timed = bool(durations.size)
    whole = combine_launches([facts for facts in group if not facts.incomplete])
    launch = whole.launch if whole else {}
    smem = [block_number(launch.get(f"smem_{part}_bytes")) for part in ("static", "dynamic")]
    return KernelRow(
        name=name, short_name="", category="communication" if is_collective(name) else "compute",
        launches=len(group), total_ns=round(float(durations.sum())) if timed else None,
        mean_ns=float(durations.mean()) if timed else None,
        p50_ns=float(np.percentile(durations, 50)) if timed else None,
        p95_ns=float(np.percentile(durations, 95)) if timed else None,
        min_ns=round(float(durations.min())) if timed else None, max_ns=round(float(durations.max())) if timed else None,
        share_pct=None if not timed else pct_of(float(durations.sum()), everything_ns),
        bound=whole.bound if whole else "", bound_reason=whole.bound_reason if whole else group[0].incomplete or "",
        registers_per_thread=block_number(launch.get("registers_per_thread")),
        smem_bytes=sum(part for part in smem if part is not None) if None not in smem else None,
        occupancy_pct=whole.occupancy.achieved_pct if whole and whole.occupancy.achieved_pct is not None
        else whole.occupancy.theoretical_pct if whole else None,
    )


def from_json(document: Mapping[str, Any]) -> LaunchFacts:
    """Read `LaunchFacts.as_json()` back from a row."""
    return LaunchFacts(**{
        **document, "sol": SpeedOfLight(**document["sol"]), "occupancy": OccupancyFacts(**document["occupancy"]),
        "scheduler": Scheduler(**document["scheduler"]), "caches": Caches(**document["caches"]),
        "stalls": [stalls.Stall(**stall) for stall in document["stalls"]], "roofs": Roofs(**document["roofs"]),
        "point": Point(**{**document["point"], "notes": tuple(document["point"]["notes"])}),
        "bounded": Bound(**{**bound, "helps": tuple(bound["helps"])}) if (bound := document.get("bounded")) else None,
        "levels": {name: Level(**level_fields) for name, level_fields in document.get("levels", {}).items()},
    })
