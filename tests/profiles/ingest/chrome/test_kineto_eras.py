"""What the corpus has no file of, written as each era's exporter writes it; and Python stacks against the ids in the files."""

import gzip
import json
from collections import defaultdict

import pytest

from profiles import ingest
from profiles.ingest.trace import Category, Trace
from tests.launches import launch_calls
from tests.profiles.ingest.chrome.test_chrome import trace_of
from tests.profiles.ingest.corpus import CORPUS


def kinds(trace: Trace) -> dict[str, str]:
    return {row["name"]: Category(row["category"]).name for row in trace.slices.to_pylist()}


def test_1_8_wrote_titles_texts_and_whole_microseconds(tmp_path):
    records = [
        {
            "ph": "X",
            "cat": "Operator",
            "name": "aten::mm",
            "pid": 42,
            "tid": "42",
            "ts": 1_600_000_000_000_000,
            "dur": 9,
            "args": {
                "Device": 42,
                "External id": 2,
                "Trace name": "PyTorch Profiler",
                "Trace iteration": 0,
                "Input Dims": [[2, 2]],
                "Call stack": "a.py(1): f;b.py(2): g",
            },
        },
        {
            "ph": "X",
            "cat": "Runtime",
            "name": "cudaLaunchKernel",
            "pid": 42,
            "tid": "42",
            "ts": 1_600_000_000_000_002,
            "dur": 3,
            "args": {"cbid": 211, "correlation": 7, "external id": 2},
        },
        {"ph": "s", "id": 7, "pid": 42, "tid": 42, "ts": 1_600_000_000_000_002, "cat": "async", "name": "launch"},
        {
            "ph": "X",
            "cat": "Kernel",
            "name": "gemm",
            "pid": 0,
            "tid": "stream 7",
            "ts": 1_600_000_000_000_004,
            "dur": 20,
            "args": {
                "device": 0,
                "stream": 7,
                "correlation": 7,
                "external id": 2,
                "grid": [1, 2, 3],
                "block": [4, 5, 6],
                "registers per thread": 32,
                "shared memory": 16,
                "warps per SM": 0.1,
                "est. achieved occupancy %": 25.0,
            },
        },
        {"ph": "f", "id": 7, "pid": 0, "tid": "stream 7", "ts": 1_600_000_000_000_004, "cat": "async", "name": "launch", "bp": "e"},
        {
            "ph": "X",
            "cat": "Memcpy",
            "name": "Memcpy HtoD (Pageable -> Device)",
            "pid": 0,
            "tid": "stream 7",
            "ts": 1_600_000_000_000_030,
            "dur": 2,
            "args": {"device": 0, "stream": 7, "correlation": 8, "bytes": 4096},
        },
        {
            "ph": "i",
            "name": "[memory]",
            "pid": 42,
            "tid": 42,
            "ts": 1_600_000_000_000_005,
            "s": "t",
            "args": {"Device Type": 1, "Device Id": 0, "Bytes": 512},
        },
        {
            "ph": "X",
            "cat": "Trace",
            "name": "PyTorch Profiler (0)",
            "pid": "Traces",
            "tid": "PyTorch Profiler",
            "ts": 1_600_000_000_000_000,
            "dur": 50,
        },
    ]
    trace = trace_of(tmp_path, *records, head='{"schemaVersion": 1, "traceEvents":', tail="}")
    assert (trace.format, trace.integrity.records_kept, trace.base_ns) == ("kineto", 8, 1_600_000_000_000_000_000)
    assert kinds(trace) == {
        "aten::mm": "CPU_OP",
        "cudaLaunchKernel": "RUNTIME",
        "gemm": "COMPUTE",
        "Memcpy HtoD (Pageable -> Device)": "MEMCPY",
        "[memory]": "OTHER",
        "PyTorch Profiler (0)": "OTHER",
    }
    rows = {row["name"]: row for row in trace.slices.to_pylist()}
    assert [rows["gemm"][key] for key in ("device", "stream", "correlation", "external_id", "grid_z", "block_x", "smem_bytes")] == [
        0,
        7,
        7,
        2,
        3,
        4,
        16,
    ]
    assert json.loads(rows["aten::mm"]["detail"])["Call stack"] == "a.py(1): f;b.py(2): g"
    assert trace.flows.num_rows == 0  # the correlation says the same


