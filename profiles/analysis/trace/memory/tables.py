"""Tables of the topic "memory".

What is allocated at the peak: by category, by who asked for it, and the largest allocations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.sentences import share_pct
from profiles.analysis.trace.memory.categories import CATEGORIES, KEYS, NAMES, Allocations, Phases
from profiles.analysis.trace.memory.events import Counter, DeviceMemory
from profiles.ingest.arrays import Array, Ints, Rows, stable_order, sums_by
from profiles.ingest.trace import Category, CellRows, SummaryTable, summary_columns
from profiles.ingest.windows import MISSING

# Copies and sets by kind: bytes, time, rate. Names as CUPTI and rocprof write them ("Memcpy HtoD (Pageable -> Device)").

MOST_AT_PEAK = 50


@dataclass(frozen=True)
class Copies:
    """All copies or sets of one name. `bytes` and rate are of those whose size is known."""

    name: str
    count: int
    total_ns: int
    bytes: int | None
    bytes_s: float | None
    covered_ns: int              # wall time in which at least one runs on some GPU
    longest: int                 # row


def copies_of(frame: Frame) -> list[Copies]:
    """Return copies and sets by name, most time first, the rest together."""
    rows = frame.of(Category.MEMCPY, Category.MEMSET)
    if not rows.size:
        return []
    codes, kind = np.unique(frame["name"][rows], return_inverse=True)
    order = stable_order(kind)
    parts = np.split(order, np.flatnonzero(np.diff(kind[order])) + 1)
    by_time = stable_order(-np.bincount(kind, weights=frame["dur_ns"][rows]))
    out = [_copies(frame, frame.names[codes[number]], rows[parts[number]]) for number in by_time[:MOST_AT_PEAK].tolist()]
    if by_time.size > MOST_AT_PEAK:
        rest = np.concatenate([rows[parts[number]] for number in by_time[MOST_AT_PEAK:].tolist()])
        out.append(_copies(frame, f"{by_time.size - MOST_AT_PEAK:,} further kinds", rest))
    return out


def _copies(frame: Frame, name: str, mine: Rows) -> Copies:
    size, dur = frame["bytes"][mine], frame["dur_ns"][mine]
    has_size = (size != MISSING) & (size >= 0)
    moved, spent = int(size[has_size].sum()), int(dur[has_size].sum())
    rate = moved / spent * 1e9 if moved and spent else None
    return Copies(name, int(mine.size), int(dur.sum()), moved if has_size.any() else None, rate,
                  intervals.union(frame["start_ns"][mine], frame.end_ns[mine]).length_ns, int(mine[np.argmax(dur)]))


@dataclass(frozen=True)
class Group:
    """Allocations of one category, phase and site that are alive at the peak."""

    category: str
    phase: str
    site: str
    bytes: int
    count: int
    largest: int                 # allocation


def alive_at(memory: DeviceMemory, event: int) -> Array:
    """Return which allocations are there after an event."""
    return (memory.began <= event) & ((memory.ended < 0) | (memory.ended > event))


def groups(memory: DeviceMemory, made: Allocations) -> list[Group]:
    """Largest first. What was there before the recording is not among them."""
    alive = np.flatnonzero(alive_at(memory, memory.peak))
    if not alive.size:
        return []
    keys, index = np.unique(np.stack([made.category[alive], made.phase[alive], made.site[alive]]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    size = np.bincount(index, weights=memory.bytes[alive]).round().astype(np.int64)
    count = np.bincount(index)
    by_size = np.lexsort((-memory.bytes[alive], index))
    first = np.searchsorted(index[by_size], np.arange(keys.shape[1]))
    groups = [Group(KEYS[category], NAMES[phase], made.sites[site], int(size[number]), int(count[number]),
                   int(alive[by_size[first[number]]]))
             for number, (category, phase, site) in enumerate(keys.T.tolist())]
    return sorted(groups, key=lambda group: -group.bytes)


def before_bytes(memory: DeviceMemory) -> int:
    """At the peak, of what was allocated before the recording."""
    return int(memory.level[memory.peak]) - int(memory.bytes[alive_at(memory, memory.peak)].sum())


def largest(memory: DeviceMemory, most: int) -> Ints:
    """Allocations alive at the peak, the largest first."""
    alive = np.flatnonzero(alive_at(memory, memory.peak))
    return alive[stable_order(-memory.bytes[alive])[:most]]


# What the topic "memory" knows, before anything is said of it.


@dataclass(frozen=True)
class Device:
    """One GPU, or the host's memory, with events."""

    held: DeviceMemory
    label: str
    made: Allocations | None     # None: addresses are not known
    groups: list[Group]
    phases: Phases
    capacity_bytes: int | None

    @property
    def peak_bytes(self) -> int:
        return int(self.held.level[self.held.peak])

    def parts(self) -> dict[str, int]:
        """Return the bytes at the peak by category, in the order of CATEGORIES.

        They add up to the peak.
        """
        if self.made is None:
            return {"unknown": self.peak_bytes}
        alive = alive_at(self.held, self.held.peak)
        size = sums_by(self.made.category[alive], self.held.bytes[alive], len(KEYS))
        size[KEYS.index("before")] = before_bytes(self.held)
        return {key: int(size[number]) for number, key in enumerate(KEYS) if size[number]}


