"""All-reduce over the GPUs of a host with residual addition and RMS norm: what ends each half of a tensor-parallel layer."""

from __future__ import annotations

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES, Dim, Operator, Shape, power_of_two_at_least
from tuner.tuning.operators.rowwise import WARPS, fits_registers
from tuner.tuning.operators.variants import Only, thread_limit, union_space, whole_number
from tuner.tuning.space import Constraint, Space
from tuner.tuning.trial import Config

PROGRAMS = (4, 8, 16, 32, 64, 96, 128)
ONE_SHOT_BYTES = 256 << 10       # of X: above, reading it from every GPU costs more than writing each row to all


def space(shape: Shape, dtype: str, gpu: Limits) -> Space:
    """Return SHOTS, PROGRAMS that share the rows, and warps of each; a row is whole in a program's registers."""
    row, rows = max(16, power_of_two_at_least(shape["C"])), shape["R"]
    most = max(PROGRAMS[0], gpu.sms)         # of a model that is not known

    def has_rows(c: Config) -> bool:
        of_one = rows if c["SHOTS"] == 1 else -(-rows // shape["G"])
        return whole_number(c, "PROGRAMS") < 2 * of_one or whole_number(c, "PROGRAMS") == PROGRAMS[0]

    return union_space(({"SHOTS": Only((1, 2)), "PROGRAMS": PROGRAMS, "num_warps": WARPS},), (
        thread_limit(gpu), Constraint("row registers", lambda c: fits_registers(c, row)),
        Constraint("programs wait for each other: one a multiprocessor", lambda c: whole_number(c, "PROGRAMS") <= most),
        Constraint("more programs than rows", has_rows)))


def default_config(shape: Shape, dtype: str, gpu: Limits) -> Config:
    """Return one shot for few bytes, two for many; a program for each row as far as 64 go."""
    row = max(16, power_of_two_at_least(shape["C"]))
    shots = 1 if shape["R"] * shape["C"] * BYTES[dtype] <= ONE_SHOT_BYTES else 2
    of_one = shape["R"] if shots == 1 else -(-shape["R"] // shape["G"])
    fitting = [count for count in PROGRAMS if count <= min(64, of_one, gpu.sms)]
    return {"SHOTS": shots, "PROGRAMS": max(fitting, default=PROGRAMS[0]), "num_warps": min(32, max(4, row // 512))}


ALL_REDUCE_RMSNORM = Operator(
    name="all_reduce_rmsnorm", title="All-reduce, residual add and RMS norm",
    dims=(Dim("R", "tokens", high=1 << 16), Dim("C", "columns", high=1 << 15),
          Dim("G", "GPUs of one host", exact=True, only=(2, 4, 8))),
    dtypes=("bf16", "fp16"),
    presets=({"R": 16, "C": 8192, "G": 2}, {"R": 1, "C": 4096, "G": 2}, {"R": 128, "C": 4096, "G": 2},
             {"R": 512, "C": 8192, "G": 2}, {"R": 4096, "C": 8192, "G": 2}, {"R": 64, "C": 8192, "G": 4},
             {"R": 64, "C": 8192, "G": 8}),
    space=space, default_config=default_config,
    flops=lambda s: (4 + s["G"]) * s["R"] * s["C"],              # of each GPU where every GPU computes every row
    bytes=lambda s, dtype: 4 * BYTES[dtype] * s["R"] * s["C"],      # of a GPU's memory; what crosses links is not in it
    kernel_module="tuner.tuning.kernels.all_reduce", kernel_names=("allreduce_rmsnorm",),
    tolerance={"fp16": 2e-3, "bf16": 1e-2}, unit="B/s", library="NCCL with PyTorch's norm", gpus=lambda s: s["G"],
)
