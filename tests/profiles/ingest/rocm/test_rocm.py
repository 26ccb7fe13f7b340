"""ROCm's tools: every form of a run says the same, and what the csv and sqlite3 modules count in it."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from collections import defaultdict
from pathlib import Path

import pytest

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table
from profiles.ingest.trace import Category, Report, Summary, Trace, TraceError
from tests.profiles.ingest.corpus import DATA

CASES, ROCM = DATA / "cases", DATA / "rocm"


def trace_of(path: Path) -> Trace:
    trace = ingest.read(path)
    assert isinstance(trace, Trace)
    return trace


def sums(trace: Trace) -> dict[str, tuple[int, int]]:
    return {row.name: (row.launches, row.total_ns) for row in kernel_table(trace)}


@pytest.mark.parametrize("name", ["rocprofv3_kernel_trace.csv", "rocprofv3_results.json", "rocpd.db"])
def test_a_run_is_the_same_in_each_form(name: str) -> None:
    trace = trace_of(CASES / name)
    assert sums(trace) == {"void add<float>(float*, int)": (10, 25_000)}
    row = trace.slices.to_pylist()[0]
    assert (row["grid_x"], row["block_x"]) == (256, 256), "65,536 work-items are 256 blocks of 256"
    assert trace.tracks[row["track"]].name == "stream 0" and row["device"] == trace.devices[0].index
    assert trace.integrity.records_read == trace.integrity.records_kept == 10


@pytest.mark.parametrize("name", ["kernel_trace.csv", "memory_copy_trace.csv", "hip_runtime_trace.csv", "marker_api_trace.csv"])
def test_rows_of_published_tables(name: str) -> None:
    """Count and time by name, as the csv module counts them."""
    with (ROCM / name).open() as file:
        rows = list(csv.DictReader(file))
    counted: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        key = row.get("Kernel_Name") or row.get("Function") or {"HOST_TO_DEVICE": "Memcpy HtoD", "DEVICE_TO_HOST": "Memcpy DtoH"}[
            row["Direction"].removeprefix("MEMORY_COPY_")]
        counted[key][0] += 1
        counted[key][1] += int(row["End_Timestamp"]) - int(row["Start_Timestamp"])
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    trace = trace_of(ROCM / name)
    for slice_ in trace.slices.to_pylist():
        found[slice_["name"]][0] += 1
        found[slice_["name"]][1] += slice_["dur_ns"]
    assert found == counted
    kinds = {"kernel_trace.csv": Category.COMPUTE, "memory_copy_trace.csv": Category.MEMCPY,
             "hip_runtime_trace.csv": Category.RUNTIME, "marker_api_trace.csv": Category.ANNOTATION}
    assert set(trace.slices["category"].to_pylist()) == {kinds[name]}


def test_counters_are_a_report(tmp_path: Path) -> None:
    rows = (ROCM / "counter_collection.csv").read_text()
    with (ROCM / "counter_collection.csv").open() as file:
        counted = [(row["Kernel_Name"], float(row["Counter_Value"])) for row in csv.DictReader(file)]
    report = ingest.read(ROCM / "counter_collection.csv")
    assert isinstance(report, Report)
    assert [(launch.kernel, launch.metrics["SQ_WAVES"]) for launch in report.launches] == counted
    assert "states no duration" in " ".join(report.integrity.notes)
    timed = tmp_path / "counter_collection.csv"          # releases since 6.3 state times, and a row for each counter
    lines = rows.splitlines()
    timed.write_text("\n".join([lines[0] + ',"Start_Timestamp","End_Timestamp"', lines[1] + ",1000,1500",
                                lines[1].replace("SQ_WAVES", "GRBM_COUNT") + ",1000,1500"]))
    report = ingest.read(timed)
    assert isinstance(report, Report)
    launch, = report.launches
    assert launch.metrics["gpu__time_duration.sum"] == 500 and set(launch.metrics) >= {"SQ_WAVES", "GRBM_COUNT"}


def test_sums_of_calls_are_no_kernels() -> None:
    summary = ingest.read(ROCM / "hip_api_stats.csv")
    assert isinstance(summary, Summary) and not summary.kernels
    with (ROCM / "hip_api_stats.csv").open() as file:
        counted = [(row["Name"], int(row["Calls"]), int(row["TotalDurationNs"])) for row in csv.DictReader(file)]
    assert [tuple(row[:3]) for row in summary.tables[0].rows] == counted


def test_results_of_rocprof_itself(tmp_path: Path) -> None:
    header = "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgrp,lds,scr,arch_vgpr,accum_vgpr,sgpr,wave_size,sig,obj"
    row = '0,"add(float*) [clone .kd]",1,0,0,7,7,1024,256,512,0,8,4,16,64,0x0,0x0'
    timed, counted = tmp_path / "results.csv", tmp_path / "counters.csv"
    timed.write_text(f"{header},DispatchNs,BeginNs,EndNs,CompleteNs,DurationNs\n{row},900,1000,2900,3000,1900\n")
    counted.write_text(f"{header},Wavefronts,FetchSize\n{row},16,128.5\n")
    trace = trace_of(timed)
    assert sums(trace) == {"add(float*)": (1, 1900)}
    launch = trace.slices.to_pylist()[0]
    assert (launch["grid_x"], launch["block_x"], launch["smem_bytes"], launch["registers_per_thread"]) == (4, 256, 512, 8)
    report = ingest.read(counted)
    assert isinstance(report, Report)
    assert report.launches[0].metrics == {"launch__registers_per_thread": 8.0, "Wavefronts": 16.0, "FetchSize": 128.5}


def test_rpd_is_what_sql_says(tmp_path: Path) -> None:
    plain = tmp_path / "plain.rpd"
    plain.write_bytes(gzip.decompress((ROCM / "matmul_result.rpd.gz").read_bytes()))
    base = sqlite3.connect(plain)
    counted = {kind: (count, total) for kind, count, total in base.execute(
        "select s.string, count(*), sum(o.end - o.start) from rocpd_op o join rocpd_string s on s.id = o.opType_id group by 1")}
    calls = base.execute("select count(*), sum(end - start) from rocpd_api").fetchone()
    trace = trace_of(ROCM / "matmul_result.rpd.gz")
    found: dict[str, tuple[int, int]] = {}
    for row in trace.slices.to_pylist():
        kind = {"Memcpy DtoH": "CopyDeviceToHost", "Memcpy HtoD": "CopyHostToDevice", "Memset": "FillBuffer"}.get(
            row["name"], "KernelExecution" if row["category"] == Category.COMPUTE else "calls")
        count, total = found.get(kind, (0, 0))
        found[kind] = count + 1, total + row["dur_ns"]
    assert found.pop("calls") == calls and found == counted
    longest = max((row for row in trace.slices.to_pylist() if row["category"] == Category.COMPUTE), key=lambda row: row["dur_ns"])
    assert (longest["grid_x"], longest["grid_y"]) == (7, 782), "hipExtModuleLaunchKernel counts work-items: 1,792 of blocks of 256"
    assert trace.samples.num_rows == base.execute("select count(*) from rocpd_monitor").fetchone()[0]


_TRACKS = """
create table rocpd_string_1(id integer primary key, guid text, string text);
create table rocpd_info_process_1(id integer primary key, guid text, pid integer, command text);
create table rocpd_info_thread_1(id integer primary key, guid text, tid integer);
create table rocpd_info_agent_1(id integer primary key, guid text, type text, absolute_index integer, type_index integer, name text,
  product_name text);
