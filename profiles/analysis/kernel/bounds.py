"""What holds a launch back, through the roofline's lens: which ceiling, how far from it, and what would move it.

The border between busy and not is that of NVIDIA's own SOLBottleneck rule (Nsight Compute, "SpeedOfLight" section: 60 %
of peak). THRESHOLDS are shown on the pages that use them. The kinds are those of the roofline literature (Williams et
al., CACM 2009; Yang et al., "Hierarchical Roofline Analysis for GPUs", 2020) and one more:

    memory    a level of memory is busy and busier than the arithmetic (balanced: the side of the ridge decides)
    compute   a pipe or the issue slots are
    latency   nothing is busy, and it is far from its roof: warps wait, or too few of them are there
    launch    nothing is busy and it is over before the GPU fills: its launch costs as much as it does
"""

from __future__ import annotations

from collections.abc import Sequence

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import pct_text, si_text
from profiles.analysis.kernel import stalls
from profiles.analysis.kernel.facts import Bound, OccupancyFacts, SpeedOfLight
from profiles.analysis.kernel.occupancy import LIMITER_WORDS
from profiles.analysis.kernel.roofline import Point, Roofs

THRESHOLDS: dict[str, float] = {
    "busy_pct": 60.0,
    "balanced_pct": 10.0,
    "few_waves": 0.75,
    "launch_ns": 5_000.0,
    "near_pct": 85.0,
}
MEANINGS: dict[str, tuple[str, str]] = {         # of each threshold: unit, what it decides
    "busy_pct": ("%", "A unit below this share of its peak does not bound a kernel (NVIDIA's SOLBottleneck rule has the same)."),
    "balanced_pct": ("%", "Compute and memory both busy and nearer to each other than this: the side of the ridge decides."),
    "few_waves": ("", "A grid that fills less than this share of the GPU's block slots is too small."),
    "launch_ns": ("ns", "Nothing busy and shorter than this: launch-bound. A launch itself costs 2 to 5 µs."),
    "near_pct": ("%", "At or above this share of a ceiling, only less work moves the kernel."),
}
PIPE_PART = 0.85             # a precision's share of its peak that is at least this part of the SM throughput is what is busy
WORDS = {"memory": "memory-bound", "compute": "compute-bound", "latency": "latency-bound", "launch": "launch-bound",
         "": "bound unknown"}


def recoverable_ns(duration_ns: float | None, reached_pct: float | None) -> float | None:
    """Return the time above the ceiling: duration × (1 − reached).

    An estimate: no kernel reaches all of its roof.
    """
    if duration_ns is None or reached_pct is None:
        return None
    return duration_ns * max(0.0, 1.0 - reached_pct / 100.0)


def reached_roof(point: Point, sol: SpeedOfLight, bounded: Bound | None) -> tuple[float, str] | None:
    """Return the share, 0-100, that work reaches of what it stands under, and the name of that; None where no roof is known.

    Its own roof (the roofline at its intensity), else DRAM's where it only moves data, else the ceiling of what bounds it. What a
    kernel could give back is `recoverable_ns` of this share on every page.
    """
    if point.roof_pct is not None:
        return point.roof_pct, f"{point.side or 'its'} roof"
    if point.flop == 0 and sol.dram_pct is not None:
        return sol.dram_pct, "DRAM's peak"
    if bounded is not None and bounded.reached_pct is not None and bounded.kind in ("memory", "compute"):
        return bounded.reached_pct, bounded.ceiling
    return None


