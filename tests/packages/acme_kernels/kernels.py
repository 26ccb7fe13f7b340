"""Kernels as a team has them before it hears of Ridgepoint: autotuned by Triton, or with constants in the launch."""

import triton
import triton.language as tl

SMALL, LARGE = 256, 4096


def early(configs, named_args, **kwargs):
    """A block larger than the vector wastes threads."""
    fitting = [config for config in configs if config.kwargs["BLOCK"] <= max(SMALL, named_args["N"])]
    return fitting or configs[:1]


def predicted(x, y, a, N, BLOCK, num_warps, **options):
    """Fewer blocks, and about 8 elements for each thread."""
    return N / BLOCK + abs(BLOCK / (32 * num_warps) - 8)


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps, num_stages=2) for block in (256, 1024, 4096) for warps in (1, 4, 8)],
    key=["N"], restore_value=["y"], prune_configs_by={"early_config_prune": early, "perf_model": predicted, "top_k": 5})
@triton.jit
def scale_add(x, y, a, N, BLOCK: tl.constexpr):
    """y = a·x + y: the old y counts, so the autotuner must restore it."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < N
    y_old = tl.load(y + i, mask=inside).to(tl.float32)
    tl.store(y + i, (a * tl.load(x + i, mask=inside).to(tl.float32) + y_old).to(y.dtype.element_ty), mask=inside)


@triton.autotune(configs=[triton.Config({"ROWS": rows}, num_warps=4) for rows in (1, 4, 16)], key=["R", "C"],
                 reset_to_zero=["total"])
@triton.jit
def column_sum(x, total, R, C, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Each program adds ROWS rows to the total: wrong where nobody sets it to zero first."""
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    found = tl.zeros((BLOCK,), tl.float32)
    for row in range(ROWS):
        r = tl.program_id(0) * ROWS + row
        found += tl.load(x + r * C + i, mask=(i < C) & (r < R), other=0.0).to(tl.float32)
    tl.atomic_add(total + i, found, mask=i < C)


@triton.jit
def clamp(x, y, N, low, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < N).to(tl.float32)
    tl.store(y + i, tl.maximum(v, low).to(y.dtype.element_ty), mask=i < N)
