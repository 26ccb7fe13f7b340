"""What a team writes to have its own Triton kernel tuned: one record beside the kernel, named by an entry point.

    # pyproject.toml of the team's package
    [project.entry-points."ridgepoint.operators"]
    acme = "acme_kernels.ridgepoint:OPERATORS"

    # acme_kernels/ridgepoint.py
    from tuner.team.adapter import Dim, TritonOperator
    OPERATORS = [TritonOperator(
        name="acme_scale_add", title="y = a·x + b", kernel=scale_add,          # @triton.jit or @triton.autotune
        dims=(Dim("N", "elements"),), dtypes=("fp16", "bf16"), presets=({"N": 1 << 20},),
        arguments=arguments, grid=lambda meta: (triton.cdiv(meta["N"], meta["BLOCK"]),), out="y",
        reference=lambda args: args["a"] * args["x"] + args["b"], flops="2 * N", bytes="2 * size * N")]

Only a child of a worker imports this file of theirs, and only once an owner has enabled the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.operators.operator import Dim

__all__ = ["ENTRY_POINTS", "Dim", "TritonOperator"]

ENTRY_POINTS = "ridgepoint.operators"


@dataclass(frozen=True)
class TritonOperator:
    """`kernel` brings its own `configs`, `key` and `prune_configs_by` where it is autotuned.

    arguments   (shape, torch dtype, torch device) → every argument of the kernel by name, the tuned ones left out.
                Tensors are of the right size; floating-point ones but `out` are filled with random numbers, unless `fill` does it.
                It is also called with device "meta", where tensors have no values.
    reference   the right result from the same arguments, their floating-point tensors in float32
    library     what to compare with, on the arguments as they are (cuBLAS, torch); optional
    flops, bytes, constraints   text over the dimensions, `size` (bytes of one element); constraints also over the parameters and
                smem_bytes, threads, sms of the GPU: see tuner.team.expressions
    params      a space wider than `configs`: parameter → values. Needed where the kernel is not autotuned.
    default     what one would launch without tuning; the first of `configs` unless told
    """

    name: str
    kernel: Any
    dims: Sequence[Dim]
    dtypes: Sequence[str]
    presets: Sequence[Mapping[str, int]]
    arguments: Callable[[Mapping[str, int], Any, Any], Mapping[str, Any]]
    grid: Callable[[Mapping[str, Any]], tuple[int, ...]]
    out: str
    reference: Callable[[Mapping[str, Any]], Any]
    flops: str
    bytes: str
    title: str = ""
    library: Callable[[Mapping[str, Any]], Any] | None = None
    fill: Callable[[Mapping[str, Any], Any], None] | None = None      # (arguments, torch.Generator)
    params: Mapping[str, Sequence[Any]] | None = None
    constraints: Mapping[str, str] = field(default_factory=dict)      # what a person reads → what must hold
    default: Mapping[str, Any] | None = None
    kernel_names: Sequence[str] = ()                                  # in profiles, beside the function's own name
    tolerance: Mapping[str, float] = field(default_factory=dict)      # dtype → ‖out − reference‖ / ‖reference‖
    unit: str = "FLOP/s"                                              # what people compare: "FLOP/s" or "B/s"
