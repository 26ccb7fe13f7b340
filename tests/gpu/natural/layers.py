"""A decoder of plain torch with the habits that cases switch on: sizes of a Llama-8B's layers, random weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Cache = tuple[Tensor, Tensor]           # keys and values, [batch, KV heads, tokens, size]
HIDDEN, HEADS, KV_HEADS, SIZE, MLP = 4096, 32, 8, 128, 14336


class Layer(nn.Module):
    """`attention`: "fused", "repeat" (keys repeated), "written" (scores in memory), "mask" (an explicit one, built here)."""

    def __init__(self, attention: str = "fused", rank: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q, self.k = nn.Linear(HIDDEN, HEADS * SIZE, bias=False), nn.Linear(HIDDEN, KV_HEADS * SIZE, bias=False)
        self.v, self.o = nn.Linear(HIDDEN, KV_HEADS * SIZE, bias=False), nn.Linear(HEADS * SIZE, HIDDEN, bias=False)
        self.gate, self.up = nn.Linear(HIDDEN, MLP, bias=False), nn.Linear(HIDDEN, MLP, bias=False)
        self.down = nn.Linear(MLP, HIDDEN, bias=False)
        self.attention, self.dropout = attention, nn.Dropout(dropout)
        self.adapters = nn.ModuleDict({name: nn.Sequential(nn.Linear(each.in_features, rank, bias=False),
                                                           nn.Linear(rank, each.out_features, bias=False))
                                       for name, each in self.named_children() if isinstance(each, nn.Linear)} if rank else {})

    def project(self, name: str, x: Tensor) -> Tensor:
        out: Tensor = getattr(self, name)(x)
        return out + 2.0 * self.adapters[name](x) if name in self.adapters else out

    def forward(self, x: Tensor, cache: Cache | None = None, grown: list[Cache] | None = None) -> Tensor:
        batch, tokens, _ = x.shape
        h = self.norm1(x)
        q = self.project("q", h).view(batch, tokens, HEADS, SIZE).transpose(1, 2)
        k = self.project("k", h).view(batch, tokens, KV_HEADS, SIZE).transpose(1, 2)
        v = self.project("v", h).view(batch, tokens, KV_HEADS, SIZE).transpose(1, 2)
        if grown is not None and cache is not None:                 # a cache that grows by concatenation
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            grown.append((k, v))
        elif cache is not None:                                     # one that is written into
            cache[0][:, :, -1:].copy_(k)
            cache[1][:, :, -1:].copy_(v)
            k, v = cache
        x = x + self.dropout(self.project("o", self.attend(q, k, v).transpose(1, 2).reshape(batch, tokens, -1)))
        h = self.norm2(x)
        return x + self.dropout(self.project("down", functional.silu(self.project("gate", h)) * self.project("up", h)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        causal, repeats = q.shape[2] > 1, HEADS // KV_HEADS
        if self.attention == "fused":
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        if self.attention == "repeat":
            return functional.scaled_dot_product_attention(q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1),
                                                           is_causal=causal)
        if self.attention == "mask":
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
            mask = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, float("-inf"))
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[None, None], enable_gqa=True)
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        scores = q @ k.transpose(2, 3) / SIZE**0.5
        if causal:
            allowed = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
            scores = scores.masked_fill(~allowed, float("-inf"))
        return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


class Decoder(nn.Module):
    """`layers` layers between an embedding and a head over `vocabulary` entries."""

    def __init__(self, layers: int = 2, vocabulary: int = 32_000, recompute: bool = False, **habits: object) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, HIDDEN), nn.Linear(HIDDEN, vocabulary, bias=False)
        self.layers = nn.ModuleList(Layer(**habits) for _ in range(layers))     # type: ignore[arg-type]
        self.norm, self.recompute = nn.RMSNorm(HIDDEN), recompute

    def forward(self, ids: Tensor, last: bool = False, caches: list[Cache] | None = None,
                grown: list[Cache] | None = None) -> Tensor:
        x = self.embedding(ids)
        for number, layer in enumerate(self.layers):
            cache = caches[number] if caches else None
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x, cache, grown)
        x = self.norm(x[:, -1:] if last else x)
        out: Tensor = self.head(x)
        return out