@dataclass(frozen=True)
class MemoryFacts:
    frame: Frame
    devices: list[Device]        # GPUs first
    counters: list[Counter]
    copies: list[Copies]
    state: list[dict[str, Any]]  # of a snapshot: the allocator's state at its end
    calls: dict[str, tuple[int, int]]        # cudaMalloc, cudaFree, …: count, ns
    calls_covered_ns: int        # time in which a thread is in such a call
    failures: int                # out of memory
    wall_ns: int


MOST, LARGEST, SITES = 100, 50, 100
_PHASES = {"none": None, **{name: name for name in NAMES[1:]}}


def shorten(name: str, chars: int = 60) -> str:
    """The middle left out; no backtick, which would end the code that it stands in."""
    name = name.replace("`", "'")
    return name if len(name) <= chars else f"{name[:chars - 21]}…{name[-20:]}"


def all_tables(facts: MemoryFacts) -> list[SummaryTable]:
    return [device_table(facts), peak_table(facts), largest_table(facts), site_table(facts), state_table(facts), copy_table(facts),
            call_table(facts)]


def shown_devices(facts: MemoryFacts) -> list[Device]:
    """GPUs; the host only where there is none."""
    return [device for device in facts.devices if device.held.device >= 0] or facts.devices


def device_table(facts: MemoryFacts) -> SummaryTable:
    columns = summary_columns("Memory of: text | Peak allocated: bytes | Peak at: ns | At the start: bytes | "
                              "At the end: bytes | Peak reserved: bytes | Unused at the peak: bytes | Unused share: pct | "
                              "Of the GPU's memory: pct | Allocations: count | Allocated in all: bytes")
    rows: CellRows = []
    for device in facts.devices:
        memory = device.held
        reserved = reserved_at_peak(device)
        most = float(np.nanmax(memory.reserved.value)) if memory.reserved is not None else None
        rows.append([
            device.label, device.peak_bytes, int(memory.time_ns[memory.peak]), memory.baseline if memory.baseline_known else None,
            int(memory.level[-1]), int(most) if most else None, unused := unused_at_peak(device),
            100 * unused / reserved if reserved and unused is not None else None,
            share_pct(most or device.peak_bytes, device.capacity_bytes),
            int(np.count_nonzero(memory.change > 0)), int(memory.change[memory.change > 0].sum())])
    devices = {entry.held.device for entry in facts.devices}
    for counter in facts.counters:
        if counter.kind == "allocated" and counter.device not in devices:
            index = int(np.nanargmax(np.nan_to_num(counter.value, nan=-1.0)))
            rows.append([facts.frame.device_label(counter.device) if counter.device >= 0 else "the host", int(counter.value[index]),
                         int(counter.time_ns[index]), int(counter.value[0]), None, None, None, None, None, None, None])
    return SummaryTable("Memory of each GPU", columns, rows[:MOST],
                        "Allocated is what tensors hold, rounded up to 512 bytes; reserved is what the caching allocator took from "
                        "the driver.")


def unused_at_peak(device: Device) -> int | None:
    """Return bytes that the allocator held without use; None where the trace does not say, or lacks frees (more used than held)."""
    reserved = reserved_at_peak(device)
    return int(reserved) - device.peak_bytes if reserved and reserved >= device.peak_bytes else None


def reserved_at_peak(device: Device) -> float | None:
    if device.held.reserved is None:
        return None
    value = float(device.held.reserved.at(device.held.time_ns[device.held.peak:device.held.peak + 1])[0])
    return value if np.isfinite(value) and value > 0 else None


def peak_table(facts: MemoryFacts) -> SummaryTable:
    columns = summary_columns("Memory of: text | Category: text | Phase: text | Asked for by: text | Bytes: bytes | "
                              "Share: pct | Allocations: count | Largest: slice")
    rows: CellRows = []
    ids = facts.frame["id"]
    for device in shown_devices(facts):
        if device.made is None or not device.peak_bytes:
            continue
        memory, whole = device.held, device.peak_bytes
        before = before_bytes(memory)
        mine: CellRows = [[
            device.label, CATEGORIES[each.category], _PHASES[each.phase], each.site[:300], each.bytes, 100 * each.bytes / whole,
            each.count, int(ids[memory.rows[memory.began[each.largest]]])] for each in device.groups[:MOST]]
        if before:
            mine.append([device.label, CATEGORIES["before"], None, None, before, 100 * before / whole, None, None])
        rest = device.groups[MOST:]
        if rest:
            size = sum(group.bytes for group in rest)
            mine.append([device.label, f"{len(rest):,} further", None, None, size, 100 * size / whole,
                         sum(group.count for group in rest), None])
        rows += sorted(mine, key=lambda row: -int(row[4] or 0))
    return SummaryTable("What makes the peak", columns, rows[:2 * MOST],
                        "Everything that is allocated at the highest moment; the rows of a GPU add up to its peak.")


