"""What the facts of a launch say of a cause by themselves, whatever the kernel's share of the time: a sentence, and what it may
win.

LIMITS holds the thresholds; each function returns `Seen` or None. A gain is an estimate in percent of the kernel's time: the
least and the most; without one `why_unknown` says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import pct_text, si_text
from profiles.analysis.kernel.advising import tensor_products, units
from profiles.analysis.kernel.advising.units import Seen
from profiles.analysis.kernel.bounds import THRESHOLDS
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.occupancy import limiter_words, waves_text
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.naming.names import operator_of

# Measures of a launch beside the values that people judge them by, each with its source.
#
# MEASURES is the table: thresholds are data, shown on the page with where they come from. What NVIDIA states is named with the
# place; what is only common practice says "rule of thumb", and a low value alone is never advice: a kernel that reads each byte
# once has nothing to hit in a cache. Shares of a unit's peak take theirs from `ingest.naming.bands`, as the texts beside them do:
# poor is the lowest band, good what lies above the second. Metrics: Kernel Profiling Guide.

_THUMB = "rule of thumb"


@dataclass(frozen=True)
class Measure:
    """`good_pct` and `poor_pct`: at or above, below; both in 0-100 of what `metric` says."""

    key: str
    label: str
    metric: str
    good_pct: float
    poor_pct: float
    source: str
    read: Callable[[LaunchFacts], float | None]
    note: str = ""                   # what the value does not say


@dataclass(frozen=True)
class Judged:
    measure: Measure
    value: float | None
    verdict: str                     # "good" | "fair" | "poor" | "" unknown


MEASURES: tuple[Measure, ...] = (
    Measure("sm_busy", "SM busy", "sm__instruction_throughput", BANDS["sm"].limits[1], BANDS["sm"].limits[0], BANDS["sm"].source,
            lambda facts: facts.signals.get("sm_busy_pct"), "A memory-bound kernel needs no busy SMs."),
    Measure("dram", "DRAM bandwidth", "gpu__dram_throughput", BANDS["dram"].limits[1], BANDS["dram"].limits[0],
            BANDS["dram"].source,
            lambda facts: facts.sol.dram_pct, "Low is no fault where data stays in the caches."),
    Measure("l1_hit", "L1 hit rate, all accesses of the launch", "l1tex__t_sector_hit_rate", 80.0, 50.0, _THUMB,
            lambda facts: facts.caches.l1_hit_pct, "Of what is read once nothing can hit; TMA and cp.async.bulk pass by the L1."),
    Measure("l2_hit", "L2 hit rate, all accesses of the launch", "lts__t_sector_hit_rate", 70.0, 40.0, _THUMB,
            lambda facts: facts.caches.l2_hit_pct, "Half of a copy's accesses are writes, which count as hits."),
    Measure("occupancy", "Occupancy, achieved", "sm__warps_active", 75.0, 50.0, _THUMB,
            lambda facts: facts.occupancy.achieved_pct, "Tensor-core kernels are often best at one or two blocks per SM."),
)


def judge(facts: LaunchFacts) -> list[Judged]:
    """Return every measure with its verdict, in the order of the table."""
    return [Judged(measure, value, _verdict(value, measure)) for measure in MEASURES for value in (measure.read(facts),)]


def _verdict(value: float | None, measure: Measure) -> str:
    if value is None:
        return ""
    return "good" if value >= measure.good_pct else "poor" if value < measure.poor_pct else "fair"


def limit(key: str) -> float:
    """Return the value from which on a measure is good."""
    return next(measure.good_pct for measure in MEASURES if measure.key == key)


BYTES_A_RESULT = {"softmax": 2.0, "layernorm": 2.0, "rmsnorm": 2.0, "add_rmsnorm": 2.0, "rotary": 2.0, "silu_mul": 3.0}

LIMITS: dict[str, float] = {
    "theoretical_pct": 50.0,     # occupancy below it can hide no latency
    "few_waves": 0.75,           # a grid below this many waves leaves SMs without a block
    "tail_loss_pct": 20.0,       # block slots that the last wave leaves empty
    "stall_pct": 30.0,           # of the cycles between two issues, one reason alone
    "imbalance_pct": 25.0,       # points of achieved occupancy below the theoretical one
    "atomic_busiest_pct": 50.0,  # of its peak, the busiest atomic unit of the L2 …
    "atomic_alone_pct": 20.0,    # … or as much, where it is also this many times as busy as SM, L1 and DRAM: "atomic_uneven"
    "atomic_uneven": 4.0,        # … and this many times as busy as they are on average: few addresses
    "atomic_all_pct": 60.0,      # or all of them are as busy as that: too many atomics (bounds.THRESHOLDS["busy_pct"])
    "fewest_sms": 40,            # of a data-centre GPU since 2018: T4
    "poor_tensor_pct": 30.0,     # of their peak, tensor cores below it are little used (bands of profiling guides: 10, 30, 50)
    "unused_pct": 25.0,          # of the bytes of global sectors
    "bandwidth_pct": 70.0,       # of the peak of DRAM or another level of memory: what bounds it is its bandwidth
    "reuse": 1.5,                # bytes asked of the L2 per byte of DRAM: below it there is little that could hit
}


def occupancy(facts: LaunchFacts) -> Seen | None:
    occupancy = facts.occupancy
    low = occupancy.theoretical_pct is not None and occupancy.theoretical_pct < LIMITS["theoretical_pct"]
    if not low or facts.bound not in ("latency", "launch") or units.holds_results(facts):
        return None
    return Seen(f"at most {pct_text(occupancy.theoretical_pct or 0)} of an SM's warps fit, limited by "
                f"{limiter_words(occupancy.limiters)}", None,
                100.0 - (occupancy.theoretical_pct or 0.0),
                "at most the share of the warps that do not fit, if more warps hide as much latency each (Little's law)")


def uncoalesced(facts: LaunchFacts) -> Seen | None:
    """Bytes of the sectors that nobody asked for, where no instruction says where they are."""
    pct = facts.signals.get("sector_unused_pct")
    if pct is None or "inst" in facts.signals or pct < LIMITS["unused_pct"]:
        return None
    return Seen(f"{pct_text(pct)} of the bytes of its global sectors are not asked for", None, pct,
                "how much of its time goes to global memory was not collected")


def small_grid(facts: LaunchFacts) -> Seen | None:
    """Too few blocks for the block slots, or (where none of them is known) for the SMs."""
    waves, sms = facts.occupancy.waves, facts.launch.get("sm_count")
    blocks = facts.launch.get("grid_size")
    if waves is None:
        return _few_blocks(facts)
    if waves >= LIMITS["few_waves"]:
        return None
    text = f"its grid fills {pct_text(100 * waves)} of the GPU's block slots"
    if isinstance(blocks, int | float) and isinstance(sms, int | float) and 0 < blocks < sms:
        idle_pct = 100.0 * (1.0 - blocks / sms)
        return Seen(f"{text}: {blocks:,.0f} block{'s' if blocks > 1 else ''} on {sms:,.0f} SMs, {sms - blocks:,.0f} of them "
                    "have nothing "
                    "to do", None, idle_pct, "at most the idle SMs' share, if its work can be cut into as many equal blocks")
    if facts.bound in ("latency", "launch"):        # Little's law: as many times more warps in flight, until something else is busy
        return Seen(text, None, 100.0 * (1.0 - waves), "at most the empty block slots' share, if more blocks hide as much "
                                                       "latency each")
    return Seen(text, why_unknown="each SM has a block: what more blocks beside it hide is not counted")


def _few_blocks(facts: LaunchFacts) -> Seen | None:
    """A grid held against the SMs, where nothing else of the launch was collected."""
    stated, model = facts.launch.get("sm_count"), gpus.lookup(facts.device)
    blocks = facts.launch.get("grid_size", math.prod(facts.grid) if facts.grid else None)
    sms = stated if isinstance(stated, int | float) and stated > 0 else model.sm_count if model else None
    if not isinstance(blocks, int | float) or blocks < 1 or blocks >= (sms or LIMITS["fewest_sms"]):
        return None
    text = f"{blocks:,.0f} block{'s' if blocks > 1 else ''} on " + (f"{sms:,.0f} SMs" if sms else (
        f"a GPU whose SMs the report does not count: fewer than the {LIMITS['fewest_sms']:.0f} of the smallest data-centre GPU "
        "since 2018 (T4)"))
    return Seen(text, None, 100.0 * (1.0 - blocks / sms) if sms else None,
                "at most the idle SMs' share, if its work can be cut into as many equal blocks")


def tail(facts: LaunchFacts) -> Seen | None:
    occupancy = facts.occupancy
    if occupancy.waves is None or occupancy.waves < 1 or (occupancy.tail_loss_pct or 0) < LIMITS["tail_loss_pct"]:
        return None
    return Seen(f"{waves_text(occupancy.waves)} waves, the last {pct_text(occupancy.tail_pct or 0)} full: "
                f"{pct_text(occupancy.tail_loss_pct or 0)} of the block slots stay empty", None, occupancy.tail_loss_pct,
                "at most the empty slots, if all blocks take equally long")


def imbalance(facts: LaunchFacts) -> Seen | None:
    theoretical, achieved = facts.occupancy.theoretical_pct, facts.occupancy.achieved_pct
    full = facts.occupancy.waves is not None and facts.occupancy.waves >= 1
    if theoretical is None or achieved is None or not full or theoretical - achieved < LIMITS["imbalance_pct"]:
        return None
    return Seen(f"{pct_text(achieved)} of the warps are active where {pct_text(theoretical)} would fit",
                why_unknown="fewer active warps cost time only where latency is not hidden")


def stall(*reasons: str) -> Callable[[LaunchFacts], Seen | None]:
    def seen(facts: LaunchFacts) -> Seen | None:
        share = sum(state.share_pct for state in facts.stalls if state.reason in reasons)
        return Seen(f"warps spend {pct_text(share)} of their time waiting there", None, share,
                    "at most the time that warps spend there: others may run meanwhile") if share >= LIMITS["stall_pct"] else None
    return seen


def atomics(facts: LaunchFacts) -> Seen | None:
    """Atomics of one address are served one after the other, by one unit of one L2 slice (metric
    `lts__d_atomic_input_cycles_active`). One unit far busier than their mean: few addresses, whatever language the kernel is
    written in. Estimate: the busiest unit's time less what it would be if all shared the work (most)."""
    busiest, mean = facts.signals.get("atomic_busiest_pct"), facts.signals.get("atomic_mean_pct")
    if busiest is None or mean is None:
        return None
    alone = busiest >= LIMITS["atomic_alone_pct"] and busiest >= LIMITS["atomic_uneven"] * max(_busy(facts))
    if busiest < LIMITS["atomic_busiest_pct"] and not alone:
        return None
    if busiest >= LIMITS["atomic_uneven"] * max(mean, 0.01):
        return Seen(f"the busiest of the L2's atomic units works {pct_text(busiest)} of the time, all of them on average "
                    f"{pct_text(mean)}: the atomics meet on few addresses", max(0.0, busiest - max(mean, *_busy(facts))),
                    busiest - mean, always=True)
    if mean >= LIMITS["atomic_all_pct"]:
        return Seen(f"the L2's atomic units work {pct_text(mean)} of the time", None, mean,
                    "at most their time: how many of the atomics can be saved is not counted", always=True)
    return None


