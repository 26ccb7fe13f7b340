"""Names that a job gets wrong: told once with the nearest right one, or raised; types by one table."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.cache import client
from tuner.cache.client import Client, UnknownName, dtype_name, name_problem

OPERATORS = {"matmul": {"dims": ["M", "N", "K"], "dtypes": ["bf16", "fp16", "fp8"], "exact": [],
                        "policy": {"steps_per_doubling": 2, "exact_up_to": 64}},
             "softmax": {"dims": ["R", "C"], "dtypes": ["bf16"], "exact": [],
                         "policy": {"steps_per_doubling": 2, "exact_up_to": 64}},
             "triton:mine": {"dims": [], "dtypes": [], "exact": [], "policy": {"steps_per_doubling": 2, "exact_up_to": 64}}}
SHAPE = {"M": 64, "N": 64, "K": 64}


class Named:
    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(("given", "name"), [
    (Named("torch.bfloat16"), "bf16"), ("bfloat16", "bf16"), ("*bf16", "bf16"), (np.dtype("float16"), "fp16"), (np.float32, "fp32"),
    ("torch.float8_e4m3fn", "fp8"), ("fp8e4nv", "fp8"), ("f8E4M3FN", "fp8"), ("fp8e5", "fp8e5"), ("torch.float8_e5m2", "fp8e5"),
    ("float8_e4m3fnuz", "fp8e4b8"), ("fp8e5b16", "fp8e5b16"), ("nvfp4", "nvfp4")])
def test_one_table_of_types(given: Any, name: str) -> None:
    assert dtype_name(given) == name


@pytest.mark.parametrize(("operator", "dtype", "shape", "words"), [
    ("matmull", "bf16", SHAPE, "no operator 'matmull', did you mean 'matmul'?"), ("rope", "", SHAPE, "no operator 'rope'"),
    ("matmul", "fp4", SHAPE, "it has bf16, fp16, fp8"), ("softmax", "bf61", {"R": 1, "C": 1}, "did you mean 'bf16'?"),
    ("matmul", "bf16", {"m": 1, "N": 1, "K": 1}, "no dimension 'm', did you mean 'M'?"),
    ("matmul", "bf16", {"M": 1, "N": 1}, "it needs K"), ("matmul", "bf16", {**SHAPE, "B": 2}, "no dimension 'B'")])
def test_what_no_operator_has_is_named(operator: str, dtype: str, shape: dict[str, int], words: str) -> None:
    assert words in name_problem(OPERATORS, operator, dtype, shape)


def test_what_they_have_is_no_problem() -> None:
    assert name_problem(OPERATORS, "matmul", "fp8", SHAPE) == "" == name_problem(OPERATORS, "triton:mine", "bf16", {"X": 1})


def test_a_wrong_name_warns_once_and_raises_where_the_job_is_strict(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps({"version": 1, "id": "s1", "gpu": "NVIDIA H200", "toolkit": "", "operators": OPERATORS, "why": {},
                                "entries": []}))
    monkeypatch.delenv("RIDGEPOINT_STRICT", raising=False)
    job = Client("", "", snapshot="", file=str(file), gpu="NVIDIA H200", toolkit="")
    with caplog.at_level(logging.WARNING, "ridgepoint"):
        for size in (64, 128, 256):
            assert "did you mean 'matmul'?" in job.best("matmull", "bf16", M=size, N=64, K=64).why
        assert job.best("matmul", np.dtype("float16"), M=64, N=64, K=64).why == "nothing measured fits"      # type: ignore[arg-type]
    assert len([line for line in caplog.messages if "matmull" in line]) == 1
    monkeypatch.setenv("RIDGEPOINT_STRICT", "1")
    with pytest.raises(UnknownName, match="did you mean 'softmax'"):
        job.best("softmx", "bf16", R=64, C=64)
    job.close()


def test_a_slice_is_not_the_whole_card(monkeypatch: Any, tmp_path: Path) -> None:
    told = tmp_path / "information"
    told.write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 1\n")
    monkeypatch.delenv("RIDGEPOINT_GPU", raising=False)
    monkeypatch.setattr(client.glob, "glob", lambda pattern: [str(told)])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert client.gpu_name() == "NVIDIA H100 80GB HBM3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-5e7cd9fb")
    assert client.gpu_name() == "NVIDIA H100 80GB HBM3 MIG"
