"""The K largest of each row of X[R, C] and where they stand: out[0] are the values, in order, out[1] their columns, in float32.

KERNEL  sorting    a value and its column are one number, so that a comparison of numbers orders both: equal values stand by column.
                   Rows go in blocks of BLOCK columns; a block that holds nothing above the least of the K found so far is not
                   sorted. SPLIT programs share a row, and a second kernel takes the K largest of what they found. For K = 1
                   maxima do
        threshold  see tuner.tuning.kernels.top_k_threshold: SPLIT programs a row, which walk it in blocks of BLOCK columns
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.problem import Calls, Launch, check_elements, normal_tensors, sizes, torch_dtype
from tuner.tuning.kernels.top_k_threshold import top_k_candidates, top_k_ranks
from tuner.tuning.trial import Config

NARROW_COLUMNS = 1 << 16       # that 16 bits count: with a value of 16 bits they make a number of 32
FLOAT32_COLUMNS = 1 << 24      # that a float32 tells apart
LOWEST_KEY = {32: -2**31, 64: -2**63}
ABSENT = {"KERNEL": "sorting"}
LEAST_SLOTS = 32               # that a program of the threshold has for what it finds; twice K at least
GROUP = 8                      # columns side by side of which the largest is taken: what a load of 16 bytes brings
MEETING_BLOCK, MEETING_WARPS = 2048, 8      # of the program that takes the K largest of what a row's programs left


@triton.jit
def _keys(v, i, NARROW: tl.constexpr):
    """Numbers in the order of the values, equal ones by falling column."""
    if NARROW:
        bits = v.to(tl.int16, bitcast=True).to(tl.int32)
        bits = tl.where(bits == -32768, 0, bits)                            # of −0 and 0 neither is larger
        bits = bits ^ ((bits >> 15) & 0x7FFF)
        return (bits << 16) | (0xFFFF - i)
    else:
        wide = v.to(tl.float32).to(tl.int32, bitcast=True)
        wide = tl.where(wide == -2147483648, 0, wide)
        wide = wide ^ ((wide >> 31) & 0x7FFFFFFF)
        return (wide.to(tl.int64) << 32) | (0x7FFFFFFF - i).to(tl.int64)


@triton.jit
def _write(keys, values, columns, r, rows, k, KP: tl.constexpr, NARROW: tl.constexpr, DTYPE: tl.constexpr):
    """Take value and column out of the keys again."""
    if NARROW:
        bits = keys >> 16
        value = (bits ^ ((bits >> 15) & 0x7FFF)).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)
        column = 0xFFFF - (keys & 0xFFFF)
    else:
        wide = (keys >> 32).to(tl.int32)
        value = (wide ^ ((wide >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        column = 0x7FFFFFFF - (keys & 0x7FFFFFFF).to(tl.int32)
    j = tl.arange(0, KP)[None, :]
    m = (r[:, None] < rows) & (j < k)
    tl.store(values + r[:, None] * k + j, value, mask=m)
    tl.store(columns + r[:, None] * k + j, column.to(tl.float32), mask=m)


@triton.jit
def top_k_rows(x, values, columns, found, rows, cols, k, LOWEST: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr,
               ROWS: tl.constexpr, SPLIT: tl.constexpr, NARROW: tl.constexpr, UNIT: tl.constexpr):
    cols = in_units(cols, UNIT)
    pid = tl.program_id(0)
    part = pid % SPLIT
    r = (pid // SPLIT) * ROWS + tl.arange(0, ROWS)
    top = tl.full((ROWS, KP), LOWEST, tl.int32 if NARROW else tl.int64)
    for o in range(part * BLOCK, cols, SPLIT * BLOCK):
        i = o + tl.arange(0, BLOCK)[None, :]
        v = tl.load(x + r[:, None] * cols + i, mask=(i < cols) & (r[:, None] < rows), other=0.0)
        keys = tl.where(i < cols, _keys(v, i, NARROW), LOWEST)
        if tl.max((tl.max(keys, 1) > tl.min(top, 1)).to(tl.int32), 0) > 0:
            if KP == 1:
                top = tl.maximum(top, tl.max(keys, 1, keep_dims=True))
            else:
                # both fall: the larger of the first and the last, the second and the one before … are the KP largest of both
                top = tl.sort(tl.maximum(top, tl.flip(tl.topk(keys, KP, dim=1), 1)), 1, descending=True)
    if SPLIT == 1:
        _write(top, values, columns, r, rows, k, KP, NARROW, x.dtype.element_ty)
    else:
        at = found + (r[:, None] * SPLIT + part) * KP + tl.arange(0, KP)[None, :]
        tl.store(at, top, mask=r[:, None] < rows)


@triton.jit
def top_k_parts(x, values, columns, found, rows, k, KP: tl.constexpr, SPLIT: tl.constexpr, NARROW: tl.constexpr):
    """The K largest of a row's parts; `x` tells the type of the values."""
    r = tl.program_id(0) + tl.arange(0, 1)
    keys = tl.load(found + r[:, None] * (SPLIT * KP) + tl.arange(0, SPLIT * KP)[None, :])
    top = tl.max(keys, 1, keep_dims=True) if KP == 1 else tl.topk(keys, KP, dim=1)
    _write(top, values, columns, r, rows, k, KP, NARROW, x.dtype.element_ty)


