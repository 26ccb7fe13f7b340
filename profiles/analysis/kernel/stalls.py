"""Why warps wait: each stall reason of Nsight Compute in a sentence, with its usual fix.

Source of the meanings: Nsight Compute documentation, Kernel Profiling Guide, "Warp Stall Reasons":
https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#metrics-reference
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiles.analysis.core.sentences import pct_of

PREFIX, SUFFIX = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
SAMPLE_PREFIX = "smsp__pcsamp_warps_issue_stalled_"
# The same states as Nsight Compute of 2019 and 2020 names them. Warp cycles per issued instruction, as PREFIX…SUFFIX …
OLD_CYCLES = ("smsp__average_warp_latency_issue_stalled_", ".ratio")
# … and the share of a warp's active cycles in that state, percent (CLI guide, "Metric Comparison", for nvprof's stall_…).
OLD_SHARE = ("smsp__warp_issue_stalled_", "_per_warp_active.pct")


@dataclass(frozen=True)
class StallReason:
    title: str
    meaning: str
    fix: str


STALLS: dict[str, StallReason] = {
    "long_scoreboard": StallReason(
        "Long scoreboard",
        "Waits for data from L1/TEX: global, local, surface or texture memory.",
        "Load earlier (software pipelining, cp.async or TMA), reuse through shared memory, coalesce, raise occupancy.",
    ),
    "short_scoreboard": StallReason(
        "Short scoreboard",
        "Waits for shared memory or a special-function result.",
        "Remove bank conflicts, use wider shared loads, replace special functions, keep values in registers.",
    ),
    "barrier": StallReason(
        "Barrier",
        "Waits for the other warps of its block at a barrier.",
        "Balance the work before the barrier, use smaller blocks or named barriers, let warps specialise.",
    ),
    "membar": StallReason(
        "Memory barrier",
        "Waits for a memory fence to complete.",
        "Use narrower fences (block in place of device) and fewer of them.",
    ),
    "mio_throttle": StallReason(
        "MIO throttle",
        "The memory input/output queue is full: shared memory, special functions, dynamic branches.",
        "Issue fewer, wider shared-memory instructions; spread special functions out.",
    ),
    "lg_throttle": StallReason(
        "LG throttle",
        "The queue for local and global memory instructions is full.",
        "Vectorise loads and stores (128 bit), merge redundant accesses, avoid register spills to local memory.",
    ),
    "tex_throttle": StallReason(
        "TEX throttle", "The texture queue is full.", "Issue fewer texture fetches or replace them by global loads."
    ),
    "math_pipe_throttle": StallReason(
        "Math pipe throttle",
        "The arithmetic pipe it needs is busy: the kernel keeps that pipe fed.",
        "A sign of good use. Move work to another pipe (tensor cores, lower precision) to go further.",
    ),
    "gmma": StallReason(
        "Warp-group MMA",
        "Waits for warp-group matrix multiplies (wgmma) to finish or to start.",
        "Keep more wgmma in flight, deepen the load pipeline; in a full tensor pipe this is the good state.",
    ),
    "wait": StallReason(
        "Wait",
        "Waits a fixed number of cycles for the previous instruction's latency.",
        "No action: every instruction has such a latency, and other warps issue meanwhile. It asks for more only where nothing "
        "else is waited for: more independent instructions per thread (unroll, several accumulators).",
    ),
    "not_selected": StallReason(
        "Not selected",
        "Was ready, but the scheduler issued another warp.",
        "No loss: enough warps are eligible. Occupancy could be traded for registers.",
    ),
    "selected": StallReason(
        "Selected", "Issued an instruction in this cycle.", "This is the work itself, not a stall."
    ),
    "no_instruction": StallReason(
        "No instruction",
        "Waits for the instruction cache or after a jump.",
        "Shrink unrolled code, avoid jumps across large blocks, give the kernel more work per launch.",
    ),
    "branch_resolving": StallReason(
        "Branch resolving", "Waits for a branch target to be computed.", "Fewer and simpler branches, predication."
    ),
    "dispatch_stall": StallReason(
        "Dispatch",
        "The dispatcher holds the warp back: register-port or unit conflicts.",
        "Usually small. Look at register bank conflicts in the SASS.",
    ),
    "drain": StallReason(
        "Drain",
        "Has finished and waits for its stores to leave.",
        "Write less at the end, coalesce stores, give each block more work.",
    ),
    "imc_miss": StallReason(
        "Constant cache miss",
        "Waits for the immediate-constant cache.",
        "Index constants uniformly over the warp, pass parameters by value, keep tables in shared memory.",
    ),
    "sleeping": StallReason(
        "Sleeping", "All threads sleep, yielded or are blocked by nanosleep.", "Shorten the sleeps."
    ),
    "misc": StallReason("Misc", "Any other reason.", "Look at the sampled instructions."),
}
# Where on the kernel's page the cause shows: parts of the page, and for which states they matter.
PLACES = {"memory": "memory chart", "memory-tables": "memory tables", "occupancy": "occupancy", "pipes": "pipes and instructions",
          "shares": "spread over SMs"}
LOOK: dict[str, tuple[str, ...]] = {
    "long_scoreboard": ("memory", "memory-tables", "occupancy"),
    "short_scoreboard": ("memory-tables", "pipes"),
    "lg_throttle": ("memory-tables", "pipes"),
    "mio_throttle": ("memory-tables", "pipes"),
    "tex_throttle": ("memory-tables", "pipes"),
    "math_pipe_throttle": ("pipes",),
    "gmma": ("pipes",),
    "wait": ("pipes", "occupancy"),
    "barrier": ("shares", "occupancy"),
    "drain": ("memory",),
    "membar": ("memory",),
    "imc_miss": ("memory",),
    "no_instruction": ("pipes",),
    "branch_resolving": ("pipes",),
    "dispatch_stall": ("pipes",),
    "not_selected": ("occupancy",),
}
# Names under which sampling metrics know the same reasons; the shares of both agree in H200 reports.
ALIASES = {"no_instructions": "no_instruction", "warpgroup_arrive": "gmma", "memory_throttle": "lg_throttle"}
# States in which nothing is lost, or that no change to the code takes away by itself: never a finding.
NO_ACTION = ("selected", "not_selected", "wait")


@dataclass(frozen=True)
class Stall:
    """One reason of one launch. `cycles` per issued instruction: how long a warp is in this state between issues."""

    reason: str
    cycles: float | None                 # None: only the share was collected
    share_pct: float                     # of the cycles between two issues, 0-100


def stalls(metrics: Mapping[str, float | str]) -> list[Stall]:
    """Return the warp states per issued instruction, longest first.

    From `…_per_issue_active.ratio`, else from the older names (OLD_CYCLES, OLD_SHARE); empty where not collected.
    """
    cycles = _by_reason(metrics, PREFIX, SUFFIX) or _by_reason(metrics, *OLD_CYCLES)
    if cycles:
        total = sum(cycles.values())
        ranked = [Stall(reason, value, pct_of(value, total)) for reason, value in cycles.items()]
    else:
        ranked = [Stall(reason, None, value) for reason, value in _by_reason(metrics, *OLD_SHARE).items()]
    return sorted(ranked, key=lambda stall: -stall.share_pct)


def _by_reason(metrics: Mapping[str, float | str], prefix: str, suffix: str) -> dict[str, float]:
    shares: dict[str, float] = {}
    for name, value in metrics.items():
        if name.startswith(prefix) and name.endswith(suffix) and isinstance(value, (int, float)):
            reason = name[len(prefix):-len(suffix)]
            reason = ALIASES.get(reason, reason)        # nvprof's name beside ncu's own: one state
            shares[reason] = shares.get(reason, 0.0) + float(value)
    return shares


def samples(metrics: Mapping[str, float | str]) -> dict[str, int]:
    """Sampled warp states, reason -> samples, most first: where the report has sampling totals."""
    counts = {
        ALIASES.get(name[len(SAMPLE_PREFIX) :], name[len(SAMPLE_PREFIX) :]): int(value)
        for name, value in metrics.items()
        if name.startswith(SAMPLE_PREFIX) and not name.endswith("_not_issued") and isinstance(value, (int, float))
    }
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))


def explain(reason: str) -> StallReason:
    return STALLS.get(
        ALIASES.get(reason, reason),
        StallReason(
            reason.replace("_", " ").capitalize(),
            "A state this page has no words for yet.",
            "See NVIDIA's Kernel Profiling Guide.",
        ),
    )
