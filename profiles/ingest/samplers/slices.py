"""Stacks over time to nested slices: a frame that stays open from one sample to the next is one slice."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.trace import Category, Integrity

MAX_DEPTH = 512                          # frames of one stack that are drawn
MAX_SLICES = 10_000_000
_BATCH = 65_536
_MOST_WAITING = 8 * _BATCH


class Frames:
    """The distinct functions of a file: name, place in the source, category."""

    def __init__(self, builder: TraceBuilder) -> None:
        self._builder = builder
        self._numbers: dict[tuple[str, str, int], int] = {}
        self.name: list[int] = []
        self.detail: list[int] = []
        self.category: list[int] = []

    def add(self, name: str, place: dict[str, Any], category: Category) -> int:
        """Return the number of a frame; frames of the same name and place are one."""
        text = msgspec.json.encode(place).decode() if place else ""
        key = (name, text, int(category))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.name)
            self.name.append(self._builder.names[name])
            self.detail.append(self._builder.details[text] if text else -1)
            self.category.append(int(category))
        return number


class StackSlices:
    """Opens and closes the frames of one track after another; rows go to the builder in batches, outer frames first."""

    def __init__(self, builder: TraceBuilder, frames: Frames) -> None:
        self._builder, self._frames = builder, frames
        self.count = self.deeper = 0
        self._track = 0
        self._open: list[int] = []                   # rows of the open frames, -1: not drawn
        self._closed_ns: int | None = None           # when the last frame was closed
        self._rows: list[list[int]] = []             # start, duration, frame, track

    @property
    def full(self) -> bool:
        return self.count >= MAX_SLICES

    @property
    def depth(self) -> int:
        return len(self._open)

    def begin_track(self, track: int) -> None:
        """Draw what follows on another track; all frames must be closed."""
        self._track, self._closed_ns = track, None

    def open(self, frame: int, at_ns: int) -> None:
        """Begin a frame within those that are open."""
        if len(self._open) >= MAX_DEPTH:
            self.deeper += 1
            self._open.append(-1)
            return
        # frames that end together are written together: of two with the same times the outer one must come first
        if len(self._rows) >= _BATCH and (self._closed_ns is None or at_ns > self._closed_ns or len(self._rows) >= _MOST_WAITING):
            self._flush()
        self._open.append(len(self._rows))
        self._rows.append([at_ns, -1, frame, self._track])
        self.count += 1

    def keep(self, depth: int, at_ns: int) -> None:
        """End all open frames but the outermost `depth`."""
        if len(self._open) > depth:
            for row in self._open[depth:]:
                if row >= 0:
                    self._rows[row][1] = at_ns - self._rows[row][0]
            del self._open[depth:]
            self._closed_ns = at_ns

    def show(self, stack: list[int], before: list[int], at_ns: int) -> None:
        """Replace the open stack `before` by `stack`."""
        same = 0
        for one, other in zip(stack, before, strict=False):
            if one != other:
                break
            same += 1
        self.keep(same, at_ns)
        for frame in stack[same:]:
            self.open(frame, at_ns)

    def _flush(self) -> None:
        waiting = [row for row in self._open if row >= 0]
        still_open = set(waiting)
        done = [row for number, row in enumerate(self._rows) if number not in still_open]
        carried = [self._rows[row] for row in waiting]
        self._rows = carried
        numbers = iter(range(len(carried)))
        self._open = [next(numbers) if row >= 0 else -1 for row in self._open]
        if not done:
            return
        start, dur, frame, track = np.array(done, np.int64).T
        self._builder.add(
            start_ns=start, dur_ns=dur, name=np.array(self._frames.name, np.int32)[frame],
            category=np.array(self._frames.category, np.uint8)[frame], track=track.astype(np.int32),
            detail=np.array(self._frames.detail, np.int32)[frame])

    def finish(self, integrity: Integrity) -> None:
        """Write what waits, and say what was not drawn."""
        self._flush()
        integrity.repair(f"frames deeper than {MAX_DEPTH} levels: not drawn", self.deeper)