class TopK:
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.R, self.C, self.K = sizes(shape, "R", "C", "K")
        if self.K > self.C:
            raise ValueError(f"shape: a row of {self.C:,} has no {self.K:,} largest")
        if self.C > FLOAT32_COLUMNS:
            raise ValueError(f"shape: C may be at most {FLOAT32_COLUMNS:,}: the columns of the result are float32")
        check_elements(X=self.R * self.C)
        self.x = torch.empty((self.R, self.C), device=device, dtype=torch_dtype(dtype))
        self.out = torch.empty((2, self.R, self.K), device=device, dtype=torch.float32)
        self.narrow = dtype != "fp32" and self.C <= NARROW_COLUMNS
        self._found: dict[int, torch.Tensor] = {}
        self._slots: dict[int, torch.Tensor] = {}
        self._calls = Calls(self._call)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x)

    def reference(self) -> torch.Tensor:
        """A stable sort: of equal values the first column comes first."""
        values, columns = torch.sort(self.x.float(), dim=-1, descending=True, stable=True)
        return torch.stack((values[:, :self.K], columns[:, :self.K].float()))

    def library(self) -> torch.Tensor:
        """The values; which of equal ones PyTorch names is not said."""
        return torch.topk(self.x, self.K, dim=-1).values

    def _call(self, config: Config) -> list[Launch]:
        if config.get("KERNEL", ABSENT["KERNEL"]) == "threshold":
            return self._threshold(config)
        rows, split = int(config["ROWS"]), int(config["SPLIT"])
        keys, bits = 1 << (self.K - 1).bit_length(), 32 if self.narrow else 64
        if split > 1 and split not in self._found:
            self._found[split] = torch.empty((self.R, split, keys), device=self.x.device,
                                             dtype=torch.int32 if self.narrow else torch.int64)
        found = self._found.get(split)
        options = {"KP": keys, "SPLIT": split, "NARROW": self.narrow, "num_warps": config["num_warps"]}
        first = (top_k_rows, (triton.cdiv(self.R, rows) * split,),
                 (self.x, self.out[0], self.out[1], found, self.R, self.C, self.K),
                 {**options, "LOWEST": LOWEST_KEY[bits], "UNIT": unit_of(self.C), "BLOCK": int(config["BLOCK"]),
                  "ROWS": rows})
        if split == 1:
            return [first]
        return [first, (top_k_parts, (self.R,), (self.x, self.out[0], self.out[1], found, self.R, self.K),
                        {**options, "num_warps": 4})]

    def _threshold(self, config: Config) -> list[Launch]:
        split, slots = int(config["SPLIT"]), max(LEAST_SLOTS, 2 * triton.next_power_of_2(self.K))
        numbers = 2 * self.R * (split + 1) * slots
        if numbers not in self._slots:
            self._slots = {numbers: torch.empty(numbers, device=self.x.device, dtype=torch.int32)}
        work = self._slots[numbers]
        options = {"SPLIT": split, "SLOTS": slots, "GROUP": GROUP, "WIDE": self.x.dtype == torch.float32}
        block = min(MEETING_BLOCK, max(slots, triton.next_power_of_2(split * slots)))
        return [(top_k_candidates, (self.R * split,), (self.x, work, self.R, self.C, self.K),
                 {**options, "UNIT": unit_of(self.C), "BLOCK": int(config["BLOCK"]), "num_warps": config["num_warps"]}),
                (top_k_ranks, (self.R,), (self.x, self.out[0], self.out[1], work, self.R, self.K),
                 {**options, "BLOCK": block, "num_warps": MEETING_WARPS})]

    def compile(self, config: Config) -> Any:
        return [kernel.warmup(*args, grid=grid, **options) for kernel, grid, args, options in self._call(config)]

    def launch(self, config: Config) -> Any:
        return [kernel[grid](*args, **options) for kernel, grid, args, options in self._calls.of(config)]


PROBLEMS = {"top_k": TopK}
