"""One query token per sequence against keys and values that lie in pages: O[B, H] = softmax(q Kᵀ / √D) V.

K and V are pools [blocks, PAGE, KV, D], as vLLM's FlashAttention keeps them; `table` [B, ⌈N/PAGE⌉] int32 names the block of each
page of a sequence, `lengths` [B] int32 how many tokens it has. Entries of the table beyond a sequence's length are not read. A
sequence without tokens gets zeros.

KERNEL  blocks: the warps of a program share BN keys at a time
        warps: each warp has BN keys of its own, a softmax of its own, and meets the others at the end
The H/KV heads that share keys are one tile of queries, so each key is read once. A program takes ⌈N/SPLITS⌉ tokens of a sequence,
so shorter sequences have fewer programs and all have about as much to do (flash decoding, Dao and others 2023). What they leave is
added up as split_keys says: one launch. Pages of the next block are looked up while this one is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning.kernels.decode.split_keys import FAN, LOG2_E, finish, parts_at_once, slots
from tuner.tuning.kernels.problem import Launch, OneKernel, Workspace, full_precision, generator_on, normal_tensors, sizes, torch_dtype
from tuner.tuning.trial import Config

LEAST_ROWS = 16                      # of a tensor-core tile
UNUSED = -1                          # in the table: no block has this number


@triton.jit
def _rows(table, block, place, last, head, KV, PAGE: tl.constexpr, BN: tl.constexpr):
    """Return the rows of a pool [blocks · PAGE · KV, D] that hold the tokens at `place`, which `block` is the first of.

    Behind the last token it is the last one's row, which is there to be read.
    """
    place = tl.minimum(place, last)
    page = tl.load(table + tl.minimum(block, last) // PAGE) if BN <= PAGE else tl.load(table + place // PAGE)
    return page * (PAGE * KV) + ((place & (PAGE - 1)) * KV + head)


@triton.jit
def paged_attn_blocks(q, k, v, o, table, lengths, work, stats, locks, KV, pages, each, scale, D: tl.constexpr, PAGE: tl.constexpr,
                        GROUP: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, SPLITS: tl.constexpr,
                        FAN: tl.constexpr, AT_ONCE: tl.constexpr):
    """`each` tokens of a sequence a program, a multiple of BN."""
    head, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sequence = head // KV
    length = tl.load(lengths + sequence)
    parts = tl.maximum(1, tl.cdiv(length, each))
    if split >= parts:
        return
    rg, rb, rd = tl.arange(0, ROWS), tl.arange(0, BN), tl.arange(0, D)
    qv = tl.load(q + head * (GROUP * D) + rg[:, None] * D + rd[None, :], mask=rg[:, None] < GROUP, other=0.0)
    table += sequence * pages
    shared, last = tl.program_id(0) % KV, length - 1
    mi = tl.full((ROWS,), -1e30, tl.float32)
    li = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, D), tl.float32)
    begin = split * each
    at = _rows(table, begin, begin + rb, tl.maximum(last, 0), shared, KV, PAGE, BN)
    for n in range(begin, tl.minimum(length, begin + each), BN):
        place = at.to(tl.int64)[:, None] * D + rd[None, :]
        kk, vv = tl.load(k + place), tl.load(v + place)
        at = _rows(table, n + BN, n + BN + rb, last, shared, KV, PAGE, BN)
        s = tl.dot(qv, kk.T) + tl.where(n + rb <= last, 0.0, float("-inf"))[None, :]
        mn = tl.maximum(mi, tl.max(s, 1) * scale)
        p = tl.math.exp2(s * scale - mn[:, None])
        al = tl.math.exp2(mi - mn)
        li = li * al + tl.sum(p, 1)
        acc = tl.dot(p.to(vv.dtype), vv, acc * al[:, None])
        mi = mn
    finish(acc, li, mi, o, work, stats, locks, split, parts, rg, rd, GROUP, HEADS, D, SPLITS, SPLITS, FAN, AT_ONCE)


@triton.jit
def paged_attn_warps(q, k, v, o, table, lengths, work, stats, locks, KV, pages, each, scale, D: tl.constexpr, PAGE: tl.constexpr,
                     GROUP: tl.constexpr, HEADS: tl.constexpr, ROWS: tl.constexpr, BN: tl.constexpr, SPLITS: tl.constexpr,
                     FAN: tl.constexpr, AT_ONCE: tl.constexpr, WARPS: tl.constexpr):
    """`each` tokens of a sequence a program, a multiple of WARPS × BN."""
    head, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sequence = head // KV
    length = tl.load(lengths + sequence)
    parts = tl.maximum(1, tl.cdiv(length, each))
    if split >= parts:
        return
    rg, rd = tl.arange(0, ROWS), tl.arange(0, D)
    rw = tl.arange(0, WARPS)[:, None] * BN
    rb = rw + tl.arange(0, BN)[None, :]
    qv = tl.load(q + head * (GROUP * D) + rg[:, None] * D + rd[None, :], mask=rg[:, None] < GROUP, other=0.0)
    qw = tl.broadcast_to(qv[None, :, :], (WARPS, ROWS, D))
    table += sequence * pages
    shared, last = tl.program_id(0) % KV, length - 1
    mi = tl.full((WARPS, ROWS), -1e30, tl.float32)
    li = tl.zeros((WARPS, ROWS), tl.float32)
    acc = tl.zeros((WARPS, ROWS, D), tl.float32)
    begin = split * each
    at = _rows(table, begin + rw, begin + rb, tl.maximum(last, 0), shared, KV, PAGE, BN)
    for n in range(begin, tl.minimum(length, begin + each), WARPS * BN):
        place = at.to(tl.int64)[:, :, None] * D + rd[None, None, :]
        kk, vv = tl.load(k + place), tl.load(v + place)
        at = _rows(table, n + WARPS * BN + rw, n + WARPS * BN + rb, last, shared, KV, PAGE, BN)
        s = tl.dot(qw, tl.permute(kk, (0, 2, 1))) + tl.where(n + rb <= last, 0.0, float("-inf"))[:, None, :]
        mn = tl.maximum(mi, tl.max(s, 2) * scale)
        p = tl.math.exp2(s * scale - mn[:, :, None])
        al = tl.math.exp2(mi - mn)
        li = li * al + tl.sum(p, 2)
        acc = tl.dot(p.to(vv.dtype), vv, acc * al[:, :, None])
        mi = mn
    top = tl.max(mi, 0)
    factor = tl.math.exp2(mi - top[None, :])
    every, total = tl.sum(acc * factor[:, :, None], 0), tl.sum(li * factor, 0)
    finish(every, total, top, o, work, stats, locks, split, parts, rg, rd, GROUP, HEADS, D, SPLITS, SPLITS, FAN, AT_ONCE)


def spread_lengths(sequences: int, longest: int) -> torch.Tensor:
    """Return the tokens of each sequence [sequences], int64: as many short ones as long ones, up to `longest`."""
    return -(-longest * torch.arange(1, sequences + 1) // sequences)


class PagedDecodeAttention(OneKernel):
    """B sequences of ⌈N/B⌉, ⌈2N/B⌉ … N tokens; the seed draws their order, and where in the pool each page lies."""

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        super().__init__()
        self.B, self.H, self.KV, self.N, self.D, self.PAGE = sizes(shape, "B", "H", "KV", "N", "D", "PAGE")
        for name, value in (("D", self.D), ("PAGE", self.PAGE)):
            if value < 16 or value & (value - 1):
                raise ValueError(f"shape: {name} must be a power of two of at least 16, not {value}")
        if self.H % self.KV:
            raise ValueError(f"shape: {self.H} heads cannot share {self.KV} heads of keys evenly")
        kind, pages = torch_dtype(dtype), triton.cdiv(self.N, self.PAGE)
        blocks = int((-(-spread_lengths(self.B, self.N) // self.PAGE)).sum())
        self.q, self.out = (torch.empty((self.B, self.H, self.D), device=device, dtype=kind) for _ in range(2))
        self.k, self.v = (torch.empty((blocks, self.PAGE, self.KV, self.D), device=device, dtype=kind) for _ in range(2))
        self.table = torch.empty((self.B, pages), device=device, dtype=torch.int32)
        self.lengths = torch.empty(self.B, device=device, dtype=torch.int32)
        self._workspace, self._stats = Workspace(device), Workspace(device)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.q, self.k, self.v)
        if self.q.device.type == "meta":
            return
        generator = generator_on(torch.device("cpu"), seed)
        lengths = spread_lengths(self.B, self.N)[torch.randperm(self.B, generator=generator)]
        used = torch.arange(self.table.shape[1])[None, :] < (-(-lengths // self.PAGE))[:, None]
        table = torch.full(self.table.shape, UNUSED, dtype=torch.int32)
        table[used] = torch.randperm(len(self.k), generator=generator).int()
        self.table.copy_(table)
        self.lengths.copy_(lengths)

    def reference(self) -> torch.Tensor:
        full_precision()
        parts = []
        for q, pages, length in zip(self.q, self.table, self.lengths.tolist(), strict=True):      # a float32 copy of one at a time
            used = pages[:-(-length // self.PAGE)].long()
            k, v = (pool[used].flatten(0, 1)[:length].float().transpose(0, 1) for pool in (self.k, self.v))    # [KV, length, D]
            scores = q.float().view(self.KV, -1, self.D) @ k.transpose(1, 2) / math.sqrt(self.D)
            parts.append((torch.softmax(scores, -1) @ v).view(self.H, self.D))
        return torch.stack(parts)

    def library(self) -> torch.Tensor:
        """Gather the pages of all sequences, up to the longest one, then SDPA; with a mask where sequences differ.

        Heads that share keys are queries of one head there: a mask and grouped heads together have no fast kernel in torch.
        """
        pages = self.table.clamp(min=0).long()
        k, v = (pool[pages].flatten(1, 2)[:, :self.N].transpose(1, 2) for pool in (self.k, self.v))            # [B, KV, N, D]
        if self.B == 1:
            q, grouped = self.q.unsqueeze(2), self.KV != self.H
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=grouped).view(self.out.shape)
        mask = torch.arange(self.N, device=k.device)[None, None, None, :] < self.lengths[:, None, None, None]
        q = self.q.view(self.B, self.KV, -1, self.D)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).view(self.out.shape)

    def _call(self, config: Config) -> Launch:
        group, splits, heads, warps = self.H // self.KV, config["SPLITS"], self.B * self.KV, config["num_warps"]
        rows, shared = max(LEAST_ROWS, triton.next_power_of_2(group)), triton.next_power_of_2(group)
        options = {"D": self.D, "PAGE": self.PAGE, "GROUP": group, "HEADS": shared, "ROWS": rows, "FAN": FAN,
                   "AT_ONCE": parts_at_once(shared, self.D, warps),
                   **{key: config[key] for key in ("BN", "SPLITS", "num_warps", "num_stages")}}
        step = config["BN"]
        if config["KERNEL"] == "warps":
            options["WARPS"], step = warps, step * warps
        work = stats = locks = None
        if splits > 1:
            left, counts = slots(splits)
            work, locks = self._workspace.of(heads * left * group * self.D, heads * counts)
            stats, _ = self._stats.of(heads * left * group * 2, 0)
        args = (self.q, self.k, self.v, self.out, self.table, self.lengths, work, stats, locks, self.KV, self.table.shape[1],
                triton.cdiv(triton.cdiv(self.N, step), splits) * step, LOG2_E / math.sqrt(self.D))
        return paged_attn_warps if config["KERNEL"] == "warps" else paged_attn_blocks, (heads, splits), args, options


PROBLEMS = {"paged_decode_attention": PagedDecodeAttention}
