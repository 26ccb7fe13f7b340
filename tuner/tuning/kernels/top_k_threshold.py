"""The K largest of each row without sorting: a threshold, what reaches it in its order, and the rank of each of those.

Numbers are read twice, and stay in the caches between. The K-th largest of the maxima of groups of columns is no larger than the
K-th largest number, and few numbers reach it. Where more do than there are slots, as in rows of equal numbers, the K-th largest
number itself is found bit by bit (radix selection: Alabi and others, ACM JEA 2012). SPLIT programs share a row, each a run of its
columns; a second kernel does the same with what all left. Nothing changes its place among its equals, so that the first columns
of them are kept.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.tuning.kernels.extents import in_units


@triton.jit
def _ordered(v, valid, WIDE: tl.constexpr):
    """int32 in the order of the values: of 16 bits 0 … 65535, of 32 bits all but the least; what is not valid is below all."""
    if WIDE:
        bits = v.to(tl.int32, bitcast=True)
        bits = tl.where(bits == -2147483648, 0, bits)                       # of −0 and 0 neither is larger
        return tl.where(valid, tl.maximum(bits ^ ((bits >> 31) & 0x7FFFFFFF), -2147483647), -2147483648)
    else:
        bits = v.to(tl.int16, bitcast=True).to(tl.int32)
        bits = tl.where(bits == -32768, 0, bits)
        return tl.where(valid, (bits ^ ((bits >> 15) & 0x7FFF)) + 32768, -1)


@triton.jit
def _valued(keys, WIDE: tl.constexpr, DTYPE: tl.constexpr):
    """The values of ordered numbers, in float32."""
    if WIDE:
        return (keys ^ ((keys >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    else:
        bits = keys - 32768
        return (bits ^ ((bits >> 15) & 0x7FFF)).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)


@triton.jit
def _read(x, i, stop, AGAIN: tl.constexpr, WIDE: tl.constexpr):
    """Ordered numbers: of values, or AGAIN those that other programs left."""
    if AGAIN:
        return tl.load(x + i, mask=i < stop, other=-2147483648 if WIDE else -1, cache_modifier=".cg")
    else:
        return _ordered(tl.load(x + i, mask=i < stop, other=0.0), i < stop, WIDE)


@triton.jit
def _higher(found, bit, count, k):
    return tl.where(count >= k, found ^ bit, found), (bit >> 1) & 0x7FFFFFFF


@triton.jit
def _count(x, first, stop, least, BLOCK: tl.constexpr, AGAIN: tl.constexpr, WIDE: tl.constexpr):
    """How many numbers of first … stop are `least` or larger."""
    count = tl.zeros((BLOCK,), tl.int32)
    for o in range(first, stop, BLOCK):
        count += (_read(x, o + tl.arange(0, BLOCK), stop, AGAIN, WIDE) >= least).to(tl.int32)
    return tl.sum(count, 0)


@triton.jit
def _bound(x, first, stop, k, BLOCK: tl.constexpr, GROUP: tl.constexpr, AGAIN: tl.constexpr, WIDE: tl.constexpr):
    """The higher 16 bits of the k-th largest of the maxima of groups: no more than the k-th largest number."""
    lowest: tl.constexpr = -2147483648 if WIDE else -1
    best = tl.full((BLOCK,), lowest, tl.int32)
    for o in range(first, stop, BLOCK):
        best = tl.maximum(best, _read(x, o + tl.arange(0, BLOCK), stop, AGAIN, WIDE))
    maxima = tl.max(tl.reshape(best, (BLOCK // GROUP, GROUP)), 1)
    least, bit = tl.full((), -2147483648 if WIDE else 0, tl.int32), tl.full((), -2147483648 if WIDE else 32768, tl.int32)
    for _ in range(16):
        least = tl.where(tl.sum((maxima >= (least ^ bit)).to(tl.int32), 0) >= k, least ^ bit, least)
        bit = (bit >> 1) & 0x7FFFFFFF
    return tl.maximum(least, lowest + 1)


@triton.jit
def _largest(x, places, first, stop, k, keys_at, places_at, SLOTS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
             AGAIN: tl.constexpr, WIDE: tl.constexpr):
    """Leave the k largest of first … stop, and some more, in slots; the slots that are not needed hold what is below all."""
    lowest: tl.constexpr = -2147483648 if WIDE else -1
    tl.store(keys_at + tl.arange(0, SLOTS), tl.full((SLOTS,), lowest, tl.int32))
    least = _bound(x, first, stop, k, BLOCK, GROUP, AGAIN, WIDE)
    larger = 0                                                              # numbers that stand before those at the threshold
    if _count(x, first, stop, least, BLOCK, AGAIN, WIDE) > SLOTS:
        least, bit = tl.full((), -2147483648 if WIDE else 0, tl.int32), tl.full((), -2147483648 if WIDE else 32768, tl.int32)
        for _ in range(32 if WIDE else 16):
            least = tl.where(_count(x, first, stop, least ^ bit, BLOCK, AGAIN, WIDE) >= k, least ^ bit, least)
            bit = (bit >> 1) & 0x7FFFFFFF
        least = tl.maximum(least, lowest + 1)
        larger = _count(x, first, stop, least + 1, BLOCK, AGAIN, WIDE)
    # without the count of the larger ones all reach it alike
    tl.debug_barrier()
    above, level = tl.full((), 0, tl.int32), larger
    exact = larger > 0
    for o in range(first, stop, BLOCK):
        i = o + tl.arange(0, BLOCK)
        keys = _read(x, i, stop, AGAIN, WIDE)
        reached, equal = keys >= least, (keys == least) & exact
        hits = tl.where(equal, 65536, reached.to(tl.int32))
        counts = tl.cumsum(hits, 0) - hits
        place = tl.where(equal, level + (counts >> 16), above + (counts & 0xFFFF))
        total = tl.sum(hits, 0)
        if total > 0:
            kept = reached & (place < SLOTS)
            column = tl.load(places + i, mask=kept, other=0, cache_modifier=".cg") if AGAIN else i
            tl.store(keys_at + place, keys, mask=kept)
            tl.store(places_at + place, column, mask=kept)
        above, level = above + (total & 0xFFFF), level + (total >> 16)


@triton.jit
def top_k_candidates(x, work, rows, cols, k, SPLIT: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
                     GROUP: tl.constexpr, WIDE: tl.constexpr, UNIT: tl.constexpr):
    """work: the keys of each program's slots and of each row's, then their columns."""
    cols = in_units(cols, UNIT)
    row, part = tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT
    each = tl.cdiv(cols, SPLIT * 64) * 64                                   # whole loads of 16 bytes
    keys, places = work, work + rows * (SPLIT + 1) * SLOTS
    at = tl.program_id(0) * SLOTS
    _largest(x + row * cols, places, part * each, tl.minimum(part * each + each, cols), k, keys + at, places + at,
             SLOTS, BLOCK, GROUP, False, WIDE)


@triton.jit
def top_k_ranks(x, values, columns, work, rows, k, SPLIT: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
                GROUP: tl.constexpr, WIDE: tl.constexpr):
    """Put each of a row's candidates where as many stand before it as are larger, or equal and of an earlier column."""
    row = tl.program_id(0)
    keys, places = work + row * SPLIT * SLOTS, work + (rows * (SPLIT + 1) + row * SPLIT) * SLOTS
    if SPLIT > 1:
        at = (rows * SPLIT + row) * SLOTS
        mine, there = work + at, work + rows * (SPLIT + 1) * SLOTS + at
        _largest(keys, places, 0, SPLIT * SLOTS, k, mine, there, SLOTS, BLOCK, GROUP, True, WIDE)
        keys, places = mine, there
        tl.debug_barrier()
    j = tl.arange(0, SLOTS)
    key, column = tl.load(keys + j, cache_modifier=".cg"), tl.load(places + j, cache_modifier=".cg")
    other, others = key[None, :], column[None, :]
    before = (other > key[:, None]) | ((other == key[:, None]) & (others < column[:, None]))
    rank = tl.sum(before.to(tl.int32), 1)
    kept = (key > (-2147483648 if WIDE else -1)) & (rank < k)
    tl.store(values + row * k + rank, _valued(key, WIDE, x.dtype.element_ty), mask=kept)
    tl.store(columns + row * k + rank, column.to(tl.float32), mask=kept)
