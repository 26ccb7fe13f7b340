"""Every Kineto file of the corpus against numbers that independent scripts computed."""

import gzip
import json
from collections import Counter

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table, numbers
from profiles.analysis.trace.breakdown import breakdown, remark
from profiles.ingest.trace import Category, Trace
from tests.profiles.ingest.corpus import CORPUS, H200, TRUTH, larger_are_deep

FILES = sorted([*(CORPUS / "kineto").iterdir(), *H200.glob("kineto*.json.gz"), *H200.glob("ddp*.json.gz")])


def read(path) -> Trace:
    found = ingest.read(path)
    assert isinstance(found, Trace)
    return found


def document(path) -> dict:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


@pytest.mark.slow
@pytest.mark.parametrize("truth", TRUTH, ids=lambda truth: truth["file"])
def test_kernels_are_what_independent_scripts_counted(truth):
    trace = read(CORPUS / truth["file"])
    table = kernel_table(trace)
    assert sum(row.launches for row in table) == truth["launches"]
    assert sum(row.total_ns for row in table) == truth["gpu_time_ns"]
    assert len(table) == truth["names"]
    assert [row.name for row in table[:5]] == truth["top"] or \
        {row.name for row in table[:5]} == set(truth["top"])            # equal times: any order
    assert trace.integrity.records_read == truth["records"] == trace.integrity.records_kept
    assert not trace.integrity.truncated_at


@pytest.fixture(scope="module", params=larger_are_deep(FILES, 50_000), ids=lambda path: path.name)
def path(request):
    """Each file in turn: pytest runs all tests of one before it goes on to the next."""
    return request.param


@pytest.fixture(scope="module")
def trace(path):
    """Read once for all tests of the file; none changes it."""
    return read(path)


@pytest.mark.slow
def test_every_record_is_accounted_for(path, trace):
    records = document(path)["traceEvents"]
    integrity = trace.integrity
    assert integrity.records_read == len(records) == integrity.records_kept + sum(integrity.not_kept.values())
    assert sum(integrity.kinds.values()) == len(records)
    assert trace.slices.num_rows == sum(record["ph"] in "Xi" for record in records)
    kinds = Counter(record.get("cat", "").lower() for record in records if record["ph"] == "X")
    category = numbers(trace.slices, "category")
    for name, kind in (("cpu_op", Category.CPU_OP), ("python_function", Category.PYTHON), ("cuda_sync", Category.SYNC)):
        if kinds[name]:
            assert np.count_nonzero(category == kind) == kinds[name]


