"""Whole rows sorted, of which the largest few are read."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item

LEAST_ROW = 4_096                   # elements that are sorted together
BEHIND = 3                          # launches after a sort that read its result, if any does
_COMPUTES = ("softmax", "reduction", "elementwise", "product", "norm")
_SORTS = ("sort", "argsort", "msort")
_WHOLE = ("topk", "unique", "_unique2", "unique_consecutive", "median", "kthvalue", "index_put_", "_index_put_impl_", "randperm",
          "embedding_dense_backward", "multinomial")


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find sorts of floating-point rows of LEAST_ROW and more; a selection reads each element once or twice instead."""
    sorts = {sort for sort in facts.which(_row) if not facts.is_backward[sort]}
    mine = sorted(sorts - {sort for sequence in facts.sequences for sort in _read_whole(facts, sequence, sorts)})
    if not mine:
        return
    total, least = float(facts.total_ns(mine)), 0.0
    for position in mine:
        item, dram = facts.at(position), float(facts.dram_bytes_s[position])
        size = max((tensor.bytes or 0 for tensor in item.tensors), default=0)
        least += 1e9 * size / dram / max(1, _launches(facts, position)) if dram > 0 else 0.0
    row = max(_row(facts.at(position)) for position in mine)
    yield Avoidable(mine, (min(total, least), min(total, max(2 * least, 0.5 * total))),
                    f"rows of {row:,} elements are sorted whole",
                    "only the largest few of a row are read (top-p sampling reads them all)",
                    numbers={"launches": len(mine), "row": row})


def _read_whole(facts: Facts, sequence: list[int], sorts: set[int]) -> Iterator[int]:
    """Yield the launches of sorts right behind which something computes with whole rows: sums, probabilities, products of them."""
    run: list[int] = []
    for index, position in enumerate(sequence):
        if position in sorts:
            run.append(position)
            continue
        if run and any(facts.at(ahead).elements >= facts.at(run[-1]).elements and facts.at(ahead).role in _COMPUTES
                       for ahead in sequence[index:index + BEHIND]):
            yield from run
        run = []


def _row(item: Item) -> int:
    """Return the elements of a sorted row, 0 where the launch sorts none or what is sorted are numbers of rows."""
    if not any(name in _SORTS for name in item.path) or item.is_within(*_WHOLE):
        return 0
    value = next((tensor for tensor in item.tensors if tensor.shape and tensor.dtype in ("fp16", "bf16", "fp32", "fp64")), None)
    return value.shape[-1] if value is not None and value.shape[-1] >= LEAST_ROW else 0


def _launches(facts: Facts, position: int) -> int:
    """Return into how many launches a sort of one item is cut, so that its bytes count once."""
    same = facts.positions_of[facts.item[position]]
    return max(1, round(sum(1 for number in facts.item if facts.items[number].path == facts.at(position).path) / max(1, len(same))))
