"""The history of one GPU's allocator: bytes after every entry, and which entry freed which allocation."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiles.ingest.arrays import Ints

# Call stacks of a memory snapshot: each distinct one once, the frame that people look for, and its lines.

_OWN = ("/site-packages/", "/dist-packages/", "/lib/python3")       # code that is not the user's
# the recorder's and the allocator's own frames, which lie innermost in stacks with C++ frames
_INNERMOST = ("torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::", "c10::", "at::detail::", "at::TensorBase",
              "at::cuda::getCUDA")
MAX_LINES, MAX_CHARS = 40, 300
_MAX_FRAMES = 10_000


class Stacks:
    """Numbers stacks by the identity of their list: a pickle shares equal ones."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._frames: list[list[Any]] = []
        self._sites: dict[int, str] = {}

    def number(self, frames: Any) -> int:
        """-1 where there is none."""
        if type(frames) is not list or not frames:
            return -1
        number = self._numbers.get(id(frames))
        if number is None:
            number = self._numbers[id(frames)] = len(self._frames)
            self._frames.append(frames)                            # kept, so that its identity stays its own
        return number

    def site(self, number: int) -> str:
        """Return the innermost frame of the user's own Python code.

        Failing that of any Python code; failing that of PyTorch's C++.
        """
        if number < 0:
            return ""
        site_line = self._sites.get(number)
        if site_line is None:
            frames, python = self._split(number)
            own = [frame for frame in python if not any(part in frame["filename"] for part in _OWN)]
            further = [frame for frame in frames if not _text(frame.get("name")).startswith(_INNERMOST)]
            chosen = next(iter(own or python or further or frames), None)
            site_line = self._sites[number] = _line(chosen) if chosen else ""
        return site_line

    def lines(self, number: int) -> list[str]:
        """Innermost first, at most MAX_LINES: Python frames where there are any."""
        frames, python = self._split(number)
        shown = [_line(frame) for frame in (python or frames)[:MAX_LINES]]
        return shown + (["…"] if len(python or frames) > MAX_LINES else [])

    def _split(self, number: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """All frames, and those of Python."""
        frames = [frame for frame in self._frames[number][:_MAX_FRAMES] if type(frame) is dict]
        return frames, [frame for frame in frames if _text(frame.get("filename")).endswith(".py")]


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _line(frame: dict[str, Any]) -> str:
    name, path, line = _text(frame.get("name"))[:MAX_CHARS], _text(frame.get("filename"))[-MAX_CHARS:], frame.get("line")
    file = path.replace("\\", "/").rpartition("/")[2]
    place = f"{file}:{line}" if file not in ("", "??") and type(line) is int and line else file.replace("??", "")
    return f"{name} ({place})" if place else name


DRAWN, LANES = 5000, 40                  # allocations drawn as slices: the largest, as many at a time as there are lanes
ROUND = 512
_MOST_BYTES = 2**61
COUNTERS = ("allocated", "active", "reserved")
# action -> (allocated, active, reserved) change per byte
_CHANGES = {"alloc": (1, 1, 0), "free_requested": (-1, 0, 0), "free_completed": (0, -1, 0), "segment_alloc": (0, 0, 1),
            "segment_free": (0, 0, -1), "segment_map": (0, 0, 1), "segment_unmap": (0, 0, -1)}


@dataclass
class History:
    """The entries of one GPU as columns, in order, and what follows from them."""

    device: int
    action: list[str] = field(default_factory=list)
    time_ns: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    address: list[int] = field(default_factory=list)
    stack: list[int] = field(default_factory=list)                 # numbers of `Stacks`, -1 for none
    detail: list[int] = field(default_factory=list)
    alive: list[tuple[int, int]] = field(default_factory=list)     # allocation's entry, entry that freed it (-1: none)
    freed_earlier: int = 0                                         # frees of what was allocated before the first entry
    levels: dict[str, Ints] = field(default_factory=dict)         # bytes after every entry
    before: dict[str, int] = field(default_factory=dict)           # bytes before the first

    def rounded_sizes(self) -> Ints:
        """Sizes as the allocator counts them."""
        return -(-np.array(self.bytes, np.int64) // ROUND) * ROUND

    def settle(self, now: dict[str, int] | None) -> None:
        """Work out `levels`, `before` and `alive`.

        `now`: bytes at the end of the history, where the snapshot states them.
        """
        size = self.rounded_sizes()
        for place, name in enumerate(COUNTERS):
            change = np.array([_CHANGES.get(action, (0, 0, 0))[place] for action in self.action], np.int64) * size
            level = np.cumsum(change)
            lowest = -int(level.min(initial=0))
            start = max(now[name] - int(level[-1]), lowest) if now and level.size else lowest
            start = min(start, _MOST_BYTES)
            self.before[name], self.levels[name] = start, level + start
        open_at: dict[int, int] = {}
        for number, (action, address) in enumerate(zip(self.action, self.address, strict=True)):
            if action == "alloc":
                if address in open_at:
                    self.alive.append((open_at[address], number))
                open_at[address] = number
            elif action == "free_requested":
                began = open_at.pop(address, -1)
                if began >= 0:
                    self.alive.append((began, number))
                else:
                    self.freed_earlier += 1
        self.alive += [(began, -1) for began in open_at.values()]

    def largest(self) -> list[int]:
        """Return the largest allocations of which at most LANES overlap at any time.

        Numbers in `alive`.
        """
        last = max(self.time_ns, default=0) + 1
        ordered = sorted(range(len(self.alive)), key=lambda i: -self.bytes[self.alive[i][0]])[:DRAWN]
        lanes: list[tuple[list[int], list[int]]] = [([], []) for _ in range(LANES)]       # starts and ends, in order
        out = []
        for number in ordered:
            began, ended = self.alive[number]
            start, end = self.time_ns[began], self.time_ns[ended] if ended >= 0 else last
            for starts, ends in lanes:
                place = bisect_right(starts, start)
                if (place == 0 or ends[place - 1] <= start) and (place == len(starts) or starts[place] >= end):
                    starts.insert(place, start)
                    ends.insert(place, max(end, start + 1))
                    out.append(number)
                    break
        return out
