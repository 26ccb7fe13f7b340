"""Bytes of optimizers' multi-tensor kernels: from their lists, else from the gradients that the backward pass names."""

from __future__ import annotations

import gzip
import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiles.analysis.core.frame import frame_of
from profiles.analysis.trace.layer.ceilings import floors_of
from profiles.analysis.trace.layer.launches import launch_work
from profiles.analysis.trace.layer.rules import work_of_call
from profiles.ingest import read
from tests.profiles.ingest.corpus import DATA

TRAIN = DATA / "h200" / "kineto_train.json.gz"
KERNEL = ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
          "at::native::(anonymous namespace)::TensorListMetadata<2>, float>")
PASSES = {"_foreach_mul_": 2, "_foreach_lerp_": 3, "_foreach_addcmul_": 4, "_foreach_sqrt": 2, "_foreach_div_": 2,
          "_foreach_add_": 2, "_foreach_addcdiv_": 4}           # times that an element of each parameter is read or written


def _call(name: str, at: float, dims: list[Any], types: list[str]) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": 5,
            "args": {"Input Dims": dims, "Input type": types}}


def _trace(folder: Path, gradients: list[list[int]], blocks: list[int], op: str = "aten::_foreach_add_") -> Any:
    events = [_call("torch::autograd::AccumulateGrad", 10 * at, [size], ["float"]) for at, size in enumerate(gradients)]
    events.append(_call(op, 5_000, [[], []], ["TensorList", "Scalar"]))
    for at, grid in enumerate(blocks):
        events += [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5_001 + at, "dur": 0.5,
                    "args": {"correlation": 7 + at}},
                   {"ph": "X", "cat": "kernel", "name": KERNEL, "pid": 0, "tid": 7, "ts": 6_000 + 100 * at, "dur": 90,
                    "args": {"device": 0, "stream": 7, "correlation": 7 + at, "grid": [grid, 1, 1], "block": [512, 1, 1]}}]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}))
    return frame_of(read(path))


def _moved(frame: Any) -> float:
    return float(launch_work(frame).bytes.sum())


def test_a_recorded_optimizer_moves_its_parameters() -> None:
    """Without sizes of its lists: the gradients between two steps, summed here from the file's own text."""
    events = json.loads(gzip.decompress(TRAIN.read_bytes()))["traceEvents"]
    gradients = [each["args"]["Input Dims"][0] for each in events if each.get("name") == "torch::autograd::AccumulateGrad"]
    steps = sum(each.get("name") == "aten::_foreach_sqrt" for each in events)
    elements = sum(map(prod, gradients)) / steps
    frame = frame_of(read(TRAIN))
    work, floors = launch_work(frame), floors_of(frame).floor_ns
    optimizer = np.array(["multi_tensor_apply" in frame.names[code] for code in frame["name"][frame.kernels].tolist()])
    for op, passes in PASSES.items():
        calls = {row for row in work.call.tolist() if row >= 0 and frame.text(row) == f"aten::{op}"}
        assert calls, op
        assert work.bytes[np.isin(work.call, list(calls))].sum() == pytest.approx(4 * elements * passes * len(calls)), op
    assert optimizer.any() and np.isfinite(floors[optimizer]).all()
    assert floors[optimizer].sum() < frame["dur_ns"][frame.kernels][optimizer].sum()


def test_blocks_must_be_those_of_the_gradients(tmp_path: Path) -> None:
    """A list of 100,000 and 7 elements has chunks of 65,536, 34,464 and 7."""
    assert _moved(_trace(tmp_path, [[1000, 100], [7]], [3])) == 2 * 4 * 100_007
    assert _moved(_trace(tmp_path, [[1000, 100], [7]], [2, 1])) == 2 * 4 * 100_007          # two launches of one call
    assert np.isnan(_moved(_trace(tmp_path, [[1000, 100], [7]], [4])))                      # another list
    assert np.isnan(_moved(_trace(tmp_path, [], [3]))) and np.isnan(_moved(_trace(tmp_path, [[1000, 100], [7]], [-1])))
    assert _moved(_trace(tmp_path, [[1000, 100], [7]] * 4, [3])) == 2 * 4 * 100_007         # four micro-batches, one step
    assert np.isnan(_moved(_trace(tmp_path, [[1000, 100], [7]], [3], "aten::_foreach_unheard_of_")))


def test_what_only_reads_or_only_writes_moves_less() -> None:
    sizes = {"Input Dims": [[[10], [20, 2]]], "Input type": ["TensorList"]}
    twice = {"Input Dims": [[[10], [20, 2]], [[10], [20, 2]]], "Input type": ["TensorList", "TensorList"]}
    moved = {name: work.elements for name, arguments in (
        ("aten::_foreach_zero_", sizes), ("aten::_foreach_norm", sizes), ("aten::_foreach_sqrt", sizes),
        ("aten::_foreach_copy_", twice), ("aten::_foreach_add_", twice), ("aten::_fused_adagrad_", sizes))
        if (work := work_of_call(name, arguments))}
    assert moved == {"aten::_foreach_zero_": 50, "aten::_foreach_norm": 50, "aten::_foreach_sqrt": 100,
                     "aten::_foreach_copy_": 100, "aten::_foreach_add_": 150, "aten::_fused_adagrad_": 250}


def test_momentum_is_read_and_written() -> None:
    lists = {"Input Dims": [[[10]], [[10]], [[10]]], "Input type": ["TensorList"] * 3}
    plain, momentum = (work_of_call("aten::_fused_sgd_", {**lists, "Concrete Inputs": ["", "", "", "0.", value, "0.01"]})
                       for value in ("0.", "0.9"))
    assert plain and momentum and (plain.elements, momentum.elements) == (30, 50)