@pytest.mark.parametrize("cat", [{}, {"cat": "cpu_instant_event"}], ids=["1.8", "2025"])
def test_memory_instants_of_both_forms(tmp_path, cat):
    instant = {"ph": "i", "name": "[memory]", "pid": 42, "tid": 42, "s": "t", **cat}
    new = {"Total Allocated": 900, "Total Reserved": 2000, "Addr": 1, "finished": True} if cat else {}
    trace = trace_of(
        tmp_path,
        {**instant, "ts": 1, "args": {"Device Type": 1, "Device Id": 0, "Bytes": 512, **new}},
        {**instant, "ts": 2, "args": {"Device Type": 0, "Device Id": -1, "Bytes": -512, **new}},
        {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 42, "tid": 42, "ts": 0, "dur": 9},
        head='{"schemaVersion":1,"traceEvents":',
        tail="}",
    )
    assert trace.slices["instant"].to_pylist().count(True) == 2
    assert trace.samples.num_rows == (4 if cat else 0)
    marks = [row for row in trace.slices.to_pylist() if row["instant"]]
    assert [(row["bytes"], row["device"], row["external_id"]) for row in marks] == [
        (512, 0, 1 if cat else None), (-512, None, 1 if cat else None)]


def test_memory_of_other_accelerators_is_not_the_hosts(tmp_path):
    """ROCm builds of PyTorch write device type 6 (HIP); hostile sizes and GPUs are no numbers."""
    instant = {"ph": "i", "name": "[memory]", "cat": "cpu_instant_event", "pid": 42, "tid": 42, "s": "t"}
    trace = trace_of(
        tmp_path,
        {**instant, "ts": 1, "args": {"Device Type": 6, "Device Id": 1, "Bytes": 512, "Total Allocated": 900, "Addr": 2**47}},
        {**instant, "ts": 2, "args": {"Device Type": 1, "Device Id": 2**40, "Bytes": 2**62, "Addr": 2**64 - 1}},
        {**instant, "ts": 3, "args": {"Device Type": [1], "Device Id": "x", "Bytes": "y", "Addr": None}},
        {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 42, "tid": 42, "ts": 0, "dur": 9},
        head='{"schemaVersion":1,"traceEvents":',
        tail="}",
    )
    marks = [row for row in trace.slices.to_pylist() if row["instant"]]
    assert [(row["bytes"], row["device"]) for row in marks] == [(512, 1), (None, None), (None, None)]
    assert [track.name for track in trace.tracks if track.kind == "counter"] == ["memory allocated (GPU)"]


def test_times_relative_to_a_base(tmp_path):
    trace = trace_of(
        tmp_path,
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 4_400_123_456_789.123, "dur": 1.001, "args": {}},
        head='{"schemaVersion":1,"baseTimeNanoseconds":1759251612000000000,"displayTimeUnit":"ms","traceEvents":',
        tail="}",
    )
    assert trace.base_ns == 1_759_251_612_000_000_000 + 4_400_123_456_789_123
    assert trace.slices["dur_ns"].to_pylist() == [1001]


def test_hardware_counters_lie_under_their_gpu(tmp_path):
    trace = trace_of(
        tmp_path,
        *(
            {
                "ph": "C",
                "cat": "hardware_counters",
                "name": "sm__cycles_active.avg",
                "pid": "GPU 0 Counters",
                "tid": 0,
                "ts": i,
                "args": {"": 1.5 * i},
            }
            for i in range(3)
        ),
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0, "dur": 1},
        head='{"schemaVersion":1,"traceEvents":',
        tail="}",
    )
    counter = next(track for track in trace.tracks if track.kind == "counter")
    assert (counter.group, counter.device, counter.name) == ("GPU 0", 0, "sm__cycles_active.avg")
    assert trace.samples["value"].to_pylist() == [0, 1.5, 3]


