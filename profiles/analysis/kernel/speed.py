"""Speed of light, taken apart: which unit of the GPU is the busy one.

`sm__throughput` and `gpu__compute_memory_throughput` are each the highest of the metrics that they break down into; the report
names these (`breakdown:…`). Source of the meanings: Nsight Compute, Kernel Profiling Guide, "Metrics Reference" and "Pipelines".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiles.analysis.kernel.metrics import Metrics, number

ROLLUP = ".avg.pct_of_peak_sustained_elapsed"
SIDES = {"compute": "sm__throughput", "memory": "gpu__compute_memory_throughput"}
_SHARED = "sm__pipe_shared_"              # is busy whenever one of these is: they say more
_SHARING = ("sm__pipe_tensor_", "sm__pipe_fp64_", "sm__inst_executed_pipe_fp16")

# metric without its rollup -> unit, title, meaning
PARTS: dict[str, tuple[str, str, str]] = {
    "sm__inst_executed": ("SM", "Instructions executed", "warp instructions against one per scheduler and cycle"),
    "sm__issue_active": ("SM", "Issue slots", "cycles in which a scheduler issued; with dual dispatch more than the instructions"),
    "sm__inst_executed_pipe_adu": ("SM", "ADU pipe", "address divergence unit: constants, uniform branches, barriers"),
    "sm__inst_executed_pipe_cbu_pred_on_any": ("SM", "CBU pipe", "branches and convergence of warps"),
    "sm__inst_executed_pipe_fp16": ("SM", "FP16 pipe", "half-precision arithmetic outside the tensor pipe"),
    "sm__inst_executed_pipe_ipa": ("SM", "IPA pipe", "attribute interpolation: graphics only"),
    "sm__inst_executed_pipe_lsu": ("SM", "LSU pipe", "load and store instructions of global, local and shared memory"),
    "sm__inst_executed_pipe_tex": ("SM", "TEX pipe", "texture and surface instructions"),
    "sm__inst_executed_pipe_uniform": ("SM", "Uniform pipe", "instructions whose operands are the same for the whole warp"),
    "sm__inst_executed_pipe_xu": ("SM", "XU pipe", "special functions: reciprocal, root, exp, sin, and conversions"),
    "sm__pipe_alu_cycles_active": ("SM", "ALU pipe", "integer and logic instructions, comparisons"),
    "sm__pipe_fma_cycles_active": ("SM", "FMA pipe", "FP32 and integer multiply-adds"),
    "sm__pipe_fmaheavy_cycles_active": ("SM", "FMA heavy pipe", "the half of the FMA pipe that also does integer dot products"),
    "sm__pipe_fp64_cycles_active": ("SM", "FP64 pipe", "double-precision arithmetic"),
    "sm__pipe_shared_cycles_active": ("SM", "Shared pipe", "the pipe that tensor, FP64 and FP16 instructions share"),
    "sm__pipe_tensor_cycles_active": ("SM", "Tensor pipe", "matrix multiply-adds"),
    "sm__pipe_tensor_op_dmma_cycles_active": ("SM", "Tensor pipe, FP64", "double-precision matrix multiply-adds"),
    "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active": (
        "SM", "Tensor pipe, narrow types", "matrix multiply-adds of 16, 8 and fewer bits"),
    "sm__pipe_tma_cycles_active": ("SM", "TMA pipe", "instructions of the tensor memory accelerator"),
    "sm__instruction_throughput_internal_activity": ("SM", "Internal activity", "instruction side, not told apart by NVIDIA"),
    "sm__memory_throughput_internal_activity": ("SM", "Internal activity, memory", "memory side of the SM, not told apart"),
    "sm__mio2rf_writeback_active": ("SM", "MIO write-back", "results of memory instructions on their way to registers"),
    "sm__mio_inst_issued": ("SM", "MIO instructions", "instructions issued to the memory input/output unit"),
    "sm__mio_pq_read_cycles_active": ("SM", "MIO queue, reads", "the queue before shared memory and special functions"),
    "sm__mio_pq_write_cycles_active": ("SM", "MIO queue, writes", "the queue before shared memory and special functions"),
    "idc__request_cycles_active": ("SM", "Indexed constants", "loads of the constant cache by index"),
    "dram__cycles_active": ("DRAM", "DRAM", "cycles in which a DRAM channel moved data"),
    "fbpa__dram_sectors": ("DRAM", "DRAM sectors", "sectors through the memory controller"),
    "l1tex__data_bank_reads": ("L1", "Data banks, reads", "reads of the L1's data banks, shared memory among them"),
    "l1tex__data_bank_writes": ("L1", "Data banks, writes", "writes of the L1's data banks, shared memory among them"),
    "l1tex__data_pipe_lsu_wavefronts": (
        "L1", "LSU wavefronts", "passes through the data stage; bank conflicts and uncoalesced accesses take more of them"),
    "l1tex__data_pipe_tex_wavefronts": ("L1", "TEX wavefronts", "passes of texture and surface accesses"),
    "l1tex__f_wavefronts": ("L1", "Filter wavefronts", "texture filtering"),
    "l1tex__lsu_writeback_active": ("L1", "LSU write-back", "results of loads on their way to registers"),
    "l1tex__lsuin_requests": ("L1", "LSU requests", "load and store instructions that arrive"),
    "l1tex__m_l1tex2xbar_req_cycles_active": ("L1", "L1 → crossbar", "requests and written data on their way to the L2"),
    "l1tex__m_xbar2l1tex_read_sectors": ("L1", "Crossbar → L1", "sectors that arrive from the L2"),
    "l1tex__m_xbar2l1tex_read_sectors_mem_dshared": (
        "L1", "Distributed shared memory", "sectors that arrive from other SMs of the cluster"),
    "l1tex__tex_writeback_active": ("L1", "TEX write-back", "results of texture fetches"),
    "l1tex__texin_sm2tex_req_cycles_active": ("L1", "TEX requests", "texture instructions that arrive"),
    "l1tex__tmain_requests": ("L1", "TMA requests", "requests of the tensor memory accelerator"),
    "lts__d_atomic_input_cycles_active": ("L2", "Atomics", "atomic operations in the L2"),
    "lts__d_decomp_input_sectors": ("L2", "Decompression", "compressed sectors read"),
    "lts__d_sectors": ("L2", "Data banks", "sectors read and written in the L2's data banks"),
    "lts__d_sectors_fill_device": ("L2", "Fills from DRAM", "sectors filled from device memory"),
    "lts__d_sectors_fill_sysmem": ("L2", "Fills from the host", "sectors filled from system memory"),
    "lts__lts2xbar_cycles_active": ("L2", "L2 → crossbar", "data on its way to the SMs"),
    "lts__t_sectors": ("L2", "Sectors", "sectors looked up"),
    "lts__t_tag_requests": ("L2", "Tag lookups", "requests to the L2's tags"),
    "lts__xbar2lts_cycles_active": ("L2", "Crossbar → L2", "requests and data that arrive from the SMs"),
    "ltc__throughput_internal_activity": ("L2", "Internal activity", "not told apart by NVIDIA"),
    "gpu__compute_memory_access_throughput_internal_activity": (
        "memory", "Internal activity", "access side, not told apart by NVIDIA"),
    "gpu__compute_memory_request_throughput_internal_activity": (
        "memory", "Internal activity, requests", "request side, not told apart by NVIDIA"),
}
UNIT_SIDES = {"SM": "compute", "DRAM": "memory", "L1": "memory", "L2": "memory", "memory": "memory"}


@dataclass(frozen=True)
class Part:
    metric: str
    unit: str                            # "SM" | "L1" | "L2" | "DRAM" | "memory" | "" unknown
    title: str
    meaning: str
    pct: float                           # of the unit's own peak while the kernel ran


@dataclass(frozen=True)
class Side:
    """One of the two throughputs and what it is made of, busiest part first."""

    name: str                            # "compute" | "memory"
    metric: str
    pct: float | None
    parts: list[Part]
    stated: bool                         # the report itself says what the throughput breaks down into

    @property
    def busiest(self) -> Part | None:
        return self.parts[0] if self.parts else None


def breakdown(metrics: Metrics, breakdowns: Mapping[str, str]) -> list[Side]:
    """Return the compute and the memory throughput by their parts.

    `breakdowns`: the report's lists (`breakdown:METRIC` -> "NAME,NAME…"); without them the parts that NVIDIA's tools use, where
    they were collected.
    """
    return [_side(name, metrics, breakdowns) for name in SIDES]


def _side(name: str, metrics: Metrics, breakdowns: Mapping[str, str]) -> Side:
    metric = SIDES[name] + ROLLUP
    listed = [each.strip() for each in breakdowns.get(f"breakdown:{metric}", "").split(",") if each.strip()]
    names = listed or [stem + ROLLUP for stem, (unit, _, _) in PARTS.items() if UNIT_SIDES[unit] == name]
    parts = [_part(each, value) for each in dict.fromkeys(names) if (value := number(metrics, each)) is not None]
    parts.sort(key=lambda part: (-part.pct, part.metric.startswith(_SHARED)))
    return Side(name, metric, number(metrics, metric), parts, bool(listed))


def _part(metric: str, pct: float) -> Part:
    stem = metric.partition(".")[0]
    unit, title, meaning = PARTS.get(stem, ("", stem.partition("__")[2].replace("_", " ") or stem, ""))
    return Part(metric, unit, title, meaning, pct)


def sentence(sides: list[Side]) -> str:
    """Say which part makes each of the two figures."""
    return " ".join(f"{side.name.capitalize()} {side.pct:.3g} % of peak: {_busiest_name(side)}." for side in sides
                    if side.pct is not None and side.busiest)


def _busiest_name(side: Side) -> str:
    """The busiest part; of the pipe that three kinds of instructions share, the kind that fills it."""
    busiest = side.parts[0]
    if busiest.metric.startswith(_SHARED):
        kind = next((part for part in side.parts if part.metric.startswith(_SHARING)), None)
        if kind is not None and kind.pct > 0.5 * busiest.pct:
            busiest = kind
    return f"{busiest.title} ({busiest.unit or 'GPU'})"


# Average, least and most busy instance of each unit. Source: Kernel Profiling Guide, "GPU and Memory Workload Distribution".
INSTANCES = {"sm": "SM", "smsp": "Scheduler", "l1tex": "L1", "lts": "L2 slice", "dram": "DRAM channel"}


@dataclass(frozen=True)
class Share:
    """How evenly the work lies over the instances of one unit: active cycles, against the elapsed ones."""

    unit: str
    average: float
    least: float
    most: float
    elapsed: float | None

    @property
    def spread_pct(self) -> float | None:
        """Return how far the busiest is from the idlest, in percent of the average."""
        return 100.0 * (self.most - self.least) / self.average if self.average else None


def distribution(metrics: Metrics) -> list[Share]:
    shares = []
    for stem, title in INSTANCES.items():
        values = [number(metrics, f"{stem}__cycles_active.{rollup}") for rollup in ("avg", "min", "max")]
        average, least, most = values
        if average is not None and least is not None and most is not None:
            shares.append(Share(title, average, least, most, number(metrics, f"{stem}__cycles_elapsed.avg")))
    return shares
