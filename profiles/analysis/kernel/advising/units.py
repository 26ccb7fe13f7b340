"""Which units of the GPU a launch keeps busy, and what it would win if a part of one unit's work fell away.

A kernel takes as long as its busiest unit needs, if everything overlaps (the roofline with more than one roof: Williams, Waterman,
Patterson, CACM 2009; Ilic et al., "Cache-aware Roofline model", 2014). So taking a share of one unit's work away wins at most the
distance down to the next busiest one:

    gain = 1 − max over units of (busy × (1 − removed)) ÷ max over units of busy

Where no unit is busy (LIMITS["bound_pct"]) warps wait, and less work of a unit saves at most that share of the time that they wait
for it. Both are upper bounds and are said as such ("at most").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiles.analysis.kernel.facts import LaunchFacts

# What the facts of a launch say of a cause by themselves.


@dataclass(frozen=True)
class Seen:
    """`text` has a line for each sentence.

    `least_pct`, `most_pct`: of the kernel's time, 0-100, an estimate; None where nobody can say, and why. `title`, `fix`: in place
    of the cause's, where the facts tell which of its kinds it is.
    """

    text: str
    least_pct: float | None = None
    most_pct: float | None = None
    why_unknown: str = ""
    always: bool = False             # said beside a finding of ours about the same, which does not hold these numbers
    title: str = ""
    fix: str = ""


LIMITS: dict[str, float] = {
    "bound_pct": 60.0,           # of its peak: a unit below it does not bound a kernel (bounds.THRESHOLDS["busy_pct"]) …
    "memory_bound_pct": 80.0,    # … DRAM and L2 below it: more bytes in flight still go faster (streams reach 85 to 90 of DRAM)
    "roof_pct": 85.0,            # at or above, waiting is hidden: more warps, fewer barriers or more blocks win nothing
    "tile_fma_pct": 40.0,        # multiply-adds of all instructions, in a product whose operands are held in registers …
    "pipe_fma_pct": 25.0,        # of its peak, the FMA pipe, where instructions were not counted by opcode …
    "pipe_integers": 0.3,        # … and what integer multiply-adds may be of its use, of all that is issued
    "tile_words": 0.6,           # … and at most as many words loaded for each of them
    "sector_excess_pct": 50.0,   # of the sectors, that neighbouring threads would not need …
    "sector_wait_pct": 50.0,     # … and of their time that warps wait for them: the access is what the time goes to
}
UNITS: dict[str, str] = {        # signal -> how a sentence calls the unit
    "issue_pct": "the issue slots", "lsu_data_pct": "the L1's data path", "lsu_inst_pct": "the load and store unit",
    "fma_pct": "the FMA pipe", "alu_pct": "the ALU pipe", "xu_pct": "the special-function unit", "fp64_pct": "the FP64 pipe",
    "fp16_pct": "the FP16 pipe", "tensor_pct": "the tensor cores", "dram_pct": "DRAM", "l2_pct": "the L2",
}
WAITS: dict[str, tuple[str, ...]] = {        # signal -> warp states in which a warp waits for that unit
    "lsu_data_pct": ("lg_throttle", "mio_throttle", "short_scoreboard", "long_scoreboard"),
    "lsu_inst_pct": ("lg_throttle", "mio_throttle", "short_scoreboard", "long_scoreboard"),
    "l2_pct": ("lg_throttle", "long_scoreboard"), "dram_pct": ("lg_throttle", "long_scoreboard"),
    "issue_pct": ("selected", "not_selected", "branch_resolving", "no_instruction", "dispatch_stall", "wait"),
}
MEMORY = ("dram_pct", "l2_pct")


def busy(facts: LaunchFacts) -> dict[str, float]:
    """Return the use of each unit that the report tells, percent of its peak."""
    shares = {name: facts.signals[name] for name in UNITS if name in facts.signals}
    for name, value in (("dram_pct", facts.sol.dram_pct), ("l2_pct", facts.sol.l2_pct)):
        if value is not None:
            shares[name] = value
    return shares


def busiest(facts: LaunchFacts) -> tuple[str, float] | None:
    """Return the busiest unit, in words, and its use; None where the report tells none."""
    shares = busy(facts)
    top = max(shares, key=lambda name: shares[name], default=None)
    return None if top is None else (UNITS[top], shares[top])


def bounds(facts: LaunchFacts) -> tuple[str, float] | None:
    """Return the busiest unit, in words, and its use, where it is busy enough to bound the kernel; None where warps wait."""
    shares = busy(facts)
    bound = {name: value for name, value in shares.items()
             if value >= LIMITS["memory_bound_pct" if name in MEMORY else "bound_pct"]}
    top = max(bound, key=lambda name: bound[name], default=None)
    return None if top is None else (UNITS[top], bound[top])


def saturated(facts: LaunchFacts) -> tuple[str, float] | None:
    """Return the unit that is used to LIMITS["roof_pct"] and more, and its use: nothing that hides latency helps then."""
    top = busiest(facts)
    if top is not None and top[1] >= LIMITS["roof_pct"]:
        return top
    # the report's own figures also hold units that a fault keeps busy (barriers: the ADU): only where no unit is known
    whole = () if "issue_pct" in facts.signals else (("compute", facts.sol.sm_pct), ("memory", facts.sol.memory_pct))
    for name, value in (*whole, ("its roof", facts.point.roof_pct)):
        if value is not None and value >= LIMITS["roof_pct"]:
            return name, value
    return None


def at_roof(facts: LaunchFacts) -> bool:
    """Whether DRAM, a pipe, the issue slots or its own roof is reached: what is left is less work."""
    shares = {name: value for name, value in busy(facts).items() if name not in ("l2_pct", "lsu_data_pct", "lsu_inst_pct")}
    return max((*shares.values(), facts.point.roof_pct or 0.0), default=0.0) >= LIMITS["roof_pct"]


def freed_pct(facts: LaunchFacts, removed: Mapping[str, float]) -> float | None:
    """Return what the kernel wins at most, 0-100 of its time, if these shares (0-1) of units' work fall away.

    None where neither the units' use nor the states of the warps are in the report.
    """
    before = busy(facts)
    if bounds(facts) is not None:
        after = max(value * (1.0 - removed.get(name, 0.0)) for name, value in before.items())
        return 100.0 * max(0.0, 1.0 - after / max(before.values()))
    waits = [share * waited_pct(facts, *WAITS.get(name, ())) for name, share in removed.items()] if facts.stalls else []
    if waits:
        return min(100.0, max(waits))
    return None


def waited_pct(facts: LaunchFacts, *reasons: str) -> float:
    """Return the share of the time between two issues that warps are in these states, 0-100."""
    return sum(stall.share_pct for stall in facts.stalls if stall.reason in reasons)


def waits_for_sectors(facts: LaunchFacts) -> bool:
    """Whether warps wait for global memory, and most sectors are there because the threads of a warp lie apart."""
    excess = facts.signals.get("sector_excess_pct", 0.0)
    waited = waited_pct(facts, "long_scoreboard", "lg_throttle")
    return excess >= LIMITS["sector_excess_pct"] and waited >= LIMITS["sector_wait_pct"]


def ratio(facts: LaunchFacts, above: str, below: str) -> float | None:
    """Return one signal over another; None where either is unknown or the second is 0."""
    top, bottom = facts.signals.get(above), facts.signals.get(below)
    return None if top is None or not bottom else top / bottom


def words_a_product(facts: LaunchFacts) -> float | None:
    """Return the words that are loaded for each multiply-add; None where it has none or the loads are unknown."""
    signals = facts.signals
    fma = signals.get("fma_inst")
    if not fma:
        return None
    loaded = sum(signals.get(f"{kind}_load_words", signals.get(f"{kind}_load_inst", 0.0)) for kind in ("global", "shared"))
    return loaded / fma


def has_register_tile(facts: LaunchFacts) -> bool:
    """Whether a thread holds many results or operands in registers: instructions do not wait for each other, few warps will do."""
    share, loaded = ratio(facts, "fma_inst", "inst"), words_a_product(facts)
    if share is not None and 100.0 * share >= LIMITS["tile_fma_pct"] and loaded is not None and loaded <= LIMITS["tile_words"]:
        return True
    return bool(facts.signals.get("tensor_inst")) or bool(facts.tensor_instructions)


def holds_results(facts: LaunchFacts) -> bool:
    """Whether registers or shared memory limit its warps because it multiplies out of them: more warps would cost the tile."""
    share = ratio(facts, "fma_inst", "inst")
    if share is None:                                           # not counted: of the code, or of the pipe beside what is issued
        signals = facts.signals
        share = max(signals.get("code_fma_share", 0.0), signals.get("code_tensor_share", 0.0))
        if facts.point.flop and signals.get("fma_pct", 0.0) >= LIMITS["pipe_fma_pct"]:
            share = max(share, (ratio(facts, "fma_pct", "issue_pct") or 0.0) - LIMITS["pipe_integers"])
    by_design = {"registers", "shared_mem"} & set(facts.occupancy.limiters)
    multiplies = share is not None and 100.0 * share >= LIMITS["tile_fma_pct"]
    return bool(by_design) and (multiplies or has_register_tile(facts))