def classify(sol: SpeedOfLight, point: Point, occupied: OccupancyFacts, waiting: Sequence[stalls.Stall],
             roofs: Roofs | None = None, each_ns: float | None = None) -> Bound:
    """Return what holds a launch back, and what would move it.

    `each_ns`: the mean duration of one launch, where `point` sums several.
    """
    sm, memory = sol.sm_pct, sol.memory_pct if sol.memory_pct is not None else sol.dram_pct
    if sm is None or memory is None:
        return Bound("", "the report has no speed-of-light metrics: capture with --set basic or more")
    duration = each_ns if each_ns is not None else point.duration_ns
    is_busy = max(sm, memory) >= THRESHOLDS["busy_pct"]
    near = point.side if not is_busy and (point.roof_pct or 0.0) >= THRESHOLDS["busy_pct"] else None
    if not is_busy and near is None:
        reached = point.roof_pct if point.roof_pct is not None else max(sm, memory)
        if duration is not None and duration < THRESHOLDS["launch_ns"]:
            return _make_bound("launch", _launch_words(sm, memory, duration), "the launch itself", reached, _launch_moves(duration))
        return _make_bound("latency", _latency_words(sm, memory, sol, occupied, waiting), "none: nothing is busy", reached,
                      _latency_moves(occupied, waiting))
    balanced = near is not None or (
        min(sm, memory) >= THRESHOLDS["busy_pct"] and abs(sm - memory) < THRESHOLDS["balanced_pct"])
    if point.side == "memory" if balanced and point.side else memory >= sm:
        name, reached = _memory_ceiling(sol, memory)
        return _make_bound("memory", f"{_memory_words(sol, point, memory)}; compute {pct_text(sm)}", name, reached,
                      _memory_moves(name, reached, sm))
    name, reached = _compute_ceiling(point, sm)
    return _make_bound("compute", f"{_compute_words(point, sm)}; {_memory_words(sol, point, memory)}", name, reached,
                  _compute_moves(point, name, reached, memory, roofs))


Moves = tuple[tuple[str, ...], str]


def _make_bound(kind: str, reason: str, ceiling: str, reached: float | None, moves: Moves) -> Bound:
    return Bound(kind, reason, ceiling, reached, None if reached is None else max(0.0, 100.0 - reached), *moves)


def _memory_ceiling(sol: SpeedOfLight, memory: float) -> tuple[str, float]:
    """The level that the memory figure belongs to; DRAM where it is as busy."""
    for name, value in (("DRAM", sol.dram_pct), ("L1", sol.l1_pct), ("L2", sol.l2_pct)):
        if value is not None and abs(memory - value) < 1.0:
            return name, value
    return "memory pipes", memory


def _compute_ceiling(point: Point, sm: float) -> tuple[str, float]:
    """The pipe of its precision where that is what is busy, else what NVIDIA's SM throughput names without a FLOP."""
    share = 100.0 * point.flop_s / point.compute_roof if point.flop_s and point.compute_roof else None
    if point.precision and share is not None and share > PIPE_PART * sm:
        return gpus.PRECISIONS.get(point.precision, point.precision), share
    return "issue slots or a pipe without FLOPs", sm


def _memory_moves(name: str, reached: float, sm: float) -> Moves:
    useless = f"Faster arithmetic gains nothing: the SMs are {pct_text(sm)} busy and wait for data"
    if name == "DRAM":
        fewer = ("Move fewer bytes: fuse it with the kernel that makes or reads its data", "Store what it reads in a narrower type",
                 "Read each byte once: tile so that reuse stays in L2 or shared memory")
        if reached >= THRESHOLDS["near_pct"]:
            return fewer, useless
        return (*fewer, "Keep more bytes in flight: wider loads, more independent loads per thread, whole sectors"), useless
    if name == "L2":
        return ("Reuse from shared memory or registers what is now read from L2 again: larger tiles, clusters with TMA multicast",
                "Coalesce: ask for whole 128-byte lines"), useless
    return ("Wider loads (128 bit per thread) and fewer of them", "Remove shared-memory bank conflicts",
            "Keep reused values in registers"), useless


def _compute_moves(point: Point, name: str, reached: float, memory: float, roofs: Roofs | None) -> Moves:
    useless = f"Fewer bytes gain nothing: memory is {pct_text(memory)} busy and waits for the arithmetic"
    if name.startswith("issue slots"):
        return ("Issue fewer instructions: hoist index arithmetic, vectorise loads, unroll",
                "Replace special functions and conversions, or spread them over other pipes"), useless
    helps = []
    if (faster := _faster(point, roofs)) is not None:
        helps.append(faster)
    if reached < THRESHOLDS["near_pct"]:
        helps.append("Keep the pipe fed: deeper software pipelining, larger tiles, fewer other instructions beside it")
    return (*helps, "Do fewer operations: another algorithm, skip masked or padded tiles"), useless


def _faster(point: Point, roofs: Roofs | None) -> str | None:
    """The next narrower type with a higher roof on this GPU, and how much higher."""
    then = {"fp64": ("fp64_tensor",), "fp32": ("tf32_tensor", "bf16_tensor", "fp16_tensor"), "fp16": ("fp16_tensor",),
            "tf32_tensor": ("bf16_tensor", "fp16_tensor"), "fp16_tensor": ("fp8_tensor",), "bf16_tensor": ("fp8_tensor",),
            "fp8_tensor": ("fp4_tensor",)}
    now = roofs.compute.get(point.precision or "") if roofs else None
    for precision in then.get(point.precision or "", ()):
        peak = roofs.compute.get(precision) if roofs else None
        if now and peak and peak > 1.1 * now:
            tensor = (point.precision or "").endswith("_tensor")
            what = "Where the accuracy allows, " if tensor else "If these are matrix products, "
            return f"{what}{gpus.PRECISIONS[precision]} has a roof {peak / now:.1f} times as high"
    return None


