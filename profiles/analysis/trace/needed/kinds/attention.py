"""Attention by a slower way than the GPU has: scores written to memory, slower kernels, masks as tensors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import prod

import numpy as np

from profiles.analysis.trace.layer.launches import precision_of
from profiles.analysis.trace.layer.work import Call
from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item, element_bytes, floor_ns, sizes_of, steps_of_names, times
from profiles.ingest.trace import Category

# Attention's scores written to memory: two products with a softmax between them, in place of one fused kernel.

LOOKED = 30                         # launches between a product and the softmax over its result
TILE = 64                           # queries that a fused kernel computes at once (FlashAttention's smallest)
LEAST_SCORES = 1 << 16              # elements: smaller ones stay in the caches
ORDERED = 2                         # such places at least, where the order of kernels alone tells (a replayed graph)
_BY_ORDER = ("copy", "elementwise", "fill", "reduction", "product_helper")     # between the softmax and its product: no top-k
_LOG = re.compile(r"LogSoftMax|softmax_warp_forward<[^>]*, \d+, true")
HELPERS = ("copy", "elementwise", "fill", "index", "softmax", "other", "reduction", "product_helper")


def find_scores(facts: Facts) -> Iterator[Avoidable]:
    avoidables = list(_find(facts))
    ordered = [avoidable for avoidable in avoidables if avoidable.numbers.get("by_order")]
    yield from (avoidable for avoidable in avoidables if len(ordered) >= ORDERED or not avoidable.numbers.get("by_order"))


def _find(facts: Facts) -> Iterator[Avoidable]:
    softmaxes = facts.fits(lambda item: _is_softmax(item) or item.role == "softmax_backward")
    for sequence, places in facts.places(softmaxes):
        last = -1
        for place in places:
            if place <= last:
                continue
            result = (_around if _is_softmax(facts.at(sequence[place])) else _backward)(facts, sequence, place)
            if result is not None:
                last, avoidable = result
                yield avoidable


def _is_softmax(item: Item) -> bool:
    return item.role == "softmax" or (item.is_fused and "softmax" in item.kernel[:300])


def _around(facts: Facts, sequence: list[int], index: int) -> tuple[int, Avoidable] | None:
    """The products around a softmax, where its rows are the first one's result and the second contracts them."""
    softmax = facts.at(sequence[index])
    first = _product(facts, sequence, index, -1)
    second = _product(facts, sequence, index, 1)
    if first is None or second is None or any(facts.taken[position] for position in sequence[first:second + 1]):
        return None
    a, b = facts.at(sequence[first]), facts.at(sequence[second])
    first_sizes, two = sizes_of(a), sizes_of(b)
    inside = sequence[first:second + 1]
    total = facts.total_ns(inside)
    if len(first_sizes) != 4 or len(two) != 4:
        by_order = _is_ordered(facts, sequence[first:second + 1], softmax)
        if softmax.shapes or a.shapes or not (by_order or _is_attention(a, b)):
            return None
        written = [position for position in inside[1:-1] if facts.at(position).role in HELPERS]
        middle = float(facts.total_ns(written))
        if not written or middle < 0.2 * total:
            return None
        return second, Avoidable(inside, (0.3 * (total - middle), float(total - middle)),
                                 "attention's scores are written to memory", certain=False,
                                 numbers={"by_order": 1} if by_order else {})
    batch, rows, columns, inner = first_sizes
    if two[0] != batch or two[1] != rows or two[3] != columns or batch * rows * columns < LEAST_SCORES or inner > 1024:
        return None
    if softmax.elements and softmax.elements != batch * rows * columns:
        return None
    claimed = [position for position in inside if position in (sequence[first], sequence[second])
               or (facts.at(position).role in HELPERS and (facts.at(position).elements or 0) >= rows * columns)]
    size = element_bytes(a)
    flop, moved = 4.0 * batch * rows * columns * inner, float(size * batch * inner * 2 * (rows + columns))
    precision = precision_of(a.work, a.kernel) if a.work else ""
    floor = floor_ns(facts, sequence[first], flop, moved, precision)
    whole = float(facts.total_ns(claimed))
    reason = fallback_reason(facts, sequence[first]) if a.is_within("_scaled_dot_product_attention_math") else ""
    return second, Avoidable(claimed, _stays(floor, whole, rows, columns, 0.4),
                             f"attention's scores are written to memory ({batch} × {rows} × {columns}"
                             f"{f'; no fused kernel takes {reason}' if reason else ''})",
                             _condition(facts, sequence, second, columns),
                             numbers={"batch": batch, "queries": rows, "keys": columns, "head_size": inner,
                                      "score_elements": batch * rows * columns})


def _condition(facts: Facts, sequence: list[int], second: int, columns: int) -> str:
    """Return what must hold where the scores are averaged over the heads behind it, as `nn.MultiheadAttention` does by default."""
    behind = (facts.at(position) for position in sequence[second + 1:second + 5])
    averaged = any(item.role == "reduction" and any(len(shape) == 4 and shape[-1] == columns for shape in item.shapes)
                   for item in behind)
    return "the mean of the scores over the heads is not read (`need_weights=False`)" if averaged else ""


