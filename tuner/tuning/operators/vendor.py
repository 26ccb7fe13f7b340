"""Products by a vendor's own kernels. Their space is known on the machine with the GPU alone, which lists it (tuner.tuning.offer).

The default configuration names nothing: then the library chooses itself, as it does wherever nobody asks otherwise.
"""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.matmul import bytes_moved, flops, fp8_problems
from tuner.tuning.operators.operator import Dim, Operator, Shape
from tuner.tuning.space import Space
from tuner.tuning.trial import Config
from tuner.tuning.vendor import cutlass_table, lt_names

_DIMS = (Dim("M", "rows of A and C", high=1 << 17, exact=True), Dim("N", "columns of B and C", high=1 << 17, exact=True),
         Dim("K", "columns of A, rows of B", high=1 << 17, exact=True))      # exact: what is accepted depends on each
_TOLERANCE = {"bf16": 1e-2, "fp16": 2e-3, "fp8": 2e-2, "fp32": 1e-4}         # as of matmul; fp32 without tf32


def unlisted_space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return a space without configurations: nobody has listed it yet."""
    return Space.listed([])


def library_choice(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return the configuration without parameters."""
    return {}


CUBLASLT_MATMUL = Operator(
    name="cublaslt_matmul", title="Matrix multiplication by cublasLt's algorithms",
    dims=_DIMS, dtypes=("bf16", "fp16", "fp8", "fp32"),
    presets=({"M": 4096, "N": 4096, "K": 4096}, {"M": 16, "N": 4096, "K": 4096}, {"M": 1000, "N": 4104, "K": 1000},
             {"M": 3000, "N": 5120, "K": 1536}),
    space=unlisted_space, default_config=library_choice, flops=flops, bytes=bytes_moved,
    kernel_module="tuner.tuning.kernels.vendor.cublaslt", kernel_names=(),         # the library's kernels: their names belong to it
    tolerance=_TOLERANCE, unit="FLOP/s", library="torch.matmul", together=fp8_problems, listed_on_gpu=True,
    default_name="the heuristics' first choice", parameters=(*lt_names.BY_NAME, lt_names.LIBRARY), apply_text=lt_names.apply_text,
)


def cutlass_problems(shape: Shape, dtype: str) -> dict[str, str]:
    """Return field → problem: fp8's B lies by columns, as its tensor cores read it."""
    if dtype == "fp8" and not shape["BT"]:
        return {"BT": "in fp8 B lies by columns: 1"}
    return fp8_problems(shape, dtype)


CUTLASS_GEMM = Operator(
    name="cutlass_gemm", title="Matrix multiplication by CUTLASS's kernels",
    dims=(*_DIMS, Dim("BT", "0: B by rows, 1: by columns, as torch.nn.Linear keeps its weights", low=0, exact=True, only=(0, 1))),
    dtypes=("bf16", "fp16", "fp8", "fp32"),
    presets=({"M": 4096, "N": 4096, "K": 4096, "BT": 1}, {"M": 16, "N": 4096, "K": 4096, "BT": 1}),
    space=unlisted_space, default_config=library_choice, flops=flops, bytes=bytes_moved,
    kernel_module="tuner.tuning.kernels.vendor.cutlass", kernel_names=(),
    tolerance=_TOLERANCE, unit="FLOP/s", library="torch.matmul", together=cutlass_problems, listed_on_gpu=True,
    parameters=cutlass_table.PARAMETERS, apply_text=cutlass_table.apply_text,
)
