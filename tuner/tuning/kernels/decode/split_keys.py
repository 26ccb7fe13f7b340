"""How programs that share the keys of a sequence meet: each leaves what its keys make of the heads, the last ones add that up.

The last of FAN programs to finish adds up what they left, and the last of all what those did: one launch, nobody waits, always in
the same order. Each head has a slot for what it left: a sum of D numbers, the maximum of its scores and the sum's divisor.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.tuning.kernels.matmul_parts import came_last

LOG2_E = 1.4426950408889634          # the kernels work with exp2
FAN = 8                              # parts of a sequence that one program adds up
VALUES_OF_PART = 32                  # of a thread at most, or it reads no four parts at a time


def slots(splits: int) -> tuple[int, int]:
    """Return the slots that `splits` programs and those that add up need for a group of heads, and the counts."""
    bunches = -(-splits // FAN) if splits > FAN else 0
    return splits + bunches, bunches + 1


def parts_at_once(heads: int, head: int, warps: int) -> int:
    """Return how many parts, heads × head numbers each, a program of so many warps reads before it adds them: 1 or 4."""
    return 4 if heads * head <= VALUES_OF_PART * 32 * warps else 1


@triton.jit
def _leave(acc, top, total, work, stats, slot, rg, rd, GROUP: tl.constexpr, D: tl.constexpr):
    """Write what some keys of a sequence make of GROUP heads: sums, maxima, and the sums' divisors."""
    mine = rg < GROUP
    tl.store(work + slot * (GROUP * D) + rg[:, None] * D + rd[None, :], acc, mask=mine[:, None])
    tl.store(stats + slot * (2 * GROUP) + rg, top, mask=mine)
    tl.store(stats + slot * (2 * GROUP) + GROUP + rg, total, mask=mine)


@triton.jit
def _part(work, stats, part, count, rh, rd, GROUP: tl.constexpr, D: tl.constexpr):
    """Return sums [heads, D] and maxima of a slot; of one beyond `count` nothing is read, and it weighs nothing."""
    there = (rh < GROUP) & (part < count)
    top = tl.load(stats + part * (2 * GROUP) + rh, mask=there, other=-1e30, cache_modifier=".cg")
    left = tl.load(work + (part * GROUP + rh[:, None]) * D + rd[None, :], mask=there[:, None], other=0.0, cache_modifier=".cg")
    return left, top


@triton.jit
def _added_up(work, stats, slot, count, GROUP: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, MOST: tl.constexpr,
              AT_ONCE: tl.constexpr):
    """Return what `count` slots make together, MOST at the most, always in the same order; AT_ONCE are read at a time."""
    rh, rd, rs = tl.arange(0, HEADS), tl.arange(0, D), tl.arange(0, MOST)
    work += slot * (GROUP * D)
    stats += slot * (2 * GROUP)
    there = (rs < count)[:, None] & (rh < GROUP)[None, :]
    of_part = stats + rs[:, None] * (2 * GROUP) + rh[None, :]
    tops = tl.load(of_part, mask=there, other=-1e30, cache_modifier=".cg")
    totals = tl.load(of_part + GROUP, mask=there, other=0.0, cache_modifier=".cg")
    top = tl.max(tops, 0)
    acc = tl.zeros((HEADS, D), tl.float32)
    for first in range(0, count, AT_ONCE):
        a, top_a = _part(work, stats, first, count, rh, rd, GROUP, D)
        if AT_ONCE == 4:
            b, top_b = _part(work, stats, first + 1, count, rh, rd, GROUP, D)
            c, top_c = _part(work, stats, first + 2, count, rh, rd, GROUP, D)
            d, top_d = _part(work, stats, first + 3, count, rh, rd, GROUP, D)
            acc += b * tl.math.exp2(top_b - top)[:, None]
            acc += c * tl.math.exp2(top_c - top)[:, None]
            acc += d * tl.math.exp2(top_d - top)[:, None]
        acc += a * tl.math.exp2(top_a - top)[:, None]
    return acc, top, tl.sum(tl.math.exp2(tops - top[None, :]) * totals, 0)


@triton.jit
def _write(acc, total, o, rg, rd, GROUP: tl.constexpr, D: tl.constexpr):
    o += tl.program_id(0).to(tl.int64) * (GROUP * D)
    result = tl.where(total[:, None] > 0, acc / total[:, None], 0.0)             # no key: no weight
    tl.store(o + rg[:, None] * D + rd[None, :], result.to(o.dtype.element_ty), mask=rg[:, None] < GROUP)


@triton.jit
def finish(acc, total, top, o, work, stats, locks, split, parts, rg, rd, GROUP: tl.constexpr, HEADS: tl.constexpr,
           D: tl.constexpr, SPLITS: tl.constexpr, PARTS: tl.constexpr, FAN: tl.constexpr, AT_ONCE: tl.constexpr):
    """Write the result of GROUP heads where this part is the only one of `parts`, of SPLITS at most; else leave it.

    The last of FAN parts adds them up; where there are more, it leaves that, and the last of all adds up what was left.
    HEADS and PARTS: the powers of two that GROUP and SPLITS are rounded up to.
    """
    if SPLITS > 1 and parts > 1:
        UPPER: tl.constexpr = (SPLITS + FAN - 1) // FAN if SPLITS > FAN else 0
        rh, bunch = tl.arange(0, HEADS), split // FAN
        first, lock = tl.program_id(0).to(tl.int64) * (SPLITS + UPPER), tl.program_id(0) * (UPPER + 1)
        _leave(acc, top, total, work, stats, first + split, rg, rd, GROUP, D)
        count = tl.minimum(FAN, parts - bunch * FAN)
        if came_last(locks, lock + bunch, count):
            MOST: tl.constexpr = min(FAN, PARTS)
            some, highest, weight = _added_up(work, stats, first + bunch * FAN, count, GROUP, HEADS, D, MOST, AT_ONCE)
            if SPLITS > FAN and parts > FAN:
                _leave(some, highest, weight, work, stats, first + SPLITS + bunch, rh, rd, GROUP, D)
                bunches = tl.cdiv(parts, FAN)
                if came_last(locks, lock + UPPER, bunches):
                    ALL: tl.constexpr = PARTS // FAN
                    every, _, weights = _added_up(work, stats, first + SPLITS, bunches, GROUP, HEADS, D, ALL, AT_ONCE)
                    _write(every, weights, o, rh, rd, GROUP, D)
            else:
                _write(some, weight, o, rh, rd, GROUP, D)
    else:
        _write(acc, total, o, rg, rd, GROUP, D)