create table rocpd_info_kernel_symbol_1(id integer primary key, guid text, kernel_name text, display_name text,
  arch_vgpr_count integer);
create table rocpd_info_pmc_1(id integer primary key, guid text, name text);
create table rocpd_pmc_event_1(id integer primary key, guid text, event_id integer, pmc_id integer, value real);
create table rocpd_event_1(id integer primary key, guid text, category_id integer, stack_id integer);
create table rocpd_timestamp_1(id integer primary key, guid text, value bigint);
create table rocpd_track_1(id integer primary key, guid text, tid integer, agent_id integer, queue_id integer, stream_id integer);
create table rocpd_region_1(id integer primary key, guid text, track_id integer, name_id integer, start_id integer, end_id integer,
  event_id integer, extdata text);
create table rocpd_kernel_dispatch_1(id integer primary key, guid text, track_id integer, kernel_id integer, start_id integer,
  end_id integer, workgroup_size_x integer, workgroup_size_y integer, workgroup_size_z integer, grid_size_x integer,
  grid_size_y integer, grid_size_z integer, event_id integer);
create table rocpd_memory_copy_1(id integer primary key, guid text, track_id integer, start_id integer, end_id integer,
  name_id integer, src_agent_id integer, dst_agent_id integer, size integer, event_id integer);
