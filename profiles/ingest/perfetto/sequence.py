"""State of one packet sequence (one writer): what it interned, its defaults, its own clocks."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from profiles.ingest.arrays import Int32, Ints
from profiles.ingest.chrome.kinds import UNKNOWN, category_code
from profiles.ingest.core.columns import NAME_CHARS, Ids
from profiles.ingest.core.protobuf_messages import text
from profiles.ingest.naming.names import clip_bytes
from profiles.ingest.perfetto.arguments import COLUMNS
from profiles.ingest.trace import Integrity

# Perfetto's clocks: what a packet's timestamp means on the trace's own clock, and what that clock is in epoch time.
#
# Numbers below 64 are the system's clocks, 64 to 127 belong to one packet sequence, larger ones are custom and global
# (protos/perfetto/common/builtin_clock.proto, trace/clock_snapshot.proto). Snapshots tie clocks together.

REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6
MAX_SNAPSHOTS = 100_000
LATEST_NS = 2**62


class Clocks:
    """Numbers the clocks that rows were stamped with and converts their times once snapshots are known."""

    def __init__(self, integrity: Integrity) -> None:
        self.integrity = integrity
        self.primary: Any = BOOTTIME
        self.numbers = Ids()                        # key of a clock -> its number in the rows
        self._snapshots: list[dict[Any, int]] = []
        self._ways: dict[Any, list[tuple[Ints, Ints]]] = {}
        self.without: dict[int, int] = {}           # clock number -> rows stamped with a clock that no snapshot ties

    @staticmethod
    def key(clock: int, sequence: int) -> Any:
        return (sequence, clock) if 64 <= clock < 128 else clock

    def snapshot(self, message: Any, sequence: int) -> dict[Any, tuple[int, bool, int]]:
        """Take a snapshot; returns (time in ns, is incremental, ns per unit) of the clocks in it."""
        if message.primary_trace_clock and not self._snapshots:
            self.primary = message.primary_trace_clock
        stated: dict[Any, tuple[int, bool, int]] = {}
        for clock in message.clocks:
            unit = clock.unit_multiplier_ns or 1
            stated[self.key(clock.clock_id, sequence)] = (clock.timestamp * unit, clock.is_incremental, unit)
        if len(self._snapshots) < MAX_SNAPSHOTS:
            self._snapshots.append({key: min(value[0], LATEST_NS) for key, value in stated.items()})
            self._ways.clear()
        else:
            self.integrity.repair("clock snapshots beyond the first 100,000 were not used")
        return stated

    def on_trace_clock(self, raw: Ints, clock: Int32) -> Ints:
        """Times of rows on the trace's clock, ns."""
        out = raw.copy()
        for number in np.unique(clock).tolist():
            rows = clock == number
            way = self._way(self.numbers.values_in_order[number])
            if way is None:
                self.without[number] = self.without.get(number, 0) + int(np.count_nonzero(rows))
                continue
            times = raw[rows]
            for here, there in way:
                nearest = np.maximum(np.searchsorted(here, times, side="right") - 1, 0)
                times = np.clip(times - here[nearest] + there[nearest], -LATEST_NS, LATEST_NS)
            out[rows] = times
        return out

    def epoch_ns(self) -> int | None:
        """Epoch ns of the trace clock's 0; None where no snapshot says."""
        way = self._way(self.primary, REALTIME)
        if way is None or self.primary == REALTIME:
            return 0 if self.primary == REALTIME else None
        return sum(int(there[0] - here[0]) for here, there in way)

    def _way(self, start: Any, goal: Any = None) -> list[tuple[Ints, Ints]] | None:
        """Steps of (times on one clock, times on the next) from `start` to the trace's clock; None where none is known."""
        goal = self.primary if goal is None else goal
        if (start, goal) not in self._ways:
            self._ways[start, goal] = self._search(start, goal)      # type: ignore[assignment]  # None is kept too
        return self._ways[start, goal]

    def _search(self, start: Any, goal: Any) -> list[tuple[Ints, Ints]] | None:
        if start == goal:
            return []
        before: dict[Any, Any] = {start: None}
        waiting = deque([start])
        neighbours: dict[Any, set[Any]] = {}
        for snapshot in self._snapshots:
            for key in snapshot:
                neighbours.setdefault(key, set()).update(snapshot)
        while waiting and goal not in before:
            here = waiting.popleft()
            for there in neighbours.get(here, ()):
                if there not in before:
                    before[there] = here
                    waiting.append(there)
        if goal not in before:
            return None
        steps, there = [], goal
        while there != start:
            here = before[there]
            steps.append(self._step(here, there))
            there = here
        return steps[::-1]

    def _step(self, here: Any, there: Any) -> tuple[Ints, Ints]:
        pairs = sorted((snapshot[here], snapshot[there]) for snapshot in self._snapshots if here in snapshot and there in snapshot)
        table = np.array(pairs, np.int64)
        return table[:, 0].copy(), table[:, 1].copy()

    def count_unrelated(self) -> None:
        """Count rows of clocks that no snapshot ties to the trace's."""
        for number, rows in self.without.items():
            self.integrity.repair(f"time of a clock (number {self.numbers.values_in_order[number]}) that no snapshot ties to "
                                  "the others: taken as it is", rows)


