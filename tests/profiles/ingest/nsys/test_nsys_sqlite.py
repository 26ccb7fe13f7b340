"""Nsight Systems exports: every real one against independent truth and against SQL over the very same file."""

from __future__ import annotations

import gzip
import json
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table
from profiles.ingest.core.source import Limits
from profiles.ingest.trace import Category, Trace, TraceError
from tests.profiles.ingest.corpus import CORPUS

TRUTH: list[dict[str, Any]] = [json.loads(line) for line in (CORPUS / "truth_nsys.jsonl").read_text().splitlines()]
GPID, TID = (1 << 56) | (4711 << 24), (1 << 56) | (4711 << 24) | 4712


def read(path: Path, **limits: int) -> Trace:
    trace = ingest.read(path, limits=Limits(**limits) if limits else None)
    assert isinstance(trace, Trace)
    integrity = trace.integrity
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())
    assert integrity.records_read >= sum(integrity.kinds.values())
    return trace


def rows(trace: Trace, category: Category) -> list[dict[str, Any]]:
    return trace.slices.filter(pc.equal(trace.slices["category"], int(category))).to_pylist()


def total(trace: Trace, category: Category, column: str = "dur_ns") -> int:
    return sum(row[column] for row in rows(trace, category))


@contextmanager
def database(name: str, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    plain = tmp_path / "plain.sqlite"
    plain.write_bytes(gzip.decompress((CORPUS / name).read_bytes()))
    with closing(sqlite3.connect(f"file:{plain}?mode=ro&immutable=1", uri=True)) as connection:
        yield connection


def asked(connection: sqlite3.Connection, table: str, what: str) -> tuple[int, ...]:
    there = connection.execute("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", [table]).fetchone()[0]
    return tuple(value or 0 for value in connection.execute(f"SELECT {what} FROM {table}").fetchone()) if there else (0,) * 9


@pytest.mark.parametrize("truth", TRUTH, ids=lambda truth: truth["file"])
def test_kernels_are_those_of_the_truth(truth):
    kernels = kernel_table(read(CORPUS / truth["file"]))
    assert sum(row.launches for row in kernels) == truth["launches"]
    assert sum(row.total_ns for row in kernels) == truth["gpu_time_ns"]
    assert len(kernels) == truth["names"]
    assert [row.name for row in kernels[:5]] == truth["top"]


@pytest.mark.parametrize("truth", TRUTH, ids=lambda truth: truth["file"])
def test_sums_are_those_of_sql_over_the_same_file(truth, tmp_path):
    trace = read(CORPUS / truth["file"])
    with database(truth["file"], tmp_path) as connection:
        spent = "count(*), sum(end - start)"
        for table, category in (("CUPTI_ACTIVITY_KIND_MEMCPY", Category.MEMCPY), ("CUPTI_ACTIVITY_KIND_MEMSET", Category.MEMSET)):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            wanted = asked(connection, table, f"{spent}, sum(bytes)" if "bytes" in columns else f"{spent}, 0")
            found = rows(trace, category)
            assert (len(found), sum(row["dur_ns"] for row in found), sum(row["bytes"] or 0 for row in found)) == wanted[:3]
        for table, category in (("CUPTI_ACTIVITY_KIND_RUNTIME", Category.RUNTIME), ("NVTX_EVENTS", Category.ANNOTATION),
                                ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", Category.SYNC)):
            assert (len(rows(trace, category)), total(trace, category)) == asked(connection, table, spent)[:2]
        overhead = [asked(connection, table, spent) for table in ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")]
        assert total(trace, Category.OVERHEAD) == sum(each[1] for each in overhead)
        sampled = trace.samples.filter(pc.invert(pc.is_nan(trace.samples["value"])))     # NaN: where the sampling ended
        assert sampled.num_rows == asked(connection, "GPU_METRICS", "count(*)")[0]
        if sampled.num_rows:
            assert sum(sampled["value"].to_pylist()) == asked(connection, "GPU_METRICS", "sum(value)")[0]
        if kernel_table(trace) and trace.base_ns is not None:
            (first,) = connection.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
            begun = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()[0]
            starts = [row["start_ns"] for kind in (Category.COMPUTE, Category.COMMUNICATION) for row in rows(trace, kind)]
            assert trace.base_ns + min(starts) == begun + first


def test_two_gpus_have_their_streams_and_are_told_apart():
    trace = read(CORPUS / "nsys/nsysai_h100_2gpu.sqlite.gz")
    streams = {(track.group, track.name) for track in trace.tracks if track.kind == "stream"}
    assert streams == {("GPU 0", "stream 7"), ("GPU 1", "stream 15")}
    assert [device.index for device in trace.devices] == [0, 1]
    waits = {track.group for track in trace.tracks if track.name.startswith("waits")}
    assert waits == {"GPU 0", "GPU 1"}          # the file says device 0 of all of them; their contexts know better


def test_ranges_nest_on_their_thread_and_calls_within_them():
    trace = read(CORPUS / "nsys/nsysai_h100_2gpu.sqlite.gz")
    tracks = {row["track"] for kind in (Category.ANNOTATION, Category.RUNTIME) for row in rows(trace, kind)}
    assert {(trace.tracks[number].group, trace.tracks[number].name) for number in tracks} == {
        ("python3 (111)", "python3 (111)"), ("python3 (112)", "python3 (112)")}
    assert max(row["depth"] for row in rows(trace, Category.ANNOTATION)) > 3
    assert not trace.integrity.repaired


def test_kernels_belong_to_the_call_that_launched_them():
    trace = read(CORPUS / "nsys/fuser_h200_report1.sqlite.gz")
    calls = {row["correlation"]: row for row in rows(trace, Category.RUNTIME)}
    for kernel in rows(trace, Category.COMPUTE):
        call = calls[kernel["correlation"]]
        assert "Launch" in call["name"] and call["start_ns"] < kernel["start_ns"]
        assert kernel["grid_x"] and kernel["block_x"] and kernel["registers_per_thread"] and kernel["stream"] == 7


def test_gpu_metrics_are_counters_of_their_gpu():
    trace = read(CORPUS / "nsys/nways_jacobi_gh200_gpu_metrics_40ms.sqlite.gz")
    counters = {track.name: track for track in trace.tracks if track.kind == "counter"}
    assert len(counters) == 22 and {track.group for track in counters.values()} == {"GPU 0"}
    assert (counters["SM Active"].unit, counters["GPC Clock Frequency"].unit) == ("%", "Hz")
    assert counters["Compute Warps in Flight [Avg]"].unit is None


def test_copies_say_their_direction():
    names = {row["name"] for row in rows(read(CORPUS / "nsys/nways_jacobi_gh200.sqlite.gz"), Category.MEMCPY)}
    assert names == {"Memcpy DtoD (Device -> Device)", "Memcpy DtoH (Device -> Pinned)"}


def test_devices_versions_and_messages_are_those_of_the_file():
    trace = read(CORPUS / "nsys/fuser_h200_report1.sqlite.gz")
    (device,) = trace.devices
    assert (device.name, device.compute_capability, device.sm_count, device.memory_bytes) == (
        "NVIDIA H200", "9.0", 132, 150_121_545_728)
    assert trace.metadata["nsys version"] == "2025.1.1.110" and trace.metadata["schema version"] == "3.17.1"
    assert "TOKEN" not in json.dumps(trace.metadata) and "PATH=" not in json.dumps(trace.metadata)     # no environment
    assert any("No NVTX events collected" in note for note in trace.integrity.notes)
    assert trace.metadata["nsys messages"] and trace.integrity.records_kept == trace.integrity.records_read


def test_a_cut_export_gives_what_stands_before_the_cut():
    trace = read(CORPUS / "broken/fuser_h200_truncated.sqlite.gz")
    kernels = kernel_table(trace)
    assert (sum(row.launches for row in kernels), sum(row.total_ns for row in kernels)) == (18, 10_167_602)
    assert trace.integrity.truncated_at == "byte 600000 (page 147 of 491)"
    lost = {reason: count for reason, count in trace.integrity.not_kept.items() if "missing or damaged" in reason}
    assert lost == {"pages of NVTX_EVENTS that are missing or damaged (the first: page 147), each counted as one row": 174}
    assert len(rows(trace, Category.ANNOTATION)) == 3_872


# ---- schemas that no file here has

KERNEL = ("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId INT, "
          "correlationId INT, globalPid INT, demangledName INT, shortName INT, graphNodeId INT, registersPerThread INT, "
          "staticSharedMemory INT, dynamicSharedMemory INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT)")
RUNTIME = ("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT, "
           "returnValue INT)")
NVTX = ("CREATE TABLE NVTX_EVENTS (start INT NOT NULL, end INT, eventType INT, category INT, text TEXT, globalTid INT, textId INT, "
        "domainId INT, int64Value INT, doubleValue REAL, jsonText TEXT)")
STRINGS = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)"


def made(path: Path, *statements: str, **tables: list[tuple[Any, ...]]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        for table, content in tables.items():
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(content[0]))})", content)
        connection.commit()
    return path