def _busy(facts: LaunchFacts) -> tuple[float, ...]:
    """Shares of peak of everything else: what would limit next."""
    return tuple(value for value in (facts.sol.sm_pct, facts.sol.dram_pct, facts.sol.l1_pct) if value is not None) or (0.0,)


def idle_tensor(facts: LaunchFacts) -> Seen | None:
    point = facts.point
    if operator_of(facts.kernel) not in ("matmul", "attention") or point.side != "compute" or not point.flop:
        return None
    if facts.tensor_instructions or point.precision not in ("fp32", "fp16"):
        return None
    most_pct = _on_tensor_pct(facts)
    return Seen(f"its {point.precision} products run on the ordinary arithmetic pipes; the tensor cores are idle", None, most_pct,
                "if tensor cores reach as much of their roof" if most_pct is not None else
                "the roofs of this GPU are not in the report")


def _on_tensor_pct(facts: LaunchFacts) -> float | None:
    """Return what is won at most: tensor cores reach the share of their roof that the ordinary pipes reach of theirs."""
    roof = facts.roofs.compute.get("tf32_tensor" if facts.point.precision == "fp32" else "fp16_tensor")
    now = facts.roofs.compute.get(facts.point.precision or "")
    return 100.0 * (1.0 - now / roof) if roof and now and roof > now else None