@pytest.mark.slow
def test_times_are_exact(path, trace):
    """Against the decimal text of the file, not against floats."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    records = json.loads(text, parse_float=str, parse_int=str)["traceEvents"]

    def ns(value: str) -> int:
        whole, _, fraction = value.partition(".")
        return int(whole) * 1000 + int(fraction.ljust(3, "0")[:3])

    timed = [record for record in records if record["ph"] in ("X", "i") and "ts" in record]
    zero = min(ns(record["ts"]) for record in timed)
    expected = sorted((ns(record["ts"]) - zero, max(ns(record.get("dur", "0")), 0)) for record in timed)
    got = sorted(zip(trace.slices["start_ns"].to_pylist(), trace.slices["dur_ns"].to_pylist(), strict=True))
    assert got == expected


@pytest.mark.slow
def test_no_two_slices_of_a_lane_overlap(trace):
    table = trace.slices
    track, depth, start, dur = (numbers(table, name) for name in ("track", "depth", "start_ns", "dur_ns"))
    spans = ~numbers(table, "instant").astype(bool)
    order = np.lexsort((start[spans], depth[spans], track[spans]))
    track, depth, start, end = track[spans][order], depth[spans][order], start[spans][order], (start + dur)[spans][order]
    same = (track[1:] == track[:-1]) & (depth[1:] == depth[:-1])
    assert not (same & (start[1:] < end[:-1])).any()


@pytest.mark.slow
def test_the_split_adds_up_to_wall_time(trace):
    found = breakdown(trace)
    for device in found.devices:
        assert device.compute_ns + device.communication_ns + device.memory_ns + device.idle_ns == device.wall_ns
        assert device.busy_ns + device.idle_ns == device.wall_ns
        assert sum(device.idle_causes.values()) == device.idle_ns
    for step in found.steps:
        assert step.compute_ns + step.communication_ns + step.memory_ns + step.idle_ns == step.end_ns - step.start_ns


def test_arguments_reach_their_columns():
    trace = read(H200 / "kineto_layer.json.gz")
    record = next(r for r in document(H200 / "kineto_layer.json.gz")["traceEvents"] if r.get("cat") == "kernel")
    rows = trace.slices.filter((trace.slices["correlation"].combine_chunks().to_numpy(zero_copy_only=False)
                                == record["args"]["correlation"]) & (numbers(trace.slices, "category") == 0)).to_pylist()
    row, args = rows[0], record["args"]
    assert [row["grid_x"], row["grid_y"], row["grid_z"]] == args["grid"]
    assert [row["block_x"], row["block_y"], row["block_z"]] == args["block"]
    assert (row["device"], row["stream"], row["registers_per_thread"]) == (
        args["device"], args["stream"], args["registers per thread"])
    assert (row["smem_bytes"], row["external_id"]) == (args["shared memory"], args["External id"])
    assert row["occupancy_pct"] == args["est. achieved occupancy %"]
    operators = [r["detail"] for r in trace.slices.to_pylist() if r["category"] == Category.CPU_OP and r["detail"]]
    assert "Input Dims" in json.loads(operators[0])


def test_gpu_rows_without_arguments_take_device_and_stream_of_their_lane(tmp_path):
    trace = read(written(tmp_path, record(pid=3, tid=7), record(pid=1, tid=20, ts=2)))
    assert list(zip(trace.slices["device"].to_pylist(), trace.slices["stream"].to_pylist(), strict=True)) == [(3, 7), (1, 20)]


def test_tracks_of_the_layer():
    trace = read(H200 / "kineto_layer.json.gz")
    streams = [track for track in trace.tracks if track.kind == "stream"]
    assert [(t.name, t.group, t.device, t.stream) for t in streams] == [("stream 7", "GPU 0", 0, 7)]
    assert any(t.kind == "thread" and t.name == "thread 476 (python3)" and t.group == "python3 (476)" for t in trace.tracks)
    assert [t.sort for t in trace.tracks] == sorted(t.sort for t in trace.tracks)
    assert (trace.devices[0].name, trace.devices[0].sm_count) == ("NVIDIA H200", 132)


def test_memory_instants_become_counters():
    trace = read(H200 / "kineto_layer_stack.json.gz")
    counters = [track for track in trace.tracks if track.kind == "counter"]
    assert counters[0].name.startswith("memory allocated (GPU)")
    assert trace.samples.num_rows > 100
    assert counters[0].device == 0


def test_amd_device_two_is_a_gpu_lane():
    trace = read(CORPUS / "kineto/hta_mi250_minitoy_rocm62.json.gz")
    assert {track.device for track in trace.tracks if track.kind == "stream"} == {2}


def test_old_spelling_of_streams_and_ids():
    trace = read(CORPUS / "kineto/kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz")
    kernels = trace.slices.filter(numbers(trace.slices, "category") == Category.COMPUTE)
    assert set(kernels["stream"].to_pylist()) == {7}
    assert kernels["external_id"].null_count == 0
    calls = trace.slices.filter(numbers(trace.slices, "category") == Category.RUNTIME)
    assert (calls.num_rows, calls["external_id"].null_count) == (11_923, 0)
    assert kernels["registers_per_thread"].null_count == 0


def test_collectives_are_communication():
    trace = read(H200 / "ddp_even_rank0.json.gz")
    rows = [row for row in kernel_table(trace) if row.category == "communication"]
    assert {row.name.split("(")[0] for row in rows} == {"ncclDevKernel_AllReduce_Sum_f32_RING_LL"}
    assert trace.rank == 0
    moved = [r["bytes"] for r in trace.slices.to_pylist() if r["category"] == Category.COMMUNICATION]
    assert min(moved) > 0


def record(**fields) -> dict:
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, **fields}


def written(tmp_path, *records, head: dict | None = None, text: str | None = None):
    path = tmp_path / "trace.json"
    path.write_text(text if text is not None else json.dumps({**(head or {"schemaVersion": 1}), "traceEvents": records}))
    return path


def test_epoch_microseconds_keep_their_nanoseconds(tmp_path):
    """19 digits: float64 would move in steps of 250 ns."""
    path = written(tmp_path, text='{"schemaVersion":1,"traceEvents":['
                   '{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":1695835535123456.001,"dur":0.123},'
                   '{"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":1695835535123456.789,"dur":1.5},'
                   '{"ph":"X","cat":"kernel","name":"c","pid":0,"tid":7,"ts":"1695835535123460.002","dur":"2"}]}')
    trace = read(path)
    assert trace.slices["start_ns"].to_pylist() == [0, 788, 4001]
    assert trace.slices["dur_ns"].to_pylist() == [123, 1500, 2000]
    assert trace.base_ns == 1695835535123456001


def test_a_clock_that_was_never_read(tmp_path):
    """kineto #109: one time of 0 among epoch times must not stretch the trace to 1970."""
    trace = read(written(tmp_path, record(ts=0), record(ts=1695835535123456), record(ts=1695835535123460)))
    assert trace.slices["start_ns"].to_pylist() == [0, 0, 4000]
    assert any("time 0" in reason for reason in trace.integrity.repaired)


