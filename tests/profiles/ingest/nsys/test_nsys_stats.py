"""Reports of `nsys stats`: exact sums of the corpus, several reports in one file, every unit and locale, damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table, summary_table
from profiles.ingest.trace import Category, Summary, SummaryTable, Trace, TraceError
from tests.profiles.ingest.corpus import CORPUS

STATS = CORPUS / "nsys_stats"
KERNELS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"


def read(path: Path) -> Trace | Summary:
    found = ingest.read(path)
    assert not hasattr(found, "launches")
    assert found.integrity.records_read == found.integrity.records_kept + sum(found.integrity.not_kept.values())
    return found


def summary(tmp_path: Path, text: str, name: str = "a.csv") -> Summary:
    path = tmp_path / name
    path.write_text(text)
    found = read(path)
    assert isinstance(found, Summary)
    return found


def column(table: SummaryTable, name: str) -> list:
    at = [each.name for each in table.columns].index(name)
    return [row[at] for row in table.rows]


@pytest.mark.parametrize(("name", "names", "launches", "total_ns"), [
    ("fuser_h200_cuda_gpu_kern_sum.csv", 16, 18, 10_167_602), ("fuser_h200_cuda_gpu_kern_sum.json", 16, 18, 10_167_602),
    ("fuser_h200_cuda_gpu_kern_gb_sum.csv", 16, 18, 10_167_602), ("fuser_h200_cuda_kern_exec_sum.csv", 16, 18, 10_167_602),
    ("llmperfopt_rtx5090_all-stage_cuda_gpu_kern_sum.csv", 113, 1_695_983, 4_946_064_742)])
def test_kernels_of_the_corpus(name, names, launches, total_ns):
    found = read(STATS / name)
    assert isinstance(found, Summary)
    kernels = summary_table(found)
    assert (len(kernels), sum(row.launches for row in kernels), sum(row.total_ns for row in kernels)) == (names, launches, total_ns)


@pytest.mark.parametrize(("name", "rows", "total_ns", "first"), [
    ("fuser_h200_cuda_api_sum.csv", 23, 71_800_937, "cudaLaunchKernel"),
    ("fuser_h200_cuda_gpu_mem_time_sum.csv", 3, 21_391_444, "[CUDA memcpy Host-to-Device]"),
    ("fuser_h200_nvtx_sum.csv", 188, 11_792_189_555, "FusionKernelRuntime::compileFusionParallel")])
def test_other_sums_of_the_corpus_are_tables(name, rows, total_ns, first):
    found = read(STATS / name)
    assert isinstance(found, Summary) and not found.kernels
    (table,) = found.tables
    assert len(table.rows) == rows and sum(column(table, "Total Time")) == total_ns
    assert table.rows[0][-1] == first and found.integrity.records_kept == rows


@pytest.mark.parametrize("name", ["fuser_h200_cuda_gpu_trace.csv", "fuser_h200_cuda_gpu_trace.json"])
def test_a_trace_of_the_gpu_is_a_timeline(name):
    trace = read(STATS / name)
    assert isinstance(trace, Trace)
    rows = trace.slices.to_pylist()
    assert len(rows) == 24 and sum(row["dur_ns"] for row in rows) == 31_559_046
    assert sum(row.total_ns for row in kernel_table(trace)) == 10_167_602 and trace.devices[0].name == "NVIDIA H200"
    copy = max((row for row in rows if row["category"] == Category.MEMCPY), key=lambda row: row["bytes"] or 0)
    assert (copy["name"], copy["bytes"]) == ("Memcpy HtoD (Pageable -> Device)", 394_002_000)      # of 394,002,432: it prints kB
    first = min((row for row in rows if row["category"] == Category.COMPUTE), key=lambda row: row["start_ns"])
    assert [first[key] for key in ("grid_x", "block_x", "registers_per_thread", "stream", "correlation")] == [1056, 256, 44, 7, 167]


def test_several_reports_on_standard_output(tmp_path):
    text = f"""Generating SQLite file report1.sqlite from report1.nsys-rep
Processing [report1.sqlite] with [/opt/nvidia/nsight-systems/reports/cuda_gpu_kern_sum.py]...
{KERNELS}
60.0,600,3,200.0,200.0,100,300,100.0,"gemm<float, 4>(float*, int)"
40.0,400,1,400.0,400.0,400,400,0.0,add

