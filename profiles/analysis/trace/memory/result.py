"""The topic "memory" as one result."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.intervals import union
from profiles.analysis.core.result import Finding, Result
from profiles.analysis.core.sentences import capital, pct_of, pct_text, plural, si_text, time_text
from profiles.analysis.trace.communication.collectives import device_labels
from profiles.analysis.trace.memory import tables
from profiles.analysis.trace.memory.categories import CATEGORIES, OPTIMIZER, Phases, allocations_of, by_category, of_counter
from profiles.analysis.trace.memory.events import Counter, counters_of, device_memories
from profiles.analysis.trace.memory.tables import Device, MemoryFacts, copies_of, fragmentation_pct, groups
from profiles.ingest.arrays import Rows
from profiles.ingest.trace import Category, with_rows

# What the topic "memory" advises. Thresholds stand here as data and on the page.

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
    memory = device.held
    reserved = float(memory.reserved.at(memory.time_ns[memory.peak:memory.peak + 1])[0]) if memory.reserved is not None else 0.0
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
        share = pct_of(stuck, reserved)
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
    top = next((group for group in device.groups if group.category == "activations"), None)
    return [Finding(
        "activations_make_the_peak", "info",
        f"{device.label}: {pct_text(share)} of the peak ({si_text(parts['activations'], 'B')}) is kept from forward for backward"
        + (f", most by `{top.site[:80].replace('`', chr(39))}`" if top else ""),
        "Where memory is short: activation checkpointing (`torch.utils.checkpoint`) computes them again, a smaller micro-batch "
        "with accumulation halves them, BF16 autocast too, fused losses and attention never write the largest ones.",
        {"activations_bytes": parts["activations"], "peak_bytes": device.peak_bytes, "share_pct": share})]


def _find_growth(device: Device) -> list[Finding]:
    """What is allocated when optimizer steps end, if it rises every time."""
    memory, stretches = device.held, device.phases.stretches
    ends = stretches.end_ns[stretches.phase == OPTIMIZER]
    if ends.size < LIMITS["growth_steps"]:
        return []
    indices = np.searchsorted(memory.time_ns, ends, side="right") - 1
    level = memory.level[np.maximum(indices, 0)][indices >= 0][1:]           # the first step allocates the optimizer's state
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
    total, count = sum(ns for _, ns in facts.calls.values()), sum(number for number, _ in facts.calls.values())
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


MOST_PICTURES = 8            # devices with a timeline
_ALLOCATING = re.compile(r"^(cuda|hip|cu)(Mem)?(Malloc|Free|Create|Release)(Async|Host|Managed|FromPoolAsync)?(_v2)?(_v\d+)?$")


def memory_result(frame: Frame) -> Result:
    """Return what is allocated over time, at the peak and unused, and what copies move."""
    counters = counters_of(frame)
    facts = MemoryFacts(frame, _devices(frame, counters), counters, copies_of(frame), _state(frame), _calls(frame),
                        _calls_covered_ns(frame), _failures(frame), frame.wall[1] - frame.wall[0])
    if not facts.devices and not counters and not facts.copies and not facts.state:
        return Result(_no_memory_text(frame), applies=False)
    return Result(_answer(facts), numbers=_numbers(facts), tables=with_rows(tables.all_tables(facts)),
                  findings=advice(facts))


def _devices(frame: Frame, counters: list[Counter]) -> list[Device]:
    labels, out = device_labels(frame), []
    capacity = {device.index: device.memory_bytes for device in frame.devices}
    phases: dict[str, Phases] = {}
    for held in device_memories(frame, counters):
        rank = frame.rank_of_track[int(frame["track"][held.rows[0]])]
        own = phases[rank] if rank in phases else phases.setdefault(rank, Phases(frame, rank))
        made = allocations_of(frame, held, own) if held.matched else None
        label = labels.get(held.device, f"GPU {held.device}") if held.device >= 0 else "the host"
        out.append(Device(held, label, made, groups(held, made) if made else [], own, capacity.get(held.device)))
    return out


def _state(frame: Frame) -> list[dict[str, Any]]:
    stated = frame.metadata.get("memory_state")
    return [entry for entry in stated if isinstance(entry, dict)][:64] if isinstance(stated, list) else []


def _call_rows(frame: Frame) -> Rows:
    codes = np.array([bool(_ALLOCATING.match(name)) for name in frame.names] or [False])
    return np.flatnonzero((frame["category"] == Category.RUNTIME) & codes[frame["name"]]) if frame.rows else np.empty(0, np.intp)


def _calls_covered_ns(frame: Frame) -> int:
    """Time in which a thread allocates: threads and ranks that do so at once count once."""
    rows = _call_rows(frame)
    return union(frame["start_ns"][rows], frame.end_ns[rows]).length_ns


def _calls(frame: Frame) -> dict[str, tuple[int, int]]:
    rows = _call_rows(frame)
    calls: dict[str, tuple[int, int]] = {}
    for code in np.unique(frame["name"][rows]).tolist():
        mine = rows[frame["name"][rows] == code]
        calls[frame.names[code]] = int(mine.size), int(frame["dur_ns"][mine].sum())
    return calls


def _failures(frame: Frame) -> int:
    codes = [code for code, name in enumerate(frame.names) if name == "oom"]
    allocators = [number for number, track in enumerate(frame.tracks) if track.name == "allocator"]
    if not codes or not allocators:
        return 0
    return int(np.count_nonzero(frame["instant"] & np.isin(frame["name"], codes) & np.isin(frame["track"], allocators)))


def _no_memory_text(frame: Frame) -> str:
    if not frame.rows:
        return "This trace holds no slices, so nothing of memory either."
    return ("No allocations, memory counters or copies in this trace. Record them with "
            "`torch.profiler.profile(profile_memory=True)`, `torch.cuda.memory._record_memory_history()` and a snapshot, or "
            "`nsys profile --cuda-memory-usage=true`.")


def _answer(facts: MemoryFacts) -> str:
    said = []
    gpus = [device for device in facts.devices if device.held.device >= 0]
    levels = [counter for counter in facts.counters if counter.kind == "allocated" and counter.device >= 0]
    if gpus:
        said += _peak(max(gpus, key=lambda each: each.peak_bytes))
    elif levels:
        top = max(levels, key=lambda each: float(np.nanmax(each.value)))
        at = int(np.nanargmax(top.value))
        said.append(f"{facts.frame.device_label(top.device)} has {si_text(float(top.value[at]), 'B')} allocated at the peak, "
                    f"{time_text(int(top.time_ns[at]))} into the trace; by whom was not recorded.")
    else:
        said.append("GPU allocations were not recorded (`profile_memory=True`, or a memory snapshot, records them).")
    if facts.copies:
        total = sum(copy.total_ns for copy in facts.copies)
        moved = sum(copy.bytes or 0 for copy in facts.copies)
        count = sum(copy.count for copy in facts.copies)
        kinds = "copy or set moves" if count == 1 else "copies and sets move"
        said.append(f"{count:,} {kinds} {si_text(moved, 'B')} in {time_text(total)}.")
    return " ".join(map(capital, said))


def _peak(device: Device) -> list[str]:
    memory, peak = device.held, device.peak_bytes
    at_ns = int(memory.time_ns[memory.peak])
    text = f"{device.label} has {si_text(peak, 'B')} allocated at the peak, {time_text(at_ns)} into the trace"
    if device.made is not None and peak:
        parts = [part for part in sorted(device.parts().items(), key=lambda pair: -pair[1])[:3] if part[1] >= peak / 100]
        text += ": " + ", ".join(f"{pct_text(100 * size / peak)} {CATEGORIES[key]}" for key, size in parts)
    if device.groups:
        text += f"; most of it asked for by `{tables.shorten(device.groups[0].site)}`"
    sentences = [f"{text}."]
    if not memory.baseline_known:
        sentences.append("How much was there before the recording is not stated, so this is at least.")
    if reserved := tables.reserved_at_peak(device):
        unused = tables.unused_at_peak(device)
        holds = f"The allocator then holds {si_text(reserved, 'B')}"
        sentences.append(f"{holds}, {pct_text(100 * unused / reserved)} of it unused." if unused is not None
                         else f"{holds}, which is less: the trace lacks frees, and the peak is at most this.")
    return sentences


def _numbers(facts: MemoryFacts) -> dict[str, Any]:
    pictures = [{"label": each.label, "device": each.held.device, "peak_bytes": each.peak_bytes,
                 "peak_ns": int(each.held.time_ns[each.held.peak]), "capacity_bytes": each.capacity_bytes,
                 "parts_bytes": each.parts(), "baseline_bytes": each.held.baseline, "baseline_known": each.held.baseline_known,
                 "series": by_category(each.held, each.made)} for each in tables.shown_devices(facts)[:MOST_PICTURES]]
    devices = {device.held.device for device in facts.devices}
    others = [other for other in facts.counters if other.kind == "allocated" and other.device not in devices]
    for counter in [other for other in others if other.device >= 0 or not facts.devices][:MOST_PICTURES]:
        index = int(np.nanargmax(np.nan_to_num(counter.value, nan=-1.0)))
        peak = max(int(np.nan_to_num(counter.value[index])), 0)
        label = facts.frame.device_label(counter.device) if counter.device >= 0 else "the host"
        pictures.append({"label": f"{label}, {counter.name}", "device": counter.device, "peak_bytes": peak,
                         "peak_ns": int(counter.time_ns[index]), "capacity_bytes": None, "parts_bytes": {"unknown": peak},
                         "baseline_bytes": None, "baseline_known": True, "series": of_counter(counter)})
    return {"wall_ns": facts.wall_ns, "start_ns": facts.frame.wall[0], "devices": pictures, "state": facts.state,
            "failures": facts.failures, "limits": LIMITS,
            "calls": [{"name": name, "count": count, "ns": ns} for name, (count, ns) in sorted(facts.calls.items())],
            "copies": [{"name": copy.name, "count": copy.count, "total_ns": copy.total_ns, "bytes": copy.bytes,
                        "bytes_s": copy.bytes_s} for copy in facts.copies[:20]]}
