"""Time steps, heads or elements one after the other: a loop in Python where one launch could do all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np

from profiles.analysis.trace.layer.work import Call
from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item, between, element_bytes, sizes_of
from profiles.ingest.arrays import Bools, Ints
from profiles.ingest.trace import Category

FEWEST_STEPS, FEWEST_HEADS, FEWEST_ELEMENTS = 8, 4, 32
HOST_SHARES = (0.4, 1.0)
_CELLS = ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
_PICKS = ("aten::select", "aten::slice", "aten::unbind", "aten::index")
MOST_APART = 12                     # launches from one head's attention to the next one's
MOST_PERIOD = 48                    # launches of one row
NEAR_NS = 50_000_000                # from what takes a tensor apart to the first row's launch
_SMALL = ("copy", "fill", "elementwise", "index", "reduction", "softmax", "cat", "other", "norm")


def find(facts: Facts) -> Iterator[Avoidable]:
    is_cell, is_one_head = facts.fits(_is_cell) & ~facts.is_backward, facts.fits(_is_one_head) & ~facts.is_backward
    is_small = facts.fits(lambda item: item.role in _SMALL) & ~facts.is_update
    for lane, sequence in zip(facts.lanes, facts.sequences, strict=True):
        yield from _cells(facts, lane[(is_cell & ~facts.taken)[lane]].tolist())
        yield from _heads(facts, sequence, np.flatnonzero((is_one_head & ~facts.taken)[lane]).tolist())
        yield from _elements(facts, lane, sequence)
        yield from _rows(facts, sequence, facts.number[lane], (is_small & ~facts.taken)[lane])


def _is_cell(item: Item) -> bool:
    return any(name.rstrip("_") in _CELLS or name in _CELLS for name in item.path)


def _cells(facts: Facts, mine: list[int]) -> Iterator[Avoidable]:
    """Recurrent cells called step by step: their products' weights are read again in each."""
    steps = sum(1 for position in mine if "cell" in facts.at(position).kernel[:200].lower()) or sum(
        1 for position in mine if facts.at(position).role == "product") // 2
    if steps < FEWEST_STEPS:
        return
    best, worst = between(None, float(facts.total_ns(mine)))
    yield Avoidable(mine, (best, 0.7 * worst), f"{steps:,} steps of recurrent cells are computed one after the other",
                    "no step's input is made of the one before", host_shares=HOST_SHARES, is_region=True,
                    numbers={"steps": steps, "launches": len(mine)})


def _heads(facts: Facts, sequence: list[int], places: list[int]) -> Iterator[Avoidable]:
    """Attention of one head after attention of one head, alike, with no norm or residual layer between them."""
    run: list[int] = []
    for place, after in pairwise([*places, len(sequence) * 2 + 1]):
        run.append(place)
        alike = after < len(sequence) and sizes_of(facts.at(sequence[after])) == sizes_of(facts.at(sequence[place]))
        if alike and after - place <= MOST_APART and not any(
                facts.at(position).role == "norm" for position in sequence[place:after]):
            continue
        if len(run) >= FEWEST_HEADS:
            mine = [sequence[head] for head in run]
            floor = sum(float(facts.floor_ns[position]) for position in mine)
            best, worst = between(floor if floor == floor else None, float(facts.total_ns(mine)))
            yield Avoidable(mine, (best, worst), f"{len(run):,} heads of attention are computed one after the other",
                            host_shares=HOST_SHARES, numbers={"heads": len(run), "launches": len(mine)})
        run = []


def _is_one_head(item: Item) -> bool:
    sizes = sizes_of(item)
    return item.role == "attention" and len(sizes) == 6 and sizes[1] == 1 and sizes[3] > 1


