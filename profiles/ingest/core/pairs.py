"""Begin and end records to slices: one stack per thread or asynchronous chain, in order of time, whatever the order of the file.

Array wait in memory, beyond MEMORY_ROWS in a temporary file split by stack, so that memory stays flat. Where ends agree
with the innermost begin, which is nearly always, all stacks are paired at once by their depths. Where they do not:

- an end that names no slice closes the innermost open one;
- an end closes the nearest open slice of its name. Slices begun within it that are still open overlap it (their own end may
  come later) or were never ended: those end with it;
- an end of a name that is not open belongs to nothing. But where a stack's begins and ends balance by position and not by
  name, the tool names its ends otherwise, and position decides.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from profiles.ingest.arrays import Array, Int32, Ints, stable_order

Index = npt.NDArray[np.intp]
ROW = np.dtype([("stack", "<i8"), ("time", "<i8"), ("sequence", "<i8"), ("name", "<i4"), ("category", "<i4"),
                ("detail", "<i4"), ("track", "<i4"), ("step", "i1")])
BEGIN, END, MARK = 1, -1, 0              # ROW.step; a mark is an instant that lies in the stack
NAMELESS = -1                            # ROW.name of an end without a name
MEMORY_ROWS = 1 << 19
_SPREAD = 0x9E3779B97F4A7C15             # 2**64 / golden ratio: neighbouring stack numbers go to different parts
_PARTS_BITS = 5


@dataclass
class Counts:
    """What was not as it should be."""

    without_begin: int = 0               # ends that belong to no slice
    never_ended: int = 0                 # begins whose end is missing
    renamed: int = 0                     # pairs whose end has another name than their begin


class PairedSlices(NamedTuple):
    """Slices, and marks: rows of their begin, the time of their end, the detail of their end (-1: none), their chain's root."""

    begin: Array
    end_ns: Ints
    end_detail: Int32
    root: Array


@dataclass
class Pairs:
    """Take rows with `add`, get slices from `finish`."""

    rows: int = 0
    counts: Counts = field(default_factory=Counts)
    _waiting: list[Array] = field(default_factory=list)
    _in_memory: int = 0
    _file: IO[bytes] | None = None
    _parts: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))    # offset, rows

    def add(self, rows: Array) -> None:
        """Take rows in file order."""
        self.rows += rows.size
        self._waiting.append(rows)
        self._in_memory += rows.size
        if self._in_memory >= MEMORY_ROWS:
            self._spill()

    def _spill(self) -> None:
        rows = np.concatenate(self._waiting)
        self._waiting, self._in_memory = [], 0
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="ridgepoint-pairs-")  # noqa: SIM115  closed by `finish`
        part = (rows["stack"].astype(np.uint64) * np.uint64(_SPREAD) >> np.uint64(64 - _PARTS_BITS)).astype(np.int64)
        order = stable_order(part)
        bounds = np.searchsorted(part[order], np.arange((1 << _PARTS_BITS) + 1))
        for number in range(1 << _PARTS_BITS):
            chosen = rows[order[bounds[number]:bounds[number + 1]]]
            if chosen.size:
                self._parts[number].append((self._file.tell(), chosen.size))
                self._file.write(chosen.tobytes())

    def finish(self, end_ns: int) -> Iterator[PairedSlices]:
        """Yield all slices; those never ended last until `end_ns`."""
        if self._file is None:
            yield from self._part(iter([np.concatenate(self._waiting)] if self._waiting else []), end_ns)
            return
        if self._waiting:
            self._spill()
        with self._file as file:
            for part in self._parts.values():
                yield from self._part(self._blocks(file, part), end_ns)

    def _blocks(self, file: IO[bytes], part: list[tuple[int, int]]) -> Iterator[Array]:
        """The rows of one part, as many together as may be in memory: one that is larger is paired in file order."""
        gathered: list[Array] = []
        for offset, count in part:
            file.seek(offset)
            gathered.append(np.frombuffer(file.read(count * ROW.itemsize), ROW))
            if sum(rows.size for rows in gathered) >= MEMORY_ROWS:
                yield np.concatenate(gathered)
                gathered = []
        if gathered:
            yield np.concatenate(gathered)

    def _part(self, blocks: Iterator[Array], end_ns: int) -> Iterator[PairedSlices]:
        carried = np.empty(0, ROW)
        for block in blocks:
            rows = np.concatenate((carried, block))
            rows = rows[_stack_order(rows["stack"], rows["time"])]
            paired, carried = pair(rows, self.counts)
            yield paired
        self.counts.never_ended += carried.size
        if carried.size:
            yield PairedSlices(carried, np.maximum(carried["time"], end_ns), np.full(carried.size, -1, np.int32), carried)


