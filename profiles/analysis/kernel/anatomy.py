"""One launch, taken apart: every picture and table of its kernel's page, each with the sentence that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from typing import Any

from profiles.analysis.core.sentences import pct_text, share_pct
from profiles.analysis.kernel import memory_chart, pipes, stalls
from profiles.analysis.kernel.memory_chart import Chart, Waste
from profiles.analysis.kernel.metrics import Metrics, number
from profiles.analysis.kernel.pipes import Mix, Pipe
from profiles.ingest.ncu.sections import Section, sections
from profiles.ingest.trace import SummaryTable

# Speed of light, taken apart: which unit of the GPU is the busy one.
#
# `sm__throughput` and `gpu__compute_memory_throughput` are each the highest of the metrics that they break down into; the report
# names these (`breakdown:…`). Source of the meanings: Nsight Compute, Kernel Profiling Guide, "Metrics Reference" and "Pipelines".

ROLLUP = ".avg.pct_of_peak_sustained_elapsed"
SIDES = {"compute": "sm__throughput", "memory": "gpu__compute_memory_throughput"}
_SHARED = "sm__pipe_shared_"              # is busy whenever one of these is: they say more
_SHARING = ("sm__pipe_tensor_", "sm__pipe_fp64_", "sm__inst_executed_pipe_fp16")

# metric without its rollup -> unit, title, meaning
UNIT_PARTS: dict[str, tuple[str, str, str]] = {
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
class Throughput:
    """One of the two throughputs and what it is made of, busiest part first."""

    name: str                            # "compute" | "memory"
    metric: str
    pct: float | None
    parts: list[Part]
    stated: bool                         # the report itself says what the throughput breaks down into

    @property
    def busiest(self) -> Part | None:
        return self.parts[0] if self.parts else None


def breakdown(metrics: Metrics, breakdowns: Mapping[str, str]) -> list[Throughput]:
    """Return the compute and the memory throughput by their parts.

    `breakdowns`: the report's lists (`breakdown:METRIC` -> "NAME,NAME…"); without them the parts that NVIDIA's tools use, where
    they were collected.
    """
    return [_side(name, metrics, breakdowns) for name in SIDES]


def _side(name: str, metrics: Metrics, breakdowns: Mapping[str, str]) -> Throughput:
    metric = SIDES[name] + ROLLUP
    listed = [entry.strip() for entry in breakdowns.get(f"breakdown:{metric}", "").split(",") if entry.strip()]
    names = listed or [stem + ROLLUP for stem, (unit, _, _) in UNIT_PARTS.items() if UNIT_SIDES[unit] == name]
    parts = [_part(each, value) for each in dict.fromkeys(names) if (value := number(metrics, each)) is not None]
    parts.sort(key=lambda part: (-part.pct, part.metric.startswith(_SHARED)))
    return Throughput(name, metric, number(metrics, metric), parts, bool(listed))


def _part(metric: str, pct: float) -> Part:
    stem = metric.partition(".")[0]
    unit, title, meaning = UNIT_PARTS.get(stem, ("", stem.partition("__")[2].replace("_", " ") or stem, ""))
    return Part(metric, unit, title, meaning, pct)


def sides_sentence(sides: list[Throughput]) -> str:
    """Say which part makes each of the two figures."""
    return " ".join(f"{side.name.capitalize()} {side.pct:.3g} % of peak: {_busiest_name(side)}." for side in sides
                    if side.pct is not None and side.busiest)


def _busiest_name(side: Throughput) -> str:
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
        return share_pct(self.most - self.least, self.average)


def distribution(metrics: Metrics) -> list[Share]:
    shares = []
    for stem, title in INSTANCES.items():
        values = [number(metrics, f"{stem}__cycles_active.{rollup}") for rollup in ("avg", "min", "max")]
        average, least, most = values
        if average is not None and least is not None and most is not None:
            shares.append(Share(title, average, least, most, number(metrics, f"{stem}__cycles_elapsed.avg")))
    return shares


# ---- scheduler and issue statistics ----
# How many warps a scheduler has to choose from, and how often it finds one that can go on.
# Source: Nsight Compute, Kernel Profiling Guide, sections SchedulerStats and WarpStateStats. A scheduler issues at most one warp
# instruction per cycle.

# Below this share of cycles with an issued instruction the reasons of the waiting matter: NVIDIA's IssueSlotUtilization rule.
ISSUE_PCT = 80.0


@dataclass(frozen=True)
class Issue:
    """Per scheduler; warps are averages over its active cycles."""

    slots: float | None                  # warps that the hardware can hold
    theoretical: float | None            # that this launch's resources allow
    active: float | None
    eligible: float | None
    issued: float | None                 # instructions per cycle, 0-1
    no_eligible_pct: float | None        # cycles in which no warp could go on
    latency_cycles: float | None         # between two issued instructions of one warp

    @property
    def ladder(self) -> list[tuple[str, float, str]]:
        """Return (what, warps, meaning); each is a part of the one before."""
        steps = [("Slots", self.slots, "warps that a scheduler can hold"),
                 ("Theoretical", self.theoretical, "that fit with this kernel's registers, shared memory and block size"),
                 ("Active", self.active, "that were there on average"),
                 ("Eligible", self.eligible, "that could issue: not waiting for anything"),
                 ("Issued", self.issued, "instructions issued per cycle, at most 1")]
        return [(name, value, meaning) for name, value, meaning in steps if value is not None]


def issue(metrics: Metrics) -> Issue:
    schedulers = number(metrics, "device__attribute_num_schedulers_per_multiprocessor") or 4.0
    warps = number(metrics, "device__attribute_max_warps_per_multiprocessor")
    theoretical = number(metrics, "sm__maximum_warps_avg_per_active_cycle", "smsp__maximum_warps_avg_per_active_cycle")
    if theoretical is not None and "sm__maximum_warps_avg_per_active_cycle" in metrics:
        theoretical /= schedulers
    none = number(metrics, "smsp__issue_inst0.avg.pct_of_peak_sustained_active")
    busy = number(metrics, "smsp__issue_active.avg.pct_of_peak_sustained_active")
    return Issue(
        slots=number(metrics, "device__attribute_max_warps_per_scheduler") or (warps / schedulers if warps else None),
        theoretical=theoretical,
        active=number(metrics, "smsp__warps_active.avg.per_cycle_active"),
        eligible=number(metrics, "smsp__warps_eligible.avg.per_cycle_active"),
        issued=number(metrics, "smsp__issue_active.avg.per_cycle_active"),
        no_eligible_pct=none if none is not None else 100.0 - busy if busy is not None else None,
        latency_cycles=number(metrics, "smsp__average_warp_latency_per_inst_issued.ratio"),
    )


def sentence(issue: Issue, top: tuple[str, float] | None = None) -> str:
    """Say whether the waiting matters, and what is waited for.

    `top`: the longest stall's title and its share of a warp's time.
    """
    if issue.issued is None or issue.no_eligible_pct is None:
        return ""
    busy = 100.0 - issue.no_eligible_pct
    waits = f" A warp waits {pct_text(top[1])} of its time on {top[0]}." if top else ""
    if busy >= ISSUE_PCT:
        return (f"The schedulers issue in {busy:.3g} % of their cycles: they are the limit, and what single warps wait for matters "
                f"little.{waits}")
    have = ""
    if issue.active is not None and issue.eligible is not None:
        have = f" Of {issue.active:.3g} active warps {issue.eligible:.2g} can go on in a cycle."
    return f"In {issue.no_eligible_pct:.3g} % of the cycles a scheduler finds no warp that can go on.{have}{waits}"


# ---- one launch ----

NOT_WAITING = ("selected", "not_selected")
PARTS = ("sides", "chart", "tables", "wastes", "pipes", "mix", "issue", "shares", "sections", "sentences")


class Anatomy:
    """Every picture and table of one launch; each is computed when it is first asked for, once."""

    def __init__(self, metrics: Metrics, breakdowns: Mapping[str, str]) -> None:
        self._metrics, self._breakdowns = metrics, breakdowns

    @cached_property
    def sides(self) -> list[Throughput]:
        return breakdown(self._metrics, self._breakdowns)

    @cached_property
    def chart(self) -> Chart:
        return memory_chart.chart(self._metrics)

    @cached_property
    def tables(self) -> list[SummaryTable]:
        return memory_chart.tables(self._metrics)

    @cached_property
    def wastes(self) -> list[Waste]:
        return memory_chart.wastes(self._metrics)

    @cached_property
    def pipes(self) -> list[Pipe]:
        return pipes.pipes(self._metrics)

    @cached_property
    def mix(self) -> Mix | None:
        return pipes.mix(self._metrics)

    @cached_property
    def issue(self) -> Issue:
        return issue(self._metrics)

    @cached_property
    def shares(self) -> list[Share]:
        return distribution(self._metrics)

    @cached_property
    def sections(self) -> list[Section]:
        return sections(self._metrics)

    def sentence(self, picture: str) -> str:
        """Return what a picture says: one of `SAYS`."""
        return SAYS[picture](self)

    @cached_property
    def sentences(self) -> dict[str, str]:
        return {picture: self.sentence(picture) for picture in SAYS}

    def longest_wait(self) -> tuple[str, float] | None:
        """Return the warp state that takes most, in words and in percent."""
        waits = [stall for stall in stalls.stalls(self._metrics) if stall.reason not in NOT_WAITING]
        return (stalls.explain(waits[0].reason).title, waits[0].share_pct) if waits else None

    def as_json(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in PARTS}


def _plain(part: Any) -> Any:
    if isinstance(part, list):
        return [asdict(entry) for entry in part]
    return asdict(part) if is_dataclass(part) and not isinstance(part, type) else part


def anatomy(metrics: Metrics, breakdowns: Mapping[str, str]) -> Anatomy:
    """Return every picture and table of one launch.

    `breakdowns`: the report's own lists of what its throughputs break down into.
    """
    return Anatomy(metrics, breakdowns)


UNEVEN_PCT = 20.0                        # between the idlest and the busiest SM, of the average


def _shares_sentence(shares: list[Share]) -> str:
    """Do all SMs have the same to do?"""
    sm = next((share for share in shares if share.unit == "SM"), None)
    if sm is None or sm.spread_pct is None:
        return ""
    busy = f", on average {100.0 * sm.average / sm.elapsed:.3g} % of the kernel's time" if sm.elapsed else ""
    uneven = "unevenly: some SMs wait for the others" if sm.spread_pct >= UNEVEN_PCT else "evenly"
    return (f"The work lies {uneven}. SMs are active for {sm.least:,.0f} to {sm.most:,.0f} cycles, a spread of "
            f"{sm.spread_pct:.3g} %{busy}.")


# picture -> the sentence that it stands for
SAYS: dict[str, Callable[[Anatomy], str]] = {
    "speed": lambda parts: sides_sentence(parts.sides),
    "memory": lambda parts: parts.chart.sentence,
    "issue": lambda parts: sentence(parts.issue, parts.longest_wait()),
    "pipes": lambda parts: pipes.sentence(parts.pipes, parts.mix),
    "shares": lambda parts: _shares_sentence(parts.shares),
}
