"""What a GPU can do when a kernel does nothing else: read memory, read caches, multiply and add; and at which clock.

Every load's address depends on the loop, so that no compiler takes it out of there, and what was read or computed is
stored under a condition that next to never holds and cannot be known.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer, smid


@triton.jit
def clock64():
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def clocks(out):
    """Of every SM its cycle counter and the GPU's nanoseconds, at out[2·SM] (PTX ISA, "Special Registers")."""
    sm = smid()
    tl.store(out + 2 * sm, clock64())
    tl.store(out + 2 * sm + 1, globaltimer())


@triton.jit
def read_memory(x, out, n, BLOCK: tl.constexpr):
    """Each element once, from device memory: int32 words that are summed."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    stride = tl.num_programs(0).to(tl.int64) * BLOCK
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    for at in range(start, n, stride):
        total += tl.load(x + at + tl.arange(0, BLOCK))
    tl.store(out + tl.arange(0, BLOCK), total, mask=total == -1234567)


@triton.jit
def read_l2(x, out, blocks, passes, BLOCK: tl.constexpr):
    """The same `blocks` blocks (a power of two) by every program, `passes` times; not kept in L1 (`.cg`).

    Each program goes in another order, by an odd stride of its own: SMs that ask for one line at the same time are served
    together on the way, and the L2 would be asked for less than the SMs read.
    """
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    pid = tl.program_id(0)
    stride = 2 * pid + 1
    first = pid * 37
    last = blocks - 1
    for step in range(0, passes * blocks, 4):
        total += tl.load(x + ((first + step * stride) & last) * BLOCK + offsets, cache_modifier=".cg")
        total += tl.load(x + ((first + (step + 1) * stride) & last) * BLOCK + offsets, cache_modifier=".cg")
        total += tl.load(x + ((first + (step + 2) * stride) & last) * BLOCK + offsets, cache_modifier=".cg")
        total += tl.load(x + ((first + (step + 3) * stride) & last) * BLOCK + offsets, cache_modifier=".cg")
    tl.store(out + offsets, total, mask=total == -1234567)


@triton.jit
def read_l1(x, out, steps, BLOCK: tl.constexpr):
    """Four blocks of each program's own, over and over, from L1."""
    offsets = tl.arange(0, BLOCK)
    mine = x + tl.program_id(0) * (4 * BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    for step in range(0, steps):
        turn = step & 3
        total += tl.load(mine + turn * BLOCK + offsets)
        total += tl.load(mine + (turn ^ 1) * BLOCK + offsets)
        total += tl.load(mine + (turn ^ 2) * BLOCK + offsets)
        total += tl.load(mine + (turn ^ 3) * BLOCK + offsets)
    tl.store(out + offsets, total, mask=total == -1234567)


@triton.jit
def multiply_add(x, out, steps, BLOCK: tl.constexpr):
    """Eight chains of eight multiply-adds per element and step: 128 operations. c = c·a + (1 − a) stays near 1."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + offsets)
    b = 1 - a
    c0 = a
    c1 = a + b
    c2 = b
    c3 = a * a
    c4 = b * b
    c5 = a * b
    c6 = a - b
    c7 = b - a
    for _ in range(0, steps):
        for _unrolled in tl.static_range(8):
            c0 = tl.fma(c0, a, b)
            c1 = tl.fma(c1, a, b)
            c2 = tl.fma(c2, a, b)
            c3 = tl.fma(c3, a, b)
            c4 = tl.fma(c4, a, b)
            c5 = tl.fma(c5, a, b)
            c6 = tl.fma(c6, a, b)
            c7 = tl.fma(c7, a, b)
    total = (c0 + c1) + (c2 + c3) + ((c4 + c5) + (c6 + c7))
    tl.store(out + offsets, total, mask=total == 3.0)


@triton.jit
def fma_half2(c, a, b):
    """Two half-precision multiply-adds in one instruction: the pipe's full rate."""
    return tl.inline_asm_elementwise("fma.rn.f16x2 $0, $1, $2, $3;", "=r,r,r,r", [c, a, b], dtype=tl.float16, is_pure=True, pack=2)


@triton.jit
def multiply_add_half2(x, out, steps, BLOCK: tl.constexpr):
    """As `multiply_add`, in packed pairs of half precision."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + offsets)
    b = (1 - a).to(tl.float16)
    c0 = a
    c1 = a + b
    c2 = b
    c3 = a * a
    c4 = b * b
    c5 = a * b
    c6 = a - b
    c7 = b - a
    for _ in range(0, steps):
        for _unrolled in tl.static_range(8):
            c0 = fma_half2(c0, a, b)
            c1 = fma_half2(c1, a, b)
            c2 = fma_half2(c2, a, b)
            c3 = fma_half2(c3, a, b)
            c4 = fma_half2(c4, a, b)
            c5 = fma_half2(c5, a, b)
            c6 = fma_half2(c6, a, b)
            c7 = fma_half2(c7, a, b)
    total = (c0 + c1) + (c2 + c3) + ((c4 + c5) + (c6 + c7))
    tl.store(out + offsets, total, mask=total == 3.0)
