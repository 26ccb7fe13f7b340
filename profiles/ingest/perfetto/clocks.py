"""Perfetto's clocks: what a packet's timestamp means on the trace's own clock, and what that clock is in epoch time.

Numbers below 64 are the system's clocks, 64 to 127 belong to one packet sequence, larger ones are custom and global
(protos/perfetto/common/builtin_clock.proto, trace/clock_snapshot.proto). Snapshots tie clocks together.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from profiles.ingest.core.columns import Ids, Int32, Int64
from profiles.ingest.trace import Integrity

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
        self._ways: dict[Any, list[tuple[Int64, Int64]]] = {}
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

    def on_trace_clock(self, raw: Int64, clock: Int32) -> Int64:
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

    def _way(self, start: Any, goal: Any = None) -> list[tuple[Int64, Int64]] | None:
        """Steps of (times on one clock, times on the next) from `start` to the trace's clock; None where none is known."""
        goal = self.primary if goal is None else goal
        if (start, goal) not in self._ways:
            self._ways[start, goal] = self._search(start, goal)      # type: ignore[assignment]  # None is kept too
        return self._ways[start, goal]

    def _search(self, start: Any, goal: Any) -> list[tuple[Int64, Int64]] | None:
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

    def _step(self, here: Any, there: Any) -> tuple[Int64, Int64]:
        pairs = sorted((each[here], each[there]) for each in self._snapshots if here in each and there in each)
        table = np.array(pairs, np.int64)
        return table[:, 0].copy(), table[:, 1].copy()

    def count_unrelated(self) -> None:
        """Count rows of clocks that no snapshot ties to the trace's."""
        for number, rows in self.without.items():
            self.integrity.repair(f"time of a clock (number {self.numbers.values_in_order[number]}) that no snapshot ties to "
                                  "the others: taken as it is", rows)
