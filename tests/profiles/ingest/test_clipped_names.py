"""Names that differ only behind the place where they are clipped stay two, in whatever is counted by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiles.analysis.core.columns import pack_pairs, unpack_pairs
from profiles.analysis.core.frame import frame_of
from profiles.analysis.core.kernels import kernel_table
from profiles.analysis.core.shapes import shapes_of
from profiles.analysis.trace.operators.topic import operators_result
from profiles.ingest import read
from profiles.ingest.core.columns import NAME_CHARS, NameIds
from profiles.ingest.naming.names import clip_bytes, clip_name

LONG = "void cutlass::device_kernel<" + "cutlass::gemm::" * 600


def _trace(path: Path, launches: list[tuple[str, str]]) -> Any:
    """Of (kernel, operator) pairs, one launch each."""
    events: list[dict[str, Any]] = []
    for n, (kernel, operator) in enumerate(launches):
        at = 100 * n
        events += [
            {"ph": "X", "cat": "cpu_op", "name": operator, "pid": 1, "tid": 1, "ts": at, "dur": 20, "args": {"External id": n + 1}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 5, "dur": 5,
             "args": {"correlation": n + 1}},
            {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": at + 20, "dur": 50,
             "args": {"device": 0, "stream": 7, "correlation": n + 1, "grid": [4, 1, 1], "block": [128, 1, 1]}}]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return read(path)


def test_kernels_that_differ_behind_the_clipping_are_two(tmp_path: Path):
    trace = _trace(tmp_path / "a.json", [(LONG + "A>()", "aten::mm"), (LONG + "B>()", "aten::mm"), (LONG + "A>()", "aten::mm")])
    rows = kernel_table(trace)
    assert [row.launches for row in rows] == [2, 1] and len({row.short_name for row in rows}) == 2
    assert all(len(row.name) == NAME_CHARS for row in rows)
    assert trace.integrity.repaired == {f"names longer than {NAME_CHARS} characters were clipped": 3}


@pytest.mark.parametrize("length", [110, 119, 120, 121, 290, 300, 310, 9_000])
def test_operators_that_differ_behind_the_clipping_are_two(tmp_path: Path, length: int):
    """At shapes of one kernel with one grid, and on the Operators page."""
    launches = [("gemm", "mylib::" + "x" * (length - 8) + end) for end in "AB"]
    frame = frame_of(_trace(tmp_path / "a.json", launches))
    assert [(shape.launches, len(shape.operator) <= 120) for shape in shapes_of(frame)] == [(1, True), (1, True)]
    assert len({shape.operator for shape in shapes_of(frame)}) == 2
    table = next(each for each in operators_result(frame).tables if each.title == "Operators")
    assert len({row[0] for row in table.rows}) == 2 == len(table.rows)


def test_a_name_that_fits_stays_as_it_is():
    assert clip_name("gemm", 10) == "gemm" and clip_name("x" * 20, 20) == "x" * 20 and clip_bytes(b"x" * 20, 20) == b"x" * 20
    clipped = clip_name("x" * 21, 20)
    assert len(clipped) == 20 and clipped.startswith("x" * 11 + "…") and clipped == clip_name("x" * 21, 20)
    assert clip_name("\ud800" * 30, 20) != clip_name("\ud800" * 29 + "x", 20)       # JSON may hold half a pair of surrogates
    ids = NameIds()
    assert ids[LONG + "A"] != ids[LONG + "B"] and ids[LONG + "A"] == ids[LONG + "A"]


def test_pairs_are_told_apart_however_missing_numbers_are_stored():
    name, detail = np.array([0, 1, 1, 1, -1, 0, 2**31 - 2]), np.array([-2**31, -1, -2**31, 0, 0, -2**63, 2**31 - 2])
    keys = pack_pairs(name, detail)
    assert len(set(keys.tolist())) == 5 and keys[0] == keys[5] and keys[1] == keys[2]
    assert [values.tolist() for values in unpack_pairs(keys)] == [
        [0, 1, 1, 1, -1, 0, 2**31 - 2], [-1, -1, -1, 0, 0, -1, 2**31 - 2]]
