"""Time steps, heads or elements one after the other: a loop in Python where one launch could do all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from profiles.analysis.trace.needed.avoidable import Avoidable, between, sizes_of
from profiles.analysis.trace.needed.facts import Facts
from profiles.ingest.trace import Category

FEWEST_STEPS, FEWEST_HEADS, FEWEST_ELEMENTS = 8, 4, 32
HOST_SHARES = (0.4, 1.0)
_CELLS = ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
_PICKS = ("aten::select", "aten::slice", "aten::unbind", "aten::index")
MOST_APART = 12                     # launches from one head's attention to the next one's


def find(facts: Facts) -> Iterator[Avoidable]:
    for sequence in facts.sequences:
        yield from _cells(facts, sequence)
        yield from _heads(facts, sequence)
        yield from _elements(facts, sequence)


def _cells(facts: Facts, sequence: list[int]) -> Iterator[Avoidable]:
    """Recurrent cells called step by step: their products' weights are read again in each."""
    mine = [position for position in sequence if not facts.taken[position] and not facts.is_backward[position]
            and any(name.rstrip("_") in _CELLS or name in _CELLS for name in facts.at(position).path)]
    steps = sum(1 for position in mine if "cell" in facts.at(position).kernel[:200].lower()) or sum(
        1 for position in mine if facts.at(position).role == "product") // 2
    if steps < FEWEST_STEPS:
        return
    best, worst = between(None, float(facts.total_ns(mine)))
    yield Avoidable(mine, (best, 0.7 * worst), f"{steps:,} steps of recurrent cells are computed one after the other",
                    "no step's input is made of the one before", host_shares=HOST_SHARES, is_region=True,
                    numbers={"steps": steps, "launches": len(mine)})


def _heads(facts: Facts, sequence: list[int]) -> Iterator[Avoidable]:
    """Attention of one head after attention of one head, alike, with no norm or residual layer between them."""
    run: list[int] = []
    places = [at for at, position in enumerate(sequence) if _is_one_head(facts, position)]
    for at, after in pairwise([*places, len(sequence) * 2 + 1]):
        run.append(at)
        alike = after < len(sequence) and sizes_of(facts.at(sequence[after])) == sizes_of(facts.at(sequence[at]))
        if alike and after - at <= MOST_APART and not any(
                facts.at(each).role == "norm" for each in sequence[at:after]):
            continue
        if len(run) >= FEWEST_HEADS:
            mine = [sequence[each] for each in run]
            floor = sum(float(facts.floor_ns[each]) for each in mine)
            best, worst = between(floor if floor == floor else None, float(facts.total_ns(mine)))
            yield Avoidable(mine, (best, worst), f"{len(run):,} heads of attention are computed one after the other",
                            host_shares=HOST_SHARES, numbers={"heads": len(run), "launches": len(mine)})
        run = []


def _is_one_head(facts: Facts, position: int) -> bool:
    sizes = sizes_of(facts.at(position))
    return facts.at(position).role == "attention" and len(sizes) == 6 and sizes[1] == 1 and sizes[3] > 1 \
        and not facts.taken[position] and not facts.is_backward[position]


def _elements(facts: Facts, sequence: list[int]) -> Iterator[Avoidable]:
    """The same small launch again and again while the host picks one element or row after the other (`for i in …: x[i]`)."""
    at = 0
    while at < len(sequence):
        end = at + 1
        while end < len(sequence) and facts.item[sequence[end]] == facts.item[sequence[at]]:
            end += 1
        run = sequence[at:end]
        item = facts.at(sequence[at])
        at = end
        if len(run) < FEWEST_ELEMENTS or item.role not in ("copy", "fill", "elementwise", "index", "reduction") or any(
                facts.taken[each] or facts.is_update[each] for each in run):
            continue
        picks = _picks_between(facts, run[0], run[-1])
        if picks >= len(run) - 1:
            total = float(facts.total_ns(run))
            yield Avoidable(run, (total / len(run), 0.5 * total),
                            f"{len(run):,} elements or rows are picked and worked on one after the other", host_shares=HOST_SHARES,
                            is_region=True, numbers={"launches": len(run)})


def _picks_between(facts: Facts, first: int, last: int) -> int:
    """Return how many selections the host made between the launches of two positions, 0 where that is not known."""
    calls = facts.frame.call[facts.every.rows[[first, last]]]
    if (calls < 0).any():
        return 0
    start, end = facts.frame["start_ns"][calls].tolist()
    rows = facts.frame.rows_by_name(lambda name: name in _PICKS, Category.CPU_OP)
    at = facts.frame["start_ns"][rows]
    return int(((at >= start) & (at <= end)).sum())
