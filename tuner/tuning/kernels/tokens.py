"""What a language model does once a token: rows of an embedding table, rotary position embedding.

embedding  Y[T, C] = table[ids]: the rows that T tokens name
rotary     the two halves of each head turned by the angle of its token's position (Su et al. 2021, the form of GPT-NeoX and
           Llama): cosines and sines of all positions stand in a table [positions, D]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.problem import Launch, OneKernel, check_elements, generator_on, normal_tensors, sizes, torch_dtype
from tuner.tuning.trial import Config

BASE = 10000.0             # of the angles
POSITIONS = 4096           # of the table of angles at least


@triton.jit
def embedding(table, ids, y, tokens, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr, UNIT: tl.constexpr):
    cols = in_units(cols, UNIT)
    across = tl.cdiv(cols, BLOCK)
    pid = tl.program_id(0)
    r = (pid // across) * ROWS + tl.arange(0, ROWS)
    i = (pid % across) * BLOCK + tl.arange(0, BLOCK)[None, :]
    row = tl.load(ids + r, mask=r < tokens, other=0)[:, None]
    m = (r[:, None] < tokens) & (i < cols)
    tl.store(y + r[:, None] * cols + i, tl.load(table + row * cols + i, mask=m, other=0.0), mask=m)


@triton.jit
def rotary(x, table, positions, y, tokens, heads, TOKENS: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr):
    across = tl.cdiv(heads, HEADS)
    pid = tl.program_id(0)
    t = (pid // across) * TOKENS + tl.arange(0, TOKENS)
    h = (pid % across) * HEADS + tl.arange(0, HEADS)
    d = tl.arange(0, HALF)
    place = tl.load(positions + t, mask=t < tokens, other=0)[:, None] * (2 * HALF) + d[None, :]
    cos = tl.load(table + place, mask=(t < tokens)[:, None], other=0.0).to(tl.float32)[:, None, :]
    sin = tl.load(table + place + HALF, mask=(t < tokens)[:, None], other=0.0).to(tl.float32)[:, None, :]
    at = (t[:, None, None] * heads + h[None, :, None]) * (2 * HALF) + d[None, None, :]
    m = (t < tokens)[:, None, None] & (h < heads)[None, :, None]
    first = tl.load(x + at, mask=m, other=0.0).to(tl.float32)
    second = tl.load(x + at + HALF, mask=m, other=0.0).to(tl.float32)
    tl.store(y + at, (first * cos - second * sin).to(y.dtype.element_ty), mask=m)
    tl.store(y + at + HALF, (second * cos + first * sin).to(y.dtype.element_ty), mask=m)


class Embedding(OneKernel):
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        super().__init__()
        self.T, self.V, self.C = sizes(shape, "T", "V", "C")
        check_elements(table=self.V * self.C, Y=self.T * self.C)
        self.table = torch.empty((self.V, self.C), device=device, dtype=torch_dtype(dtype))
        self.ids = torch.empty(self.T, device=device, dtype=torch.int64)
        self.out = torch.empty((self.T, self.C), device=device, dtype=self.table.dtype)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.table)
        self.ids.random_(0, self.V, generator=generator_on(self.table.device, seed + 1))

    def reference(self) -> torch.Tensor:
        return self.table[self.ids].float()

    def library(self) -> torch.Tensor:
        return torch.nn.functional.embedding(self.ids, self.table)

    def _call(self, config: Config) -> Launch:
        rows, block = int(config["ROWS"]), int(config["BLOCK"])
        grid = (triton.cdiv(self.T, rows) * triton.cdiv(self.C, block),)
        options = {"ROWS": rows, "BLOCK": block, "UNIT": unit_of(self.C), "num_warps": config["num_warps"]}
        return embedding, grid, (self.table, self.ids, self.out, self.T, self.C), options


class Rotary(OneKernel):
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        super().__init__()
        self.T, self.H, self.D = sizes(shape, "T", "H", "D")
        if self.D < 4 or self.D & (self.D - 1):
            raise ValueError(f"shape: D must be a power of two of at least 4, not {self.D}")
        check_elements(X=self.T * self.H * self.D)
        kind = torch_dtype(dtype)
        self.x = torch.empty((self.T, self.H, self.D), device=device, dtype=kind)
        self.positions = torch.empty(self.T, device=device, dtype=torch.int64)
        turns = BASE ** (-torch.arange(0, self.D, 2, device=device, dtype=torch.float32) / self.D)
        angles = torch.arange(POSITIONS, device=device, dtype=torch.float32)[:, None] * turns
        self.table = torch.cat((angles.cos(), angles.sin()), -1).to(kind)
        self.out = torch.empty_like(self.x)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x)
        self.positions.random_(0, POSITIONS, generator=generator_on(self.x.device, seed + 1))

    def reference(self) -> torch.Tensor:
        return self._turned(self.x.float(), self.table.float())

    def library(self) -> torch.Tensor:
        """PyTorch has no operator of it: its own operations, as models write them."""
        return self._turned(self.x, self.table)

    def _turned(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        cos, sin = table[self.positions][:, None, :].chunk(2, -1)
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def _call(self, config: Config) -> Launch:
        tokens, heads = int(config["TOKENS"]), int(config["HEADS"])
        grid = (triton.cdiv(self.T, tokens) * triton.cdiv(self.H, heads),)
        options = {"TOKENS": tokens, "HEADS": heads, "HALF": self.D // 2, "num_warps": config["num_warps"]}
        return rotary, grid, (self.x, self.table, self.positions, self.out, self.T, self.H), options


PROBLEMS = {"embedding": Embedding, "rotary": Rotary}