def _elements(facts: Facts, lane: Ints, sequence: list[int]) -> Iterator[Avoidable]:
    """The same small launch again and again while the host picks one element or row after the other (`for i in …: x[i]`)."""
    edges = np.flatnonzero(np.diff(facts.number[lane], prepend=-1, append=-1))
    for begin in np.flatnonzero(np.diff(edges) >= FEWEST_ELEMENTS).tolist():
        run = sequence[edges[begin]:edges[begin + 1]]
        if facts.at(run[0]).role not in ("copy", "fill", "elementwise", "index", "reduction", "product") or (
                facts.taken[run].any() or facts.is_update[run].any()):
            continue
        picks = _picks_between(facts, run[0], run[-1])
        if picks >= len(run) - 1:
            total = float(facts.total_ns(run))
            yield Avoidable(run, (total / len(run), 0.5 * total),
                            f"{len(run):,} elements or rows are picked and worked on one after the other", host_shares=HOST_SHARES,
                            is_region=True, numbers={"launches": len(run)})


def _rows(facts: Facts, sequence: list[int], items: Ints, fits: Bools) -> Iterator[Avoidable]:
    """The same few small launches again and again, a row each (`for row in x: …`): as many picks, or one `unbind` into as many."""
    until = 0
    for begin, period, rounds in sorted(_repeats(items, fits)):
        if begin < until:
            continue                        # part of what repeats with another period
        until = begin + period * rounds
        run = sequence[begin:until]
        if _picks_between(facts, run[0], run[-1]) >= rounds - 1 or _unbound(facts, run[0], rounds):
            total = float(facts.total_ns(run))
            yield Avoidable(run, (total / rounds, 0.5 * total), f"{rounds:,} rows are worked on one after the other, "
                            f"{period} launches each", host_shares=HOST_SHARES, is_region=True,
                            numbers={"rows": rounds, "launches": len(run)})