def test_ranges_keep_their_counters():
    trace = ingest.read(CORPUS / "kineto/hta_cupti_range_profiler_a100.json.gz")
    ranges = [json.loads(row["detail"]) for row in trace.slices.to_pylist() if row["detail"] and "smsp__" in row["detail"]]
    assert len(ranges) == 77
    assert all("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum" in each for each in ranges)


def test_on_demand_traces_list_ranks_as_a_text(tmp_path):
    info = {"backend": "nccl", "rank": 5, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"}]}
    trace = trace_of(
        tmp_path,
        {
            "ph": "X",
            "cat": "kernel",
            "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "pid": 5,
            "tid": 7,
            "ts": 1,
            "dur": 1,
            "args": {
                "Process Group Ranks": "[0, 1, ...]",
                "Comms Id": 2**64 - 1,
                "Group size": 8,
                "dtype": "Float",
                "In msg nelems": 1024,
                "Out msg nelems": 1024,
            },
        },
        head='{"schemaVersion":1,"distributedInfo":' + json.dumps(info) + ',"traceEvents":',
        tail="}",
    )
    row = trace.slices.to_pylist()[0]
    assert (trace.rank, Category(row["category"]).name, row["bytes"]) == (5, "COMMUNICATION", 4096)
    assert trace.metadata["distributedInfo"]["pg_config"][0]["ranks"].startswith("[0")


def test_one_launch_of_a_graph_owns_hundreds_of_kernels():
    trace = ingest.read(CORPUS / "kineto/vllm_mi300_decode_full_graph_execution.json.gz")
    rows = trace.slices.to_pylist()
    calls = launch_calls(trace)
    owned = defaultdict(int)
    for row, call in zip(rows, calls.tolist(), strict=True):
        if row["category"] in (Category.COMPUTE, Category.COMMUNICATION):
            assert call >= 0
            owned[rows[call]["name"], call] += 1
    assert len(owned) == 5
    assert max(owned.values()) == 421
    assert max(owned, key=owned.get)[0] == "hipGraphLaunch"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "tracelens_h100_qwen1.5-0.5b.json.gz",
        pytest.param("tracelens_h100_timesformer.json.gz", marks=pytest.mark.deep_only),
        pytest.param("vllm_mi300_decode_full_graph_capture_rank0.pt.trace.json.gz", marks=pytest.mark.deep_only),
    ],
)
def test_python_stacks_nest_as_their_ids_say(name):
    """`Python parent id` names the caller: it must be drawn above its callee and around it."""
    records = [
        record
        for record in json.loads(gzip.decompress((CORPUS / "kineto" / name).read_bytes()))["traceEvents"]
        if record.get("cat") == "python_function"
    ]
    trace = ingest.read(CORPUS / "kineto" / name)
    drawn, written = defaultdict(list), defaultdict(list)
    for row in trace.slices.select(["start_ns", "dur_ns", "name", "category", "track", "depth"]).to_pylist():
        if row["category"] == Category.PYTHON:
            track = trace.tracks[row["track"]]
            drawn[track.pid, track.tid, row["name"], row["dur_ns"]].append(row)
    for record in sorted(records, key=lambda each: each["ts"]):
        written[str(record["pid"]), str(record["tid"]), record["name"], round(record["dur"] * 1000)].append(record)
    placed = {}
    for key, several in written.items():
        assert len(drawn[key]) == len(several)
        placed |= {record["args"]["Python id"]: (row, record) for row, record in zip(drawn[key], several, strict=True)}
    checked = 0
    for row, record in placed.values():
        caller = placed.get(record["args"].get("Python parent id"))
        if caller:
            above = caller[0]
            assert (above["track"], above["depth"] < row["depth"]) == (row["track"], True)
            assert above["start_ns"] <= row["start_ns"]
            assert above["start_ns"] + above["dur_ns"] >= row["start_ns"] + row["dur_ns"]
            checked += 1
    assert checked >= len(records) - 2
