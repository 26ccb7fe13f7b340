"""Matmul C[M, N] = A[M, K] · B[K, N] accumulated in fp32, also with bias and activation."""

from __future__ import annotations

from tuner.tuning.operators.matmul_space import ABSENT, default_config, space, starts
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape

_DIMS = (Dim("M", "rows of A and C", high=1 << 17), Dim("N", "columns of B and C", high=1 << 17),
         Dim("K", "columns of A, rows of B", high=1 << 17))
FP8_MULTIPLE = 16
_TOLERANCE = {"bf16": 1e-2, "fp16": 2e-3, "fp8": 2e-2}      # fp8: the inputs are exact, the tensor cores' sum is not fp32


def flops(shape: Shape) -> int:
    """Return 2·M·N·K."""
    return 2 * shape["M"] * shape["N"] * shape["K"]


def bytes_moved(shape: Shape, dtype: str) -> int:
    """Return bytes of A and B read and C written; the product of fp8 matrices is bf16."""
    result = BYTES["bf16"] if dtype == "fp8" else BYTES[dtype]
    return BYTES[dtype] * (shape["M"] * shape["K"] + shape["K"] * shape["N"]) + result * shape["M"] * shape["N"]


def bytes_moved_with_bias(shape: Shape, dtype: str) -> int:
    """Return bytes as `bytes_moved` does, with the bias."""
    return bytes_moved(shape, dtype) + shape["N"] * (BYTES["bf16"] if dtype == "fp8" else BYTES[dtype])


def fp8_problems(shape: Shape, dtype: str) -> dict[str, str]:
    """Return field → problem where cuBLAS does not take these fp8 matrices."""
    odd = [name for name in ("N", "K") if shape[name] % FP8_MULTIPLE]
    return {name: f"in fp8 {name} must be a multiple of {FP8_MULTIPLE}" for name in odd} if dtype == "fp8" else {}


MATMUL = Operator(
    name="matmul", title="Matrix multiplication",
    dims=_DIMS, dtypes=("bf16", "fp16", "fp8"),
    presets=({"M": 4096, "N": 4096, "K": 4096}, {"M": 16, "N": 4096, "K": 4096}, {"M": 2048, "N": 11008, "K": 4096},
             {"M": 1024, "N": 1024, "K": 1024}),
    space=space, default_config=default_config, flops=flops, bytes=bytes_moved,
    kernel_module="tuner.tuning.kernels.matmul",
    kernel_names=("matmul", "matmul_kernel", "matmul_tma", "matmul_persistent", "matmul_specialised",
                  "matmul_warp_groups"),
    tolerance=_TOLERANCE, unit="FLOP/s", library="cuBLAS", absent=ABSENT, starts=starts, together=fp8_problems,
)

MATMUL_BIAS_ACT = Operator(
    name="matmul_bias_act", title="Matrix multiplication with bias and activation",
    dims=(*_DIMS, Dim("act", "0 none, 1 ReLU, 2 GELU, 3 SiLU", low=0, exact=True, only=(0, 1, 2, 3))),
    dtypes=("bf16", "fp16", "fp8"),
    presets=({"M": 4096, "N": 16384, "K": 4096, "act": 2}, {"M": 16, "N": 11008, "K": 4096, "act": 3}),
    space=space, default_config=default_config,
    flops=flops,                                               # bias and activation are not counted: a thousandth of it
    bytes=bytes_moved_with_bias,
    kernel_module="tuner.tuning.kernels.matmul", kernel_names=(),      # the same kernels: their names belong to matmul
    tolerance=_TOLERANCE, unit="FLOP/s", absent=ABSENT, starts=starts, together=fp8_problems,
)
