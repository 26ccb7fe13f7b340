"""16-bit products whose weights have sizes that tensor cores cannot take as they lie."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.analysis.trace.layer.launches import precision_of
from profiles.analysis.trace.needed.avoidable import Avoidable, floor_ns, sizes_of
from profiles.analysis.trace.needed.facts import Facts, Item

MULTIPLE = 8                        # elements of 16 bits: 16 bytes (NVIDIA, Matrix Multiplication Background, section 3)
LEAST_SIZE = 256                    # of every dimension: smaller ones are rounded up within a tile anyway
SLOW = 0.5                          # of its ceiling: what reaches more has nothing to win
REACHED = (0.8, 0.55)               # that an aligned product of the padded size reaches, at best, at worst


def find(facts: Facts) -> Iterator[Avoidable]:
    mine, best, worst, odd = list[int](), 0.0, 0.0, set[int]()
    for position in facts.where("product"):
        item, sizes = facts.at(position), sizes_of(facts.at(position))
        if len(sizes) != 4 or item.work is None or item.work.dtype not in ("fp16", "bf16") or min(sizes[1:]) < LEAST_SIZE:
            continue
        batch, rows, columns, inner = sizes
        uneven = {size for size in _leading(item, rows, columns, inner) if size % MULTIPLE}
        ns = float(facts.ns[position])
        if not uneven or not float(facts.floor_ns[position]) < SLOW * ns:
            continue
        tall, wide, deep = (size + -size % MULTIPLE for size in (rows, columns, inner))
        floor = floor_ns(facts, position, 2.0 * batch * tall * wide * deep, 2.0 * batch * (tall * deep + deep * wide + tall * wide),
                         precision_of(item.work, item.kernel))
        if floor is None or floor / REACHED[1] >= ns:
            continue
        mine.append(position)
        odd |= uneven
        best, worst = best + floor / REACHED[0], worst + floor / REACHED[1]
    if mine:
        shown = ", ".join(f"{size:,} (to {size + -size % MULTIPLE:,})" for size in sorted(odd)[:3])
        yield Avoidable(mine, (best, worst), f"16-bit products have sizes that are no multiple of {MULTIPLE}: {shown}",
                        numbers={"launches": len(mine), "sizes": sorted(odd)[:8]})


def _leading(item: Item, rows: int, columns: int, inner: int) -> set[int]:
    """Return the sizes along which operands and result lie in memory, which must be even; without strides those of rows of each."""
    strides = [each for each in item.call.strides if isinstance(each, list) and len(each) >= 2]
    leading = {columns, inner}
    if len(strides) >= 2:
        first, second = strides[-2:]            # of addmm the first tensor is the bias
        leading = {columns, rows if first[-2] == 1 else inner, inner if second[-2] == 1 else columns}
    return leading