MAX_INTERNED = 1_000_000                # of one kind and sequence
# spellings of other tools than those of Chrome traces; a list of categories is judged by its members
_FURTHER = {
    "rocm_kernel_dispatch": "kernel_dispatch", "device_hip_activity": "kernel_dispatch", "device_activity": "kernel_dispatch",
    "rocm_memory_copy": "memory_copy", "rocm_hip_api": "hip_api", "hip_runtime_api": "hip_api", "rocm_hsa_api": "hsa_api",
    "marker_api": "roctx", "rocm_marker_api": "roctx"}
_CPU_TOO = frozenset({"gpu", "cuda", "hip"})                # Chrome names slices of CPU threads so


def code_of(category: str) -> int:
    """Return what a category says of a slice: a Category, or UNKNOWN."""
    for part in category.lower().split(","):
        if part not in _CPU_TOO and (code := category_code(_FURTHER.get(part, part))) < UNKNOWN - 1:
            return code
    return UNKNOWN


class Sequence:
    """One packet sequence as far as it was read."""

    def __init__(self, number: int, clocks: Clocks, names: Ids, categories: Ids) -> None:
        self.number, self._clocks, self._names, self._categories = number, clocks, names, categories
        self.valid = False              # an incremental state has begun and nothing of it was lost
        self.thread: tuple[int, int] | None = None         # pid, tid of an old-style thread descriptor
        self.micros = 0                 # running time of its events without a packet timestamp
        self.clock = self.track = 0
        self.counters: tuple[list[int], list[int]] = ([], [])
        self._running: dict[int, list[int]] = {}           # incremental clocks: [ns now, ns per unit]
        self.clear()

    def clear(self) -> None:
        """Begin a new incremental state: nothing interned before is valid any more."""
        self.names: dict[int, int] = {}                    # iid -> number of the name
        self.categories: dict[int, tuple[int, int]] = {}   # iid -> number of the category, its code
        self.annotations: dict[int, str] = {}
        self.columns: dict[int, int | None] = {}
        self.strings: dict[int, str] = {}
        self.locations: dict[int, str] = {}
        self.contexts: dict[int, tuple[int, int]] = {}     # iid -> pid, graphics API
        self.specifications: dict[int, str] = {}
        self.gpu_counters: dict[int, Any] = {}
        self.details: dict[Any, int] = {}                  # arguments as they are encoded -> number of their text
        self.fragments: dict[bytes, str] = {}              # single arguments -> text
        self.clock = self.track = 0
        self.counters = ([], [])

    def defaults(self, message: Any) -> None:
        self.clock = message.timestamp_clock_id
        event = message.track_event_defaults
        self.track = event.track_uuid
        self.counters = (list(event.extra_counter_track_uuids)[:64], list(event.extra_double_counter_track_uuids)[:64])

    def intern(self, data: Any) -> None:
        """Take interned texts. An id that is given anew has its new meaning from here on."""
        if len(self.names) + len(self.strings) > MAX_INTERNED:
            return
        for event_name in data.event_names:
            self.names[event_name.iid] = self._names[text(clip_bytes(event_name.name, 4 * NAME_CHARS))]
        for category in data.event_categories:
            self.categories[category.iid] = self.category(text(category.name[:1000]))
        for annotation in data.debug_annotation_names:
            name = self.annotations[annotation.iid] = text(annotation.name[:1000])
            self.columns[annotation.iid] = COLUMNS.get(name)
            self.details, self.fragments = {}, {}
        for string in data.debug_annotation_string_values:
            self.strings[string.iid] = text(string.name[:8000])
        for place in data.source_locations:
            self.locations[place.iid] = location(place)
        for context in data.graphics_contexts:
            self.contexts[context.iid] = (context.pid, context.api)
        for spec in data.gpu_specifications:
            self.specifications[spec.iid] = text(spec.name[:1000])
        for descriptor in data.gpu_counter_descriptors:
            self.gpu_counters[descriptor.iid] = descriptor.counter_descriptor

    def category(self, name: str) -> tuple[int, int]:
        """Return number and code of a category by its text."""
        return self._categories[name], code_of(name)

    def snapshot(self, clocks: dict[Any, tuple[int, bool, int]]) -> None:
        for key, (now, incremental, unit) in clocks.items():
            if incremental and isinstance(key, tuple):
                self._running[key[1]] = [now, unit]

    def time(self, stamp: int, clock: int) -> tuple[int, int]:
        """Return (ns on its clock, the clock's number) of a packet stamped `stamp` on `clock`.

        0 is the sequence's default.
        """
        clock = clock or self.clock
        if clock in self._running:
            running = self._running[clock]
            running[0] = min(running[0] + stamp * running[1], LATEST_NS)
            stamp = running[0]
        key = (self.number, clock) if 64 <= clock < 128 else clock or self._clocks.primary
        return (stamp if stamp < LATEST_NS else LATEST_NS), self._clocks.numbers[key]


def location(message: Any) -> str:
    """"file.cc:12 function" of a SourceLocation."""
    place = text(message.file_name[:1000])
    line = f":{message.line_number}" if message.line_number else ""
    return f"{place}{line} {text(message.function_name[:1000])}".strip()
