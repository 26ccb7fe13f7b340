"""One query token per sequence against a long cache: O[B, H] = softmax(q Kᵀ / √D) V, the keys split over programs.

K and V are [B, KV, N, D]; the H/KV heads that share keys are one tile of queries, so each key is read once. SPLITS programs
take a part of the keys each (flash decoding, Dao and others 2023); what they leave is added up as split_keys says: one launch.
BN keys at a time; num_warps; num_stages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning.kernels.decode.split_keys import FAN, LOG2_E, finish, parts_at_once, slots
from tuner.tuning.kernels.problem import Launch, OneKernel, Workspace, check_elements, full_precision, normal_tensors, sizes, torch_dtype
from tuner.tuning.trial import Config

LEAST_ROWS = 16                      # of a tensor-core tile


@triton.jit
def decode_attention(q, k, v, o, work, stats, locks, N, scale, D: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
                     BN: tl.constexpr, SPLITS: tl.constexpr, PARTS: tl.constexpr, HEADS: tl.constexpr, FAN: tl.constexpr,
                     AT_ONCE: tl.constexpr):
    head, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rg, rb, rd = tl.arange(0, ROWS), tl.arange(0, BN), tl.arange(0, D)
    rows = head * GROUP * D + rg[:, None] * D + rd[None, :]
    mine = rg[:, None] < GROUP
    qv = tl.load(q + rows, mask=mine, other=0.0)
    k += head * N * D
    v += head * N * D
    each = tl.cdiv(tl.cdiv(N, BN), SPLITS) * BN
    mi = tl.full((ROWS,), -1e30, tl.float32)
    li = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    for n in range(split * each, tl.minimum(N, (split + 1) * each), BN):
        rn = n + rb
        inside = rn < N
        kt = tl.load(k + rn[None, :] * D + rd[:, None], mask=inside[None, :], other=0.0)
        s = tl.where(inside[None, :], tl.dot(qv, kt) * scale, -1e30)
        mn = tl.maximum(mi, tl.max(s, 1))
        p = tl.math.exp2(s - mn[:, None])
        al = tl.math.exp2(mi - mn)
        li = li * al + tl.sum(p, 1)
        vv = tl.load(v + rn[:, None] * D + rd[None, :], mask=inside[:, None], other=0.0)
        acc = tl.dot(p.to(vv.dtype), vv, acc * al[:, None])
        mi = mn
    finish(acc, li, mi, o, work, stats, locks, split, SPLITS, rg, rd, GROUP, HEADS, D, SPLITS, PARTS, FAN, AT_ONCE)


class DecodeAttention(OneKernel):
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        super().__init__()
        self.B, self.H, self.KV, self.N, self.D = sizes(shape, "B", "H", "KV", "N", "D")
        if self.D < 16 or self.D & (self.D - 1):
            raise ValueError(f"shape: D must be a power of two of at least 16, not {self.D}")
        if self.H % self.KV:
            raise ValueError(f"shape: {self.H} heads cannot share {self.KV} heads of keys evenly")
        check_elements(Q=self.B * self.H * self.D, K_of_one_head=self.N * self.D)
        kind = torch_dtype(dtype)
        self.q, self.out = (torch.empty((self.B, self.H, self.D), device=device, dtype=kind) for _ in range(2))
        self.k, self.v = (torch.empty((self.B, self.KV, self.N, self.D), device=device, dtype=kind) for _ in range(2))
        self._workspace, self._stats = Workspace(device), Workspace(device)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.q, self.k, self.v)

    def reference(self) -> torch.Tensor:
        full_precision()
        parts = []
        for q, k, v in zip(self.q, self.k, self.v, strict=True):              # a float32 copy of one sequence at a time
            grouped = q.float().view(self.KV, self.H // self.KV, self.D)
            scores = grouped @ k.float().transpose(1, 2) / math.sqrt(self.D)
            parts.append((torch.softmax(scores, -1) @ v.float()).view(self.H, self.D))
        return torch.stack(parts)

    def library(self) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            self.q.unsqueeze(2), self.k, self.v, enable_gqa=self.KV != self.H).squeeze(2)

    def _call(self, config: Config) -> Launch:
        group, splits, heads = self.H // self.KV, config["SPLITS"], self.B * self.KV
        rows, shared = max(LEAST_ROWS, triton.next_power_of_2(group)), triton.next_power_of_2(group)
        work = stats = locks = None
        if splits > 1:
            left, counts = slots(splits)
            work, locks = self._workspace.of(heads * left * group * self.D, heads * counts)
            stats, _ = self._stats.of(heads * left * rows * 2, 0)        # as many as candidates of older kernels ask
        args = (self.q, self.k, self.v, self.out, work, stats, locks, self.N, LOG2_E / math.sqrt(self.D))
        options = {"D": self.D, "GROUP": group, "ROWS": rows, "PARTS": triton.next_power_of_2(splits), "HEADS": shared, "FAN": FAN,
                   "AT_ONCE": parts_at_once(shared, self.D, config["num_warps"]),
                   **{key: config[key] for key in ("BN", "SPLITS", "num_warps", "num_stages")}}
        return decode_attention, (heads, splits), args, options


PROBLEMS = {"decode_attention": DecodeAttention}