def _stays(floor: float | None, whole: float, rows: int, columns: int, worst: float) -> tuple[float, float]:
    """Return what a fused kernel takes, best and worst.

    A causal mask may leave half of a square; fewer queries than TILE are padded.
    """
    if floor is None:
        return 0.0, whole / 2
    padded = max(1.0, TILE / rows)
    return min(whole, floor * padded / (2 if rows == columns else 1) / 0.9), min(whole, floor * padded / worst)


def _product(facts: Facts, sequence: list[int], position: int, step: int) -> int | None:
    """Return the place of the nearest product before or behind; None where an attention, a norm or nothing stands there."""
    for away in range(1, LOOKED):
        place = position + step * away
        if not 0 <= place < len(sequence):
            return None
        role = facts.at(sequence[place]).role
        if role == "product":
            return place
        if role not in HELPERS:
            return None
    return None


def _is_attention(a: Item, b: Item) -> bool:
    """Return whether two products without shapes are batched ones, as scores and their sum over values are."""
    return ("bmm" in a.path[:1] or "baddbmm" in a.path[:1]) and "bmm" in b.path[:1]


def _is_ordered(facts: Facts, inside: list[int], softmax: Item) -> bool:
    """Return whether launches without operators stand as attention's do: product, softmax, product; no loss and no router."""
    items = [facts.at(position) for position in inside]
    behind = items[items.index(softmax) + 1:-1]
    return not any(item.path or item.shapes for item in items) and not _LOG.search(softmax.kernel[:400]) \
        and all(item.role in _BY_ORDER for item in behind) and not any(item.role == "index" for item in items)


def _backward(facts: Facts, sequence: list[int], index: int) -> tuple[int, Avoidable] | None:
    """What the gradient of such an attention launches around its softmax's: all that holds as many elements as the scores."""
    softmax = facts.at(sequence[index])
    shape = next((dims for dims in softmax.shapes if len(dims) >= 3), ())
    if not shape or prod(shape) < LEAST_SCORES:
        return None
    rows, columns, batch = shape[-2], shape[-1], prod(shape[:-2])
    claimed, last = [], index
    for place in range(max(0, index - 10), min(len(sequence), index + 14)):
        position = sequence[place]
        item = facts.at(position)
        holds = any(prod(dims) == prod(shape) for dims in item.shapes)
        if facts.taken[position] or not facts.is_backward[position] or not holds:
            continue
        is_gradient = item.role == "product" and {rows, columns} & set(sizes_of(item)[1:])
        if is_gradient or item.role in (*HELPERS, "softmax_backward"):
            claimed.append(position)
            last = max(last, place)
    products = [facts.at(claim) for claim in claimed if facts.at(claim).role == "product"]
    if len(products) < 2:
        return None
    inner = min(min(sizes_of(product)[1:]) for product in products)
    whole = float(facts.total_ns(claimed))
    precision = precision_of(products[0].work, products[0].kernel) if products[0].work else ""
    floor = floor_ns(facts, sequence[index], 10.0 * batch * rows * columns * inner, 0.0, precision)
    return last, Avoidable(claimed, _stays(floor, whole, rows, columns, 0.35),
                           f"the gradient of attention's scores is written to memory ({batch} × {rows} × {columns})",
                           numbers={"batch": batch, "queries": rows, "keys": columns, "score_elements": batch * rows * columns})


# Attention by a slower kernel than the GPU has, and what of the call keeps it from the fast one.

_SDPA = "aten::scaled_dot_product_attention"
_EFFICIENT = ("_scaled_dot_product_efficient_attention", "_efficient_attention_forward")
FLASH_REACHED = (0.7, 0.4)          # of its ceiling that a FlashAttention kernel reaches, at best, at worst (arXiv 2407.08608)
MOST_HEAD = 256                     # that FlashAttention takes, in steps of 8 (PyTorch, sdp_utils.cpp)
LEAST_QUERIES = 64


def find_slower(facts: Facts) -> Iterator[Avoidable]:
    """Find memory-efficient attention whose call says why it is not FlashAttention: a mask, float32, a head size."""
    mine, best, worst, why = list[int](), 0.0, 0.0, Counter[str]()
    for position in facts.where("attention"):
        item, sizes = facts.at(position), sizes_of(facts.at(position))
        floor, ns = float(facts.floor_ns[position]), float(facts.ns[position])
        if facts.is_backward[position] or not item.is_within(*_EFFICIENT) or len(sizes) != 6 or sizes[3] < LEAST_QUERIES:
            continue
        reason = fallback_reason(facts, position)
        if not reason or np.isnan(floor) or floor >= FLASH_REACHED[1] * ns:
            continue
        mine.append(position)
        best, worst = best + min(ns, floor / FLASH_REACHED[0]), worst + min(ns, floor / FLASH_REACHED[1])
        why[reason] += 1
    if mine:
        yield Avoidable(mine, (best, worst),
                        f"attention runs in the memory-efficient kernel {len(mine):,} times, not in FlashAttention: "
                        f"{why.most_common(1)[0][0]}", numbers={"launches": len(mine), "why": dict(why)})