def _repeats(items: Ints, fits: Bools) -> Iterator[tuple[int, int, int]]:
    """Yield where launches that fit repeat with a period from 2 to MOST_PERIOD, the period, and how often: FEWEST_ELEMENTS or more.

    One pass over the launches for each period, whatever they are: many alike cost no more than many different ones.
    """
    for period in range(2, min(MOST_PERIOD, len(items) // FEWEST_ELEMENTS) + 1):
        same = (items[period:] == items[:-period]) & fits[period:] & fits[:-period]
        edges = np.diff(np.concatenate([[False], same, [False]]).astype(np.int8))
        for begin, end in zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True):
            rounds = (end - begin + period) // period
            if rounds >= FEWEST_ELEMENTS and len(set(items[begin:begin + period].tolist())) > 1:
                yield begin, period, rounds


def _unbound(facts: Facts, first: int, rounds: int) -> bool:
    """Return whether the host took a tensor apart into as many before the launch of a position: `for row in x`."""
    call = int(facts.frame.call[facts.every.rows[first]])
    if call < 0:
        return False
    start = int(facts.frame["start_ns"][call])
    rows = facts.frame.rows_by_name(lambda name: name == "aten::unbind", Category.CPU_OP)
    near = [row for row in rows.tolist() if 0 <= start - int(facts.frame["start_ns"][row]) <= NEAR_NS]
    return any(rounds in tensor.shape for row in near for tensor in Call("aten::unbind", facts.frame.arguments(row)).tensors()[:1])


def _picks_between(facts: Facts, first: int, last: int) -> int:
    """Return how many selections the host made between the launches of two positions, 0 where that is not known."""
    calls = facts.frame.call[facts.every.rows[[first, last]]]
    if (calls < 0).any():
        return 0
    start, end = facts.frame["start_ns"][calls].tolist()
    rows = facts.frame.rows_by_name(lambda name: name in _PICKS, Category.CPU_OP)
    start_ns = facts.frame["start_ns"][rows]
    return int(((start_ns >= start) & (start_ns <= end)).sum())


# Samples computed one by one, each with launches of its own, in place of one batch; a text computed again for each next token.

FEWEST_SAMPLES = 8                          # samples in a row
FEWEST_TOKENS = 3
LEAST_TOKENS = 8                    # of a sample: single tokens follow from one another


def find_samples(facts: Facts) -> Iterator[Avoidable]:
    """Find embeddings of one sample again and again, with as many launches between them each time."""
    for sequence, places in facts.places(_begins(facts)):
        for run in _runs(places, len(sequence)):
            if not _grows(facts, sequence, run) and len(run) >= FEWEST_SAMPLES:
                yield _sample_loop(facts, sequence[run[0]:min(len(sequence), run[-1] + run[1] - run[0])], len(run))


def find_texts(facts: Facts) -> Iterator[Avoidable]:
    """Find embeddings of a text that grows by one token each time: without a cache all of it is computed again for the next."""
    for sequence, places in facts.places(_begins(facts)):
        for run in _runs(places, len(sequence)):
            if len(run) >= FEWEST_TOKENS and _grows(facts, sequence, run):
                again = sequence[run[1]:min(len(sequence), run[-1] + run[1] - run[0])]
                texts = _sample_rows(facts, sequence[run[1]]) - _sample_rows(facts, sequence[run[0]])
                tokens = _sample_rows(facts, sequence[run[0]]) // texts
                weights = sum(_weight_ns(facts, position) for position in again)
                total = float(facts.total_ns(again))
                yield Avoidable(again, (min(total, weights), min(total, 2 * weights)),
                                f"a text of {tokens:,} tokens is computed again for each of {len(run) - 1:,} next ones",
                                host_shares=(0.0, 0.0), numbers={"tokens": len(run) - 1, "before": tokens, "texts": texts})


def _runs(places: list[int], length: int) -> Iterator[list[int]]:
    """Yield places of embeddings with as many launches between them each time."""
    run: list[int] = []
    for place, after in pairwise([*places, length + length]):
        run.append(place)
        if len(run) > 1 and after - place != run[1] - run[0]:
            yield run
            run = []


def _grows(facts: Facts, sequence: list[int], run: list[int]) -> bool:
    """Return whether each embedding reads as many rows more than the one before: a token more of each text."""
    rows = [_sample_rows(facts, sequence[place]) for place in run]
    return len(run) > 1 and rows[0] < rows[1] and rows[0] % (rows[1] - rows[0]) == 0 and all(
        after - before == rows[1] - rows[0] for before, after in pairwise(rows))


def _sample_rows(facts: Facts, position: int) -> int:
    """Return how many rows of its table an embedding reads, 0 unknown: from its indices, or from what it wrote."""
    table, other = (*facts.at(position).shapes[:2], (), ())[:2]
    if not table or not other:
        return 0
    return prod(other[:-1]) if len(other) > 1 and other[-1] == table[-1] else prod(other)


def _weight_ns(facts: Facts, position: int) -> float:
    """Return what a product's weights take to be read, ns: one token more needs that."""
    item, sizes, dram = facts.at(position), sizes_of(facts.at(position)), float(facts.dram_bytes_s[position])
    size = element_bytes(item)
    is_weighted = item.role == "product" and len(sizes) == 4 and sizes[0] == 1
    return 1e9 * size * sizes[2] * sizes[3] / dram if is_weighted and dram > 0 else 0.0


def _begins(facts: Facts) -> Bools:
    """Return which launches embed a sample."""
    return facts.fits(_is_embedding) & ~facts.is_backward & ~facts.taken


def _is_embedding(item: Item) -> bool:
    rows = [shape[0] for shape in item.shapes[1:2] if len(shape) == 2]
    return "embedding" in item.path and item.role == "index" and bool(rows) and rows[0] >= LEAST_TOKENS


def _sample_loop(facts: Facts, positions: list[int], samples: int) -> Avoidable:
    """What stays: the products of all samples at the GPU's peak with the weights read once, and of the rest half at most."""
    products = [position for position in positions if facts.at(position).role in ("product", "attention", "convolution")]
    least = float(np.nansum(facts.floor_ns[products])) / samples
    total = float(facts.total_ns(positions))
    return Avoidable(positions, (min(total, least), 0.7 * total), f"{samples:,} samples are computed one after the other",
                     "they do not follow from one another", host_shares=HOST_SHARES, is_region=True,
                     numbers={"samples": samples, "launches": len(positions)})
