"""Products that take more than they need: sizes, operands and weights as tensor cores do not like them, adapters beside them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np

from profiles.analysis.trace.layer.launches import precision_of
from profiles.analysis.trace.needed.facts import (
    ROOF_SHARES,
    Avoidable,
    Facts,
    Item,
    element_bytes,
    floor_ns,
    is_plain_product,
    sizes_of,
    times,
)

# 16-bit products whose weights have sizes that tensor cores cannot take as they lie.

MULTIPLE = 8                        # elements of 16 bits: 16 bytes (NVIDIA, Matrix Multiplication Background, section 3)
LEAST_SIZE = 256                    # of every dimension: smaller ones are rounded up within a tile anyway
SLOW_UNEVEN = 0.5                          # of its ceiling: what reaches more has nothing to win
REACHED = (0.8, 0.55)               # that an aligned product of the padded size reaches, at best, at worst


def find_uneven(facts: Facts) -> Iterator[Avoidable]:
    mine, best, worst, odd = list[int](), 0.0, 0.0, set[int]()
    for position in facts.where("product"):
        item, sizes = facts.at(position), sizes_of(facts.at(position))
        if len(sizes) != 4 or item.work is None or item.work.dtype not in ("fp16", "bf16") or min(sizes[1:]) < LEAST_SIZE:
            continue
        batch, rows, columns, inner = sizes
        uneven = {size for size in _leading(item, rows, columns, inner) if size % MULTIPLE}
        ns = float(facts.ns[position])
        if not uneven or not float(facts.floor_ns[position]) < SLOW_UNEVEN * ns:
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
    strides = [stride for stride in item.call.strides if isinstance(stride, list) and len(stride) >= 2]
    leading = {columns, inner}
    if len(strides) >= 2:
        first, second = strides[-2:]            # of addmm the first tensor is the bias
        leading = {columns, rows if first[-2] == 1 else inner, inner if second[-2] == 1 else columns}
    return leading


# Products one after the other that read the same tensor: query, key and value, gate and up projections of one layer.

SLOW = 0.5                          # of its ceiling: what reaches more has little to win from being wider
FEWEST_SHARED = 4                          # such groups
MOST = 6                            # in one layer; more of one shape in a row are a benchmark
LOOKED_TO_ATTENTION = 24                   # launches to the attention that reads three of square weights
BETWEEN = ("product_helper",)


def find_shared(facts: Facts) -> Iterator[Avoidable]:
    """Find runs of products m×n×k of one m and k with nothing between them, that reach less than half of their ceiling together.

    A product of square weights may read the result of the one before: a group of such alone is three before an attention. One wide
    product reaches at worst the share of its ceiling that the best of the group reaches.
    """
    claimed, best, worst, groups, widths = list[int](), 0.0, 0.0, 0, set[tuple[int, ...]]()
    for sequence, places in facts.places(facts.fits(_begins_group) & ~facts.taken):
        end = 0
        for place in places:
            if place < end:
                continue
            group, end = _group(facts, sequence, place)
            if len(group) < 2:
                continue
            products = [position for position in group if facts.at(position).role == "product"]
            stays = _stays(facts, products)
            if stays is not None:
                claimed += group
                best, worst, groups = best + stays[0], worst + stays[1], groups + 1
                widths.add(tuple(sizes_of(facts.at(product))[2] for product in products))
    if groups >= FEWEST_SHARED:
        launches = sum(1 for position in claimed if facts.at(position).role == "product")
        widest: tuple[int, ...] = max(widths, key=len)
        shown = " + ".join(map(str, widest))
        yield Avoidable(claimed, (best, worst),
                        f"products of {shown} columns read the same tensor one after the other, {groups:,} times",
                        "their weights are kept as one", certain=False, host_shares=(0.0, 1.0 - groups / launches),
                        numbers={"launches": len(claimed), "groups": groups})


def _begins_group(item: Item) -> bool:
    """Return whether a launch is one product; in a grouped one each group of rows has weights of its own."""
    return is_plain_product(item) and sizes_of(item)[0] == 1 and sizes_of(item)[1] >= 1 and not item.is_within(
        "_grouped_mm", "_scaled_grouped_mm")


def _group(facts: Facts, sequence: list[int], at: int) -> tuple[list[int], int]:
    """Return the launches of a run of products of one m and k that begins at a place, and the place behind it; [] where none does.

    What another kind claims between them goes.
    """
    first = sizes_of(facts.at(sequence[at]))
    out, squares, products, last, end = list[int](), 0, 0, 0, at + 1
    for place in range(at, min(len(sequence), at + LOOKED_TO_ATTENTION)):
        position = sequence[place]
        item, sizes = facts.at(position), sizes_of(facts.at(position))
        if facts.taken[position] and item.role != "product":
            continue
        if facts.taken[position] or facts.is_backward[position] or facts.is_update[position]:
            break
        if item.role == "product" and len(sizes) == 4 and (sizes[0], sizes[1], sizes[3]) == (1, first[1], first[3]):
            squares += sizes[2] == sizes[3]
            products += 1
        elif item.role not in BETWEEN:
            break
        out.append(position)
        last, end = len(out), place + 1
    if not 2 <= products <= MOST:
        return [], end
    behind = {facts.at(ahead).role for ahead in sequence[end:end + LOOKED_TO_ATTENTION]}
    is_group = squares < products or (products == 3 and bool({"attention", "softmax"} & behind))
    return out[:last] if is_group else [], end


def _stays(facts: Facts, products: list[int]) -> tuple[float, float] | None:
    """Return what one wide product takes at best and at worst; None where the group is fast already."""
    _, rows, _, inner = sizes_of(facts.at(products[0]))
    columns = sum(sizes_of(facts.at(product))[2] for product in products)
    item, floors = facts.at(products[0]), facts.floor_ns[products]
    if item.work is None or np.isnan(floors).any():
        return None
    size = element_bytes(item)
    moved = size * (rows * inner + inner * columns + rows * columns)
    floor = floor_ns(facts, products[0], 2.0 * rows * columns * inner, float(moved), precision_of(item.work, item.kernel))
    total = float(facts.total_ns(products))
    if floor is None or floor >= SLOW * total:
        return None
    reached = float((floors / np.maximum(1, facts.ns[products])).max())
    return min(total, floor / ROOF_SHARES[0]), min(total, floor / max(reached, 1e-6))


# Operands copied right before a product that could read them as they lie: transposed, cut out of a larger tensor, or expanded.

LOOKED_AHEAD = 4                    # launches between the copy and its product
LEAST_ELEMENTS = 1 << 18


def find_copied(facts: Facts) -> Iterator[Avoidable]:
    """Find copies of one type whose source a library's product takes: one stride of its last two dimensions is 1, or one is 0.

    cuBLAS takes each operand transposed or not, with a leading dimension, and one stride between the matrices of a batch
    (cuBLAS documentation, cublasGemmStridedBatchedEx). Strides are needed: `record_shapes=True` of PyTorch 2.2 and later.
    """
    mine: dict[str, list[int]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for sequence, places in facts.places(facts.fits(_how) & ~facts.taken & ~facts.is_update):
        for place in places:
            position, how = sequence[place], _how(facts.at(sequence[place]))
            if how == "expanded" and facts.is_backward[position]:
                continue
            shape = facts.at(position).shapes[0]
            for ahead, after in enumerate(sequence[place + 1:place + 1 + LOOKED_AHEAD]):
                sizes = sizes_of(facts.at(after))
                if facts.at(after).role == "product" and len(sizes) == 4:
                    if _is_operand(shape, sizes) or (not ahead and _is_folded(shape, sizes)):
                        mine.setdefault(how, []).append(position)
                        shapes.setdefault(how, shape)
                    break
    for how, positions in mine.items():
        yield Avoidable(positions, (0.0, 0.0),
                        f"{how} operands are copied before their products {len(positions):,} times ({times(shapes[how])})",
                        numbers={"launches": len(positions), "how": how})


def _how(item: Item) -> str:
    """Return how the source of a copy lies that a product could read: "transposed", "cut out", "expanded"; "" else."""
    strides = item.call.strides[1] if len(item.call.strides) > 1 else None
    if item.role != "copy" or len(item.shapes) < 2 or item.elements < LEAST_ELEMENTS or not isinstance(strides, list):
        return ""
    target, source = item.tensors[0], item.tensors[1]
    shape = source.shape
    if target.dtype != source.dtype or target.shape != shape or not 2 <= len(shape) <= 4 or len(strides) != len(shape):
        return ""
    if not all(type(stride) is int and stride >= 0 for stride in strides):
        return ""
    if any(stride == 0 and size > 1 for stride, size in zip(strides, shape, strict=True)):
        return "expanded"
    rows, columns = strides[-2:]
    batches = [(size, stride) for size, stride in zip(shape[:-2], strides[:-2], strict=True) if size > 1]
    if any(outer[1] != inner[0] * inner[1] for outer, inner in pairwise(batches)):
        return ""                       # no single stride between the matrices
    if rows == 1 and columns >= shape[-2] and shape[-2] > 1:
        return "transposed"
    return "cut out" if columns == 1 and rows > shape[-1] and not batches else ""


def _is_operand(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    batch, rows, columns, inner = sizes
    many = prod(shape[:-2])
    matrices = {(rows, inner), (inner, rows), (inner, columns), (columns, inner)}
    return many in (1, batch) and shape[-2:] in matrices


def _is_folded(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Return whether a batch of matrices is the rows of one product; what lies between could read it as well."""
    batch, rows, _, inner = sizes
    return batch == 1 and len(shape) > 2 and (prod(shape[:-1]), shape[-1]) == (rows, inner)


