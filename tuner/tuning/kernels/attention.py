"""O = softmax(Q·Kᵀ/√D)·V per batch and head, online softmax in float32.

Shape: B, H, N, D and causal (0 or 1), KV where groups of heads share their keys. KERNEL: one loop, the kernel of the
recorded H200 landscape, or one of tuner.tuning.kernels.attention_two_stage or attention_overlapped. BM query rows, BN key rows,
num_warps, num_stages.
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

from tuner.tuning.kernels.attention_two_stage import attn_specialised, attn_tma, attn_two_stage
from tuner.tuning.kernels.hopper.attention_overlapped import GROUPS, attn_overlapped
from tuner.tuning.kernels.hopper.warp_parts import REGISTERS
from tuner.tuning.kernels.problem import (
    Calls,
    Workspace,
    check_elements,
    full_precision,
    multiprocessors,
    normal_tensors,
    scratch_from_torch,
    sizes,
    torch_dtype,
)
from tuner.tuning.trial import Config

LOG2_E = 1.4426950408889634          # the kernel works with exp2
ABSENT = {"KERNEL": "one loop"}      # a recorded configuration does not name it
L2_BYTES = 4 << 20                   # for the keys and values of heads that are computed together; 10 and more were slower
SCORES_AT_ONCE = 2**28               # float32 scores the reference holds at a time: 1 GiB


@triton.jit
def attn_fwd(q, k, v, o, sz, sh, sm, H, N, scale,
             D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    pm, ph = tl.program_id(0), tl.program_id(1)
    base = (ph // H) * sz + (ph % H) * sh
    rm = pm * BM + tl.arange(0, BM)
    rd = tl.arange(0, D)
    qv = tl.load(q + base + rm[:, None] * sm + rd[None, :], mask=rm[:, None] < N, other=0.0)
    mi = tl.full((BM,), -1e30, tl.float32)
    li = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    hi = N
    if CAUSAL:
        hi = tl.minimum(N, (pm + 1) * BM)
    for n in range(0, hi, BN):
        rn = n + tl.arange(0, BN)
        kv = tl.load(k + base + rn[None, :] * sm + rd[:, None], mask=rn[None, :] < N, other=0.0)
        s = tl.dot(qv, kv) * scale
        ok = rn[None, :] < N
        if CAUSAL:
            ok = ok & (rm[:, None] >= rn[None, :])
        s = tl.where(ok, s, -1e30)
        mn = tl.maximum(mi, tl.max(s, 1))
        p = tl.math.exp2(s - mn[:, None])
        al = tl.math.exp2(mi - mn)
        li = li * al + tl.sum(p, 1)
        vv = tl.load(v + base + rn[:, None] * sm + rd[None, :], mask=rn[:, None] < N, other=0.0)
        acc = tl.dot(p.to(vv.dtype), vv, acc * al[:, None])
        mi = mn
    tl.store(o + base + rm[:, None] * sm + rd[None, :], (acc / li[:, None]).to(o.dtype.element_ty),
             mask=rm[:, None] < N)


def heads_together(tokens: int, head: int, element_bytes: int, shared_by: int) -> int:
    """Return heads of queries whose keys and values fit in a part of L2."""
    return max(1, L2_BYTES // (2 * tokens * head * element_bytes)) * shared_by


class Attention:
    """B·H heads of queries; KV of H heads of keys and values where the shape says so (grouped queries)."""

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.B, self.H, self.N, self.D = sizes(shape, "B", "H", "N", "D")
        self.KV = sizes(shape, "KV")[0] if "KV" in shape else self.H
        if self.D < 16 or self.D & (self.D - 1):
            raise ValueError(f"shape: D must be a power of two of at least 16, not {self.D}")
        if self.H % self.KV:
            raise ValueError(f"shape: {self.H} heads cannot share {self.KV} heads of keys evenly")
        if self.B * self.H > 65535:
            raise ValueError("shape: B·H may be at most 65,535, the grid's second extent")
        self.causal = bool(shape.get("causal", 0))
        check_elements(Q=self.B * self.H * self.N * self.D)
        size, shared = (self.B, self.H, self.N, self.D), (self.B, self.KV, self.N, self.D)
        self.q, self.k, self.v, self.out = (
            torch.empty(one, device=device, dtype=torch_dtype(dtype)) for one in (size, shared, shared, size))
        self._workspace = Workspace(device)
        self._calls = Calls(self._call)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.q, self.k, self.v)

    def reference(self) -> torch.Tensor:
        full_precision()
        group = self.H // self.KV
        q = self.q.reshape(self.B * self.H, self.N, self.D)
        k, v = (tensor.reshape(self.B * self.KV, self.N, self.D) for tensor in (self.k, self.v))
        mask = torch.ones(self.N, self.N, dtype=torch.bool, device=q.device).triu(1) if self.causal else None
        heads = max(1, SCORES_AT_ONCE // self.N**2)
        parts = []
        for first in range(0, self.B * self.H, heads):
            part = range(first, min(first + heads, self.B * self.H))
            shared = torch.tensor([head // group for head in part], device=q.device)
            scores = q[part.start:part.stop].float() @ k[shared].float().transpose(1, 2) / math.sqrt(self.D)
            if mask is not None:
                scores.masked_fill_(mask, -torch.inf)
            parts.append(torch.softmax(scores, -1) @ v[shared].float())
        return torch.cat(parts).reshape(self.out.shape)

    def library(self) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            self.q, self.k, self.v, is_causal=self.causal, enable_gqa=self.KV != self.H)

    def compile(self, config: Config) -> Any:
        kernel, grid, args, options = self._call(config)
        return kernel.warmup(*args, grid=grid, **options)

    def launch(self, config: Config) -> Any:
        kernel, grid, args, options = self._calls.of(config)
        return kernel[grid](*args, **options)

    def _call(self, config: Config) -> tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]:
        """Kernel, grid, arguments and constants of a configuration."""
        config = {**ABSENT, **config}
        bm, bn, name = config["BM"], config["BN"], config["KERNEL"]
        grid = (triton.cdiv(self.N, bm), self.B * self.H)
        scale = LOG2_E / math.sqrt(self.D)
        options = {"D": self.D, "CAUSAL": self.causal, **{key: config[key] for key in ("BM", "BN", "num_warps", "num_stages")}}
        if name == "one loop":
            if self.KV != self.H:
                raise ValueError("KERNEL: one loop knows no grouped queries")
            return attn_fwd, grid, (self.q, self.k, self.v, self.out, *self.q.stride()[:3], self.H, self.N, scale), options
        options["GROUP"] = self.H // self.KV
        if name == "two stages":
            return attn_two_stage, grid, (self.q, self.k, self.v, self.out, self.H, self.N, scale), options
        if name == "overlapped":
            return self._overlapped(config, grid[0] * grid[1], scale)
        q, k, v = (TensorDescriptor.from_tensor(tensor.view(-1, self.D), [rows, self.D])
                   for tensor, rows in ((self.q, bm), (self.k, bn), (self.v, bn)))
        if name == "tma":
            return attn_tma, grid, (q, k, v, self.out, self.H, self.N, scale), options
        scratch_from_torch(self.out.device)
        options["MASK"] = self.causal or self.N % bn != 0
        return attn_specialised, grid, (self.q, k, v, self.out, self.H, self.N, scale, bm), options

    def _overlapped(self, config: Config, tiles: int, scale: float) -> tuple[Any, tuple[int], tuple[Any, ...], dict[str, Any]]:
        groups, keys = GROUPS[int(config["BM"])], config["BN"]
        rows, (load, compute) = config["BM"] // groups, REGISTERS[groups]
        counter = self._workspace.of(0, 1)[1]
        together = heads_together(self.N, self.D, self.q.element_size(), self.H // self.KV)
        args = (*self._shared(rows, keys), self.out, counter, self.B * self.H, together, self.H, self.N, scale)
        return attn_overlapped, (min(multiprocessors(self.out.device), tiles),), args, {
            "D": self.D, "ROWS": rows, "BN": keys, "STAGES": config["num_stages"], "SHARED_BY": self.H // self.KV,
            "CAUSAL": self.causal, "MASK": self.causal or self.N % keys != 0, "LOAD": load, "COMPUTE": compute,
            "GROUPS": groups, "num_warps": config["num_warps"]}

    def _shared(self, rows: int, keys: int) -> tuple[Any, Any, Any]:
        """Descriptors of Q, K and V in blocks of so many rows, laid out in shared memory as the tensor cores read them."""
        kind = gl.bfloat16 if self.q.dtype == torch.bfloat16 else gl.float16
        query, key, value = (
            GluonDescriptor.from_tensor(tensor.view(-1, self.D), [size, self.D],
                                        gl.NVMMASharedLayout.get_default_for([size, self.D], kind))
            for tensor, size in ((self.q, rows), (self.k, keys), (self.v, keys)))
        return query, key, value


PROBLEMS = {"attention": Attention, "gqa_attention": Attention}