create view rocpd_kernel_dispatch as select * from rocpd_kernel_dispatch_1;
create view bomb as with recursive r(n) as (select 1 union all select n + 1 from r) select * from r;
insert into rocpd_string_1 values (1,'g','hipLaunchKernel'),(2,'g','MEMORY_COPY_HOST_TO_DEVICE'),(3,'g','MARKER_CORE_RANGE_API'),
  (4,'g','roctxRangePushA'),(5,'g','HIP_RUNTIME_API_EXT');
insert into rocpd_info_process_1 values (1,'g',4711,'./program --steps 3');
insert into rocpd_info_thread_1 values (1,'g',4712);
insert into rocpd_info_agent_1 values (1,'g','CPU',0,0,'EPYC',''),(7,'g','GPU',4,1,'gfx942','AMD Instinct MI300X');
insert into rocpd_info_kernel_symbol_1 values (1,'g','_Z3addPf','add(float*)',24);
insert into rocpd_info_pmc_1 values (1,'g','SQ_WAVES');
insert into rocpd_event_1 values (1,'g',5,9),(2,'g',null,9),(3,'g',null,0),(4,'g',3,11);
insert into rocpd_pmc_event_1 values (1,'g',2,1,10.0),(2,'g',2,1,6.0);
insert into rocpd_timestamp_1 values (1,'g',1000),(2,'g',1400),(3,'g',1700),(4,'g',2900),(5,'g',3000),(6,'g',3333),(7,'g',900),
  (8,'g',4000);