def tensor_products_slow(facts: LaunchFacts) -> Seen | None:
    """Below 60 % of the ceiling: with the sides that the counters support, and those that they refute or cannot tell."""
    if not tensor_products.is_below_ceiling(facts):
        return _tensor_alone(facts)
    sides, gain = tensor_products.sides(facts), tensor_products.gain_pct(facts)
    reached = tensor_products.reached_pct(facts) or 0.0
    groups = [("Supported by the counters", True), ("Not the reason", False), ("Not known", None)]
    texts = [f"{head}: " + "; ".join(f"{side.name} ({side.text})" for side in sides if side.supported is which) + "."
             for head, which in groups if any(side.supported is which for side in sides)]
    least, most = gain if gain else (None, None)
    return Seen("\n".join([f"it reaches {pct_text(reached)} of the ceiling of its products", *texts]), least, most, always=True)


def _tensor_alone(facts: LaunchFacts) -> Seen | None:
    """The use of the tensor cores where it is all that was collected: no operations, no other unit."""
    used = facts.signals.get("tensor_pct")
    if facts.point.flop or facts.sol.sm_pct is not None or not used or used >= LIMITS["poor_tensor_pct"]:
        return None
    return Seen(f"the tensor cores are used to {pct_text(used)} of their peak (below {LIMITS['poor_tensor_pct']:.0f} % is little "
                "for a kernel of products)", why_unknown="what else is busy was not collected: --set basic tells whether memory, "
                "the grid or waiting limits it", title="Tensor cores are little used")


