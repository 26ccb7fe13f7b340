"""The operator of a launch is the innermost around its launch call, whatever ids and arguments the file has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.core.shapes import shapes_of
from profiles.ingest.trace import Trace

Event = dict[str, Any]


def operator(name: str, ts: float, number: int, dur: float = 20, **args: Any) -> Event:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
            "args": {"External id": number, **args}}


def call(ts: float, correlation: int, name: str = "cudaLaunchKernel", **args: Any) -> Event:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 5,
            "args": {"correlation": correlation, **args}}


def kernel(name: str, ts: float, correlation: int, **args: Any) -> Event:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": 50,
            "args": {"device": 0, "stream": 7, "correlation": correlation, "grid": [8, 1, 1], "block": [256, 1, 1], **args}}


def frame(folder: Path, *events: Event) -> Frame:
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    trace = ingest.read(path)
    assert isinstance(trace, Trace)
    return frame_of(trace)


def operators(found: Frame) -> dict[str, str]:
    """Return the operator of each kernel's shape; as the frame has it of every launch."""
    told = {shape.kernel: shape.operator for shape in shapes_of(found)}
    around = {int(row): int(found.operator[row]) for row in found.kernels}
    of_frame = {found.text(row): found.text(operator) if operator >= 0 else "" for row, operator in around.items()}
    assert told == of_frame
    return told


def test_operators_without_arguments_stay_apart(tmp_path: Path) -> None:
    """As recorded without `record_shapes`, torch's default."""
    found = frame(tmp_path, *(event for at, (name, launched) in enumerate((
        ("aten::clamp_min_", "relu"), ("aten::mm", "gemm"), ("aten::add", "add"))) for event in (
            operator(name, 100 * at + 100, at + 1), call(100 * at + 105, at + 7), kernel(launched, 100 * at + 120, at + 7))))
    assert operators(found) == {"relu": "aten::clamp_min_", "gemm": "aten::mm", "add": "aten::add"}


def test_some_have_arguments_and_some_have_none(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    found = frame(tmp_path, *(event for at, (name, launched, args) in enumerate((
        ("aten::mm", "gemm", shapes), ("aten::relu", "relu", {}), ("aten::add", "add", shapes), ("aten::relu", "relu", {})))
        for event in (operator(name, 100 * at + 100, at + 1, **args), call(100 * at + 105, at + 7),
                      kernel(launched, 100 * at + 120, at + 7))))
    assert operators(found) == {"relu": "aten::relu", "gemm": "aten::mm", "add": "aten::add"}
    assert {shape.kernel: (shape.dims, shape.launches) for shape in shapes_of(found)} == {
        "gemm": ("64×64, 64×64", 1), "relu": ("", 2), "add": ("64×64, 64×64", 1)}


def test_an_external_id_that_is_the_correlation_id_names_no_operator(tmp_path: Path) -> None:
    """PyTorch 2.0 writes the correlation id as external id of what it launches; another operator may have that number."""
    found = frame(tmp_path, operator("aten::to", 100, 1, dur=60), operator("aten::copy_", 110, 2, dur=40),
                  call(115, 9, **{"External id": 9}), kernel("copy", 170, 9, **{"External id": 9}), operator("aten::view", 300, 9))
    assert operators(found) == {"copy": "aten::copy_"}


def test_correlation_0_is_no_id(tmp_path: Path) -> None:
    """ROCm's hipGetDevice and kernels whose call is not known both say 0."""
    found = frame(tmp_path, operator("aten::empty", 40, 1), call(50, 0, "hipGetDevice"),
                  operator("c10d::allreduce_", 100, 2), call(105, 2000, "hipExtLaunchKernel"), kernel("nccl", 120, 0),
                  kernel("gemm", 220, 0, **{"External id": 2}))
    assert {found.text(row): int(found.call[row]) for row in found.kernels} == {"nccl": -1, "gemm": -1}
    assert operators(found) == {"nccl": "", "gemm": "c10d::allreduce_"}          # without a call the external id counts