insert into rocpd_track_1 values (1,'g',1,null,null,null),(2,'g',1,7,3,0);
insert into rocpd_region_1 values (1,'g',1,1,1,2,1,'{}'),(2,'g',1,4,7,8,4,'{"message": "step 1"}');
insert into rocpd_kernel_dispatch_1 values (1,'g',2,1,3,4,64,1,1,640,2,1,2);
insert into rocpd_memory_copy_1 values (1,'g',2,5,6,2,1,7,4096,3);
"""


def test_rocpd_joins_times_tracks_and_counters(tmp_path: Path) -> None:
    """The layout of ROCm 7: a row points to timestamps and a track; views of the file are never run."""
    path = tmp_path / "run_results.db"
    base = sqlite3.connect(path)
    base.executescript(_TRACKS)
    base.commit()
    base.close()
    trace = trace_of(path)
    rows = {row["name"]: row for row in trace.slices.to_pylist()}
    assert {name: row["dur_ns"] for name, row in rows.items()} == {
        "add(float*)": 1200, "Memcpy HtoD": 333, "hipLaunchKernel": 400, "step 1": 3100}
    kernel = rows["add(float*)"]
    assert (kernel["grid_x"], kernel["grid_y"], kernel["registers_per_thread"], kernel["device"]) == (10, 2, 24, 1)
    assert kernel["correlation"] == rows["hipLaunchKernel"]["correlation"]
    assert json.loads(kernel["detail"]) == {"SQ_WAVES": 16.0}, "two instances of a counter are one value"
    assert rows["Memcpy HtoD"]["bytes"] == 4096 and rows["Memcpy HtoD"]["correlation"] is None
    assert [rows[name]["category"] for name in ("hipLaunchKernel", "step 1")] == [Category.RUNTIME, Category.ANNOTATION]
    assert trace.tracks[rows["step 1"]["track"]].name == "thread 4712" and trace.devices[0].name == "AMD Instinct MI300X"
    assert trace.metadata == {"command": "./program --steps 3"}


def test_another_database_with_such_words_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    base = sqlite3.connect(path)
    base.executescript("create table notes(text); insert into notes values ('CREATE TABLE of rocpd_op and rocpd_info_agent');")
    base.close()
    with pytest.raises(TraceError, match="not an export of Nsight Systems"):
        ingest.read(path)


def test_json_with_calls_copies_markers_and_counters(tmp_path: Path) -> None:
    document = json.loads((CASES / "rocprofv3_results.json").read_text())
    process = document["rocprofiler-sdk-tool"][0]
    process["agents"].insert(0, {"id": {"handle": 1}, "type": 1, "name": "EPYC"})
    process["strings"] = {"buffer_records": [{"kind": "NONE", "operations": []},
                                             {"kind": "HIP", "operations": ["none", "hipMalloc"]},
                                             {"kind": "MEMORY_COPY", "operations": ["none", "MEMORY_COPY_DEVICE_TO_HOST"]}],
                          "marker_api": [{"key": 77, "value": "step"}]}
    times = {"thread_id": 42, "start_timestamp": 1_000_000_100, "end_timestamp": 1_000_000_400}
    process["buffer_records"] |= {
        "hip_api": [{"kind": 1, "operation": 1, "correlation_id": {"internal": 3}, "args": [{"a": 1}, {"b": 2}], **times}],
        "marker_api": [{"kind": 0, "operation": 0, "correlation_id": {"internal": 77}, **times}],
        "memory_copy": [{"kind": 2, "operation": 1, "correlation_id": {"internal": 5}, "bytes": 64, "src_agent_id": {"handle": 4},
                         "dst_agent_id": {"handle": 1}, **times}]}
    process["callback_records"] = {"counter_collection": [{
        "dispatch_data": {"dispatch_info": process["buffer_records"]["kernel_dispatch"][0]["dispatch_info"]},
        "records": [{"counter_id": {"handle": 9}, "value": 3.0}, {"counter_id": {"handle": 9}, "value": 4.0}]}]}
    process["counters"] = [{"id": {"handle": 9}, "name": "SQ_WAVES"}]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    trace = trace_of(path)
    rows = {row["name"]: row for row in trace.slices.to_pylist() if row["category"] not in (Category.COMPUTE,)}
    assert {name: (row["category"], row["dur_ns"]) for name, row in rows.items()} == {
        "hipMalloc": (Category.RUNTIME, 300), "step": (Category.ANNOTATION, 300), "Memcpy DtoH": (Category.MEMCPY, 300)}
    assert rows["Memcpy DtoH"]["device"] == 0 and rows["Memcpy DtoH"]["bytes"] == 64
    assert any("counters of 1 dispatches" in note for note in trace.integrity.notes)
    process["buffer_records"] = {}
    path.write_text(json.dumps(document))
    report = ingest.read(path)
    assert isinstance(report, Report) and report.launches[0].metrics["SQ_WAVES"] == 7.0


@pytest.mark.parametrize("content", [
    b'"Kind","Kernel_Name","Start_Timestamp","End_Timestamp"\n"a",1\n',
    b'{"rocprofiler-sdk-tool": [{"buffer_records": {"hip_api": 3}}]}',
    b'{"rocprofiler-sdk-tool": 3}', b'"Name","Calls","TotalDurationNs"\n"x","many","9"\n',
    b'{"rocprofiler-sdk-tool": ' + b"[" * 100_000,
    b'"Direction","Start_Timestamp","End_Timestamp"\n' + b'"x",1,2\n' * 3 + b'"' * 500_000])
def test_damage_is_one_error_or_counted(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    try:
        read = ingest.read(path)
    except TraceError:
        return
    assert sum(read.integrity.not_kept.values()) + read.integrity.records_kept == read.integrity.records_read