def convolution(facts: LaunchFacts) -> Seen | None:
    """A convolution that cuDNN runs without tensor cores on a GPU that has them (7.0 and newer)."""
    choice = tensor_products.convolution_of(facts.kernel)
    has_tensor = _capability(facts.compute_capability) >= (7, 0)
    if choice is None or not has_tensor or facts.tensor_instructions or choice.on_tensor_cores is not False:
        return None
    return Seen(f"cuDNN chose {choice.algorithm} on the ordinary arithmetic pipes (by the kernel's name"
                f"{' and its counts' if facts.point.flop else ''}); this GPU has tensor cores", None, _on_tensor_pct(facts),
                why_unknown="another algorithm does another number of operations: only a trial tells")


def _capability(text: str | None) -> tuple[int, int]:
    major, _, minor = (text or "").partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def cache_misses(facts: LaunchFacts) -> Seen | None:
    """L1 or L2 hits below the limits of `judge` where memory is what limits, and data is asked for more than once.

    Estimate for the L2: DRAM traffic falls with the misses, (1 − 0.7) / (1 − hits), if it hit as often as the limit says."""
    hit, dram, l2 = facts.caches.l2_hit_pct, facts.levels.get("dram"), facts.levels.get("l2")
    if facts.bound != "memory" or hit is None or dram is None or l2 is None or not dram.bytes:
        return None
    busy = max(facts.sol.dram_pct or 0.0, facts.sol.l2_pct or 0.0)
    if busy < THRESHOLDS["busy_pct"]:
        return None                                            # its L1 or shared memory is what is busy: misses cost nothing there
    reuse, good = l2.bytes / dram.bytes, limit("l2_hit")
    if hit >= good or reuse < LIMITS["reuse"]:
        return None
    l1 = facts.caches.l1_hit_pct
    beside = f", the L1 {pct_text(l1)} of its" if l1 is not None else ""
    return Seen(f"the L2 hits {pct_text(hit)} of its accesses (good from {pct_text(good)}: rule of thumb){beside}, though "
                f"each byte of DRAM is asked for {reuse:.1f} times", None, 100.0 * (1.0 - (100.0 - good) / (100.0 - hit)),
                "at most: how much of what it reads again would fit is not counted")


