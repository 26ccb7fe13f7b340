"""Allocations and frees of a trace, per GPU: what PyTorch's profiler marks (`profile_memory=True`) or its allocator's history
(`torch.cuda.memory._record_memory_history`) recorded. Both count bytes as the allocator does: rounded up to 512.

An allocation ends at the next free of its address. What is freed without having been allocated was there before the recording;
how much that is in total, the allocator's own count at the first event says (`Total Allocated`, or the snapshot's counter).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.ingest.arrays import Array, Ints, Rows, stable_order
from profiles.ingest.windows import MISSING, MISSING32

ROUND = 512
MARK = "[memory]"                            # Kineto's; bytes are negative where they are freed
_SIGNS = {"alloc": 1, "free_requested": -1}  # entries of an allocator's history
MAX_DEVICES = 64
MOST_BYTES = 2**50                           # that a counter may state; more is no GPU's memory
_COUNTERS = {"allocated": re.compile(r"^(memory allocated \(|allocated memory$|.*memory held$|ALLOCATE BYTES on )", re.IGNORECASE),
             "reserved": re.compile(r"^(memory reserved \(|reserved memory$)", re.IGNORECASE)}


@dataclass(frozen=True)
class Counter:
    """What a counter says of one device's memory."""

    kind: str                    # "allocated" | "reserved"
    device: int                  # -1: the host's
    name: str
    time_ns: Ints
    value: Array

    def at(self, times_ns: Ints) -> Array:
        """Value at each time; NaN before the first sample."""
        place = np.searchsorted(self.time_ns, times_ns, side="right") - 1
        return np.where(place >= 0, self.value[np.maximum(place, 0)], np.nan)


@dataclass(frozen=True)
class DeviceMemory:
    """One device's events in order of time, and the allocations they make. `ended` is an event, or -1: never freed."""

    device: int                  # -1: the host
    rows: Rows                   # of the events, in the frame
    time_ns: Ints
    change: Ints                 # bytes, negative: freed
    level: Ints                  # bytes allocated after each event
    baseline: int                # before the first
    baseline_known: bool         # else it is what was freed without having been allocated: at least that
    began: Ints                  # events
    ended: Ints
    bytes: Ints
    matched: bool                # addresses are known, so allocations are
    reserved: Counter | None

    @property
    def peak(self) -> int:
        """Event after which most is allocated."""
        return int(np.argmax(self.level))

    @property
    def end_ns(self) -> Ints:
        """Return when each allocation was freed; the last event where it never was."""
        return np.where(self.ended >= 0, self.time_ns[np.maximum(self.ended, 0)], self.time_ns[-1])


def counters_of(frame: Frame) -> list[Counter]:
    """Counter tracks of memory in bytes."""
    out = []
    for number, track in enumerate(frame.tracks):
        kind = next((kind for kind, pattern in _COUNTERS.items() if pattern.search(track.name)), None) \
            if track.kind == "counter" and track.unit == "bytes" else None
        if kind is not None:
            times, values = frame.samples.of(number)
            is_finite = np.isfinite(values)
            if is_finite.any():
                device = -1 if track.device is None or "(CPU)" in track.name else track.device
                out.append(Counter(kind, device, track.name, times[is_finite], np.clip(values[is_finite], 0, MOST_BYTES)))
    return out


def device_memories(frame: Frame, counters: list[Counter]) -> list[DeviceMemory]:
    """Every device with events, GPUs first."""
    rows, change = _events(frame)
    device = np.where(frame["device"][rows] == MISSING32, -1, frame["device"][rows]).astype(np.int64)
    memories = [_device_memory(frame, rows[device == index], change[device == index], index, counters)
             for index in np.unique(device).tolist()[:MAX_DEVICES]]
    return sorted(memories, key=lambda each: (each.device < 0, each.device))


def _events(frame: Frame) -> tuple[Rows, Ints]:
    signs = np.zeros(len(frame.names) + 1, np.int64)
    for code, name in enumerate(frame.names):
        signs[code] = 2 if name == MARK else _SIGNS.get(name, 0)
    allocators = np.array([track.name == "allocator" for track in frame.tracks] or [False], np.bool_)
    sign = signs[frame["name"]]
    sign[(np.abs(sign) == 1) & ~allocators[frame["track"]]] = 0
    rows = np.flatnonzero((sign != 0) & frame["instant"] & (frame["bytes"] != MISSING))
    size, sign = frame["bytes"][rows], sign[rows]
    rounded = -(-np.abs(size) // ROUND) * ROUND
    return rows, np.where(sign == 2, size, sign * rounded)


def _device_memory(frame: Frame, rows: Rows, change: Ints, device: int, counters: list[Counter]) -> DeviceMemory:
    time_ns, address = frame["start_ns"][rows], frame["external_id"][rows]
    began, ended, earlier = _pairs(address, change)
    total = np.cumsum(change)
    count = next((counter for counter in counters if counter.kind == "allocated" and counter.device == device), None)
    stated = count.at(time_ns[-1:])[0] if count is not None else np.nan
    is_known = bool(np.isfinite(stated))
    baseline = round(float(stated)) - int(total[-1]) if is_known else max(int(earlier), -int(total.min(initial=0)))
    return DeviceMemory(device, rows, time_ns, change, total + max(baseline, 0), max(baseline, 0), is_known, began, ended,
                        change[began],
                bool(np.any(address != MISSING)),
                next((counter for counter in counters if counter.kind == "reserved" and counter.device == device), None))


def _pairs(address: Ints, change: Ints) -> tuple[Ints, Ints, int]:
    """Events that allocate and the events that free the same again; bytes freed that were not allocated here."""
    order = np.lexsort((np.arange(address.size), address))
    same = np.append(address[order][1:] == address[order][:-1], False) if address.size else np.empty(0, np.bool_)
    gives = change[order] >= 0
    following = np.append(order[1:], -1) if order.size else order
    has_address = address[order] != MISSING
    # the next event at the address ends an allocation, be it a free or (a free was lost) the next allocation
    began = order[gives & has_address]
    ended = np.where(same, following, -1)[gives & has_address]
    before = np.append(False, same[:-1]) if same.size else same
    previous_gives = np.append(False, gives[:-1]) if gives.size else gives
    lost = ~gives & has_address & ~(before & previous_gives)
    by_time = stable_order(began)
    return began[by_time], ended[by_time], int(-change[order][lost].sum())