def _latency_moves(occupied: OccupancyFacts, waiting: Sequence[stalls.Stall]) -> Moves:
    helps = []
    if occupied.waves is not None and occupied.waves < THRESHOLDS["few_waves"]:
        helps.append("Make more blocks: smaller tiles, or split the reduction (split-K)")
    top = _top(waiting)
    if top is not None:
        helps.append(f"{stalls.explain(top.reason).title}: {stalls.explain(top.reason).fix.rstrip('.')}")
    if occupied.theoretical_pct is not None and occupied.theoretical_pct < 50.0 and occupied.limiters:
        limits = " and ".join(LIMITER_WORDS.get(name, name) for name in occupied.limiters)
        helps.append(f"Let more warps run at once: {limits} allow {pct_text(occupied.theoretical_pct)} occupancy")
    return tuple(helps) or ("More independent work per thread or more warps, so that waiting overlaps",), (
        "Neither fewer bytes nor faster arithmetic helps by itself: both wait")


def _launch_moves(duration_ns: float) -> Moves:
    return ("Fuse it with its neighbours", "Record the launches in a CUDA graph", "Give one launch more work: batch"), (
        f"Tuning its code gains at most its own {duration_ns / 1000:.1f} µs")


def _top(waiting: Sequence[stalls.Stall]) -> stalls.Stall | None:
    return next((stall for stall in waiting if stall.reason not in ("selected", "not_selected")), None)


def _launch_words(sm: float, memory: float, duration_ns: float) -> str:
    return (f"{duration_ns / 1000:.1f} µs: about what a launch costs; neither compute ({pct_text(sm)} of peak) nor memory "
            f"({pct_text(memory)}) is busy")


def _memory_words(sol: SpeedOfLight, point: Point, memory: float) -> str:
    """Which memory level the figure belongs to, with the bandwidth it stands for."""
    if sol.dram_pct is not None and memory - sol.dram_pct < 1.0:
        peak = f" {si_text(point.dram_roof, 'B/s')}" if point.dram_roof else ""
        return f"DRAM {pct_text(sol.dram_pct)} of peak{peak}"
    dram = f" (DRAM {pct_text(sol.dram_pct)})" if sol.dram_pct is not None else ""
    for name, value in (("L1", sol.l1_pct), ("L2", sol.l2_pct)):
        if value is not None and abs(memory - value) < 1.0:
            return f"{name} {pct_text(value)} of peak{dram}"
    return f"memory system {pct_text(memory)} of peak{dram}"


def _compute_words(point: Point, sm: float) -> str:
    text = f"compute {pct_text(sm)} of peak"
    if point.flop_s and point.precision and point.compute_roof:
        name = gpus.PRECISIONS.get(point.precision, point.precision)
        share = 100.0 * point.flop_s / point.compute_roof
        rate = f"{name} {si_text(point.flop_s, 'FLOP/s')} of {si_text(point.compute_roof, 'FLOP/s')}"
        # SM throughput is that of its busiest part: issue slots, special functions or integer work as well as FLOPs
        text += f" ({rate})" if share > PIPE_PART * sm else f" (its busiest pipe or the issue slots; {rate})"
    return text


def _latency_words(sm: float, memory: float, sol: SpeedOfLight, occupied: OccupancyFacts,
                   waiting: Sequence[stalls.Stall]) -> str:
    text = f"neither compute ({pct_text(sm)} of peak) nor memory ({pct_text(memory)}) is busy"
    if occupied.waves is not None and occupied.waves < THRESHOLDS["few_waves"]:
        return f"{text}; the grid fills {pct_text(100 * occupied.waves)} of the GPU's block slots"
    top = _top(waiting)
    if top:
        text += f"; warps wait {pct_text(top.share_pct)} of their time on {stalls.explain(top.reason).title.lower()}"
    if occupied.achieved_pct is not None:
        text += f"; occupancy {pct_text(occupied.achieved_pct)}"
    return text
