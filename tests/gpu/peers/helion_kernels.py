"""The bench's operators in Helion's language, written as its documentation has one write: tiles, no configuration named.

Imported only where Helion is installed. `kernel` makes one with a bounded search, `arguments` are a Problem's own tensors; it
returns what the Problem's library() returns. Rows are whole where Helion rolls them itself, products accumulate in float32.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import helion
import helion.language as hl
import torch

LOG2_E = 1.4426950408889634
MOST_COMPILE_S = 20        # of one configuration


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A[M, K] · B[K, N]."""
    rows, depth = a.size()
    columns = b.size(1)
    out = torch.empty([rows, columns], dtype=a.dtype, device=a.device)
    for tile_m, tile_n in hl.tile([rows, columns]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(depth):
            total = torch.addmm(total, a[tile_m, tile_k], b[tile_k, tile_n])
        out[tile_m, tile_n] = total.to(out.dtype)
    return out


def matmul_bias_act(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, act: hl.constexpr) -> torch.Tensor:
    """act(A[M, K] · B[K, N] + bias[N]): 0 none, 1 ReLU, 2 GELU (tanh form), 3 SiLU."""
    rows, depth = a.size()
    columns = b.size(1)
    out = torch.empty([rows, columns], dtype=a.dtype, device=a.device)
    for tile_m, tile_n in hl.tile([rows, columns]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(depth):
            total = torch.addmm(total, a[tile_m, tile_k], b[tile_k, tile_n])
        total = total + bias[tile_n].to(torch.float32)[None, :]
        if act == 1:
            total = torch.relu(total)
        if act == 2:      # 0.5 · (1 + tanh(u)) is sigmoid(2u)
            total = total * torch.sigmoid(1.5957691216057308 * (total + 0.044715 * total * total * total))
        if act == 3:
            total = total * torch.sigmoid(total)
        out[tile_m, tile_n] = total.to(out.dtype)
    return out


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, group: hl.constexpr,
              causal: hl.constexpr) -> torch.Tensor:
    """softmax(q kᵀ) v of q[heads, N, D] and k, v[heads / group, N, D], by a running maximum; `scale` is log₂e / √D."""
    heads, rows, width = q.size()
    width = hl.specialize(width)
    out = torch.empty_like(q)
    for tile_h, tile_m in hl.tile([heads, rows], block_size=[1, None]):
        head = tile_h.begin
        top = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        gathered = hl.zeros([tile_m, width], dtype=torch.float32)
        queries = q[head, tile_m, :]
        last = rows
        if causal:
            last = tile_m.end
        for tile_n in hl.tile(0, last):
            scores = hl.dot(queries, k[head // group, tile_n, :].T) * scale
            if causal:
                scores = torch.where(tile_m.index[:, None] >= tile_n.index[None, :], scores, float("-inf"))
            higher = torch.maximum(top, torch.amax(scores, -1))
            weights = torch.exp2(scores - higher[:, None])
            kept = torch.exp2(top - higher)
            total = total * kept + torch.sum(weights, -1)
            gathered = hl.dot(weights.to(v.dtype), v[head // group, tile_n, :], acc=gathered * kept[:, None])
            top = higher
        out[head, tile_m, :] = (gathered / total[:, None]).to(out.dtype)
    return out


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row of X[R, C]."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :].to(torch.float32)
        powers = torch.exp(row - torch.amax(row, -1, keepdim=True))
        out[tile, :] = (powers / torch.sum(powers, -1, keepdim=True)).to(out.dtype)
    return out


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Layer norm of each row of X[R, C]."""
    rows, columns = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(rows):
        row = x[tile, :].to(torch.float32)
        centred = row - torch.sum(row, -1, keepdim=True) / columns
        scale = torch.rsqrt(torch.sum(centred * centred, -1, keepdim=True) / columns + eps)
        out[tile, :] = (centred * scale * weight[:].to(torch.float32) + bias[:].to(torch.float32)).to(out.dtype)
    return out


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm of each row of X[R, C]."""
    rows, columns = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(rows):
        row = x[tile, :].to(torch.float32)
        scale = torch.rsqrt(torch.sum(row * row, -1, keepdim=True) / columns + eps)
        out[tile, :] = (row * scale * weight[:].to(torch.float32)).to(out.dtype)
    return out


def cross_entropy(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """log Σ exp(row) − row[target] of each row of X[R, C], float32, with a running maximum over blocks of columns."""
    rows, columns = x.size()
    losses = torch.empty([rows], dtype=torch.float32, device=x.device)
    flat = x.view(-1)
    for tile_r in hl.tile(rows):
        top = hl.full([tile_r], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_r], dtype=torch.float32)
        for tile_c in hl.tile(columns):
            block = x[tile_r, tile_c].to(torch.float32)
            higher = torch.maximum(top, torch.amax(block, -1))
            total = total * torch.exp(top - higher) + torch.sum(torch.exp(block - higher[:, None]), -1)
            top = higher
        named = hl.load(flat, [tile_r.index * columns + targets[tile_r]]).to(torch.float32)
        losses[tile_r] = top - named + torch.log(total)
    return losses


def embedding(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """table[ids]: Y[T, C]."""
    tokens, columns = ids.size(0), table.size(1)
    out = torch.empty([tokens, columns], dtype=table.dtype, device=table.device)
    for tile_t, tile_c in hl.tile([tokens, columns]):
        out[tile_t, tile_c] = table[ids[tile_t], tile_c]
    return out


def rotary(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """The halves of each head of X[T, H, D] turned by the cosines and sines that table[position, D] holds."""
    tokens, heads, width = x.size()
    half = hl.specialize(width // 2)
    out = torch.empty_like(x)
    given, turned, angles = x.view(tokens, heads, 2, half), out.view(tokens, heads, 2, half), table.view(-1, 2, half)
    for tile_t, tile_h in hl.tile([tokens, heads]):
        place = positions[tile_t]
        cos = angles[place, 0, :].to(torch.float32)[:, None, :]
        sin = angles[place, 1, :].to(torch.float32)[:, None, :]
        first = given[tile_t, tile_h, 0, :].to(torch.float32)
        second = given[tile_t, tile_h, 1, :].to(torch.float32)
        turned[tile_t, tile_h, 0, :] = (first * cos - second * sin).to(out.dtype)
        turned[tile_t, tile_h, 1, :] = (second * cos + first * sin).to(out.dtype)
    return out


def silu_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(gate) · up of X[R, 2C] = gate | up."""
    rows, both = x.size()
    columns = both // 2
    out = torch.empty([rows, columns], dtype=x.dtype, device=x.device)
    parts = x.view(rows, 2, columns)
    for tile_r, tile_c in hl.tile([rows, columns]):
        gate = parts[tile_r, 0, tile_c].to(torch.float32)
        out[tile_r, tile_c] = (gate * torch.sigmoid(gate) * parts[tile_r, 1, tile_c].to(torch.float32)).to(out.dtype)
    return out


FUNCTIONS = {each.__name__: each for each in (matmul, matmul_bias_act, attention, softmax, layernorm, rmsnorm, cross_entropy,
                                              embedding, rotary, silu_mul)} | {"gqa_attention": attention}


def arguments(operator: str, problem: Any) -> tuple[Any, ...]:
    """Return what the operator's function takes, from a Problem of it."""
    if operator in ("attention", "gqa_attention"):
        q, k, v = (tensor.view(-1, problem.N, problem.D) for tensor in (problem.q, problem.k, problem.v))
        return q, k, v, LOG2_E / math.sqrt(problem.D), problem.H // problem.KV, problem.causal
    names = {"matmul": "a b", "matmul_bias_act": "a b bias act", "softmax": "x", "layernorm": "x weight bias",
             "rmsnorm": "x weight", "cross_entropy": "x targets", "embedding": "table ids", "rotary": "x table positions",
             "silu_mul": "x"}[operator]
    given = tuple(getattr(problem, name) for name in names.split())
    return (*given, 1e-5) if operator in ("layernorm", "rmsnorm") else given


def kernel(operator: str, effort: str, seconds: int) -> Any:
    """Return the operator as a Helion kernel whose autotuner stops at its first look at the clock after `seconds`.

    effort   "none" (Helion's default configuration), "quick" or "full", Helion's own words
    """
    return helion.kernel(FUNCTIONS[operator], static_shapes=True, autotune_effort=effort, autotune_budget_seconds=seconds,
                         autotune_compile_timeout=MOST_COMPILE_S, autotune_progress_bar=False,
                         autotune_ignore_errors=True, autotune_log_level=logging.ERROR)
