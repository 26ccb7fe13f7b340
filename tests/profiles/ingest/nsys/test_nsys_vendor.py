"""Exports recorded on an H200 against what `nsys stats` says of them: NVIDIA's own sums, name by name."""

from __future__ import annotations

import csv
import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table, summary_table
from profiles.ingest.trace import Category, Summary, Trace
from tests.profiles.ingest.corpus import H200

NSYS = H200 / "nsys"
Sums = dict[str, tuple[int, int]]


def said(name: str, key: str, count: str) -> Sums:
    """name -> (count, total ns) of a report of nsys stats, read here by the csv module alone."""
    with (NSYS / name).open() as file:
        return {row[key]: (int(row[count]), int(row["Total Time (ns)"])) for row in csv.DictReader(file)}


def summed(trace: Trace, *categories: Category) -> Sums:
    found: Sums = {}
    wanted = pa.array([int(each) for each in categories], pa.uint8())
    for row in trace.slices.filter(pc.is_in(trace.slices["category"], wanted)).to_pylist():
        if not row["instant"]:
            launches, total = found.get(row["name"], (0, 0))
            found[row["name"]] = launches + 1, total + row["dur_ns"]
    return found


@pytest.fixture(scope="module", params=["graph", "node"])
def run(request: pytest.FixtureRequest) -> tuple[str, Trace]:
    trace = ingest.read(NSYS / f"{request.param}.sqlite.gz")
    assert isinstance(trace, Trace) and trace.integrity.records_read == trace.integrity.records_kept
    return request.param, trace


def test_kernels_are_the_vendors(run):
    name, trace = run
    found = {row.name: (row.launches, row.total_ns) for row in kernel_table(trace)}
    graphs = {key: found.pop(key) for key in list(found) if key.startswith("CUDA graph")}
    assert found == said(f"{name}_cuda_gpu_kern_sum.csv", "Name", "Instances")
    assert graphs == ({"CUDA graph 1": (4, 1_162_206)} if name == "graph" else {})


def test_calls_are_the_vendors(run):
    name, trace = run
    wanted: Sums = {}
    for key, (count, total) in said(f"{name}_cuda_api_sum.csv", "Name", "Num Calls").items():
        plain = key.rpartition("_v")[0] if key.rpartition("_v")[2].isdigit() and len(key.rpartition("_v")[2]) > 3 else key
        wanted[plain] = (wanted.get(plain, (0, 0))[0] + count, wanted.get(plain, (0, 0))[1] + total)
    assert summed(trace, Category.RUNTIME) == wanted


def test_ranges_are_the_vendors(run):
    name, trace = run
    wanted = {key.removeprefix(":"): value for key, value in said(f"{name}_nvtx_sum.csv", "Range", "Instances").items()}
    assert summed(trace, Category.ANNOTATION) == wanted


def test_kernels_of_a_replayed_graph_belong_to_its_launch(run):
    _, trace = run
    rows = trace.slices.to_pylist()
    launches = {row["correlation"]: row["start_ns"] for row in rows if row["name"] == "cudaGraphLaunch"}
    replayed = [row for row in rows if row["category"] == Category.COMPUTE and row["correlation"] in launches]
    assert len(launches) == 4 and len(replayed) in (4, 40)      # whole, or ten kernels each
    assert all(row["start_ns"] > launches[row["correlation"]] for row in replayed)
    if len(replayed) == 40:
        assert all("graph node" in json.loads(row["detail"]) for row in replayed)


def test_memory_held_and_domains_are_those_of_the_run(run):
    _, trace = run
    counters = {track.name for track in trace.tracks if track.kind == "counter"}
    assert "Device memory held" in counters
    assert "NVTX domains: cuBLAS." in trace.integrity.notes
    assert any(track.name == "NVTX start/end ranges" for track in trace.tracks)


@pytest.mark.parametrize("name", ["node_stdout.csv", "node_stdout.json", "node_us.csv", "node_cuda_gpu_kern_sum.csv"])
def test_reports_of_several_kinds_and_units_say_the_same(name):
    found = ingest.read(NSYS / name)
    assert isinstance(found, Summary)
    kernels = {row.name: (row.launches, row.total_ns) for row in summary_table(found)}
    assert kernels == said("node_cuda_gpu_kern_sum.csv", "Name", "Instances")


@pytest.mark.parametrize(("name", "rows"), [
    ("node_cuda_api_sum.csv", 21), ("node_cuda_gpu_mem_time_sum.csv", 2), ("node_cuda_gpu_mem_size_sum.csv", 2),
    ("node_nvtx_sum.csv", 6), ("node_nvtx_gpu_proj_sum.csv", 6)])
def test_other_sums_are_tables(name, rows):
    found = ingest.read(NSYS / name)
    assert isinstance(found, Summary) and not found.kernels and len(found.tables[0].rows) == rows


def test_tables_of_events_are_the_same_timeline():
    export = ingest.read(NSYS / "node.sqlite.gz")
    assert isinstance(export, Trace)
    wanted = {row.name: (row.launches, row.total_ns) for row in kernel_table(export)}
    for name, reports in (("node_cuda_gpu_trace.csv", "cuda_gpu_trace"), ("node_cuda_kern_exec_trace.csv", "cuda_kern_exec_trace")):
        trace = ingest.read(NSYS / name)
        assert isinstance(trace, Trace) and trace.metadata["reports"] == reports
        assert {row.name: (row.launches, row.total_ns) for row in kernel_table(trace)} == wanted
    calls = ingest.read(NSYS / "node_cuda_api_trace.csv")
    assert isinstance(calls, Trace)
    assert sum(total for _, total in summed(calls, Category.RUNTIME).values()) == 72_601_432
    ranges = ingest.read(NSYS / "node_nvtx_pushpop_trace.csv")
    assert isinstance(ranges, Trace) and set(summed(ranges, Category.ANNOTATION)) == {"steps", *(f"step {n}" for n in range(4))}
