"""What the matmul kernels share: the order of tiles, the epilogue, and partial sums that meet in memory."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile_place(tile, nm, nn, GM: tl.constexpr):
    """Row and column of tiles: GM rows of tiles go column by column, so that they share B's columns in L2."""
    group = tile // (GM * nn)
    first = group * GM
    rows = min(nm - first, GM)
    return first + (tile % (GM * nn)) % rows, (tile % (GM * nn)) // rows


@triton.jit
def activated(x, ACT: tl.constexpr):
    """0 none, 1 ReLU, 2 GELU (tanh form, Hendrycks and Gimpel 2016), 3 SiLU."""
    if ACT == 1:
        x = tl.maximum(x, 0.0)
    if ACT == 2:
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))     # tanh(u) = 2·sigmoid(2u) − 1
    if ACT == 3:
        x = x * tl.sigmoid(x)
    return x


@triton.jit
def finished(acc, cn, N, bias, scale, ACT: tl.constexpr):
    """The fp32 tile whose columns are `cn`, after scale, bias and activation."""
    if scale is not None:
        acc = acc * tl.load(scale)
    if bias is not None:
        acc = acc + tl.load(bias + cn, mask=cn < N, other=0.0).to(tl.float32)[None, :]
    return activated(acc, ACT)


@triton.jit
def leave_partial(acc, work, slot, BM: tl.constexpr, BN: tl.constexpr):
    """Write a partial tile to its slot of the workspace."""
    at = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(work + slot.to(tl.int64) * (BM * BN) + at, acc)


@triton.jit
def came_last(locks, tile, expected):
    """Count this program in; true for the last of `expected`, which also clears the count for the next launch.

    Nobody waits, so no order of programs can lock up. The barrier puts every thread's partial before the count
    (release); the count's acquire puts the partials of the others before what follows.
    """
    tl.debug_barrier()
    seen = tl.atomic_add(locks + tile, 1, sem="acq_rel", scope="gpu")
    last = seen == expected - 1
    if last:
        tl.atomic_xchg(locks + tile, 0, sem="relaxed", scope="gpu")
    return last


@triton.jit
def partials_summed(work, slot, count, BM: tl.constexpr, BN: tl.constexpr):
    """Sum of `count` slots in order: the same result whoever came last."""
    at = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for i in range(0, count):
        total += tl.load(work + (slot + i).to(tl.int64) * (BM * BN) + at, cache_modifier=".cg")
    return total
