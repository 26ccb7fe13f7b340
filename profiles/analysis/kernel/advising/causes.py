"""Why a kernel loses time: every cause that advice is given about, once, with its fix and who may say that it is there.

`ours`: rules of `findings_counters` and `findings_source`. `nvidia`: rules of Nsight Compute's guided analysis as
(identifier, word of the title; "" is any), "Kernel Profiling Guide" and the rules' own sources in the report. `seen`: what the
facts of the launch say by themselves (`kernel.evidence`). `kind` decides the order where several say that they explain the same
time:

    fault      something in the code or its launch that can be changed
    limit      a part of the hardware is busy: nothing is wrong, only less work helps
    symptom    follows from others, and comes behind the fault that explains it
    algorithm  another algorithm or another type would do less: no fault of this code, and behind all of those

`unit` is what a fault loads: it explains the time only where that unit is busy ("warps": where nothing is, and the warps that
fit are there). `same_work`: its remedy changes neither operations nor bytes, so it wins at most the distance to the roof. `waste`:
more is moved, passed or executed than its work needs; such a fault is mended before the work is organised anew, so it leads from
LIMITS["waste_pct"] of `advice` on. `hides_latency`: its remedy hides waiting, which wins nothing where a unit is saturated
(`units.saturated`). New advice is one entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from profiles.analysis.core.result import Finding
from profiles.analysis.kernel.advising import evidence, feeding
from profiles.analysis.kernel.advising.units import Seen
from profiles.analysis.kernel.facts import LaunchFacts

UNKNOWN_GAIN = "neither NVIDIA's rules nor ours estimate how much of the kernel's time it costs"


@dataclass(frozen=True)
class Cause:
    key: str
    title: str
    fix: str
    ours: tuple[str, ...] = ()
    nvidia: tuple[tuple[str, str], ...] = ()
    seen: Callable[[LaunchFacts], Seen | None] | None = None
    kind: str = "fault"                  # "fault" | "limit" | "symptom" | "algorithm"
    unit: str = ""                       # "memory" | "compute" | "warps": what a fault loads; "" anything
    same_work: bool = False
    waste: bool = False
    hides_latency: bool = False
    why_unknown: str = UNKNOWN_GAIN      # where nobody states a gain


CAUSES: tuple[Cause, ...] = (
    Cause("uncoalesced", "Uncoalesced global access",
          "Let neighbouring threads of a warp touch neighbouring addresses: change the index or the layout, go through shared "
          "memory for transposes, use wider aligned loads.", ("source.uncoalesced",),
          (("UncoalescedGlobalAccess", ""), ("MemoryCacheAccessPattern", "Global"), ("MemoryCacheAccessPattern", "L2 Load"),
           ("MemoryCacheAccessPattern", "L2 Store")), evidence.uncoalesced, unit="memory", waste=True),
    Cause("bank_conflicts", "Shared-memory bank conflicts",
          "Pad the rows of the shared array by one element or swizzle the index, so that the threads of a warp fall into "
          "different "
          "banks.", ("source.bank_conflicts",), (("SharedMemoryConflicts", ""), ("UncoalescedSharedAccess", "")), feeding.conflicts,
          unit="memory", waste=True),
    Cause("divergence", "Divergent branches",
          "Let the threads of a warp take the same way: sort or regroup the work by case, or replace the branches by predicated "
          "arithmetic; let the first threads work in place of every second one.", ("source.divergence",),
          (("ThreadDivergence", ""),), feeding.divergence, unit="compute", waste=True),
    Cause("spills", "Register spills to local memory",
          "Let it use more registers (launch bounds, maxrregcount), keep fewer values live, or make array indices known when "
          "it is compiled.", ("source.spills",), (("MemoryCacheAccessPattern", "Local"),), unit="memory",
          waste=True),
    Cause("small_grid", "Too little parallelism",
          "Start more blocks: split the work along another dimension (split-K, one row per block), or run it beside another "
          "kernel.",
          (), (("LaunchConfiguration", "Small Grid"), ("SOLBottleneck", "Small Grid")), evidence.small_grid, same_work=True,
          hides_latency=True),
    Cause("tail", "Tail: a last wave that is partly empty",
          "Choose tiles so that blocks fill whole waves, start the longest blocks first, or share the rest (stream-K, persistent "
          "blocks).", ("source.tail", "counters.tail"), (("LaunchConfiguration", "Tail"),), evidence.tail, same_work=True,
          hides_latency=True),
    Cause("occupancy", "Low occupancy",
          "Spend less of the limiting resource per block (smaller tiles, fewer registers), or make each warp do more independent "
          "work.",
          ("counters.occupancy",), (("TheoreticalOccupancy", ""), ("Occupancy", "")), evidence.occupancy, unit="warps",
          same_work=True, hides_latency=True),
    Cause("imbalance", "Unbalanced blocks",
          "Blocks end at different times or are too short: balance the work between them, use fewer and longer ones.",
          ("counters.occupancy_gap",), (("AchievedOccupancy", ""), ("WorkloadImbalance", "SM")), evidence.imbalance, kind="symptom",
          same_work=True, hides_latency=True),
    Cause("atomics", "Atomics on few addresses",
          "Reduce within the warp (shuffles) and the block (shared memory) first, so that one thread does one atomic; spread "
          "them over several addresses.", ("source.atomics",), (("CPIStall", "Drain"),), evidence.atomics,
          why_unknown="the report does not count the L2's atomic units (section MemoryWorkloadAnalysis_Tables does)"),
    Cause("barriers", "Warps wait at barriers",
          "Balance the work before the barrier, use smaller blocks or named barriers, replace block-wide steps by warp shuffles.",
          (), (("CPIStall", "Barrier"), ("CPIStallBarrier", "")), feeding.barriers_high, hides_latency=True),
    Cause("operands", "Operands are loaded anew for each product",
          "Let each thread compute a tile of results in registers, from tiles of the operands in shared memory.", (), (),
          feeding.operands),
    Cause("work_a_thread", "Little work a thread",
          "Let each thread load and combine several words before the block meets: two adds while it loads, then a loop over the "
          "grid (grid-stride) with blocks that fill the GPU a few times.", (), (), feeding.work_a_thread),
    Cause("narrow", "One word a load",
          "Load and store four words at a time (float4, 128 bit) and keep several loads of a thread in flight (unroll).", (), (),
          feeding.narrow),
    Cause("reread", "The same data is loaded again",
          "Keep it in registers or shared memory between the passes, or make one pass of them: running maximum and sum (online "
          "softmax), sum and sum of squares.", (), (), feeding.reread),
    Cause("double", "fp64 arithmetic on fp32 values",
          "A constant without the suffix f, or a double in between, makes the whole expression fp64: write 0.5f, use float.",
          ("source.double",), (("SOLFPRoofline", "Utilization"),), unit="compute", waste=True),
    Cause("idle_tensor", "Tensor cores are idle",
          "Use a type that they multiply (bf16, fp16, tf32, fp8) and dimensions that are multiples of 8 or 16.",
          (), (), evidence.idle_tensor, kind="algorithm"),
    Cause("mma_sync", "mma.sync in place of warp-group instructions",
          "Tiles of at least 64 rows let the compiler use wgmma.", ("counters.mma_sync",)),
    Cause("latency", "Warps wait for data",
          "Load earlier (software pipelining, cp.async or TMA), keep more independent loads in flight, reuse through shared "
          "memory.", ("source.wait", "counters.stall"),
          (("CPIStall", "Scoreboard"), ("CPIStall", "long_scoreboard"), ("CPIStall", "Lg Throttle"), ("CPIStall", "Mio Throttle")),
          evidence.stall("long_scoreboard", "short_scoreboard", "lg_throttle", "mio_throttle"),
          kind="symptom", same_work=True,
          why_unknown="the time that warps wait is not the time that the kernel would win: other warps run meanwhile"),
    Cause("pipe", "One pipe is saturated",
          "Spread the work over other pipes, use instructions that do more each, or do fewer of them.",
          (), (("HighPipeUtilization", "Very High"),), evidence.saturated_pipe, kind="limit"),
    Cause("bandwidth", "Memory bandwidth is the limit",
          "Move fewer bytes: fuse it with the kernel that makes or reads its data, store what it reads in a narrower type, "
          "read each byte once.", (), (), evidence.saturated_memory, kind="limit"),
    Cause("cache_misses", "Little reuse in the caches",
          "Order the work so that blocks that run together read the same lines (tiles, swizzled block indices), or keep what is "
          "read again in shared memory.", (), (), evidence.cache_misses, unit="memory"),
    Cause("tensor_products", "Tensor-core products below 60 % of their ceiling",
          "Begin with what the counters support: a tile that fits the shape and fills whole waves, more pipeline "
          "stages, aligned leading dimensions, split-K or stream-K where K is long; then the epilogue.", (), (),
          evidence.tensor_products_slow, same_work=True),
    Cause("epilogue", "A long epilogue behind the products",
          "Overlap the epilogue of one tile with the products of the next (persistent, warp-specialised kernel), store "
          "through shared "
          "memory with TMA or 128-bit stores, fuse fewer operations into it.", ("source.epilogue",), same_work=True,
          why_unknown="samples say where warps wait, not how long the tensor cores idle meanwhile"),
    Cause("convolution", "A convolution without tensor cores",
          "Let cuDNN search (torch.backends.cudnn.benchmark = True), use channels_last with fp16, bf16 or TF32, and channel "
          "counts that are multiples of 8.", (), (), evidence.convolution, kind="algorithm"),
    Cause("unfused", "Multiplications and additions apart",
          "Write a * b + c in one expression, and let the compiler fuse it (no -fmad=false).", (), (("FPInstructions", ""),),
          unit="compute"),
)
# How far a kernel is from its roof (the finding counters.bound) is a measure and no cause: `advice.headroom`.
# NVIDIA's other rules describe (SOLBottleneck, IssueSlotUtilization), or ask for what hardly anybody can do (MemoryL2Compression
# needs memory allocated for it): they stand on the kernel page as the report holds them.


def cause_of_rule(rule: str) -> Cause | None:
    """Return the cause of a finding of ours."""
    return next((cause for cause in CAUSES if rule in cause.ours), None)


def cause_of_nvidia(identifier: str, title: str) -> Cause | None:
    return next((cause for cause in CAUSES for name, word in cause.nvidia if name == identifier and word in title), None)


def once_per_cause(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings without NVIDIA's estimates of what a finding of ours says of the same kernel already."""
    ours = {(finding.kernel, our_cause.key) for finding in findings if (our_cause := cause_of_rule(finding.rule))}
    out = []
    for finding in findings:
        theirs = cause_of_nvidia(str(finding.numbers.get("rule", "")), finding.title) if finding.rule == "counters.nvidia" else None
        if theirs is None or (finding.kernel, theirs.key) not in ours:
            out.append(finding)
    return out


def cause(key: str) -> Cause | None:
    return next((entry for entry in CAUSES if entry.key == key), None)
