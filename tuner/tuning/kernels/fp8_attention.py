"""O = softmax(Q·Kᵀ/√D)·V with Q, K and V in fp8 (e4m3), a float32 scale for each of their heads, both products in fp8.

Q is [B, H, N, D], K [B, KV, W, D], V [B, KV, D, W] with W = N rounded up to 16; what stands beyond N does not matter. V lies
transposed: tensor cores take the second factor of an fp8 product along the sum only, so it is turned once where it is made, not in
every block of every program. O is bf16 [B, H, N, D].

Weights are rounded to e4m3 before they meet V. They are exp2(s − max + 8), so that the largest is 256 of at most 448 and those down
to 2⁻¹⁴ of it keep three bits (FlashAttention-3, Shah et al. 2024, §3.3 and its code's `max_offset`); the sum they are divided by is
that of the weights as they were, with the same factor.

KERNEL  two stages: loads through pointers; tma: through TMA descriptors; overlapped: see
        tuner.tuning.kernels.hopper.fp8_attention_overlapped
BM query rows, BN keys at a time, num_warps, num_stages.

A thread has columns 2c, 2c + 1 and 2c + 8, 2c + 9 of sixteen scores, c its place of four, and gives 4c … 4c + 3 of sixteen weights
to the second product. So rows of K are loaded in that order within each sixteen (`_mixed`), and weights never change their thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.tuning.kernels.attention import SCORES_AT_ONCE, heads_together
from tuner.tuning.kernels.hopper.fp8_attention_overlapped import fp8_attn_overlapped
from tuner.tuning.kernels.hopper.warp_parts import REGISTERS
from tuner.tuning.kernels.problem import (
    Launch,
    OneKernel,
    Workspace,
    check_elements,
    full_precision,
    generator_on,
    multiprocessors,
    normal_tensors,
    sizes,
    torch_dtype,
)
from tuner.tuning.trial import Config

LOG2_E = 1.4426950408889634          # the kernels work with exp2
SIXTEEN = 16                         # keys that are mixed among themselves; bytes of which a row that TMA reads has whole ones
SIGN, INFINITY = tl.constexpr(-2**31), tl.constexpr(0x7F800000)         # of a float32's bits
RAISED = tl.constexpr(8.0)           # weights are 2⁸ times as large: e4m3 ends at 448


@triton.jit
def _mixed(BN: tl.constexpr):
    """Return the key of each column of the scores."""
    j = tl.arange(0, BN)
    return j // 16 * 16 + j % 8 // 2 * 4 + j % 16 // 8 * 2 + j % 2


@triton.jit
def _in_order(p, BM: tl.constexpr, BN: tl.constexpr):
    """Return the weights with their keys in order: in registers nothing moves."""
    return tl.reshape(tl.permute(tl.reshape(p, (BM, BN // 16, 2, 4, 2)), (0, 1, 3, 2, 4)), (BM, BN))


@triton.jit
def _block(acc, li, mi, qv, kt, vv, rows, keys, N, scale, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
           MASK: tl.constexpr):
    """One block of keys: scores, online softmax, weighted values. `kt` is K transposed, [D, BN], mixed; `vv` is V, [BN, D]."""
    s = tl.dot(qv, kt)
    if MASK:
        # the sign of what is left to the last key that a row sees, on an infinity: comparisons would be packed into bits
        last = tl.minimum(rows, N - 1) if CAUSAL else rows * 0 + (N - 1)
        s = tl.minimum(s, ((last[:, None] - keys[None, :]) & SIGN | INFINITY).to(tl.float32, bitcast=True))
    mn = tl.maximum(mi, tl.max(s, 1) * scale)
    p = tl.math.exp2(s * scale - (mn - RAISED)[:, None])
    al = tl.math.exp2(mi - mn)
    li = li * al + tl.sum(p, 1)
    acc = tl.dot(_in_order(p.to(vv.dtype), BM, BN), vv, acc * al[:, None])
    return acc, li, mn


@triton.jit
def _place(q_scales, k_scales, scale, GROUP: tl.constexpr, CAUSAL: tl.constexpr):
    """Row tile, head of Q, head of K, factor of the scores: the longest causal rows first."""
    pm, ph = tl.program_id(0), tl.program_id(1)
    if CAUSAL:
        pm = tl.num_programs(0) - 1 - pm
    pk = ph // GROUP                              # KV · GROUP heads of each batch
    return pm, ph, pk, scale * tl.load(q_scales + ph) * tl.load(k_scales + pk)


@triton.jit
def _range(pm, N, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """End of the keys that need no mask, end of all keys."""
    if CAUSAL:
        return pm * BM // BN * BN, tl.minimum(N, (pm + 1) * BM)
    else:
        return N // BN * BN, N


@triton.jit
def _write(acc, li, o, v_scales, ph, pk, rows, rd, N, D: tl.constexpr):
    acc *= (tl.load(v_scales + pk) / li)[:, None]
    tl.store(o + ph.to(tl.int64) * N * D + rows[:, None] * D + rd[None, :], acc.to(o.dtype.element_ty), mask=rows[:, None] < N)


@triton.jit
def fp8_attn_two_stage(q, k, v, o, q_scales, k_scales, v_scales, N, W, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                       GROUP: tl.constexpr, CAUSAL: tl.constexpr):
    pm, ph, pk, scale = _place(q_scales, k_scales, scale, GROUP, CAUSAL)
    q += ph.to(tl.int64) * N * D
    k += pk.to(tl.int64) * W * D
    v += pk.to(tl.int64) * W * D
    rows, rb, mixed, rd = pm * BM + tl.arange(0, BM), tl.arange(0, BN), _mixed(BN), tl.arange(0, D)
    qv = tl.load(q + rows[:, None] * D + rd[None, :], mask=rows[:, None] < N, other=0.0)
    mi = tl.full((BM,), -1e30, tl.float32)
    li = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    free, end = _range(pm, N, BM, BN, CAUSAL)
    for n in range(0, free, BN):
        kk = tl.load(k + (n + mixed)[:, None] * D + rd[None, :])
        vv = tl.load(v + rd[:, None] * W + (n + rb)[None, :])
        acc, li, mi = _block(acc, li, mi, qv, kk.T, vv.T, rows, n + mixed, N, scale, BM, BN, CAUSAL, False)
    for n in range(free, end, BN):
        kk = tl.load(k + (n + mixed)[:, None] * D + rd[None, :], mask=(n + mixed)[:, None] < N, other=0.0)
        vv = tl.load(v + rd[:, None] * W + (n + rb)[None, :], mask=(n + rb)[None, :] < N, other=0.0)
        acc, li, mi = _block(acc, li, mi, qv, kk.T, vv.T, rows, n + mixed, N, scale, BM, BN, CAUSAL, True)
    _write(acc, li, o, v_scales, ph, pk, rows, rd, N, D)


@triton.jit
def fp8_attn_tma(qd, kd, vd, o, q_scales, k_scales, v_scales, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                 GROUP: tl.constexpr, CAUSAL: tl.constexpr):
    """`kd` has rows of sixteen keys, which it reads mixed."""
    pm, ph, pk, scale = _place(q_scales, k_scales, scale, GROUP, CAUSAL)
    rows, mixed, rd, sixteens = pm * BM + tl.arange(0, BM), _mixed(BN), tl.arange(0, D), pk * tl.cdiv(N, 16)
    qv = qd.load([ph * N + pm * BM, 0])
    mi = tl.full((BM,), -1e30, tl.float32)
    li = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    free, end = _range(pm, N, BM, BN, CAUSAL)
    for n in range(0, free, BN):
        kk = kd.load([sixteens + n // 16, 0, 0, 0, 0]).reshape(BN, D)
        acc, li, mi = _block(acc, li, mi, qv, kk.T, vd.load([pk * D, n]).T, rows, n + mixed, N, scale, BM, BN, CAUSAL, False)
    for n in range(free, end, BN):
        kk = kd.load([sixteens + n // 16, 0, 0, 0, 0]).reshape(BN, D)
        acc, li, mi = _block(acc, li, mi, qv, kk.T, vd.load([pk * D, n]).T, rows, n + mixed, N, scale, BM, BN, CAUSAL, True)
    _write(acc, li, o, v_scales, ph, pk, rows, rd, N, D)


class Fp8Attention(OneKernel):
    """B·H heads of queries; KV of H heads of keys and values, which groups of them share."""

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        super().__init__()
        self.B, self.H, self.KV, self.N, self.D = sizes(shape, "B", "H", "KV", "N", "D")
        if self.D < SIXTEEN or self.D & (self.D - 1):
            raise ValueError(f"shape: D must be a power of two of at least {SIXTEEN}, not {self.D}")
        if self.H % self.KV:
            raise ValueError(f"shape: {self.H} heads cannot share {self.KV} heads of keys evenly")
        if self.B * self.H > 65535:
            raise ValueError("shape: B·H may be at most 65,535, the grid's second extent")
        self.causal, self.W, kind = bool(shape.get("causal", 0)), triton.cdiv(self.N, SIXTEEN) * SIXTEEN, torch_dtype(dtype)
        check_elements(Q=self.B * self.H * self.N * self.D)
        self.q = torch.empty((self.B, self.H, self.N, self.D), device=device, dtype=kind)
        self.k = torch.empty((self.B, self.KV, self.W, self.D), device=device, dtype=kind)
        self.v = torch.empty((self.B, self.KV, self.D, self.W), device=device, dtype=kind)
        self.q_scales = torch.empty((self.B, self.H), device=device)
        self.k_scales, self.v_scales = (torch.empty((self.B, self.KV), device=device) for _ in range(2))
        self.out = torch.empty(self.q.shape, device=device, dtype=torch.bfloat16)
        self._workspace = Workspace(device)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        """Draw standard normal numbers, and a scale for each head, with which a row has a few large weights.

        Where thousands of weights are alike, results are so small that one element in millions differs by more than itself.
        """
        normal_tensors(seed, self.q, self.k, self.v)
        for number, (scales, low, high) in enumerate((
                (self.q_scales, 1.8, 2.2), (self.k_scales, 1.8, 2.2), (self.v_scales, 0.8, 1.25))):
            scales.uniform_(low, high, generator=generator_on(scales.device, seed + 1 + number))
        q, k, v = self._unscaled(torch.bfloat16)
        self.plain = (q, k.contiguous(), v.contiguous())

    def _unscaled(self, kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What Q, K and V stand for, V as [B, KV, N, D]."""
        q, k, v = ((tensor.float() * scales[:, :, None, None]).to(kind) for tensor, scales in (
            (self.q, self.q_scales), (self.k[:, :, :self.N], self.k_scales), (self.v[..., :self.N], self.v_scales)))
        return q, k, v.transpose(2, 3)

    def reference(self) -> torch.Tensor:
        full_precision()
        group = self.H // self.KV
        q, k, v = (tensor.reshape(-1, self.N, self.D) for tensor in self._unscaled(torch.float32))
        mask = torch.ones(self.N, self.N, dtype=torch.bool, device=q.device).triu(1) if self.causal else None
        heads, parts = max(1, SCORES_AT_ONCE // self.N**2), []
        for first in range(0, self.B * self.H, heads):
            shared = torch.arange(first, min(first + heads, self.B * self.H), device=q.device) // group
            scores = q[first:first + heads] @ k[shared].transpose(1, 2) / math.sqrt(self.D)
            if mask is not None:
                scores.masked_fill_(mask, -torch.inf)
            parts.append(torch.softmax(scores, -1) @ v[shared])
        return torch.cat(parts).reshape(self.out.shape)

    def library(self) -> torch.Tensor:
        """SDPA in bf16 of what the numbers stand for: torch has none in fp8."""
        return torch.nn.functional.scaled_dot_product_attention(*self.plain, is_causal=self.causal, enable_gqa=self.KV != self.H)

    def _call(self, config: Config) -> Launch:
        bm, bn, name = config["BM"], config["BN"], config["KERNEL"]
        grid, scale = (triton.cdiv(self.N, bm), self.B * self.H), LOG2_E / math.sqrt(self.D)
        options = {"D": self.D, "GROUP": self.H // self.KV, "CAUSAL": self.causal,
                   **{key: config[key] for key in ("BM", "BN", "num_warps", "num_stages")}}
        scales = (self.q_scales, self.k_scales, self.v_scales)
        if name == "two stages":
            return fp8_attn_two_stage, grid, (self.q, self.k, self.v, self.out, *scales, self.N, self.W, scale), options
        q, v = self.q.view(-1, self.D), self.v.view(-1, self.W)[:, :self.N]  # beyond N it reads zeros
        k = self.k.view(-1, 4, 2, 2, self.D).transpose(1, 2)                 # rows 4c + 2e + f of sixteen in the order of e, c, f
        box = [bn // SIXTEEN, 2, 4, 2, self.D]
        if name == "overlapped":
            rows, layout = bm // 2, gl.NVMMASharedLayout                     # two warp groups
            of_values = GluonDescriptor.from_tensor(v, [self.D, bn], layout.get_default_for([self.D, bn], gl.float8e4nv))
            of_queries = GluonDescriptor.from_tensor(q, [rows, self.D], layout.get_default_for([rows, self.D], gl.float8e4nv))
            of_keys = GluonDescriptor.from_tensor(k, box, layout(self.D, 8, 5))
            heads = self.B * self.H
            args = (of_queries, of_keys, of_values, self.out, *scales, self._workspace.of(0, 1)[1], heads,
                    heads_together(self.N, self.D, 1, self.H // self.KV), self.H, self.N, scale)
            return fp8_attn_overlapped, (min(multiprocessors(self.out.device), grid[0] * heads),), args, {
                "D": self.D, "ROWS": rows, "BN": bn, "STAGES": config["num_stages"], "SHARED_BY": self.H // self.KV,
                "CAUSAL": self.causal, "MASK": self.causal or self.N % bn != 0, "num_warps": config["num_warps"],
                "LOAD": REGISTERS[2][0], "COMPUTE": REGISTERS[2][1]}
        return fp8_attn_tma, grid, (
            TensorDescriptor.from_tensor(q, [bm, self.D]), TensorDescriptor(k, list(k.shape), list(k.stride()), box),
            TensorDescriptor.from_tensor(v, [self.D, bn]), self.out, *scales, self.N, scale), options


PROBLEMS = {"fp8_attention": Fp8Attention}