def _stack_order(stack: Ints, time: Ints) -> Index:
    """By stack, time, place in the file."""
    order = stable_order(time) if (np.diff(time) < 0).any() else np.arange(time.size)
    return order[stable_order(stack[order])]


def pair(rows: Array, counts: Counts) -> tuple[PairedSlices, Array]:
    """Pair rows that are ordered by stack and time; the begins that stay open are handed back."""
    step = rows["step"].astype(np.int64)
    first = np.flatnonzero(np.diff(rows["stack"], prepend=rows["stack"][:1] - 1))
    number = np.repeat(np.arange(first.size), np.diff(first, append=rows.size))
    height = np.cumsum(step)
    height -= (height[first] - step[first])[number]
    begin, end, left = _by_depth(number, height, step)
    agree = (rows["name"][begin] == rows["name"][end]) | (rows["name"][end] == NAMELESS)
    odd = np.zeros(first.size, np.bool_)
    odd[number[height < 0]] = True
    odd[number[begin[~agree]]] = True
    if not odd.any():
        root = _roots(height, step, number, first)
        return _make_slices(rows, begin, end, root, np.flatnonzero(step == MARK)), rows[left]
    regular = ~odd[number]
    plain, left_rows = pair(rows[regular], counts) if regular.any() else (None, rows[:0])
    odd_pairs, more = _pair_odd(rows[~regular], counts)
    parts = [part for part in (plain, odd_pairs) if part is not None]
    return PairedSlices(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True))), np.concatenate((left_rows, more))


def _by_depth(number: Ints, height: Ints,
              step: Ints) -> tuple[Index, Index, Index]:
    """Begins, their ends and the begins without end, by depth: within a depth of a stack begins and ends alternate."""
    real = np.flatnonzero((step != MARK) & (height - (step < 0) >= -1))
    depth = height[real] - (step[real] > 0)
    span = int(depth.max(initial=0)) + 2
    order = real[stable_order(number[real] * span + depth + 1)]
    here = np.flatnonzero((step[order[:-1]] > 0) & (step[order[1:]] < 0) & (number[order[:-1]] == number[order[1:]]))
    begin, end = order[here], order[here + 1]
    begins = np.zeros(step.size, np.bool_)
    begins[step > 0] = True
    begins[begin] = False
    return begin, end, np.flatnonzero(begins)


def _roots(height: Ints, step: Ints, number: Ints, first: Index) -> Index:
    """For every row the row of its outermost begin; itself where it lies in none."""
    rows_in_order = np.arange(step.size)
    outermost = np.maximum.accumulate(np.where((step > 0) & (height == 1), rows_in_order, -1))
    inside = (outermost >= first[number]) & ((height > 0) | (step < 0))
    return np.where(inside, outermost, rows_in_order)


def _make_slices(rows: Array, begin: Index, end: Index, root: Index, marks: Index) -> PairedSlices:
    both = np.concatenate((begin, marks))
    ends = np.concatenate((rows["time"][end], rows["time"][marks]))
    detail = np.concatenate((rows["detail"][end], np.full(marks.size, -1, np.int32)))
    return PairedSlices(rows[both], ends, detail, rows[root[both]])