def largest_table(facts: MemoryFacts) -> SummaryTable:
    columns = summary_columns("Memory of: text | Bytes: bytes | Category: text | Asked for by: text | Allocated at: ns | "
                              "Freed at: ns | Lived: ns | Timeline: slice")
    rows: CellRows = []
    ids = facts.frame["id"]
    for device in shown_devices(facts):
        if device.made is None:
            continue
        memory = device.held
        for allocation in largest(memory, LARGEST).tolist():
            began, ended = int(memory.time_ns[memory.began[allocation]]), int(memory.ended[allocation])
            freed = int(memory.time_ns[ended]) if ended >= 0 else None
            rows.append([device.label, int(memory.bytes[allocation]), CATEGORIES[KEYS[int(device.made.category[allocation])]],
                         device.made.sites[int(device.made.site[allocation])][:300], began, freed,
                         freed - began if freed is not None else None, int(ids[memory.rows[memory.began[allocation]]])])
    return SummaryTable("Largest allocations at the peak", columns, rows[:4 * LARGEST], "Not freed: still there at the end.")


def site_table(facts: MemoryFacts) -> SummaryTable:
    """Over the whole trace: who allocates how much, and how much of it is gone at once."""
    columns = summary_columns("Memory of: text | Asked for by: text | Allocations: count | Bytes in all: bytes | "
                              "Largest: bytes | Of them temporary: bytes")
    rows: CellRows = []
    for device in shown_devices(facts):
        if device.made is None or not device.held.began.size:
            continue
        made, size = device.made, device.held.bytes
        n = len(made.sites)
        total, count = np.bincount(made.site, weights=size, minlength=n), np.bincount(made.site, minlength=n)
        most = np.zeros(n, np.int64)
        np.maximum.at(most, made.site, size)
        short = np.bincount(made.site, weights=size * (made.category == KEYS.index("temporary")), minlength=n)
        order = stable_order(-total)
        rows += [[device.label, made.sites[each][:300], int(count[each]), int(total[each]), int(most[each]), int(short[each])]
                 for each in order[:SITES].tolist()]
        if n > SITES:
            rest = order[SITES:]
            rows.append([device.label, f"{rest.size:,} further", int(count[rest].sum()), int(total[rest].sum()), None,
                         int(short[rest].sum())])
    return SummaryTable("Allocations of the whole trace", columns, rows[:2 * SITES],
                        "Temporary: freed before the operator, forward, backward or optimizer step that asked for it ended.")


def state_table(facts: MemoryFacts) -> SummaryTable:
    columns = summary_columns("GPU | Reserved: bytes | In use: bytes | Unused: bytes | Beside blocks in use: bytes | "
                              "Largest unused block: bytes | Fragmentation: pct | Unused blocks: count | Segments: count")
    rows: CellRows = [[
        state.get("device"), state.get("reserved_bytes"), state.get("active_bytes"), state.get("unused_bytes"),
        state.get("stuck_bytes"), state.get("largest_unused_bytes"), fragmentation_pct(state), state.get("unused_blocks"),
        state.get("segments")]
        for state in facts.state]
    return SummaryTable("The allocator at the end", columns, rows,
                        "Fragmentation: the share of what is unused that lies outside of its largest block; an allocation larger "
                        "than that block needs new memory. What lies beside blocks in use cannot be given back to the driver.")


def fragmentation_pct(state: dict[str, int]) -> float | None:
    unused = state.get("unused_bytes", 0)
    return 100 * (1 - state.get("largest_unused_bytes", 0) / unused) if unused else None


def copy_table(facts: MemoryFacts) -> SummaryTable:
    columns = summary_columns("Copy: text | Count: count | Bytes: bytes | Time: ns | Share of wall time: pct | Rate: B/s | "
                              "Longest: slice")
    ids = facts.frame["id"]
    rows: CellRows = [[
        copy.name[:300], copy.count, copy.bytes, copy.total_ns, share_pct(copy.covered_ns, facts.wall_ns),
        copy.bytes_s, int(ids[copy.longest])] for copy in facts.copies]
    return SummaryTable("Copies and sets", columns, rows, "The rate is bytes over the time of those copies whose size is stated.")


def call_table(facts: MemoryFacts) -> SummaryTable:
    columns = summary_columns("Call: text | Calls: count | Time: ns")
    rows: CellRows = [[name, count, ns] for name, (count, ns) in sorted(facts.calls.items(), key=lambda each: -each[1][1])]
    return SummaryTable("Calls that take and give back memory", columns, rows[:MOST],
                        "Each takes the driver's lock; cudaFree waits for the GPU. After warm-up a caching allocator makes none.")
