"""CSV of the CUTLASS profiler."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.ingest import is_known
from profiles.ingest.core.source import Source
from profiles.ingest.other import cutlass
from profiles.ingest.trace import TraceError

HEADER = ("Problem,Provider,OperationKind,Operation,Disposition,Status,gemm_kind,m,n,k,A,B,C,D,alpha,beta,split_k_slices,op_class,"
          "cta_m,cta_n,stages,Bytes,Flops,Flops/Byte,Runtime,GB/s,GFLOPs")


def line(problem: int, name: str, ms: float, m: int = 4096, disposition: str = "passed", provider: str = "CUTLASS",
         cta: int = 128) -> str:
    flops, moved = 2 * m**3, 6 * m * m
    rates = (moved / 2**30 / ms * 1e3, flops / ms / 1e6) if ms else (0, 0)
    return (f"{problem},{provider},gemm,{name},{disposition},success,universal,{m},{m},{m},f16:row,f16:column,f32:column,"
            f"f32:column,1,0,1,tensorop,{cta},128,4,{moved},{flops},{flops // moved},{ms},{rates[0]},{rates[1]}")


TEXT = "\n".join(["", "CSV Results:", "", HEADER, line(1, "gemm_a", 0.25), line(1, "gemm_b", 0.2, cta=256),
                  line(1, "gemm_fast_and_wrong", 0.1, disposition="incorrect"), line(1, "gemm_c", 0, disposition="not_supported"),
                  line(2, "gemm_a", 0.05, m=2048, disposition="not_verified"), line(2, "", 0.04, m=2048, provider="cuBLAS")]) + "\n"


def load(tmp_path, text: str | bytes) -> Any:
    path = tmp_path / "r.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with Source(path) as source:
        found = cutlass.read(source)
    assert found.integrity.records_read == found.integrity.records_kept + sum(found.integrity.not_kept.values())
    return found


def table(summary, title: str) -> list[dict[str, Any]]:
    found = next(each for each in summary.tables if each.title == title)
    return [dict(zip([column.name for column in found.columns], row, strict=True)) for row in found.rows]


def test_times_are_per_launch_and_rates_from_the_work(tmp_path):
    assert is_known(TEXT.encode())
    summary = load(tmp_path, TEXT)
    assert [(k.name, k.launches, k.total_ns) for k in summary.kernels] == [
        ("gemm_a", 1, 250_000), ("gemm_b", 1, 200_000), ("gemm_a", 1, 50_000), ("cuBLAS", 1, 40_000)]
    first, second = table(summary, "Fastest kernel per problem")
    assert (first["Fastest kernel"], first["Kernels tried"], first["Ahead of the second"]) == ("gemm_b", 2, pytest.approx(25.0))
    assert first["Operations per second"] == pytest.approx(2 * 4096**3 / 0.2e-3)
    assert first["Bandwidth"] == pytest.approx(6 * 4096**2 / 0.2e-3)
    assert "m=4096 n=4096 k=4096 A=f16:row" in first["Problem"] and "cta_m" not in first["Problem"]
    assert second["Provider"] == "cuBLAS"
    assert len(table(summary, "All kernels that were tried")) == 6
    assert {row["cta_m"] for row in table(summary, "All kernels that were tried")} == {"128", "256"}


def test_wrong_results_are_listed_and_compared_with_nothing(tmp_path):
    summary = load(tmp_path, TEXT)
    assert sum(count for what, count in summary.integrity.remarks.items() if "disposition" in what) == 2
    assert "gemm_fast_and_wrong" not in {k.name for k in summary.kernels}
    assert {row["Disposition"]: row["Kernels"] for row in table(summary, "Outcomes") if row["Disposition"] != "passed"} == {
        "incorrect": 1, "not_supported": 1, "not_verified": 1}


def test_headers_may_come_again_with_other_arguments_and_tags(tmp_path):
    header = "cutlass_version," + HEADER.replace("split_k_slices", "batch_count")
    summary = load(tmp_path, f"{TEXT}{header}\n4.2,{line(1, 'gemm_z', 0.3)}\n")
    assert summary.kernels[-1].name == "gemm_z" and len(table(summary, "Fastest kernel per problem")) == 3


def test_damaged_rows_are_counted(tmp_path):
    summary = load(tmp_path, gzip.compress((TEXT + line(3, "x", 1)[:-60] + "\n" + "1,2\n").encode())[:-4])
    assert summary.integrity.not_kept == {"a row with too few or too many cells": 2}
    assert summary.integrity.truncated_at and len(summary.kernels) == 4


@pytest.mark.parametrize("text", [HEADER, HEADER + "\n\n", HEADER + "\n1,2\n"])
def test_a_table_without_rows_is_refused(tmp_path, text):
    with pytest.raises(TraceError, match="no rows"):
        load(tmp_path, text)


def test_other_tables_are_not_taken():
    assert not cutlass.sniff(b'"ID","Process ID","Kernel Name"\n') and not cutlass.sniff(b"Problem,Provider\n1,2\n")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_reader(tmp_path_factory, data):
    text = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(0, 10))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        load(tmp_path_factory.mktemp("c"), bytes(text))
    except TraceError as error:
        assert error.where