# Low-rank adapters beside their products: two thin products, a scaling and a sum for each weight.

MOST_RANK = 256
LEAST_TIMES = 8                     # that a weight is wider than the adapter's rank
LOOKED = 8                          # launches between the two thin products, and to the sum
FEWEST_ADAPTERS = 4


def find_adapters(facts: Facts) -> Iterator[Avoidable]:
    """Find pairs m×r×k, m×n×r of a small r beside a product m×n×k, with what scales and adds their result."""
    claimed, pairs, ranks = list[int](), 0, set[int]()
    for sequence, places in facts.places(facts.fits(_is_thin) & ~facts.taken & ~facts.is_backward):
        end = 0
        for place in places:
            pair = _pair(facts, sequence, place) if place >= end else None
            if pair is None:
                continue
            positions, rank, end = pair
            claimed += positions
            pairs += 1
            ranks.add(rank)
    if pairs >= FEWEST_ADAPTERS:
        training = facts.has_backward
        condition = "they are trained: only fusing helps" if training else "one adapter serves all, and is merged into the weights"
        yield Avoidable(claimed, (0.0, (0.6 if training else 0.4) * facts.total_ns(claimed)),
                        f"{pairs:,} adapters of rank {', '.join(map(str, sorted(ranks)[:3]))} run beside their weights", condition,
                        numbers={"adapters": pairs, "launches": len(claimed)})


