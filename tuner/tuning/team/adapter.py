"""What a team writes to have its own kernel tuned, in Triton or CUDA C++: one record beside it, named by an entry point.

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
from pathlib import Path
from typing import Any

from tuner.tuning.operators.operator import Dim

__all__ = ["ENTRY_POINTS", "CudaKernel", "CudaOperator", "Dim", "Struct", "TritonOperator", "cdiv", "launch_default"]

ENTRY_POINTS = "ridgepoint.operators"


@dataclass(frozen=True)
class TritonOperator:
    """`kernel` brings its own `configs`, `key` and `prune_configs_by` where it is autotuned.

    arguments   (shape, torch dtype, torch device) → every argument of the kernel by name, the tuned ones left out.
                Tensors are of the right size; floating-point ones but `out` are filled with random numbers, unless `fill` does it.
                It is also called with device "meta", where tensors have no values.
    restored    arguments that a launch reads and writes: each launch finds in them what it found before (outside of its time)
    holds       arguments that hold one number before each launch, like zeros that atomic operations add to
    reference   the right result from the same arguments, their floating-point tensors in float32
    library     what to compare with, on the arguments as they are (cuBLAS, torch); optional
    flops, bytes, constraints   text over the dimensions, `size` (bytes of one element); constraints also over the parameters and
                smem_bytes, threads, sms of the GPU: see tuner.tuning.team.expressions
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
    restored: Sequence[str] = ()
    holds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CudaKernel:
    """A `__global__` function of a .cu file. Every parameter of a configuration is a macro (`-D NAME=value`) in its text.

    file      the .cu file; headers beside it may be included
    function  its name
    template  arguments of a template in order, as text over parameters and {dtype}: ("{BLOCK}", "{dtype}")
    defines   macros beside the parameters, as text over them and {dtype}; {dtype} is float, __half or __nv_bfloat16
    options   of NVRTC: --use_fast_math, --maxrregcount=64, …: tuner.tuning.cuda.nvrtc.OPTIONS
    """

    file: str | Path
    function: str
    template: Sequence[str] = ()
    defines: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()


@dataclass(frozen=True)
class CudaOperator(TritonOperator):
    """As `TritonOperator`, of a `CudaKernel`: `arguments` gives every argument of the function by its name there.

    block   threads of a block from arguments and configuration; without it block_size_x, block_size_y, block_size_z, as Kernel
            Tuner has it
    smem    bytes of dynamic shared memory
    """

    block: Callable[[Mapping[str, Any]], tuple[int, ...]] | None = None
    smem: Callable[[Mapping[str, Any]], int] | None = None


@dataclass(frozen=True)
class Struct:
    """A struct that a kernel takes by value: its bytes in order.

    words   a name of `arguments` stands for the address of that tensor (eight bytes), a whole number for four bytes
    """

    words: Sequence[Any]


def launch_default(operator: CudaOperator, args: Mapping[str, Any]) -> None:
    """Launch an operator's kernel as it is without tuning, on these arguments in place of its own."""
    from tuner.tuning.team.problem import Launches  # imports torch, which who lists operators has not

    Launches(operator, args, operator.dtypes[0], args[operator.out].device).start(dict(operator.default or {}))


def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up: blocks that cover `a`."""
    return -(-a // b)
