"""Why a kernel loses time: every cause that advice is given about, once, with its fix and who may say that it is there.

`ours`: rules of `findings_counters` and `findings_source`. `nvidia`: rules of Nsight Compute's guided analysis as
(identifier, word of the title; "" is any), "Kernel Profiling Guide" and the rules' own sources in the report. `evidence`: what the
facts of the launch say by themselves, whatever the kernel's share of the time. New advice is one entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from profiles.analysis.core.names import operator_of
from profiles.analysis.core.sentences import pct_text
from profiles.analysis.kernel.counters import LaunchFacts, limiter_words

LIMITS: dict[str, float] = {
    "theoretical_pct": 50.0,     # occupancy below it can hide no latency
    "few_waves": 0.75,           # a grid below this many waves leaves SMs without a block
    "tail_loss_pct": 20.0,       # block slots that the last wave leaves empty
    "stall_pct": 30.0,           # of the cycles between two issues, one reason alone
    "imbalance_pct": 25.0,       # points of achieved occupancy below the theoretical one
}


@dataclass(frozen=True)
class Cause:
    key: str
    title: str
    fix: str
    ours: tuple[str, ...] = ()
    nvidia: tuple[tuple[str, str], ...] = ()
    evidence: Callable[[LaunchFacts], str] | None = None         # the sentence of numbers, "" where it is not there


def _occupancy(facts: LaunchFacts) -> str:
    occupancy = facts.occupancy
    low = occupancy.theoretical_pct is not None and occupancy.theoretical_pct < LIMITS["theoretical_pct"]
    if not low or facts.bound not in ("latency", "launch"):
        return ""
    return f"at most {pct_text(occupancy.theoretical_pct or 0)} of an SM's warps fit, limited by {limiter_words(occupancy)}"


def _small_grid(facts: LaunchFacts) -> str:
    waves = facts.occupancy.waves
    if waves is None or waves >= LIMITS["few_waves"]:
        return ""
    return f"its grid fills {pct_text(100 * waves)} of the GPU's block slots"


def _tail(facts: LaunchFacts) -> str:
    occupancy = facts.occupancy
    if occupancy.waves is None or occupancy.waves < 1 or (occupancy.tail_loss_pct or 0) < LIMITS["tail_loss_pct"]:
        return ""
    return (f"{occupancy.waves:.2f} waves, the last {pct_text(occupancy.tail_pct or 0)} full: "
            f"{pct_text(occupancy.tail_loss_pct or 0)} of the block slots stay empty")


def _imbalance(facts: LaunchFacts) -> str:
    theoretical, achieved = facts.occupancy.theoretical_pct, facts.occupancy.achieved_pct
    full = facts.occupancy.waves is not None and facts.occupancy.waves >= 1
    if theoretical is None or achieved is None or not full or theoretical - achieved < LIMITS["imbalance_pct"]:
        return ""
    return f"{pct_text(achieved)} of the warps are active where {pct_text(theoretical)} would fit"


def _stall_evidence(*reasons: str) -> Callable[[LaunchFacts], str]:
    def evidence(facts: LaunchFacts) -> str:
        share = sum(each.share_pct for each in facts.stalls if each.reason in reasons)
        return f"warps spend {pct_text(share)} of their time waiting there" if share >= LIMITS["stall_pct"] else ""
    return evidence


def _idle_tensor(facts: LaunchFacts) -> str:
    point = facts.point
    if operator_of(facts.kernel) not in ("matmul", "attention") or point.side != "compute" or not point.flop:
        return ""
    if facts.tensor_instructions or point.precision not in ("fp32", "fp16"):
        return ""
    return f"its {point.precision} products run on the ordinary arithmetic pipes; the tensor cores are idle"


CAUSES: tuple[Cause, ...] = (
    Cause("uncoalesced", "Uncoalesced global access",
          "Let neighbouring threads of a warp touch neighbouring addresses: change the index or the layout, go through shared "
          "memory for transposes, use wider aligned loads.", ("source.uncoalesced",),
          (("UncoalescedGlobalAccess", ""), ("MemoryCacheAccessPattern", "Global"), ("MemoryCacheAccessPattern", "L2 Load"),
           ("MemoryCacheAccessPattern", "L2 Store"))),
    Cause("bank_conflicts", "Shared-memory bank conflicts",
          "Pad the rows of the shared array by one element or swizzle the index, so that the threads of a warp fall into different "
          "banks.", ("source.bank_conflicts",), (("SharedMemoryConflicts", ""), ("UncoalescedSharedAccess", ""))),
    Cause("divergence", "Divergent branches",
          "Let the threads of a warp take the same way: sort or regroup the work by case, or replace the branches by predicated "
          "arithmetic.", ("source.divergence",), (("ThreadDivergence", ""),)),
    Cause("spills", "Register spills to local memory",
          "Let it use more registers (launch bounds, maxrregcount), keep fewer values live, or make array indices known when it is "
          "compiled.", ("source.spills",), (("MemoryCacheAccessPattern", "Local"),)),
    Cause("small_grid", "Too little parallelism",
          "Start more blocks: split the work along another dimension (split-K, one row per block), or run it beside another "
          "kernel.",
          (), (("LaunchConfiguration", "Small Grid"), ("SOLBottleneck", "Small Grid")), _small_grid),
    Cause("tail", "Tail: a last wave that is partly empty",
          "Choose tiles so that blocks fill whole waves, start the longest blocks first, or share the rest (stream-K, persistent "
          "blocks).", ("source.tail", "counters.tail"), (("LaunchConfiguration", "Tail"),), _tail),
    Cause("occupancy", "Low occupancy",
          "Spend less of the limiting resource per block (smaller tiles, fewer registers), or make each warp do more independent "
          "work.",
          ("counters.occupancy",), (("TheoreticalOccupancy", ""), ("Occupancy", "")), _occupancy),
    Cause("imbalance", "Unbalanced blocks",
          "Blocks end at different times or are too short: balance the work between them, use fewer and longer ones.",
          ("counters.occupancy_gap",), (("AchievedOccupancy", ""), ("WorkloadImbalance", "SM")), _imbalance),
    Cause("atomics", "Atomics on few addresses",
          "Reduce within the warp (shuffles) and the block (shared memory) first, so that one thread does one atomic; spread them "
          "over several addresses.", ("source.atomics",), (("CPIStall", "Drain"),)),
    Cause("barriers", "Warps wait at barriers",
          "Balance the work before the barrier, use smaller blocks or named barriers, replace block-wide steps by warp shuffles.",
          (), (("CPIStall", "Barrier"), ("CPIStallBarrier", "")), _stall_evidence("barrier")),
    Cause("double", "fp64 arithmetic on fp32 values",
          "A constant without the suffix f, or a double in between, makes the whole expression fp64: write 0.5f, use float.",
          ("source.double",), (("SOLFPRoofline", "Utilization"),)),
    Cause("idle_tensor", "Tensor cores are idle",
          "Use a type that they multiply (bf16, fp16, tf32, fp8) and dimensions that are multiples of 8 or 16.",
          (), (), _idle_tensor),
    Cause("mma_sync", "mma.sync in place of warp-group instructions",
          "Tiles of at least 64 rows let the compiler use wgmma.", ("counters.mma_sync",)),
    Cause("latency", "Warps wait for data",
          "Load earlier (software pipelining, cp.async or TMA), keep more independent loads in flight, reuse through shared "
          "memory.", ("source.wait", "counters.stall"),
          (("CPIStall", "Scoreboard"), ("CPIStall", "long_scoreboard"), ("CPIStall", "Lg Throttle"), ("CPIStall", "Mio Throttle"),
           ("CPIStall", "Wait"))),
    Cause("pipe", "One pipe is saturated",
          "Spread the work over other pipes, use instructions that do more each, or do fewer of them.",
          (), (("HighPipeUtilization", "Very High"),)),
    Cause("unfused", "Multiplications and additions apart",
          "Write a * b + c in one expression, and let the compiler fuse it (no -fmad=false).", (), (("FPInstructions", ""),)),
    Cause("roof", "Distance to its own roof", "", ("counters.bound",)),
)
# NVIDIA's other rules describe (SOLBottleneck, IssueSlotUtilization), or ask for what hardly anybody can do (MemoryL2Compression
# needs memory allocated for it): they stand on the kernel page as the report holds them.


def cause_of_rule(rule: str) -> Cause | None:
    """Return the cause of a finding of ours."""
    return next((cause for cause in CAUSES if rule in cause.ours), None)


def cause_of_nvidia(identifier: str, title: str) -> Cause | None:
    return next((cause for cause in CAUSES for name, word in cause.nvidia if name == identifier and word in title), None)


def cause(key: str) -> Cause | None:
    return next((each for each in CAUSES if each.key == key), None)
