"""Data copied to the host and back, or made on the host and copied to the GPU, although the GPU could keep or make it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiles.analysis.trace.needed.facts import Avoidable, Facts
from profiles.ingest.trace import MISSING, Category

LEAST_BYTES = 1 << 16               # smaller ones are results and flags
LOOKED_AHEAD = 8                    # copies between the way there and the way back
_MAKERS = ("aten::zeros", "aten::ones", "aten::full", "aten::arange", "aten::eye", "aten::rand", "aten::randn", "aten::randint",
           "aten::tril", "aten::triu", "aten::linspace", "aten::zeros_like", "aten::ones_like", "aten::randperm")
_COPIES = ("aten::copy_", "aten::_to_copy", "aten::to")
_NOTHING = ("aten::detach", "detach", "aten::lift_fresh", "aten::alias", "aten::view", "aten::pin_memory")


def find(facts: Facts) -> Iterator[Avoidable]:
    frame = facts.frame
    rows = frame.of(Category.MEMCPY)
    names = [frame.text(row) for row in rows.tolist()]
    size = frame["bytes"][rows].tolist()
    trips = list(_back_and_forth(facts, rows.tolist(), names, size))
    yield from trips
    yield from _made_on_the_host(facts, rows.tolist(), names, size, {row for trip in trips for row in trip.rows})


def _back_and_forth(facts: Facts, rows: list[int], names: list[str], size: list[int]) -> Iterator[Avoidable]:
    """A copy to pageable memory (`.cpu()`) and, launched when it had ended, among the next few one of as many bytes back.

    What is offloaded on purpose goes to pinned memory, and copies in that were launched before do not bring it back.
    """
    pairs, used, frame = list[int](), set[int](), facts.frame
    device = frame["device"][rows].tolist() if rows else []
    for at, name in enumerate(names):
        if "DtoH" not in name or "ageable" not in name or size[at] == MISSING or size[at] < LEAST_BYTES:
            continue
        back = next((after for after in range(at + 1, min(len(rows), at + 1 + LOOKED_AHEAD)) if "HtoD" in names[after]
                     and (size[after], device[after]) == (size[at], device[at]) and after not in used
                     and (call := int(frame.call[rows[after]])) >= 0 and frame["start_ns"][call] >= frame.end_ns[rows[at]]), None)
        if back is not None:
            used.add(back)
            pairs += [rows[at], rows[back]]
    if pairs:
        many = len(pairs) // 2
        yield Avoidable((), (0.0, 0.0), f"{many:,} times data goes to the host and as much comes back",
                        "the host changes nothing that the GPU could not", certain=False, rows=pairs, numbers={"trips": many})


def _made_on_the_host(facts: Facts, rows: list[int], names: list[str], size: list[int], used: set[int]) -> Iterator[Avoidable]:
    """`torch.zeros(…).cuda()`: the operator before a copy's `to` on its thread makes a tensor on the CPU, and launches nothing."""
    frame = facts.frame
    copies = [row for row, name, length in zip(rows, names, size, strict=True)
              if "HtoD" in name and length != MISSING and length >= LEAST_BYTES and row not in used]
    if not copies:
        return
    calls = np.sort(frame["start_ns"][np.unique(frame.call[frame.work][frame.call[frame.work] >= 0])])
    operators = frame.of(Category.CPU_OP)
    track, depth = frame["track"][operators], frame["depth"][operators]
    mine = list[int]()
    for row in copies:
        outer = _whole_copy(facts, int(frame.operator[row]))
        if outer < 0:
            continue
        beside = operators[(track == frame["track"][outer]) & (depth == frame["depth"][outer])]
        index = int(np.searchsorted(frame["start_ns"][beside], frame["start_ns"][outer])) - 1
        while index >= 0 and frame.text(int(beside[index])) in _NOTHING:
            index -= 1
        before = int(beside[index]) if index >= 0 else -1
        if before < 0 or frame.text(before) not in _MAKERS:
            continue
        launched = np.searchsorted(calls, [frame["start_ns"][before], frame.end_ns[before]])
        if launched[0] == launched[1]:
            mine.append(row)
    if mine:
        yield Avoidable((), (0.0, 0.0), f"{len(mine):,} tensors are made on the host and copied to the GPU", rows=mine,
                        numbers={"copies": len(mine)})


def _whole_copy(facts: Facts, row: int) -> int:
    """Return the outermost of the operators that only copy around a row: `aten::to`; -1 where the innermost does more."""
    frame, out = facts.frame, -1
    while row >= 0 and frame.text(row) in _COPIES:
        out = row
        row = int(frame.enclosing(frame.parent[[row]], Category.CPU_OP)[0])
    return out
