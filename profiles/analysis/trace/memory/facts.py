"""What the topic "memory" knows, before anything is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.memory.categories import KEYS, Allocations
from profiles.analysis.trace.memory.events import Counter, DeviceMemory
from profiles.analysis.trace.memory.peak import Copies, Group, alive_at, before_bytes
from profiles.analysis.trace.memory.phases import Phases


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
        size = np.bincount(self.made.category[alive], weights=self.held.bytes[alive], minlength=len(KEYS)).astype(np.int64)
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
