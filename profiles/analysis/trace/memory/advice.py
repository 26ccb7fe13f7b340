"""What the topic "memory" advises. Thresholds stand here as data and on the page."""

from __future__ import annotations

import numpy as np

from profiles.analysis.core.result import Finding
from profiles.analysis.core.sentences import pct_text, plural, si_text, time_text
from profiles.analysis.trace.memory.facts import Device, MemoryFacts
from profiles.analysis.trace.memory.phases import OPTIMIZER
from profiles.analysis.trace.memory.tables import fragmentation_pct

LIMITS = {
    "full_pct": 90.0,                # of the GPU's memory reserved
    "unused_pct": 25.0,              # of what is reserved, at the peak
    "unused_bytes": 512 << 20,
    "stuck_pct": 25.0,               # of what is reserved at the end: unused, beside blocks in use
    "activations_pct": 40.0,         # of the peak
    "growth_pct": 1.0,               # of the peak, from the second optimizer step to the last
    "growth_steps": 4,
    "calls_pct": 1.0,                # of wall time in cudaMalloc, cudaFree, …
}


def advice(facts: MemoryFacts) -> list[Finding]:
    out = []
    for device in facts.devices:
        if device.held.device >= 0:
            out += [*_find_full(device), *_find_unused(device), *_find_activations(device), *_find_growth(device)]
    return [*_find_failures(facts), *out, *_find_fragmentation(facts), *_find_calls(facts)]


def _find_failures(facts: MemoryFacts) -> list[Finding]:
    if not facts.failures:
        return []
    return [Finding(
        "out_of_memory", "high", f"{plural(facts.failures, 'allocation')} failed: out of memory",
        "The table of what makes the peak names what to make smaller: batch, sequence, activations (checkpointing), optimizer "
        "state (sharding). Where much is unused, `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` first.",
        {"failures": facts.failures})]


def _find_full(device: Device) -> list[Finding]:
    reserved = float(np.nanmax(device.held.reserved.value)) if device.held.reserved is not None else float(device.peak_bytes)
    if not device.capacity_bytes or 100 * reserved / device.capacity_bytes < LIMITS["full_pct"]:
        return []
    share = 100 * reserved / device.capacity_bytes
    return [Finding(
        "memory_nearly_full", "high",
        f"{device.label}: {pct_text(share)} of its {si_text(device.capacity_bytes, 'B')} are taken at the peak",
        "The next larger batch or sequence will not fit, and the allocator begins to free and ask again. See what makes the peak.",
        {"reserved_bytes": int(reserved), "capacity_bytes": device.capacity_bytes, "share_pct": share})]


def _find_unused(device: Device) -> list[Finding]:
    held = device.held
    reserved = float(held.reserved.at(held.time_ns[held.peak:held.peak + 1])[0]) if held.reserved is not None else 0.0
    unused = reserved - device.peak_bytes
    if not (np.isfinite(reserved) and unused >= LIMITS["unused_bytes"] and 100 * unused / reserved >= LIMITS["unused_pct"]):
        return []
    return [Finding(
        "memory_unused", "medium",
        f"{device.label}: at the peak {si_text(unused, 'B')} of what the allocator holds ({pct_text(100 * unused / reserved)}) are "
        "unused",
        "Blocks of many sizes leave holes: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, the same shapes in every step "
        "(padding to buckets), and no `torch.cuda.empty_cache()` in the loop.",
        {"reserved_bytes": int(reserved), "allocated_bytes": device.peak_bytes, "unused_bytes": int(unused),
         "unused_pct": 100 * unused / reserved})]


def _find_fragmentation(facts: MemoryFacts) -> list[Finding]:
    out = []
    for each in facts.state:
        stuck, reserved = each.get("stuck_bytes", 0), each.get("reserved_bytes", 0)
        share = 100 * stuck / reserved if reserved else 0.0
        if share >= LIMITS["stuck_pct"] and stuck >= LIMITS["unused_bytes"]:
            out.append(Finding(
                "memory_fragmented", "medium",
                f"GPU {each.get('device')}: {si_text(stuck, 'B')} ({pct_text(share)} of what is reserved) are unused at the end in "
                "segments that are in use, and cannot be given back",
                f"An allocation above {si_text(each.get('largest_unused_bytes', 0), 'B')} needs new memory. "
                "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` lets segments grow instead.",
                {**each, "stuck_pct": share, "fragmentation_pct": fragmentation_pct(each)}))
    return out


def _find_activations(device: Device) -> list[Finding]:
    parts = device.parts()
    share = 100 * parts.get("activations", 0) / max(device.peak_bytes, 1)
    if share < LIMITS["activations_pct"]:
        return []
    top = next((each for each in device.groups if each.category == "activations"), None)
    return [Finding(
        "activations_make_the_peak", "info",
        f"{device.label}: {pct_text(share)} of the peak ({si_text(parts['activations'], 'B')}) is kept from forward for backward"
        + (f", most by `{top.site[:80].replace('`', chr(39))}`" if top else ""),
        "Where memory is short: activation checkpointing (`torch.utils.checkpoint`) computes them again, a smaller micro-batch "
        "with accumulation halves them, BF16 autocast too, fused losses and attention never write the largest ones.",
        {"activations_bytes": parts["activations"], "peak_bytes": device.peak_bytes, "share_pct": share})]


def _find_growth(device: Device) -> list[Finding]:
    """What is allocated when optimizer steps end, if it rises every time."""
    held, stretches = device.held, device.phases.stretches
    ends = stretches.end_ns[stretches.phase == OPTIMIZER]
    if ends.size < LIMITS["growth_steps"]:
        return []
    at = np.searchsorted(held.time_ns, ends, side="right") - 1
    level = held.level[np.maximum(at, 0)][at >= 0][1:]           # the first step allocates the optimizer's state
    grown = int(level[-1] - level[0]) if level.size > 2 else 0
    if level.size < 3 or np.any(np.diff(level) <= 0) or 100 * grown / max(device.peak_bytes, 1) < LIMITS["growth_pct"]:
        return []
    each = grown / (level.size - 1)
    return [Finding(
        "memory_grows", "medium",
        f"{device.label}: allocated memory grows with every step, {si_text(each, 'B')} each over {plural(int(level.size), 'step')}",
        "Something keeps tensors: a list of losses without `.item()` or `.detach()`, a cache, a graph that is retained. Take two "
        "memory snapshots some steps apart and compare what is in use.",
        {"growth_bytes": grown, "steps": int(level.size), "per_step_bytes": each})]


def _find_calls(facts: MemoryFacts) -> list[Finding]:
    total, count = sum(ns for _, ns in facts.calls.values()), sum(each for each, _ in facts.calls.values())
    if not facts.wall_ns or 100 * total / facts.wall_ns < LIMITS["calls_pct"]:
        return []
    names = ", ".join(f"`{name}`" for name in sorted(facts.calls, key=lambda name: -facts.calls[name][1])[:3])
    return [Finding(
        "allocating_calls", "medium",
        f"{plural(count, 'call')} for GPU memory from the driver cost {time_text(total)} "
        f"({pct_text(100 * total / facts.wall_ns)} of the wall time)",
        f"{names}: the allocator still grows, or runs out and frees. Warm up before measuring; keep shapes the same from step to "
        "step; no `empty_cache()` in the loop.",
        {"calls": count, "total_ns": total, "share_pct": 100 * total / facts.wall_ns},
        worth_ns=float(facts.calls_covered_ns))]