def saturated_memory(facts: LaunchFacts) -> Seen | None:
    bounded, dram = facts.bounded, facts.sol.dram_pct
    if not facts.bound and dram is not None and dram >= LIMITS["bandwidth_pct"]:
        return Seen(f"DRAM is used to {pct_text(dram)} of its peak", why_unknown="faster code wins at most the rest up to the peak")
    if facts.bound != "memory" or bounded is None or bounded.reached_pct is None or bounded.reached_pct < LIMITS["bandwidth_pct"]:
        return None
    inside = bounded.ceiling not in ("DRAM", "L2")
    one_word = (units.ratio(facts, "global_load_words", "global_load_inst") or 4.0) < 2.0
    used = f"its ceiling, {bounded.ceiling}, is used to {pct_text(bounded.reached_pct)}"
    if not inside and not units.at_roof(facts) and one_word:
        return Seen(f"{used}, and a load takes one word{_moved(facts)}",
                    why_unknown=f"faster code wins at most the {pct_text(bounded.left_pct or 0)} up to the peak",
                    title="Memory bandwidth is what it waits for, below its peak",
                    fix="Keep more bytes in flight: four words a load and a store (float4), several loads of a thread before the "
                        "first is used; then move fewer bytes.")
    return Seen(f"{used}{_moved(facts)}", None, None,
                f"faster code wins at most the {pct_text(bounded.left_pct or 0)} up to the peak; beyond it, each byte less "
                "saves its share of the time", title="The L1's data path is the limit" if inside else "",
                fix="Fewer and wider loads from the L1 and shared memory: keep in registers what is used again, read four words at "
                    "a time." if inside else "")


def _moved(facts: LaunchFacts) -> str:
    """Bytes that went through DRAM beside the fewest that its operator needs, where that is known."""
    least, moved = least_bytes(facts), facts.point.dram_bytes
    if least is None or not moved or moved < least[0]:
        return ""
    return f"; it moves {si_text(moved, 'B')}, {moved / least[0]:.2g} times the least: {si_text(least[0], 'B')} ({least[1]})"


def least_bytes(facts: LaunchFacts) -> tuple[float, str] | None:
    """Return the fewest bytes that an operator of this kind moves for what the launch wrote, and how that is counted.

    A kernel of rows or elements reads as much as it writes. A product of M × N results and K: at least the result and its two
    operands, M·K + K·N ≥ 2·K·√(M·N) with K = operations ÷ (2·M·N), all in the type of the result. None where neither its name nor
    its work says what it is.
    """
    stored, kind = facts.signals.get("stored_bytes"), operator_of(facts.kernel)
    if not stored or facts.signals.get("local_inst"):
        return None
    times = BYTES_A_RESULT.get(kind, 2.0 if "transpose" in facts.kernel.lower() else None)
    if times is not None:
        return times * stored, "its inputs read once, its result written once"
    if kind == "matmul" and facts.point.flop and facts.point.precision in ("fp32", "fp64"):
        size = 8.0 if facts.point.precision == "fp64" else 4.0
        results = stored / size
        return stored + size * facts.point.flop / math.sqrt(results), "each operand read once, square at best"
    return None


def saturated_pipe(facts: LaunchFacts) -> Seen | None:
    bounded = facts.bounded
    if facts.bound != "compute" or bounded is None or bounded.reached_pct is None or bounded.reached_pct < THRESHOLDS["busy_pct"]:
        return None
    full = bounded.reached_pct >= THRESHOLDS["near_pct"]
    return Seen(f"its ceiling, {bounded.ceiling}, is used to {pct_text(bounded.reached_pct)}", None, None,
                f"faster code wins at most the {pct_text(bounded.left_pct or 0)} up to the peak; beyond it, only fewer "
                "operations help", title="" if full else "One pipe is what it waits for most",
                fix="" if full else "Keep it fed: load the next tile while this one is computed (double buffering, cp.async), "
                    "fewer other instructions beside it; then fewer operations.")