def kernel(start: int, end: int, corr: int = 1, pid: int = GPID, device: int = 0, context: int = 1, stream: int = 7, name: int = 1,
           node: int | None = None) -> tuple[Any, ...]:
    return (start, end, device, context, stream, corr, pid, name, name, node, 32, 1024, 512, 4, 1, 1, 128, 1, 1)


def test_processes_and_threads_without_gpu_work_are_drawn_last():
    trace = read(CORPUS / "nsys/fuser_h200_report1.sqlite.gz")
    groups = list(dict.fromkeys(track.group for track in trace.tracks))
    assert groups[:3] == ["pytest (50556)", "python3 (50922)", "GPU 0"]
    assert {"pytest (50556) · threads without calls", "process 50623"} <= set(groups[2:])
    assert trace.tracks[0].name == "pytest (50556)"


def test_a_graph_launch_owns_its_kernels(tmp_path):
    trace = read(made(
        tmp_path / "g.sqlite", STRINGS, KERNEL, RUNTIME, StringIds=[(1, "gemm(float*)"), (2, "cudaGraphLaunch_v10000")],
        CUPTI_ACTIVITY_KIND_RUNTIME=[(100, 200, TID, 9, 2, 0)],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(300 + 10 * n, 305 + 10 * n, 9, node=n + 50) for n in range(400)]))
    (call,) = rows(trace, Category.RUNTIME)
    assert call["name"] == "cudaGraphLaunch"
    found = rows(trace, Category.COMPUTE)
    assert {row["correlation"] for row in found} == {call["correlation"]} and len(found) == 400
    assert json.loads(found[3]["detail"])["graph node"] == 53 and found[0]["smem_bytes"] == 1536