def fallback_reason(facts: Facts, position: int) -> str:
    """Return what of the `scaled_dot_product_attention` around a launch keeps it from FlashAttention, "" where nothing shows."""
    row = int(facts.frame.operator[int(facts.every.rows[position])])
    while row >= 0 and facts.frame.text(row) != _SDPA:
        row = int(facts.frame.enclosing(facts.frame.parent[[row]], Category.CPU_OP)[0])
    if row < 0:
        return ""
    call = Call(_SDPA, facts.frame.arguments(row))
    query, mask = call.tensor(0), call.tensor(3)
    if query is None or not query.shape:
        return ""
    if query.dtype in ("fp32", "fp64"):
        return f"{query.dtype} in place of 16 bits"
    if mask is not None and mask.shape:
        return f"a mask of {'×'.join(map(str, mask.shape))}"
    size = query.shape[-1]
    return f"heads of {size}" if size > MOST_HEAD or size % 8 else ""


# Masks of queries × keys built again in each layer.

_MAKERS = ("where", "masked_fill", "le", "lt", "ge", "gt", "eq", "ne", "tril", "triu", "logical_and", "logical_not", "bitwise_and",
           "bitwise_not", "full", "fill", "sub", "rsub")
FEWEST_MASKS = 3                          # times that one mask is built
LEAST_MASK = 1 << 18


def find_masks(facts: Facts) -> Iterator[Avoidable]:
    squares = _attended(facts)
    masks: dict[tuple[int, int], list[int]] = {}
    for position in facts.where("index", "elementwise", "fill", "copy"):
        item = facts.at(position)
        shape = max(item.shapes, key=prod, default=())
        is_mask = item.path and item.path[0].rstrip("_") in _MAKERS and len(shape) >= 2 and shape[-2:] in squares \
            and prod(shape[:-2]) <= 64 and prod(shape) >= LEAST_MASK and not facts.is_backward[position]
        if is_mask:
            masks.setdefault((shape[-2], shape[-1]), []).append(position)
    steps = steps_of_names(facts.frame.names)
    for square, mine in masks.items():
        often = Counter(facts.item[position] for position in mine)
        again = [position for position in mine if often[facts.item[position]] >= FEWEST_MASKS * steps]
        if again:
            total = float(facts.total_ns(again))
            yield Avoidable(again, (total / max(often.values()), 2 * total / FEWEST_MASKS),
                            f"a mask of {times(square)} is built again and again", numbers={"launches": len(again)})


def _attended(facts: Facts) -> set[tuple[int, int]]:
    """Return the queries and keys of every attention and softmax."""
    out = set[tuple[int, int]]()
    for item in facts.items:
        sizes = item.work.sizes if item.work else ()
        if item.role == "attention" and len(sizes) == 6 and sizes[3] > 1:
            out.add((sizes[3], sizes[4]))
        if item.role == "softmax":
            out |= {(shape[-2], shape[-1]) for shape in item.shapes if len(shape) >= 3 and shape[-2] > 1}
    return out


# Causal attention with its mask as a tensor: all pairs of queries and keys are computed, and the mask is read.

_TRIANGLES = ("tril", "triu", "tril_", "triu_", "le", "ge", "lt", "gt")    # what makes a causal mask, with its queries × keys
CAUSAL_REACHED = (0.9, 0.35)               # of the causal half's ceiling that a kernel without a mask reaches, at best, at worst
LEAST_TOKENS = 64
QKV = 3                             # an attention's first tensors, which are no mask whatever their shape


def find_causal(facts: Facts) -> Iterator[Avoidable]:
    """Find attention of as many queries as keys that reads a mask of that square, where the trace makes a triangle of it."""
    triangles = {shape[-1] for item in facts.items if item.path[:1] and item.path[0] in _TRIANGLES
                 for shape in item.shapes if len(shape) >= 2 and max(shape[-2:]) == shape[-1] and shape[-1] >= LEAST_TOKENS}
    mine, best, worst = list[int](), 0.0, 0.0
    for position in facts.where("attention"):
        item, sizes = facts.at(position), sizes_of(facts.at(position))
        square = len(sizes) == 6 and sizes[3] == sizes[4] and sizes[3] in triangles
        if not square or facts.is_backward[position] or item.work is None:
            continue
        masked = any(shape[-2:] == (sizes[3], sizes[4]) for shape in item.shapes[QKV:])
        floor, ns = float(facts.floor_ns[position]), float(facts.ns[position])
        if masked and "causal" not in item.work.text and not np.isnan(floor):
            mine.append(position)
            best, worst = best + min(ns, floor / 2 / CAUSAL_REACHED[0]), worst + min(ns, floor / 2 / CAUSAL_REACHED[1])
    if mine:
        tokens = sizes_of(facts.at(mine[0]))[3]
        yield Avoidable(mine, (best, worst), f"attention over {tokens:,} tokens reads a mask of {tokens} × {tokens}",
                        "the mask is causal, as the triangle that the trace makes",
                        numbers={"launches": len(mine), "tokens": tokens})
