"""Record Triton kernels with one known fault each, and three without, under Nsight Compute.

    python -m tests.gpu.faults.triton_kernels FOLDER

Writes `triton_planted.ncu-rep.gz`: the kernels in the order of `main`, one launch each.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:                                             # the web environment holds neither
    triton = tl = None                                          # type: ignore[assignment]

NCU = ("ncu", "--clock-control", "none", "-f", "--profile-from-start", "off", "--set", "full", "--import-source", "yes")


def add_near_roof(x, y, out, n, BLOCK: tl.constexpr):                 # no fault: reads and writes at the DRAM's rate
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


def contended_atomics(x, out, n, BLOCK: tl.constexpr):                # every number is added to one of four addresses
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at % 4, tl.load(x + at, mask=at < n), mask=at < n)


def strided_loads(x, out, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):    # neighbours are STRIDE elements apart
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + (at % (n // STRIDE)) * STRIDE + at // (n // STRIDE), mask=at < n), mask=at < n)


def few_programs(x, out, n, BLOCK: tl.constexpr):                     # 16 programs walk over everything
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, BLOCK * 16):
        at = start + tl.arange(0, BLOCK)
        sums += tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(sums, 0))


def spilled_registers(x, out, BLOCK: tl.constexpr):                   # a tile of 64 K numbers in one warp's registers
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    at = tl.program_id(0) * BLOCK * BLOCK + rows[:, None] * BLOCK + columns[None, :]
    tile = tl.load(x + at)
    for _ in range(4):
        tile = tile * tl.sum(tile, 1)[:, None] + tl.sum(tile, 0)[None, :]
    tl.store(out + at, tile)


def divisions(x, out, n, BLOCK: tl.constexpr):                        # fp64 where fp32 would do
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float64)
    for _ in range(64):
        value = value * 1.0000001 + 0.5
    tl.store(out + at, value.to(tl.float32), mask=at < n)


def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + row[:, None] * K + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * N + column[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * N + column[None, :], total.to(tl.bfloat16))


def launches() -> list[tuple[str, Any]]:
    """(what is known of it, a function that launches it once), in the order they are profiled."""
    import torch

    compiled = {each.__name__: triton.jit(each) for each in
                (add_near_roof, contended_atomics, strided_loads, few_programs, spilled_registers, divisions)}
    n = 1 << 26
    x, y, out = (torch.rand(n, device="cuda") for _ in range(3))
    a, b, c = (torch.rand(4096, 4096, device="cuda").bfloat16() for _ in range(3))
    few, blocks = n // 16, (triton.cdiv(n, 1024),)

    def multiply(name: str, bm: int, bn: int, bk: int, warps: int, stages: int) -> Any:
        grid, kernel = (4096 // bm, 4096 // bn), triton.jit(product, repr=lambda _: name)
        return lambda: kernel[grid](a, b, c, 4096, 4096, 4096, BM=bm, BN=bn, BK=bk, num_warps=warps, num_stages=stages)

    return [("add_near_roof", lambda: compiled["add_near_roof"][blocks](x, y, out, n, BLOCK=1024)),
            ("contended_atomics", lambda: compiled["contended_atomics"][(triton.cdiv(few, 1024),)](x, out, few, BLOCK=1024)),
            ("strided_loads", lambda: compiled["strided_loads"][blocks](x, out, n, STRIDE=4096, BLOCK=1024)),
            ("few_programs", lambda: compiled["few_programs"][(16,)](x, out, n, BLOCK=1024)),
            ("spilled_registers", lambda: compiled["spilled_registers"][(4096,)](x, out, BLOCK=128, num_warps=1)),
            ("divisions", lambda: compiled["divisions"][blocks](x, out, n, BLOCK=1024)),
            ("product_large_tiles", multiply("product_large_tiles", 128, 256, 64, 8, 4)),
            ("product_small_tiles", multiply("product_small_tiles", 32, 32, 32, 4, 3)),
            ("product_one_stage", multiply("product_one_stage", 128, 128, 64, 8, 1))]


def profile() -> None:
    import torch

    every = launches()
    for _, launch in every:
        launch()                                                # compiled before it is measured
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for name, launch in every:
        launch()
        print(name)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def main() -> None:
    if sys.argv[1:] == ["profile"]:
        return profile()
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "triton_planted.ncu-rep"
    subprocess.run([*NCU, "-o", str(report.with_suffix("")), sys.executable, "-m", "tests.gpu.faults.triton_kernels", "profile"],
                   check=True, timeout=500)
    with open(report, "rb") as source, gzip.open(f"{report}.gz", "wb") as target:
        shutil.copyfileobj(source, target)
    report.unlink()


if __name__ == "__main__":
    main()
