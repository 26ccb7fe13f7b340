"""A decoder's step written once over a table of operators: `Library` is torch's own calls, `tests.gpu.step.served` the client's.

Llama's form: RMS norm, projections, rotary embedding, causal attention of grouped queries, residual, SiLU-mul MLP; bf16 with random
weights. Weights stand as [in, out], so that every projection is `x @ w`; queries and keys are one projection, gate and up another.
The same in every variant: only who computes an operator differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from tuner.tuning.kernels.norms import EPSILON
from tuner.tuning.kernels.problem import DTYPES
from tuner.tuning.kernels.tokens import BASE

Shape = dict[str, int]
Case = tuple[str, Shape, int]          # operator, shape, how often a step calls it


@dataclass(frozen=True)
class Sizes:
    """Numbers of a model and of its two steps: by default eight layers of Llama 3 8B."""

    layers: int = 8
    width: int = 4096
    heads: int = 32
    kv: int = 8
    head: int = 128                    # numbers of a head
    hidden: int = 14336
    vocabulary: int = 128256
    sequences: int = 4                 # of the prefill step
    tokens: int = 2048                 # … of each
    batch: int = 16                    # sequences of the decode step
    cache: int = 8192                  # tokens that each has, the new one included
    dtype: str = "bf16"                # of weights, activations and caches

    def cases(self, step: str) -> list[Case]:
        """Return the operators of a step, "prefill" or "decode", with their shapes."""
        rows = self.sequences * self.tokens if step == "prefill" else self.batch
        keys, heads = self.kv * self.head, {"H": self.heads, "KV": self.kv}
        projections = ((self.heads * self.head + keys, self.width), (keys, self.width), (self.width, self.heads * self.head),
                       (2 * self.hidden, self.width), (self.width, self.hidden))       # N and K: q|k, v, output, gate|up, down
        attention: Case = (
            ("gqa_attention", {"B": self.sequences, **heads, "N": self.tokens, "D": self.head, "causal": 1}, self.layers)
            if step == "prefill" else
            ("decode_attention", {"B": self.batch, **heads, "N": self.cache, "D": self.head}, self.layers))
        loss: list[Case] = [("cross_entropy", {"R": rows, "C": self.vocabulary}, 1)] if step == "prefill" else []
        return [("embedding", {"T": rows, "V": self.vocabulary, "C": self.width}, 1),
                ("rmsnorm", {"R": rows, "C": self.width}, 1),
                ("add_rmsnorm", {"R": rows, "C": self.width}, 2 * self.layers),
                *(("matmul", {"M": rows, "N": n, "K": k}, self.layers) for n, k in projections),
                ("rotary", {"T": rows, "H": self.heads + self.kv, "D": self.head}, self.layers), attention,
                ("silu_mul", {"R": rows, "C": self.hidden}, self.layers),
                ("matmul", {"M": rows, "N": self.vocabulary, "K": self.width}, 1), *loss]


@dataclass
class Layer:
    """Weights of one layer, each [in, out]; norms [width]."""

    before: torch.Tensor               # norm ahead of attention
    qk: torch.Tensor
    v: torch.Tensor
    output: torch.Tensor
    after: torch.Tensor                # norm ahead of the MLP
    gate_up: torch.Tensor
    down: torch.Tensor


class Weights:
    """Random weights, the same ones for the same seed on the same device."""

    def __init__(self, sizes: Sizes, device: torch.device, seed: int = 1) -> None:
        kind = DTYPES[sizes.dtype]
        generator = torch.Generator(device=device).manual_seed(seed)

        def random(rows: int, columns: int) -> torch.Tensor:
            made = torch.empty((rows, columns), device=device, dtype=kind)
            return made.normal_(std=rows ** -0.5, generator=generator)

        def ones() -> torch.Tensor:
            return torch.empty(sizes.width, device=device, dtype=kind).normal_(1.0, 0.1, generator=generator)

        self.sizes, attended, keys = sizes, sizes.heads * sizes.head, sizes.kv * sizes.head
        self.table = random(sizes.vocabulary, sizes.width).mul_(sizes.vocabulary ** 0.5)
        self.layers = [Layer(ones(), random(sizes.width, attended + keys), random(sizes.width, keys), random(attended, sizes.width),
                             ones(), random(sizes.width, 2 * sizes.hidden), random(sizes.hidden, sizes.width))
                       for _ in range(sizes.layers)]
        self.norm, self.head = ones(), random(sizes.width, sizes.vocabulary)
        turns = BASE ** (-torch.arange(0, sizes.head, 2, device=device, dtype=torch.float32) / sizes.head)
        positions = torch.arange(max(sizes.tokens, sizes.cache), device=device, dtype=torch.float32)
        angles = positions[:, None] * turns
        self.angles = torch.cat((angles.cos(), angles.sin()), -1).to(kind)       # [positions, head]: cosines | sines


class Library:
    """Each operator by torch's own call, as a model's author writes it. Tensors and shapes as in `tuner.tuning.kernels`."""

    def embedding(self, table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, table)

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    def rmsnorm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, EPSILON)

    def add_rmsnorm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the norm of the sum, and the sum."""
        total = x + residual
        return functional.rms_norm(total, (x.shape[-1],), weight, EPSILON), total

    def rotary(self, x: torch.Tensor, angles: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        cos, sin = angles[positions][:, None, :].chunk(2, -1)
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Causal attention of q[B, H, N, D] on k, v[B, KV, N, D], with any strides: the same shape as q."""
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def decode_attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention of one query q[B, H, D] a sequence on k, v[B, KV, N, D]."""
        return functional.scaled_dot_product_attention(q.unsqueeze(2), k, v, enable_gqa=True).squeeze(2)

    def silu_mul(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        return functional.silu(gate) * up

    def cross_entropy(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(x, targets, reduction="none")


class Exact(Library):
    """Every operator in float32 from what it is given: the reference. Products without tf32 (`full_precision`)."""

    def embedding(self, table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return table[ids].float()

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b.float()

    def rmsnorm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return super().rmsnorm(x, weight.float())

    def add_rmsnorm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().add_rmsnorm(x, residual, weight.float())

    def rotary(self, x: torch.Tensor, angles: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return super().rotary(x, angles.float(), positions)

    def attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        rows = [slice(place, place + 1) for place in range(len(q))]
        return torch.cat([super(Exact, self).attention(q[row], k[row], v[row]) for row in rows])

    def decode_attention(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        rows = [slice(place, place + 1) for place in range(len(q))]            # a float32 copy of one sequence's cache at a time
        return torch.cat([super(Exact, self).decode_attention(q[row], k[row].float(), v[row].float()) for row in rows])


Attend = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]     # layer, turned q|k, v -> [rows, heads · head]


def decoder(use: Library, weights: Weights, ids: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
    """Return the logits [rows, vocabulary] of the tokens ids[rows] at positions[rows]."""
    sizes = weights.sizes
    kept = use.embedding(weights.table, ids)
    normed = use.rmsnorm(kept, weights.layers[0].before)
    for number, layer in enumerate(weights.layers):
        qk = use.matmul(normed, layer.qk).view(-1, sizes.heads + sizes.kv, sizes.head)
        turned = use.rotary(qk, weights.angles, positions)
        attended = attend(number, turned, use.matmul(normed, layer.v))
        normed, kept = use.add_rmsnorm(use.matmul(attended, layer.output), kept, layer.after)
        mlp = use.matmul(use.silu_mul(use.matmul(normed, layer.gate_up)), layer.down)
        last = number + 1 == len(weights.layers)
        normed, kept = use.add_rmsnorm(mlp, kept, weights.norm if last else weights.layers[number + 1].before)
    return use.matmul(normed, weights.head)


class Prefill:
    """Forward step of `sequences` × `tokens` tokens with the loss of each next token."""

    name = "prefill"

    def __init__(self, weights: Weights, device: torch.device, seed: int = 2) -> None:
        self.weights, sizes = weights, weights.sizes
        generator = torch.Generator(device=device).manual_seed(seed)
        tokens = torch.randint(0, sizes.vocabulary, (sizes.sequences, sizes.tokens + 1), generator=generator, device=device)
        self.ids, self.targets = tokens[:, :-1].flatten(), tokens[:, 1:].flatten()
        self.positions = torch.arange(sizes.tokens, device=device).repeat(sizes.sequences)

    def run(self, use: Library) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits [rows, vocabulary] and losses [rows]."""
        sizes = self.weights.sizes

        def attend(number: int, turned: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            split = (sizes.sequences, sizes.tokens, -1, sizes.head)
            qk = turned.view(split).transpose(1, 2)
            q, k = qk[:, :sizes.heads], qk[:, sizes.heads:]
            return use.attention(q, k, v.view(split).transpose(1, 2)).transpose(1, 2).reshape(-1, sizes.heads * sizes.head)

        logits = decoder(use, self.weights, self.ids, self.positions, attend)
        return logits, use.cross_entropy(logits, self.targets)


class Decode:
    """One token more for each of `batch` sequences: its keys and values go into the cache; the likeliest next token comes out."""

    name = "decode"

    def __init__(self, weights: Weights, device: torch.device, seed: int = 3) -> None:
        self.weights, sizes = weights, weights.sizes
        generator = torch.Generator(device=device).manual_seed(seed)
        self.ids = torch.randint(0, sizes.vocabulary, (sizes.batch,), generator=generator, device=device)
        self.place = torch.full((1,), sizes.cache - 1, device=device)              # of the new token in the cache
        self.positions = torch.full((sizes.batch,), sizes.cache - 1, device=device)
        shape, kind = (sizes.batch, sizes.kv, sizes.cache, sizes.head), DTYPES[sizes.dtype]
        self.caches = [tuple(torch.empty(shape, device=device, dtype=kind).normal_(generator=generator) for _ in range(2))
                       for _ in weights.layers]

    def run(self, use: Library) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits [batch, vocabulary] and the token of each sequence."""
        sizes = self.weights.sizes

        def attend(number: int, turned: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self.caches[number]
            keys[:, :, self.place] = turned[:, sizes.heads:].unsqueeze(2).to(keys.dtype)
            values[:, :, self.place] = v.view(-1, sizes.kv, 1, sizes.head).to(values.dtype)
            return use.decode_attention(turned[:, :sizes.heads], keys, values).reshape(-1, sizes.heads * sizes.head)

        logits = decoder(use, self.weights, self.ids, self.positions, attend)
        return logits, logits.argmax(-1)


Step = Any      # a Prefill or a Decode