Processing [report1.sqlite] with [/opt/nvidia/nsight-systems/reports/cuda_gpu_kern_gb_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,Name
60.0,600,3,200.0,200.0,100,300,100.0,   2   66    1, 384    1    1,"gemm<float, 4>(float*, int)"
40.0,400,1,400.0,400.0,400,400,0.0,   8    1    1, 128    1    1,add

Processing [report1.sqlite] with [/opt/nvidia/nsight-systems/reports/cuda_gpu_mem_size_sum.py]...
SKIPPED: report1.sqlite does not contain GPU memory data.

Processing [report1.sqlite] with [/opt/nvidia/nsight-systems/reports/cuda_api_sum.py]...
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,50,5,10.0,10.0,10,10,0.0,cudaLaunchKernel
"""
    found = summary(tmp_path, text)
    assert [(row.name, row.launches, row.total_ns) for row in summary_table(found)] == [
        ("gemm<float, 4>(float*, int)", 3, 600), ("add", 1, 400)]          # once, though two tables sum them
    assert [table.title for table in found.tables] == [
        "CUDA GPU kernels (cuda_gpu_kern_sum)", "CUDA GPU kernels by grid and block (cuda_gpu_kern_gb_sum)",
        "API calls (cuda_api_sum)"]
    assert found.integrity.records_read == 5 and found.tables[1].rows[0][8] == "   2   66    1"


def test_one_name_with_several_grids_is_one_kernel(tmp_path):
    text = ("Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,Name\n"
            "60.0,600,3,200.0,200.0,100,300,100.0,2 1 1,128 1 1,gemm\n40.0,400,1,400.0,400.0,400,400,0.0,8 1 1,128 1 1,gemm\n")
    found = summary(tmp_path, text)
    assert (found.kernels[0].grid, found.kernels[1].block) == ((2, 1, 1), (128, 1, 1))
    (row,) = summary_table(found)
    assert (row.launches, row.total_ns, row.p50_ns, row.min_ns, row.max_ns) == (4, 1000, None, 100, 400)


@pytest.mark.parametrize(("header", "row", "delimiter"), [
    ("Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name",
     '"100.0","1,234,567,890","1,000","1,234,567.9","1,200,000.0","1,000","2,000,000","0.5",gemm', ","),
    ("Time (%);Total Time (ns);Instances;Avg (ns);Med (ns);Min (ns);Max (ns);StdDev (ns);Name",
     "100,0;1.234.567.890;1.000;1.234.567,9;1.200.000,0;1.000;2.000.000;0,5;gemm", ";"),
    ("Time (%),Total Time (us),Instances,Avg (us),Med (us),Min (us),Max (us),StdDev (us),Name",
     "100.0,1234567.890,1000,1234.5679,1200.000,1.000,2000.000,0.0005,gemm", ","),
    ("Time (%),Total Time (s),Instances,Avg (ms),Med (ms),Min (us),Max (ms),StdDev (ns),Name",
     "100.0,1.23456789,1000,1.2345679,1.2,1,2,0.5,gemm", ",")])
def test_units_and_locales(tmp_path, header, row, delimiter):
    (kernel,) = summary(tmp_path, f"{header}\n{row}\n").kernels
    assert (kernel.total_ns, kernel.launches, kernel.min_ns, kernel.max_ns) == (1_234_567_890, 1_000, 1_000, 2_000_000)
    assert kernel.mean_ns == pytest.approx(1_234_567.9) and kernel.p50_ns == 1_200_000 and kernel.std_ns == 0.5


def test_the_report_of_2021(tmp_path):
    (kernel,) = summary(tmp_path, "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n"
                                  "100.0,300,3,100.0,90,110,ncclKernel_AllReduce\n").kernels
    assert (kernel.total_ns, kernel.launches, kernel.mean_ns, kernel.min_ns, kernel.max_ns) == (300, 3, 100, 90, 110)
    assert kernel.category == "communication"


def test_unknown_numbers_are_unknown(tmp_path):
    found = summary(tmp_path, f"{KERNELS}\n60.0,600,3,N/A,nan,,inf,1e999,a\n40.0,lots,-1,1,1,1,1,1,b\n")
    kernel = found.kernels[0]
    assert (kernel.mean_ns, kernel.p50_ns, kernel.min_ns, kernel.max_ns, kernel.std_ns) == (None,) * 5
    assert summary_table(found)[0].total_ns == 600 and found.kernels[1].total_ns == 0


def test_sizes_in_their_unit(tmp_path):
    text = ("Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
            "1.500,2,0.750,0.750,0.500,1.000,0.354,[CUDA memcpy DtoH]\n")
    (table,) = summary(tmp_path, text).tables
    assert (table.columns[0].unit, table.rows[0][0], table.rows[0][1]) == ("bytes", 1_500_000, 2)
    (binary,) = summary(tmp_path, text.replace("MB", "KiB")).tables
    assert binary.rows[0][0] == 1_536


def test_calls_and_ranges_over_time_are_timelines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
                    "100,50,cudaMalloc,0,7,11,12,20,main\n")
    trace = read(path)
    assert isinstance(trace, Trace)
    (row,) = trace.slices.to_pylist()
    assert (row["name"], row["category"], row["correlation"]) == ("cudaMalloc", Category.RUNTIME, 7)
    assert trace.tracks[0].name == "main (12)"
    path.write_text("API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),"
                    "PID,TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
                    "10,5,15,5,20,30,40,1,1,0,cudaLaunchKernel,2 1 1,64 1 1,gemm\n")
    found = {row["name"]: row for row in read(path).slices.to_pylist()}
    assert (found["gemm"]["dur_ns"], found["gemm"]["grid_x"], found["cudaLaunchKernel"]["dur_ns"]) == (30, 2, 5)


def test_sums_beside_a_trace_are_counted_as_not_kept(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text((STATS / "fuser_h200_cuda_gpu_trace.csv").read_text() + "\n" + f"{KERNELS}\n100.0,5,1,5,5,5,5,0,gemm\n")
    assert read(path).integrity.not_kept == {"rows of sums beside a table of events: upload them on their own": 1}


def test_damaged_rows_are_counted(tmp_path):
    rows = '60.0,600,3,200.0,200.0,100,300,100.0,a\n1,2,3\n40.0,400,1,4,4,4,4,0,"open quote\n'
    found = summary(tmp_path, f"{KERNELS}\n{rows}" + "x\n" * 200)
    assert found.integrity.not_kept == {"rows with too few or too many cells": 2} and len(found.kernels) == 1


def test_a_cut_json_gives_the_rows_before_the_cut(tmp_path):
    text = (STATS / "fuser_h200_cuda_gpu_kern_sum.json").read_text()
    path = tmp_path / "a.json"
    path.write_text(text[:len(text) // 2])
    found = read(path)
    assert isinstance(found, Summary) and 5 <= len(found.kernels) < 16
    assert found.integrity.not_kept == {"JSON values that are no row of a table, or damaged": 1}


def test_an_empty_table_is_one_clear_error(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(KERNELS + "\n")
    with pytest.raises(TraceError, match="no rows"):
        ingest.read(path)


@pytest.mark.parametrize("text", [
    "a,b,c\n1,2,3\n", "Name,Size (kg),x\n", '[{"a": 1}]', "Problem,Provider,Runtime,GB/s\n1,CUTLASS,2,3\n"])
def test_other_tables_are_not_taken_for_it(text):
    from profiles.ingest.nsys import stats
    assert not stats.sniff(text.encode())


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(text=st.one_of(
    st.text(max_size=400).map(lambda tail: f"{KERNELS}\n60.0,600,3,200.0,200.0,100,300,100.0,a\n{tail}"),
    st.lists(st.dictionaries(st.sampled_from(["Total Time (ns)", "Instances", "Name"]), st.one_of(
        st.none(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)), min_size=3),
        min_size=1, max_size=5).map(json.dumps)))
def test_whatever_a_file_holds_it_is_read_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("f") / "a"
    path.write_text(text, errors="replace")
    try:
        found = ingest.read(path)
        if isinstance(found, Summary):
            summary_table(found)
    except TraceError:
        return
    assert found.integrity.records_read == found.integrity.records_kept + sum(found.integrity.not_kept.values())
