"""Kernel files as people write them."""

from __future__ import annotations

ADD = '''
import torch, triton, triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(output_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)

def add(x, y):
    output = torch.empty_like(x)
    n = output.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]), )
    add_kernel[grid](x, y, output, n, BLOCK_SIZE=1024, num_warps=8)
    return output
'''
# of one configuration alone: it compiles three times, where ADD does nine times
ADD_ONE = ADD[:ADD.index("def add(")].replace("@triton.jit", '''@triton.autotune(
    configs=[triton.Config({"BLOCK_SIZE": 1024}, num_warps=8)], key=["n_elements"])
@triton.jit''')
MATMUL = '''
import triton
import triton.language as tl

@triton.jit
def activate(acc):
    return tl.where(acc > 0, acc, 0.0)

@triton.autotune(
    configs=[triton.Config({"BM": bm, "BN": bn, "BK": 32}, num_warps=w, num_stages=3)
             for bm in (64, 128) for bn in (64, 128) for w in (4, 8) if bm * bn >= 64 * 128],
    key=["M", "N", "K"])
@triton.jit
def mm(A, B, C, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
       BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    across = tl.cdiv(N, BN)
    rm = tl.program_id(0) // across * BM + tl.arange(0, BM)
    rn = tl.program_id(0) % across * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    A = A + (rm[:, None] * stride_am + rk[None, :] * stride_ak)
    at = B + (rk[:, None] * stride_bk + rn[None, :] * stride_bn)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        acc += tl.dot(tl.load(A), tl.load(at))
        A += BK * stride_ak
        at += BK * stride_bk
    c = C + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.store(c, activate(acc).to(C.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))
'''
GATHER = '''
import triton
import triton.language as tl

@triton.jit
def read_row(table, row, stride, D, B: tl.constexpr):
    o = tl.arange(0, B)
    return tl.load(table + row * stride + o, mask=o < D)

@triton.jit
def gather(out, table, ids, D, stride, eps, HAS_BIAS: tl.constexpr, B: tl.constexpr = 64):
    i = tl.load(ids + tl.program_id(0))
    v = read_row(table, i, stride, D, B)
    o = tl.arange(0, B)
    tl.store(out + tl.program_id(0) * stride + o, v + eps, mask=o < D)
'''
HELION = '''
import helion
import helion.language as hl

@helion.kernel(configs=[helion.Config(block_sizes=[64, 64], num_warps=4), helion.Config(block_sizes=[128, 64], num_warps=8)])
def scale(x, a):
    for tile in hl.tile(x.shape[0]):
        x[tile] = x[tile] * a
    return x
'''