def test_a_graph_recorded_whole_is_one_slice_with_its_name(tmp_path):
    trace = read(made(
        tmp_path / "g.sqlite", STRINGS, RUNTIME, "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, "
        "contextId INT, streamId INT, correlationId INT, globalPid INT, graphId INT, graphExecId INT)",
        StringIds=[(2, "cudaGraphLaunch_v10000")], CUPTI_ACTIVITY_KIND_RUNTIME=[(100, 200, TID, 9, 2, 0)],
        CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[(300, 900, 0, 1, 7, 9, GPID, 109, 110)]))
    (row,) = kernel_table(trace)
    assert (row.name, row.total_ns, row.launches) == ("CUDA graph 109", 600, 1)
    assert any("recorded whole" in remark for remark in trace.integrity.remarks)


def test_processes_that_share_correlation_ids_gpus_and_streams_stay_apart(tmp_path):
    other = (1 << 56) | (4800 << 24)
    trace = read(made(
        tmp_path / "p.sqlite", STRINGS, KERNEL, RUNTIME, "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INT, cudaId INT, pid INT)",
        StringIds=[(1, "gemm"), (2, "cudaLaunchKernel_v7000")], TARGET_INFO_CUDA_DEVICE=[(0, 0, 4711), (0, 0, 4800), (3, 1, 4800)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[(10, 20, TID, 1, 2, 0), (11, 21, other + 4800, 1, 2, 0)],
        CUPTI_ACTIVITY_KIND_KERNEL=[kernel(30, 40), kernel(31, 41, pid=other), kernel(50, 60, corr=2, pid=other, device=1)]))
    first, second, third = sorted(rows(trace, Category.COMPUTE), key=lambda row: row["start_ns"])
    assert first["correlation"] == 1 != second["correlation"] and (first["device"], second["device"], third["device"]) == (0, 0, 3)
    calls = {row["correlation"]: row["start_ns"] for row in rows(trace, Category.RUNTIME)}
    assert calls[first["correlation"]] == 0 and calls[second["correlation"]] == 1
    names = [trace.tracks[row["track"]].name for row in (first, second, third)]
    assert names == ["stream 7 · process 4711, context 1", "stream 7 · process 4800, context 1", "stream 7"]


def test_nvtx_of_every_kind(tmp_path):
    def event(start, end, kind, text=None, category=None, domain=0, ident=None, whole=None, real=None, js=None):
        return (start, end, kind, category, text, TID, ident, domain, whole, real, js)

    trace = read(made(tmp_path / "n.sqlite", STRINGS, NVTX, StringIds=[(5, "registered")], NVTX_EVENTS=[
        event(100, 900, 59, "outer"), event(200, 300, 59, ident=5, category=3, domain=2), event(250, None, 34, "mark", whole=42),
        event(120, 400, 60, "crossing 1"), event(300, 600, 60, "crossing 2", js='{"a": 1}'), event(500, None, 59, "open", real=0.5),
        event(1, None, 75, "my domain", domain=2), event(1, None, 33, "my category", category=3, domain=2),
        event(1, None, 39, "the main one"), event(990, 995, 77, "?")]))
    found = {row["name"]: row for row in rows(trace, Category.ANNOTATION)}
    assert set(found) == {"outer", "registered", "mark", "crossing 1", "crossing 2", "open"}
    assert json.loads(found["registered"]["detail"]) == {"domain": "my domain", "category": "my category"}
    assert json.loads(found["mark"]["detail"])["payload"] == 42 and found["mark"]["instant"]
    assert json.loads(found["open"]["detail"])["payload"] == 0.5 and found["open"]["dur_ns"] == 400       # to the last record
    thread, pairs = (trace.tracks[found[name]["track"]].name for name in ("outer", "crossing 1"))
    assert thread == "the main one (4712)" and pairs == "NVTX start/end ranges"
    assert trace.integrity.not_kept == {"NVTX records of a kind that is not known here": 1}
    assert trace.integrity.remarks["NVTX records that name domains, categories and threads"] == 3
    assert trace.integrity.repaired["NVTX ranges that never ended: drawn to the last record"] == 1


def test_tables_of_early_2021_and_of_tools_to_come(tmp_path):
    trace = read(made(
        tmp_path / "o.sqlite", STRINGS, KERNEL,
        "CREATE TABLE TARGET_INFO_CUDA_GPU (deviceId INT, name TEXT, numMultiprocessors INT, computeCapabilityMajor INT, "
        "computeCapabilityMinor INT, globalMemorySize INT)",
        "CREATE TABLE EXPORT_META_DATA (name TEXT, value TEXT)",
        "CREATE TABLE NEWLIB_API (start INT, end INT, globalTid INT, nameId INT)",
        "CREATE TABLE MYSTERY_COUNTERS (rawTimestamp INT, x REAL)",
        StringIds=[(1, "gemm"), (3, "newlibCall")], CUPTI_ACTIVITY_KIND_KERNEL=[kernel(0, 10)],
        TARGET_INFO_CUDA_GPU=[(0, "Tesla V100", 80, 7, 0, 1 << 34)], EXPORT_META_DATA=[("EXPORT_SCHEMA_VERSION", "2.3.1")],
        NEWLIB_API=[(1, 2, TID, 3), (3, 4, TID, 3)], MYSTERY_COUNTERS=[(1, 0.5)] * 7))
    (device,) = trace.devices
    assert (device.name, device.compute_capability, device.sm_count) == ("Tesla V100", "7.0", 80)
    assert trace.metadata["schema version"] == "2.3.1"
    assert [row["name"] for row in rows(trace, Category.OTHER)] == ["newlibCall", "newlibCall"]
    assert trace.integrity.not_kept == {"table MYSTERY_COUNTERS: not read": 7}


def test_scheduling_samples_memory_and_libraries(tmp_path):
    trace = read(made(
        tmp_path / "s.sqlite", STRINGS, "CREATE TABLE SCHED_EVENTS (start INT, cpu INT, isSchedIn INT, globalTid INT)",
        "CREATE TABLE COMPOSITE_EVENTS (id INT PRIMARY KEY, start INT, cpu INT, threadState INT, globalTid INT, cpuCycles INT)",
        "CREATE TABLE SAMPLING_CALLCHAINS (id INT, symbol INT, module INT, stackDepth INT, PRIMARY KEY (id, stackDepth))",
        "CREATE TABLE CUBLAS_EVENTS (start INT, end INT, eventClass INT, globalTid INT, nameId INT)",
        "CREATE TABLE MPI_COLLECTIVES_EVENTS (start INT, end INT, globalTid INT, textId INT, rootRank INT, size INT)",
        "CREATE TABLE MPI_RANKS (globalTid INT, rank INT)",
        "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INT, globalPid INT, deviceId INT, bytes INT, memKind INT, "
        "memoryOperationType INT)",
        StringIds=[(1, "leaf"), (2, "main"), (3, "cublasSgemm_v2"), (4, "MPI_Allreduce")],
        SCHED_EVENTS=[(5, 1, 0, TID), (10, 1, 1, TID), (30, 1, 0, TID), (40, 2, 1, TID), (60, 2, 0, TID), (70, 2, 1, TID)],
        COMPOSITE_EVENTS=[(1, 50, 1, 1, TID, 9), (2, 55, 1, 1, TID, 9)], SAMPLING_CALLCHAINS=[(1, 1, 0, 0), (1, 2, 0, 1)],
        CUBLAS_EVENTS=[(1, 9, 0, TID, 3)], MPI_COLLECTIVES_EVENTS=[(2, 8, TID, 4, 0, 4096)], MPI_RANKS=[(TID, 3)],
        CUDA_GPU_MEMORY_USAGE_EVENTS=[(1, GPID, 0, 100, 2, 0), (5, GPID, 0, 50, 2, 0), (9, GPID, 0, 100, 2, 1)]))
    by_track: dict[str, list[tuple[str, int, int]]] = {}
    for row in trace.slices.to_pylist():
        by_track.setdefault(trace.tracks[row["track"]].name, []).append((row["name"], row["start_ns"] + 1, row["dur_ns"]))
    assert by_track["scheduling · thread (4712)"] == [("runs on CPU 1", 10, 20), ("runs on CPU 2", 40, 20)]
    assert by_track["samples · thread (4712)"] == [("leaf", 50, 0), ("CPU sample", 55, 0)]
    assert by_track["thread (4712)"] == [("cublasSgemm_v2", 1, 8), ("MPI_Allreduce", 2, 6)]
    assert trace.samples["value"].to_pylist() == [100.0, 150.0, 50.0] and trace.rank == 3
    assert trace.integrity.not_kept == {
        "scheduling records without their counterpart (the thread ran before or after the recording)": 2}
    assert any(row["detail"] == '{"stack": ["leaf", "main"]}' for row in trace.slices.to_pylist())


# ---- damaged and hostile

def test_another_database_is_told_by_its_tables(tmp_path):
    path = made(tmp_path / "x.sqlite", "CREATE TABLE bookmarks (url TEXT)", bookmarks=[("a",)])
    with pytest.raises(TraceError, match="not an export of Nsight Systems") as raised:
        ingest.read(path)
    assert "bookmarks" in raised.value.what


def test_an_empty_export_is_one_clear_error(tmp_path):
    with pytest.raises(TraceError, match="nothing"):
        ingest.read(made(tmp_path / "x.sqlite", STRINGS, KERNEL, StringIds=[(1, "a")]))


def test_wrong_types_endless_times_and_missing_names_are_counted(tmp_path):
    trace = read(made(
        tmp_path / "w.sqlite", STRINGS, KERNEL, StringIds=[(1, "gemm")], CUPTI_ACTIVITY_KIND_KERNEL=[
            kernel(10, 20), kernel(50, 40), kernel("soon", 20), kernel(float("inf"), 30), kernel(30, None), kernel(-5, 5),
            kernel(2**62, 2**63 - 1), kernel(60, 70, name=77), kernel(80, "later"), kernel(b"\x00" * 100, 5)]))
    assert trace.integrity.not_kept == {"rows without a start": 4}
    assert trace.integrity.repaired["without an end: drawn as an instant of time"] == 2
    assert "kernel 77" in trace.slices["name"].to_pylist()
    assert sum(row.total_ns for row in kernel_table(trace)) == 30


def test_a_view_in_place_of_a_table_is_not_looked_into(tmp_path):
    path = made(tmp_path / "v.sqlite", STRINGS, RUNTIME,
                "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS "
                "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT x FROM n",
                StringIds=[(2, "cudaLaunchKernel")], CUPTI_ACTIVITY_KIND_RUNTIME=[(1, 2, TID, 1, 2, 0)])
    started = time.monotonic()
    trace = read(path)
    assert time.monotonic() - started < 30 and trace.slices.num_rows == 1
    assert "Views and virtual tables are not looked into: CUPTI_ACTIVITY_KIND_KERNEL." in trace.integrity.notes


@pytest.mark.slow
def test_a_million_threads_share_a_bounded_number_of_tracks(tmp_path):
    trace = read(made(tmp_path / "m.sqlite", STRINGS, RUNTIME, StringIds=[(2, "f")], CUPTI_ACTIVITY_KIND_RUNTIME=[
        (number, number + 1, number, 1, 2, 0) for number in range(70_000)]))
    assert len(trace.tracks) <= 65_537 and trace.slices.num_rows == 70_000


def test_a_long_text_is_clipped_and_a_longer_row_is_counted(tmp_path):
    trace = read(made(tmp_path / "t.sqlite", STRINGS, NVTX, NVTX_EVENTS=[
        (1, 2, 59, None, "a" * 3_000_000, TID, None, 0, None, None, None),
        (3, 4, 59, None, "b" * (17 << 20), TID, None, 0, None, None, None),
        (5, 6, 59, None, "c", TID, None, 0, None, None, None)]))
    assert [len(name) for name in trace.slices["name"].to_pylist()] == [8192, 1]
    assert trace.integrity.not_kept == {"rows of NVTX_EVENTS that are damaged or longer than 16 MB": 1}


def test_more_rows_than_the_limit_are_one_clear_error(tmp_path):
    path = made(tmp_path / "l.sqlite", STRINGS, KERNEL, CUPTI_ACTIVITY_KIND_KERNEL=[kernel(n, n + 1) for n in range(100)])
    with pytest.raises(TraceError, match="more than 50 rows"):
        read(path, records=50)


def test_write_ahead_mode_is_said(tmp_path):
    path = made(tmp_path / "w.sqlite", "PRAGMA journal_mode=WAL", STRINGS, KERNEL, CUPTI_ACTIVITY_KIND_KERNEL=[kernel(1, 2)])
    assert any("write-ahead" in note for note in read(path).integrity.notes)


def test_nvtx_colours_are_carried_by_name(tmp_path):
    table = NVTX.replace("category INT,", "category INT, color INT,")
    events = [(10, 90, 59, 0, -8996608, "load", TID), (100, 190, 59, 0, 0xFF0000FF, "save", TID),
              (200, 290, 59, 0, 0xFFFF0000, "load", TID), (300, 390, 59, 0, 0, "plain", TID),
              (400, 490, 59, 0, 0x00FF00, "clear", TID)]
    path = tmp_path / "c.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(STRINGS)
        connection.execute(table)
        connection.executemany("INSERT INTO NVTX_EVENTS (start, end, eventType, category, color, text, globalTid) "
                               "VALUES (?, ?, ?, ?, ?, ?, ?)", events)
        connection.commit()
    trace = read(path)
    assert trace.colours == {"load": "#76b900", "save": "#0000ff"}        # the first of a name; none where it is transparent
    assert trace.integrity.remarks["a name with several colours: the first is shown"] == 1


def test_python_samples_are_instants_with_their_stack(tmp_path):
    def sample(*frames, head=b""):
        return head + struct.pack("<QII", 1, 1, len(frames)) + b"".join(struct.pack("<QQQ", *frame) for frame in frames)

    header = struct.pack("<IIIIQQ", 1, 0, 1, 0, 40, 72)
    table = NVTX.replace("jsonText TEXT", "jsonText TEXT, binaryData TEXT")
    leaf, caller = (1, 2, 4), (3, 2, 8)
    payloads = [sample(leaf, caller, head=header), sample(caller), sample((1, 2, 4), (99, 2, 8)), sample(leaf)[:-1],
                b"x" * 64, None]
    events = [(10 + at, 34, payload, TID) for at, payload in enumerate(payloads)]
    path = tmp_path / "p.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(STRINGS)
        connection.execute(table)
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, "load"), (2, "train.py"), (3, "main")])
        connection.executemany("INSERT INTO NVTX_EVENTS (start, eventType, binaryData, globalTid) VALUES (?, ?, ?, ?)", events)
        connection.commit()
    trace = read(path)
    samples = rows(trace, Category.PYTHON)
    assert [row["name"] for row in samples] == ["load", "main"] and all(row["instant"] for row in samples)
    assert json.loads(samples[0]["detail"]) == {"stack": ["load (train.py:4)", "main (train.py:8)"]}
    assert {trace.tracks[row["track"]].name for row in samples} == {"Python samples · thread (4712)"}
    assert len(rows(trace, Category.ANNOTATION)) == 4                      # what is no such stack stays a mark
