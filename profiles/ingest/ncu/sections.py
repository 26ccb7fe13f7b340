"""The sections of Nsight Compute's details page: their labels, each with the metric that it prints.

Each pair was checked: over the launches of `ncu 2025.3 --set full` reports the printed value of the label is the value of the
metric, to the last printed digit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Numbers and units as `ncu` prints them → base units: ns, byte, hz, percent, and counts.
#
# `ncu` scales units automatically unless told `--print-units base`, with decimal prefixes; versions before 2023.3 write
# them out ("usecond", "Gbyte/second", "cycle/nsecond"). Digit grouping and the decimal sign follow the machine's locale.

_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_TIME_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
_HZ = {"hz": 1.0, "Khz": 1e3, "Mhz": 1e6, "Ghz": 1e9}
_BYTE = re.compile(r"^([KMGTP]?)byte(/.*)?$")
_PER_TIME = re.compile(r"^(.+)/(ns|us|ms|s|nsecond|usecond|msecond|second)$")
_GROUPED_COMMA = re.compile(r"^-?\d{1,3}(,\d{3})+$")
_GROUPED_DOT = re.compile(r"^-?\d{1,3}(\.\d{3})+$")
_NUMBER = re.compile(r"^-?[\d.,\u00a0\u202f' ]*\d[\d.,]*(?:[eE][+-]?\d+)?$")
_INSTANCES = re.compile(r"^(\S+)\s*\(.*;.*\)$")
NO_VALUE = {"", "n/a", "nan", "-nan", "inf", "-inf", "no data", "(not available)"}


def base_unit(unit: str) -> tuple[float, str]:
    """Return (factor, base unit): "Gbyte/s" -> (1e9, "byte/s"), "usecond" -> (1e3, "ns").

    Unknown units stay as they are.
    """
    if unit in _TIME_NS:
        return _TIME_NS[unit], "ns"
    if unit in _HZ:
        return _HZ[unit], "hz"
    rate = _PER_TIME.match(unit)
    if rate:
        factor, inner = base_unit(rate[1])
        per_second = 1e9 / _TIME_NS[rate[2]]
        return factor * per_second, "hz" if inner == "cycle" else f"{inner}/s"
    byte = _BYTE.match(unit)
    if byte:
        return _PREFIX[byte[1]], f"byte{byte[2] or ''}"
    if unit.startswith("%/"):
        # ncu scales "% per byte" as if the bytes stood above the line: 5460 %/byte is printed as 5.46 %/Kbyte
        factor, inner = base_unit(unit[2:])
        return factor, f"%/{inner}"
    return 1.0, unit


def decimal_sign(cells: Iterable[str]) -> str:
    """Return "." or ",": the sign that these cells use for decimals.

    Undecided cells mean ".", NVIDIA's own default.

    Both signs in one number: the last is the decimal one. One sign twice groups digits. A single sign not followed by
    exactly three digits is the decimal one.
    """
    for cell in cells:
        text = cell.strip()
        if not _NUMBER.match(text):
            continue
        comma, dot = text.rfind(","), text.rfind(".")
        if comma >= 0 and dot >= 0:
            return "," if comma > dot else "."
        if comma >= 0 and not _GROUPED_COMMA.match(text):
            return ","
        if dot >= 0 and (not _GROUPED_DOT.match(text) or text.startswith("0")):
            return "."
        if text.count(",") > 1:
            return "."
        if text.count(".") > 1:
            return ","
    return "."


def value_of(cell: str, decimal: str) -> float | str | None:
    """Return a cell as a number, a word ("CachePreferNone"), or None for no value."""
    text = cell.strip()
    instances = _INSTANCES.match(text)
    if instances:                                   # --print-metric-instances: "5 (1; 2; 2)"
        text = instances[1]
    if text.lower() in NO_VALUE:
        return None
    if not _NUMBER.match(text):
        return text
    group = "." if decimal == "," else ","
    plain = re.sub(r"[\u00a0\u202f' ]", "", text).replace(group, "").replace(decimal, ".")
    try:
        number = float(plain)
    except ValueError:
        return text
    return number if math.isfinite(number) else None


_SOL = {
    "DRAM Frequency": "dram__cycles_elapsed.avg.per_second",
    "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
    "Elapsed Cycles": "gpc__cycles_elapsed.max",
    "Memory Throughput": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "DRAM Throughput": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "Duration": "gpu__time_duration.sum",
    "L1/TEX Cache Throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "L2 Cache Throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "SM Active Cycles": "sm__cycles_active.avg",
    "Compute (SM) Throughput": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
}
LABELS: dict[str, dict[str, str]] = {
    "GPU Speed Of Light Throughput": _SOL,
    "PM Sampling": {
        "Maximum Buffer Size": "profiler__pmsampler_buffer_size_bytes",
        "Maximum Sampling Interval": "profiler__pmsampler_interval_time",
        "# Pass Groups": "profiler__pmsampler_pass_groups",
    },
    "Compute Workload Analysis": {
        "Executed Ipc Active": "sm__inst_executed.avg.per_cycle_active",
        "Executed Ipc Elapsed": "sm__inst_executed.avg.per_cycle_elapsed",
        "Issue Slots Busy": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
        "Issued Ipc Active": "sm__inst_issued.avg.per_cycle_active",
        "SM Busy": "sm__instruction_throughput.avg.pct_of_peak_sustained_elapsed",
    },
    "Memory Workload Analysis": {
        "Memory Throughput": "dram__bytes.sum.per_second",
        "Mem Busy": "gpu__compute_memory_access_throughput.avg.pct_of_peak_sustained_elapsed",
        "Max Bandwidth": "gpu__compute_memory_request_throughput.avg.pct_of_peak_sustained_elapsed",
        "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
        "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
        "L2 Persisting Size": "launch__persisting_l2_cache_size",
        "L2 Compression Success Rate": "lts__average_gcomp_input_sector_success_rate.pct",
        "L2 Compression Ratio": "lts__average_gcomp_output_sector_compression_achieved_rate.ratio",
        "L2 Compression Input Sectors": "lrc__ilc_input_sectors.sum",
        "Local Memory Spilling Requests": "derived__local_spilling_requests",
        "Local Memory Spilling Request Overhead": "derived__local_spilling_requests_pct",
        "Mem Pipes Busy": "sm__memory_throughput.avg.pct_of_peak_sustained_elapsed",
    },
    "Scheduler Statistics": {
        "One or More Eligible": "smsp__issue_active.avg.pct_of_peak_sustained_active",
        "Issued Warp Per Scheduler": "smsp__issue_active.avg.per_cycle_active",
        "No Eligible": "smsp__issue_inst0.avg.pct_of_peak_sustained_active",
        "Active Warps Per Scheduler": "smsp__warps_active.avg.per_cycle_active",
        "Eligible Warps Per Scheduler": "smsp__warps_eligible.avg.per_cycle_active",
    },
    "Warp State Statistics": {
        "Warp Cycles Per Issued Instruction": "smsp__average_warp_latency_per_inst_issued.ratio",
        "Warp Cycles Per Executed Instruction": "smsp__average_warps_active_per_inst_executed.ratio",
        "Avg. Active Threads Per Warp": "smsp__thread_inst_executed_per_inst_executed.ratio",
        "Avg. Not Predicated Off Threads Per Warp": "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    },
    "Instruction Statistics": {
        "Avg. Executed Instructions Per Scheduler": "smsp__inst_executed.avg",
        "Executed Instructions": "smsp__inst_executed.sum",
        "Avg. Issued Instructions Per Scheduler": "smsp__inst_issued.avg",
        "Issued Instructions": "smsp__inst_issued.sum",
    },
    "Launch Statistics": {
        "Block Size": "launch__block_size",
        "Cluster Scheduling Policy": "launch__cluster_scheduling_policy",
        "Cluster Size": "launch__cluster_size",
        "Function Cache Configuration": "launch__func_cache_config",
        "Grid Size": "launch__grid_size",
        "Registers Per Thread": "launch__registers_per_thread",
        "Shared Memory Configuration Size": "launch__shared_mem_config_size",
        "Driver Shared Memory Per Block": "launch__shared_mem_per_block_driver",
        "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
        "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
        "# SMs": "launch__sm_count",
        "Stack Size": "launch__stack_size",
        "Threads": "launch__thread_count",
        "# TPCs": "launch__tpc_count",
        "Enabled TPC IDs": "launch__tpc_enabled",
        "Uses Green Context": "launch__uses_green_context",
        "Waves Per SM": "launch__waves_per_multiprocessor",
    },
    "Occupancy": {
        "Max Active Clusters": "launch__cluster_max_active",
        "Max Cluster Size": "launch__cluster_max_potential_size",
        "Overall GPU Occupancy": "launch__occupancy_cluster_gpu_pct",
        "Cluster Occupancy": "launch__occupancy_cluster_pct",
        "Block Limit Barriers": "launch__occupancy_limit_barriers",
        "Block Limit SM": "launch__occupancy_limit_blocks",
        "Block Limit Registers": "launch__occupancy_limit_registers",
        "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
        "Block Limit Warps": "launch__occupancy_limit_warps",
        "Theoretical Active Warps per SM": "sm__maximum_warps_avg_per_active_cycle",
        "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
        "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
        "Achieved Active Warps Per SM": "sm__warps_active.avg.per_cycle_active",
    },
    "GPU and Memory Workload Distribution": {
        "Average DRAM Active Cycles": "dram__cycles_active.avg",
        "Total DRAM Elapsed Cycles": "dram__cycles_elapsed.sum",
        "Average L1 Active Cycles": "l1tex__cycles_active.avg",
        "Total L1 Elapsed Cycles": "l1tex__cycles_elapsed.sum",
        "Average L2 Active Cycles": "lts__cycles_active.avg",
        "Total L2 Elapsed Cycles": "lts__cycles_elapsed.sum",
        "Average SM Active Cycles": "sm__cycles_active.avg",
        "Total SM Elapsed Cycles": "sm__cycles_elapsed.sum",
        "Average SMSP Active Cycles": "smsp__cycles_active.avg",
        "Total SMSP Elapsed Cycles": "smsp__cycles_elapsed.sum",
    },
    "Source Counters": {
        "Branch Instructions Ratio": "derived__smsp__inst_executed_op_branch_pct",
        "Branch Instructions": "smsp__inst_executed_op_branch.sum",
        "Branch Efficiency": "smsp__sass_average_branch_targets_threads_uniform.pct",
        "Avg. Divergent Branches": "smsp__sass_branch_targets_threads_divergent.avg",
    },
}


@dataclass(frozen=True)
class Line:
    label: str
    metric: str
    value: float | str


@dataclass(frozen=True)
class Section:
    name: str
    lines: list[Line]


def sections(metrics: Mapping[str, float | str]) -> list[Section]:
    """Return what `ncu --page details` prints of a launch, without its rules.

    Labels whose metric was not collected are left out.
    """
    filled = [Section(name, [Line(label, metric, metrics[metric]) for label, metric in labels.items() if metric in metrics])
             for name, labels in LABELS.items()]
    return [section for section in filled if section.lines]
