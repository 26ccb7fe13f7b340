"""What the team wrote so that Ridgepoint tunes its kernels."""

import torch
import triton
from acme_kernels.kernels import clamp, column_sum, scale_add

from tuner.team.adapter import Dim, TritonOperator


def vectors(shape, dtype, device):
    return {"x": torch.empty(shape["N"], dtype=dtype, device=device), "y": torch.empty(shape["N"], dtype=dtype, device=device),
            "N": shape["N"]}


def matrix(shape, dtype, device):
    return {"x": torch.empty((shape["R"], shape["C"]), dtype=dtype, device=device),
            "total": torch.empty(shape["C"], dtype=torch.float32, device=device), "R": shape["R"], "C": shape["C"], "BLOCK": 256}


SCALE_ADD = TritonOperator(
    name="acme_scale_add", title="y = a·x + y", kernel=scale_add, dims=(Dim("N", "elements", high=1 << 28),),
    dtypes=("fp16", "bf16"), presets=({"N": 1 << 20},),
    arguments=lambda shape, dtype, device: {**vectors(shape, dtype, device), "a": 2.5},
    fill=lambda args, generator: [args[name].normal_(generator=generator) for name in ("x", "y")],
    grid=lambda meta: (triton.cdiv(meta["N"], meta["BLOCK"]),), out="y",
    reference=lambda args: args["a"] * args["x"] + args["y"], flops="2 * N", bytes="3 * size * N", unit="B/s")

COLUMN_SUM = TritonOperator(
    name="acme_column_sum", kernel=column_sum, dims=(Dim("R", "rows"), Dim("C", "columns")), dtypes=("fp16",),
    presets=({"R": 4096, "C": 1024},), arguments=matrix, grid=lambda meta: (triton.cdiv(meta["R"], meta["ROWS"]),
                                                                         triton.cdiv(meta["C"], meta["BLOCK"])),
    out="total", reference=lambda args: args["x"].sum(0), flops="R * C", bytes="size * R * C + 4 * C", unit="B/s")

CLAMP = TritonOperator(
    name="acme_clamp", kernel=clamp, dims=(Dim("N", "elements", high=1 << 28),), dtypes=("fp16", "bf16"), presets=({"N": 1 << 20},),
    arguments=lambda shape, dtype, device: {**vectors(shape, dtype, device), "low": 0.25},
    grid=lambda meta: (triton.cdiv(meta["N"], meta["BLOCK"]),), out="y",
    reference=lambda args: args["x"].clamp(min=args["low"]), library=lambda args: args["x"].clamp(min=args["low"]),
    params={"BLOCK": [128, 512, 2048, 8192], "num_warps": [1, 2, 4, 8]},
    constraints={"elements per thread": "BLOCK <= 256 * num_warps", "no larger than the vector": "BLOCK <= next_power_of_2(N)"},
    default={"BLOCK": 512, "num_warps": 4}, flops="N", bytes="2 * size * N", unit="B/s", kernel_names=("clamp_kernel",))

OPERATORS = [SCALE_ADD, COLUMN_SUM, CLAMP]