def test_ids_beyond_int64_and_of_other_types(tmp_path):
    trace = read(written(
        tmp_path, record(args={"correlation": 2**64 - 1, "External id": "12", "stream": "7", "grid": "none"}),
        record(ts=2, args=[1, 2]), record(ts=3, args="text"), record(ts=4, name=None, pid=[1], tid={"a": 1}),
        record(ts=5, args={"correlation": 5, "grid": [1, 2, 3], "block": [2**40, 1, 1]})))
    assert trace.slices["correlation"].to_pylist() == [-1, None, None, None, 5]
    assert trace.slices["external_id"].to_pylist()[0] == 12
    assert trace.slices["grid_x"].to_pylist() == [None, None, None, None, 1]
    assert trace.slices["block_x"].to_pylist()[-1] is None
    assert trace.integrity.records_kept == 5


def test_helper_threads_with_pid_0_are_not_gpu_lanes(tmp_path):
    trace = read(written(tmp_path, record(tid=0), record(cat="python_function", tid=0, ts=1, name="f")))
    assert sorted(track.kind for track in trace.tracks) == ["stream", "thread"]


def test_one_thread_written_as_number_and_as_text_is_one_track(tmp_path):
    """PyTorch 1.9: operators under tid "25738", memory instants and flow begins under tid 25738."""
    trace = read(CORPUS / "kineto/kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz")
    threads = [(track.pid, track.tid) for track in trace.tracks if track.kind == "thread"]
    assert sorted(threads) == [("25738", "25738"), ("25738", "25772")]
    outer = {"ph": "X", "cat": "cpu_op", "name": "outer", "pid": 1, "tid": "7", "ts": 0, "dur": 9}
    trace = read(written(tmp_path, outer, {**outer, "name": "inner", "tid": 7, "ts": 1, "dur": 2}))
    assert (len(trace.tracks), trace.slices["depth"].to_pylist()) == (1, [0, 1])


def test_a_trace_of_old_or_damaged_head_is_pytorchs_by_its_categories(tmp_path):
    assert read(written(tmp_path, text=json.dumps([record(), record(cat="strange")]))).format == "kineto"
    assert read(written(tmp_path, record(cat="strange"))).format == "kineto"


def test_metadata_around_the_array(tmp_path):
    text = json.dumps({"note": 'a "traceEvents": [ within a text', "distributedInfo": {"rank": 3}})[:-1]
    text += ', "traceEvents": [' + json.dumps(record()) + '], "traceName": "x.json", "baseTimeNanoseconds": 1000}'
    trace = read(written(tmp_path, text=text))
    assert (trace.rank, trace.metadata["traceName"], trace.base_ns) == (3, "x.json", 2000)


def test_counters_with_an_empty_series_name(tmp_path):
    """2026: hardware_counters under the pid "GPU 0 Counters", the argument's key is empty."""
    trace = read(written(tmp_path, record(), *[
        {"ph": "C", "cat": "hardware_counters", "name": "sm__cycles", "pid": "GPU 0 Counters", "tid": 0, "ts": t,
         "args": {"": t * 10}} for t in (1, 2, 3)]))
    track = next(track for track in trace.tracks if track.kind == "counter")
    assert (track.name, track.group, track.device) == ("sm__cycles", "GPU 0", 0)
    assert trace.samples["value"].to_pylist() == [10, 20, 30]
    assert trace.integrity.records_kept == 4


def test_remarks_are_counted(tmp_path):
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5, "ts": 0, "dur": 1}
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 5, "tid": 5, "ts": 0, "dur": 10}
    trace = read(written(tmp_path, step, {**call, "args": {"correlation": 1}}, record(ts=2, args={"correlation": 1}),
                         record(ts=4, dur=0, args={"correlation": 2}), record(ts=20), record(ts=1, dur=-1, cat="cpu_op")))
    remark(trace)
    assert trace.integrity.repaired == {"negative duration: drawn as an instant of time": 1}
    assert trace.integrity.remarks == {
        "GPU work without a correlation id": 1,
        "GPU work whose launch call is not in the file": 1, "GPU work of no duration": 1,
        "GPU work that began outside every step": 1}
    assert trace.integrity.records_kept == 6
