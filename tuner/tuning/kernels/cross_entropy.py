"""Cross entropy of each row of logits X[R, C] with the class that its target names: log Σ exp(x) − x[target], in float32.

xent_rows    ROWS whole rows at a time, held in registers
xent_blocks  a row in blocks of BLOCK columns, read once, with a running maximum and sum (Milakov and Gimelshein 2018); SPLIT
             programs share a row, and the last one to end adds their parts up. Each thread has a maximum and a sum of its own:
             threads wait for each other once a row

Logits of −inf are classes that a mask left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.matmul_parts import came_last
from tuner.tuning.kernels.problem import (
    Launch,
    OneKernel,
    Workspace,
    check_elements,
    generator_on,
    normal_tensors,
    sizes,
    torch_dtype,
)
from tuner.tuning.trial import Config


@triton.jit
def xent_rows(x, targets, losses, rows, cols, sx, BLOCK: tl.constexpr, ROWS: tl.constexpr, UNIT: tl.constexpr):
    cols, sx = in_units(cols, UNIT), in_units(sx, UNIT)
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, BLOCK)[None, :]
    v = tl.load(x + r[:, None] * sx + i, mask=(i < cols) & (r[:, None] < rows), other=-float("inf")).to(tl.float32)
    top = tl.maximum(tl.max(v, 1), -1e30)
    total = tl.sum(tl.exp(v - top[:, None]), 1)
    target = tl.load(targets + r, mask=r < rows, other=0)
    right = tl.load(x + r * sx + target, mask=r < rows, other=0.0).to(tl.float32)
    tl.store(losses + r, top - right + tl.log(total), mask=r < rows)      # of large logits only the difference is exact


@triton.jit
def _of_thread(v, THREADS: tl.constexpr, WIDE: tl.constexpr):
    """A block as what each thread loaded of it: WIDE numbers side by side, every THREADS · WIDE numbers."""
    return tl.reshape(v, (v.shape[0] // (THREADS * WIDE), THREADS, WIDE))


@triton.jit
def xent_blocks(x, targets, losses, cols, sx, work, counts, BLOCK: tl.constexpr, SPLIT: tl.constexpr, THREADS: tl.constexpr,
                WIDE: tl.constexpr, UNROLL: tl.constexpr, UNIT: tl.constexpr):
    cols, sx = in_units(cols, UNIT), in_units(sx, UNIT)
    pid = tl.program_id(0)
    row, part = pid // SPLIT, pid % SPLIT
    x += row * sx
    highest = tl.full((THREADS,), -1e30, tl.float32)
    sums = tl.zeros((THREADS,), tl.float32)
    for o in tl.range(part * BLOCK, cols, SPLIT * BLOCK, loop_unroll_factor=UNROLL):
        i = o + tl.arange(0, BLOCK)
        v = tl.load(x + i, mask=i < cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(tl.max(_of_thread(v, THREADS, WIDE), 2), 0))
        added = tl.exp(_of_thread(v, THREADS, WIDE) - higher[None, :, None])
        sums = sums * tl.exp(highest - higher) + tl.sum(tl.sum(added, 2), 0)
        highest = higher
    top = tl.max(highest, 0)
    total = tl.sum(sums * tl.exp(highest - top), 0)
    if SPLIT == 1:
        tl.store(losses + row, top - tl.load(x + tl.load(targets + row)).to(tl.float32) + tl.log(total))
    else:
        tl.store(work + 2 * pid, top)
        tl.store(work + 2 * pid + 1, total)
        if came_last(counts, row, SPLIT):
            at = work + 2 * (row * SPLIT + tl.arange(0, SPLIT))
            tops, totals = tl.load(at, cache_modifier=".cg"), tl.load(at + 1, cache_modifier=".cg")
            top = tl.max(tops, 0)
            total = tl.sum(totals * tl.exp(tops - top), 0)
            tl.store(losses + row, top - tl.load(x + tl.load(targets + row)).to(tl.float32) + tl.log(total))


class CrossEntropy(OneKernel):
    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.R, self.C = sizes(shape, "R", "C")
        check_elements(X=self.R * self.C)
        self.x = torch.empty((self.R, self.C), device=device, dtype=torch_dtype(dtype))
        self.targets = torch.empty(self.R, device=device, dtype=torch.int64)
        self.out = torch.empty(self.R, device=device, dtype=torch.float32)
        self._workspace = Workspace(device)
        super().__init__()
        self.refill(seed)

    def refill(self, seed: int) -> None:
        normal_tensors(seed, self.x)
        self.targets.random_(0, self.C, generator=generator_on(self.x.device, seed + 1))

    def reference(self) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.x.float(), self.targets, reduction="none")

    def library(self) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.x, self.targets, reduction="none")

    def _call(self, config: Config) -> Launch:
        block, split, rows = int(config["BLOCK"]), int(config["SPLIT"]), int(config["ROWS"])
        options = {"BLOCK": block, "UNIT": unit_of(self.C), "num_warps": config["num_warps"]}
        if block >= self.C:
            whole = (self.x, self.targets, self.out, self.R, self.C, self.x.stride(0))
            return xent_rows, (triton.cdiv(self.R, rows),), whole, {**options, "ROWS": rows}
        work, counts = self._workspace.of(2 * self.R * split, self.R) if split > 1 else (None, None)
        args = (self.x, self.targets, self.out, self.C, self.x.stride(0), work, counts)
        return xent_blocks, (self.R * split,), args, {
            **options, **self._per_thread(block, 32 * int(config["num_warps"])), "SPLIT": split,
            "UNROLL": config.get("UNROLL", 1)}

    def _per_thread(self, block: int, threads: int) -> dict[str, int]:
        """Return how the compiler deals a block out: 16 bytes to a thread as far as rows and threads allow."""
        wide = min(unit_of(self.C), 16 // self.x.element_size(), max(1, block // threads))
        return {"THREADS": min(threads, block // wide), "WIDE": wide}


PROBLEMS = {"cross_entropy": CrossEntropy}