def _pair_odd(rows: Array, counts: Counts) -> tuple[PairedSlices, Array]:
    """Stacks whose ends do not simply close the innermost begin, one after the other; linear in the rows."""
    step, name, time = rows["step"].tolist(), rows["name"].tolist(), rows["time"].tolist()
    first = np.flatnonzero(np.diff(rows["stack"], prepend=rows["stack"][:1] - 1)).tolist()
    pairs: list[tuple[int, int]] = []
    overlapping: list[tuple[int, int]] = []
    left: list[int] = []
    root: list[int] = []
    for start, stop in zip(first, [*first[1:], rows.size], strict=True):
        stack_pairs = _by_name(step[start:stop], name[start:stop], time[start:stop])
        if stack_pairs.lost or stack_pairs.left or stack_pairs.overlapping:
            stack_pairs = _by_position(step[start:stop]) or stack_pairs
        pairs += [(begin + start, end + start) for begin, end in stack_pairs.pairs]
        overlapping += [(begin + start, end + start) for begin, end in stack_pairs.overlapping]
        left += [position + start for position in stack_pairs.left]
        root += [position + start for position in stack_pairs.root]
        counts.without_begin += stack_pairs.lost
        counts.never_ended += len(stack_pairs.overlapping)
    begin, end = (np.array([ends[i] for ends in (*pairs, *overlapping)], np.intp) for i in (0, 1))
    named = rows["name"][end[:len(pairs)]]
    counts.renamed += int(np.count_nonzero((named != rows["name"][begin[:len(pairs)]]) & (named != NAMELESS)))
    paired = _make_slices(rows, begin, end, np.array(root, np.intp), np.flatnonzero(rows["step"] == MARK))
    paired.end_detail[len(pairs):begin.size] = -1
    return paired, rows[np.array(left, np.intp)]


class _Stack(NamedTuple):
    pairs: list[tuple[int, int]]
    overlapping: list[tuple[int, int]]       # begins without an end of theirs, with the end of what they lay in
    left: list[int]
    lost: int
    root: list[int]


def _by_position(step: list[int]) -> _Stack | None:
    """Pair the rows of one stack by their order alone; None where that leaves a begin or an end over."""
    stack: list[int] = []
    pairs, root = [], list(range(len(step)))
    for position, kind in enumerate(step):
        if stack:
            root[position] = stack[0]
        if kind == BEGIN:
            stack.append(position)
        elif kind == END:
            if not stack:
                return None
            pairs.append((stack.pop(), position))
    return None if stack else _Stack(pairs, [], [], 0, root)


def _by_name(step: list[int], name: list[int], time: list[int]) -> _Stack:
    """Pair the rows of one stack by name."""
    stack: list[int] = []
    is_open: dict[int, int] = defaultdict(int)
    passed: dict[int, list[tuple[int, int]]] = defaultdict(list)    # begins whose surroundings ended before them
    early: dict[int, list[int]] = defaultdict(list)                 # ends that stand before their begin of the same time
    pairs, root = [], list(range(len(step)))
    lost, moment = 0, None
    for position, (kind, text, now) in enumerate(zip(step, name, time, strict=True)):
        if now != moment:
            lost += sum(map(len, early.values()))
            early.clear()
            moment = now
        if stack:
            root[position] = stack[0]
        if kind == BEGIN:
            if early.get(text):
                pairs.append((position, early[text].pop()))
                continue
            stack.append(position)
            is_open[text] += 1
        elif kind == END:
            if text == NAMELESS and stack:
                text = name[stack[-1]]
            if is_open.get(text):
                while name[stack[-1]] != text:
                    inner = stack.pop()
                    is_open[name[inner]] -= 1
                    passed[name[inner]].append((inner, position))
                is_open[text] -= 1
                pairs.append((stack.pop(), position))
            elif passed.get(text):
                pairs.append((passed[text].pop()[0], position))
            else:
                early[text].append(position)
    lost += sum(map(len, early.values()))
    return _Stack(pairs, [entry for several in passed.values() for entry in several], stack, lost, root)