def _is_thin(item: Item) -> bool:
    return is_plain_product(item) and 1 < sizes_of(item)[2] <= MOST_RANK and sizes_of(item)[3] >= LEAST_TIMES * sizes_of(item)[2]


def _pair(facts: Facts, sequence: list[int], at: int) -> tuple[list[int], int, int] | None:
    _, rows, rank, inner = sizes_of(facts.at(sequence[at]))
    for place in range(at + 1, min(len(sequence), at + LOOKED)):
        up = sizes_of(facts.at(sequence[place]))
        if facts.at(sequence[place]).role != "product" or len(up) != 4:
            continue
        if up[1] != rows or up[3] != rank or up[2] < LEAST_TIMES * rank or not _has_base(facts, sequence, at, rows, up[2], inner):
            return None
        end = place
        for behind in range(place + 1, min(len(sequence), place + 4)):      # scaled and added
            other = facts.at(sequence[behind])
            if other.role != "elementwise" or other.elements != rows * up[2]:
                break
            end = behind
        return [position for position in sequence[at:end + 1] if facts.at(position).role != "attention"], rank, end + 1
    return None


def _has_base(facts: Facts, sequence: list[int], index: int, rows: int, columns: int, inner: int) -> bool:
    near = range(max(0, index - LOOKED), min(len(sequence), index + LOOKED))
    return any(sizes_of(facts.at(sequence[place]))[1:] == (rows, columns, inner) for place in near)
