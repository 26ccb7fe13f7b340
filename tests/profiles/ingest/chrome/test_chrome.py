"""Chrome traces of any program: every file of the corpus, every kind of record, every rule by which GPU work is told."""

import json

import pytest

from profiles import ingest
from profiles.ingest.chrome import gather, generic, kineto
from profiles.ingest.core import build, pieces, spool
from profiles.ingest.trace import Category, Trace, TraceError
from tests.profiles.ingest.corpus import CORPUS

# file -> slices (name, start µs, duration µs, depth), worked out by hand from the few records of each
SLICES = {
    "speedscope_simple.json": [("alpha", 0, 14, 0), ("beta", 1, 12, 1), ("gamma", 2, 5, 2), ("epsilon", 7, 4, 2)],
    "speedscope_simple-object.json": [("alpha", 0, 14, 0), ("beta", 1, 12, 1), ("(no name)", 7, 4, 2)],
    "speedscope_matching-x.json": [
        ("alpha", 0, 10, 0),
        ("beta", 1, 1, 1),
        ("gamma", 1, 1, 2),
        ("gamma", 5, 1, 1),
        ("beta", 5, 1, 2),
    ],
    "speedscope_invalid-x-nesting.json": [("alpha", 0, 10, 0), ("beta", 5, 10, 1)],
    "speedscope_mismatched-name.json": [("alpha", 0, 10, 0)],
    "speedscope_too-many-end-events.json": [("alpha", 0, 14, 0), ("beta", 1, 12, 1)],
    "speedscope_zero-duration-events.json": [("A", 0, 10, 0), ("B", 1, 0, 1), ("C", 2, 0, 1), ("D", 3, 0, 1)],
    "speedscope_bex-interaction.json": [
        ("A", 0, 2, 0),
        ("B", 0, 2, 1),
        ("C", 10, 2, 0),
        ("D", 10, 2, 1),
        ("F", 20, 2, 0),
        ("E", 20, 1, 1),
        ("G", 30, 2, 0),
        ("H", 30, 1, 1),
        ("J", 40, 2, 0),
        ("I", 41, 1, 1),
        ("K", 50, 2, 0),
        ("L", 51, 1, 1),
    ],
    "speedscope_multiprocess.json": [
        (name, 0, 1, 0) for name in ("alpha", "beta", "gamma", "delta", "epsilon", "phi", "zeta", "eta")
    ],
    "perfetto_flow_events_v2.json": [
        ("SenderB", 0, 10, 0),
        ("Blergh", 1001, 100, 0),
        ("SenderA", 3002, 10, 0),
        ("OtherSlice", 3200, 500, 0),
        ("SomeSlice", 3331, 400, 0),
        ("SomeOtherSlice", 3333, 997, 0),
        ("SomeOtherSliceInstant", 3366, 0, 0),
    ],
}
SLICES["speedscope_simple-partial.json"] = SLICES["speedscope_simple-partial-trailing-comma.json"] = SLICES[
    "speedscope_simple.json"
]
# file -> records of the file, those that are not kept
RECORDS = {
    "perfetto_flow_events_v2.json": (8, 0),
    "speedscope_simple.json": (6, 0),
    "speedscope_simple-partial.json": (6, 0),
    "speedscope_simple-partial-trailing-comma.json": (6, 0),
    "speedscope_multiprocess.json": (17, 0),
    "speedscope_matching-x.json": (5, 0),
    "speedscope_invalid-x-nesting.json": (2, 0),
    "speedscope_mismatched-name.json": (2, 0),
    "speedscope_too-many-end-events.json": (6, 2),
    "speedscope_zero-duration-events.json": (7, 0),
    "speedscope_simple-object.json": (5, 0),
    "speedscope_bex-interaction.json": (18, 0),
}


def trace_of(folder, *records, head="", tail="", text=None) -> Trace:
    path = folder / "trace.json"
    path.write_text(text if text is not None else head + json.dumps(list(records)) + tail)
    found = ingest.read(path)
    assert isinstance(found, Trace)
    counted = found.integrity
    assert counted.records_read == counted.records_kept + sum(counted.not_kept.values()) == sum(counted.kinds.values())
    return found


def slices(trace: Trace) -> list[tuple]:
    return [(row["name"], row["start_ns"] / 1000, row["dur_ns"] / 1000, row["depth"]) for row in trace.slices.to_pylist()]


def kinds(trace: Trace) -> dict[str, str]:
    return {row["name"]: Category(row["category"]).name for row in trace.slices.to_pylist()}


@pytest.mark.parametrize("path", sorted((CORPUS / "chrome").iterdir()), ids=lambda path: path.name)
def test_files_of_the_corpus(path):
    trace = ingest.read(path)
    rank = {row: number for number, row in enumerate(SLICES[path.name])}
    assert sorted(slices(trace), key=lambda row: rank.get(row, 99)) == SLICES[path.name]
    counted = trace.integrity
    read, lost = RECORDS[path.name]
    assert (trace.format, counted.records_read, counted.records_kept) == ("chrome", read, read - lost)
    assert sum(counted.not_kept.values()) == lost
    assert not counted.truncated_at
    assert (trace.devices, trace.base_ns) == ([], None)


def test_processes_and_threads_have_their_names():
    trace = ingest.read(CORPUS / "chrome/speedscope_multiprocess.json")
    assert [(track.group, track.name) for track in trace.tracks] == [
        ("p0 (0)", "p0t0"),
        ("p0 (0)", "p0t1"),
        ("p1 (1)", "p1t0"),
        ("p1 (1)", "p1t1"),
        ("process 2", "p2t0"),
        ("process 2", "p2t1"),
        ("p3 (3)", "thread 0"),
        ("p3 (3)", "thread 1"),
    ]


def span(name="f", ts=0.0, dur=1.0, pid=1, tid=1, **more):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, **more}


def test_names_may_come_last_and_order_processes(tmp_path):
    named = [
        {"ph": "M", "name": name, "pid": pid, "tid": 1, "args": args}
        for name, pid, args in (
            ("process_name", 1, {"name": "late"}),
            ("process_sort_index", 1, {"sort_index": 9}),
            ("process_name", 2, {"name": "early"}),
            ("thread_name", 2, {"name": "main"}),
            ("process_labels", 2, {"labels": "x"}),
        )
    ]
    trace = trace_of(tmp_path, span(), span(pid=2), *named)
    assert [(track.group, track.name) for track in trace.tracks] == [("early (2)", "main"), ("late (1)", "thread 1")]


def test_begins_and_ends(tmp_path):
    records = [
        {"ph": "B", "name": "outer", "cat": "x", "ts": 1, "pid": 1, "tid": 7, "args": {"a": 1}},
        {"ph": "B", "name": "inner", "ts": 2, "pid": 1, "tid": "7"},
        {"ph": "E", "ts": 3, "pid": 1, "tid": 7, "args": {"b": 2}},
        {"ph": "B", "name": "never", "ts": 4, "pid": 1, "tid": 7},
        {"ph": "E", "name": "outer", "ts": 5, "pid": 1, "tid": 7, "args": {"c": [3]}},
        {"ph": "B", "name": "open", "ts": 6, "pid": 1, "tid": 7},
        span("last", 8, 2, tid=9),
    ]
    trace = trace_of(tmp_path, *records)
    assert slices(trace) == [("outer", 0, 4, 0), ("inner", 1, 1, 1), ("never", 3, 1, 1), ("open", 5, 4, 0), ("last", 7, 2, 0)]
    details = {row["name"]: json.loads(row["detail"] or "{}") for row in trace.slices.to_pylist()}
    assert (details["outer"], details["inner"]) == ({"a": 1, "c": [3]}, {"b": 2})
    assert [count for what, count in trace.integrity.repaired.items() if "never ended" in what] == [2]


def test_asynchronous_chains_have_tracks_of_their_own(tmp_path):
    def link(ph, name, ts, ident="0x1", cat="net", **more):
        return {"ph": ph, "name": name, "ts": ts, "id": ident, "cat": cat, "pid": 1, "tid": 2, **more}

    local = {"ph": "b", "name": "local", "cat": "net", "ts": 2, "id2": {"local": "0x1"}, "tid": 1}
    trace = trace_of(
        tmp_path,
        span(dur=20),
        link("b", "load", 1),
        link("b", "dns", 2),
        link("n", "sent", 2.5),
        link("e", "dns", 3, tid=5),
        link("b", "load", 3, "0x2"),
        link("e", "load", 9),
        link("e", "load", 10, "0x2"),
        link("S", "old", 1, cat="o"),
        link("T", "old", 2, cat="o", args={"step": "half"}),
        link("F", "old", 4, cat="o"),
        {**local, "pid": 1},
        {**local, "pid": 2},
        {**local, "pid": 1, "ph": "e", "ts": 5},
        {**local, "pid": 2, "ph": "e", "ts": 6},
    )
    lanes = [
        (trace.tracks[row["track"]].name, row["name"], row["start_ns"] / 1000, row["dur_ns"] / 1000, row["instant"])
        for row in trace.slices.to_pylist()
    ]
    assert sorted(lanes) == sorted(
        [
            ("thread 1", "f", 0, 20, False),
            ("load (async)", "load", 1, 8, False),
            ("load (async)", "dns", 2, 1, False),
            ("load (async)", "sent", 2.5, 0, True),
            ("load (async)", "load", 3, 7, False),
            ("old (async)", "old", 1, 3, False),
            ("old (async)", "old", 2, 0, True),
            ("local (async)", "local", 2, 3, False),
            ("local (async)", "local", 2, 4, False),
        ]
    )
    assert [track.group for track in trace.tracks] == ["process 1"] * 4 + ["process 2"]


def test_counters(tmp_path):
    def counter(ts, args, **more):
        return {"ph": "C", "name": "heap", "pid": 1, "ts": ts, "args": args, **more}

    trace = trace_of(
        tmp_path,
        counter(0, {"used": 1, "free": "2.5", "note": "x"}),
        counter(1, {"used": 3}),
        counter(2, {"used": 4}, id=7),
        counter(3, {"used": float("nan"), "bad": "x"}),
        counter(4, {}),
    )
    names = [track.name for track in trace.tracks]
    assert names == ["heap used", "heap free", "heap[7] used"]
    assert [(names[row["track"]], row["time_ns"], row["value"]) for row in trace.samples.to_pylist()] == [
        ("heap used", 0, 1),
        ("heap used", 1000, 3),
        ("heap free", 0, 2.5),
        ("heap[7] used", 2000, 4),
    ]
    assert trace.integrity.not_kept == {"counter without a number": 2}


def test_flows_bind_to_slices(tmp_path):
    def end(ph, ts, tid=1, **more):
        return {"ph": ph, "id": 5, "name": "go", "cat": "go", "pid": 1, "tid": tid, "ts": ts, **more}

    trace = trace_of(
        tmp_path,
        span("a", 0, 10),
        span("b", 2, 3),
        span("c", 0, 4, tid=2),
        span("d", 20, 4, tid=2),
        end("s", 3),
        end("t", 1, 2),
        end("f", 1, 2),
        end("f", 22, 2, bp="e"),
        {**end("s", 30), "id": 6},
    )
    rows = [(row["flow"], row["time_ns"] / 1000, row["track"], row["is_end"]) for row in trace.flows.to_pylist()]
    go = next(row[0] for row in rows if row[1] == 2)
    assert sorted(row[1:] for row in rows if row[0] == go) == [
        (0, 1, False),
        (0, 1, True),
        (2, 0, False),
        (20, 1, True),
        (20, 1, True),
    ]
    assert [row[1:] for row in rows if row[0] != go] == [(30, 0, False)]


def test_flows_bind_across_windows(tmp_path, monkeypatch):
    """The slice around an end began windows ago; the slice after it comes windows later."""
    monkeypatch.setattr(build, "IN_MEMORY_ROWS", 0)
    monkeypatch.setattr(spool, "WINDOW_ROWS", 8)
    filler = [span(f"s{i}", 10 * i, 5, tid=2) for i in range(100)]
    flow = {"ph": "s", "id": 1, "name": "go", "cat": "go", "pid": 1}
    trace = trace_of(
        tmp_path,
        span("long", 0, 1000),
        *filler,
        span("last", 990, 1),
        {**flow, "tid": 1, "ts": 700},
        {**flow, "ph": "f", "tid": 2, "ts": 306},
        {**flow, "ph": "f", "tid": 1, "ts": 500},
        {**flow, "ph": "f", "tid": 2, "ts": 2000},
    )
    assert sorted((row["time_ns"] / 1000, row["track"], row["is_end"]) for row in trace.flows.to_pylist()) == [
        (0, 0, False),
        (310, 1, True),
        (990, 0, True),
        (2000, 1, True),
    ]


def test_flows_of_version_two():
    trace = ingest.read(CORPUS / "chrome/perfetto_flow_events_v2.json")
    name = {(row["track"], row["start_ns"]): row["name"] for row in trace.slices.to_pylist()}
    ends = [(row["flow"], name[row["track"], row["time_ns"]], row["is_end"]) for row in trace.flows.to_pylist()]
    first = next(flow for flow, name, _ in ends if name == "SenderA")
    assert {end[1:] for end in ends if end[0] == first} == {
        ("SenderA", False),
        ("OtherSlice", True),
        ("OtherSlice", False),
        ("SomeSlice", True),
        ("SomeOtherSlice", True),
    }
    assert {end[1:] for end in ends if end[0] != first} == {("SenderB", False), ("Blergh", True)}


def test_stack_samples(tmp_path):
    sample = {"ph": "P", "name": "cpu", "pid": 1, "tid": 1, "ts": 5}
    frames = {"1": {"name": "main"}, "2": {"name": "work", "parent": "1"}, "3": {"name": "loop", "parent": "3"}}
    trace = trace_of(
        tmp_path,
        {**sample, "sf": 2},
        {**sample, "stack": ["a", "b"]},
        {**sample, "sf": "3"},
        {**sample, "sf": "9"},
        sample,
        head='{"traceEvents":',
        tail=f', "stackFrames": {json.dumps(frames)}}}',
    )
    got = [(row["name"], json.loads(row["detail"] or "{}").get("Call stack")) for row in trace.slices.to_pylist()]
    assert got == [("work", "main;work"), ("b", "a;b"), ("loop", "loop"), ("cpu", None), ("cpu", None)]
    assert trace.integrity.repaired == {"sample whose stack is not in the file": 1}


def test_samples_beside_the_records(tmp_path):
    """As Hermes writes them: numbers are texts, and no record is a slice."""
    samples = [{"cpu": "0", "name": "", "ts": "7", "pid": 1, "tid": "9", "weight": "1", "sf": 2},
               {"ts": "12.5", "pid": 1, "tid": "9", "sf": "1"}, {"ts": 14, "pid": 1, "tid": "10", "name": "idle"},
               {"ts": "soon", "pid": 1, "tid": "9", "sf": 1}, 5]
    frames = {"1": {"name": "main"}, "2": {"name": "work", "parent": 1}}
    trace = trace_of(
        tmp_path, {"ph": "M", "name": "thread_name", "pid": 1, "tid": "9", "args": {"name": "JavaScript"}}, head='{"traceEvents":',
        tail=f', "samples": {json.dumps(samples)}, "stackFrames": {json.dumps(frames)}}}')
    rows = trace.slices.to_pylist()
    tracks = {track.name for track in trace.tracks}
    assert [(row["start_ns"], row["name"], json.loads(row["detail"] or "{}").get("Call stack")) for row in rows] == [
        (0, "work", "main;work"), (5_500, "main", "main"), (7_000, "idle", None)]
    assert any("JavaScript" in name for name in tracks) and len({row["track"] for row in rows}) == 2
    assert (trace.integrity.records_read, trace.integrity.records_kept) == (6, 4)
    assert trace.integrity.not_kept == {"no start time": 1, "sample that is no object": 1}


@pytest.mark.parametrize("samples", ["5", "{}", "null", '[[1], "a", null]', '[{"ts": {}, "tid": [], "sf": {"a": []}}]',
                                     '[{"ts": 1e400, "pid": {}}, {"ts": 3, "pid": {"a": [1]}, "tid": null, "sf": [1]}]'])
def test_samples_of_any_form_end_no_file(tmp_path, samples):
    trace = trace_of(tmp_path, span(), head='{"traceEvents":', tail=f', "samples": {samples}}}')
    assert trace.slices.num_rows >= 1
    assert trace.integrity.records_read == trace.integrity.records_kept + sum(trace.integrity.not_kept.values())


def test_what_is_no_part_of_a_timeline_is_counted(tmp_path):
    strange = [{"ph": ph, "name": "o", "id": 1, "pid": 1, "ts": 0} for ph in "NODvVc()Z"]
    trace = trace_of(tmp_path, span(), *strange, {"name": "no phase"}, {"ph": "X", "name": "no time", "pid": 1, "tid": 1})
    assert (trace.integrity.records_read, trace.integrity.records_kept) == (12, 1)
    assert trace.integrity.not_kept["object created (ph N)"] == trace.integrity.not_kept["no start time"] == 1


GPU = [
    # pid, tid, cat, name -> category, GPU, stream
    (("Device 0", "Stream 7", "cuda", "gemm"), ("COMPUTE", 0, 7)),
    (("a.sqlite Device 1", "CUDA API 20", "cuda", "ncclKernel_AllReduce"), ("COMMUNICATION", 1, 20)),
    (("Device 0", "NVTX Kernel Thread 5", "nvtx-kernel", "step"), ("GPU_ANNOTATION", 0, None)),
    (("Device 0", "NVTX Thread 5", "nvtx", "step"), ("GPU_ANNOTATION", 0, None)),
    (("CUDA functions", 1, None, "sgemm"), ("COMPUTE", 1, None)),
    (("CPU functions", 1, None, "aten::mm"), ("CPU_OP", None, None)),
    ((2, 13, "cuda_kernel", "k"), ("COMPUTE", 2, 13)),
    ((0, 7, "gpu", "k"), ("COMPUTE", 0, 7)),
    ((0, 7, "cuda", "[CUDA memcpy HtoD]"), ("MEMCPY", 0, 7)),
    ((0, 7, "cuda", "[CUDA memset]"), ("MEMSET", 0, 7)),
    ((55, 7, "cuda", "cudaLaunchKernel"), ("RUNTIME", None, None)),
    ((55, 7, "cuda_api", "cudaLaunchKernel"), ("RUNTIME", None, None)),
    ((55, 7, None, "hipLaunchKernel"), ("RUNTIME", None, None)),
    ((55, 7, "renderer,gpu", "GpuChannel"), ("CPU_OP", None, None)),
    ((55, 7, "nvtx", "range"), ("ANNOTATION", None, None)),
    ((55, 7, "fee", "main (a.py:1)"), ("PYTHON", None, None)),
    ((55, 7, "toplevel", "RunTask"), ("CPU_OP", None, None)),
]


@pytest.mark.parametrize(("row", "want"), GPU, ids=lambda each: " ".join(map(str, each)))
def test_rules_for_gpu_work(tmp_path, row, want):
    pid, tid, cat, name = row
    trace = trace_of(
        tmp_path,
        {"ph": "b", "name": "x", "ts": 0, "id": 1, "pid": 1, "tid": 1},
        {"ph": "e", "ts": 9, "id": 1, "pid": 1, "tid": 1},
        span(name, 1, 2, pid, tid, **({"cat": cat} if cat else {})),
    )
    found = next(each for each in trace.slices.to_pylist() if each["name"] == name)
    track = trace.tracks[found["track"]]
    assert (Category(found["category"]).name, found["device"], found["stream"]) == want
    assert (track.kind, track.device) == (("stream", want[1]) if want[1] is not None else ("thread", None))
    assert [device.index for device in trace.devices] == ([want[1]] if want[1] is not None else [])


def test_lanes_named_as_a_gpus(tmp_path, monkeypatch):
    """TensorFlow's timeline names processes; a name that comes after its slices is told."""
    name = {
        "ph": "M",
        "name": "process_name",
        "pid": 9,
        "args": {"name": "/job:localhost/replica:0/task:0/device:GPU:1/stream:7 Compute"},
    }
    assert kinds(trace_of(tmp_path, name, span("MatMul", pid=9, cat="Op"))) == {"MatMul": "COMPUTE"}
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 64)
    late = trace_of(tmp_path, span("MatMul", pid=9, cat="Op"), name)
    assert kinds(late) == {"MatMul": "CPU_OP"}
    assert list(late.integrity.remarks.values()) == [1]


def test_arguments_of_converters(tmp_path):
    args = {"correlationId": 9, "grid": "(1, 2, 3)", "block": {"x": 4, "y": 5, "z": 6}, "registersPerThread": "32", "note": "x"}
    trace = trace_of(
        tmp_path,
        span("k", cat="cuda_kernel", args=args),
        span("cudaLaunchKernel", cat="cuda_api", tid=8, args={"correlation_id": 9, "device": 3}),
    )
    kernel, call = trace.slices.to_pylist()
    assert [kernel[key] for key in ("correlation", "grid_x", "grid_z", "block_y", "registers_per_thread")] == [9, 1, 3, 5, 32]
    assert json.loads(kernel["detail"]) == args
    assert (call["correlation"], call["device"]) == (9, None)


@pytest.mark.parametrize(("ts", "ns"), [(5, 5000), (5.25, 5250), ("5.001", 5001), (-3, -3000), (1e3, 1_000_000)])
def test_spellings_of_time(tmp_path, ts, ns):
    trace = trace_of(tmp_path, span("origin", -100, 1), span("f", ts, 1))
    assert trace.slices["start_ns"].to_pylist() == [0, ns + 100_000]


def test_nanoseconds_since_the_epoch_survive(tmp_path):
    trace = trace_of(
        tmp_path,
        text='[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1700000000000000.123,"dur":1.5},'
        '{"ph":"B","name":"b","pid":1,"tid":1,"ts":1700000000000001.001},'
        '{"ph":"E","pid":1,"tid":1,"ts":1700000000000001.9}',
    )
    assert (trace.base_ns, slices(trace)) == (1_700_000_000_000_000_123, [("a", 0, 1.5, 0), ("b", 0.878, 0.899, 1)])


def test_bare_array_may_lack_its_bracket_but_not_half_a_record(tmp_path):
    whole = json.dumps([span(), span("g", 5)])
    open_ended = trace_of(tmp_path, text=whole[:-1])
    assert (open_ended.integrity.truncated_at, open_ended.integrity.records_kept) == (None, 2)
    cut = trace_of(tmp_path, text=whole[:-20])
    assert (cut.integrity.records_read, cut.integrity.records_kept) == (2, 1)
    assert cut.integrity.truncated_at
    assert trace_of(tmp_path, text='{"traceEvents":' + whole[:-1]).integrity.truncated_at


def test_pytorch_up_to_1_7(tmp_path):
    """torch.autograd.profiler wrote a bare array; an arrow leads from an operator to each of its kernels."""
    arrow = {"name": "x", "ts": 10.5, "id": 0, "cat": "cpu_to_cuda", "args": {}}
    trace = trace_of(
        tmp_path,
        span("aten::mm", 10.5, 4, "CPU functions", 1, args={}),
        {**arrow, "ph": "s", "tid": 1, "pid": "CPU functions"},
        {**arrow, "ph": "f", "tid": 0, "pid": "CUDA functions", "ts": 12.25},
        span("volta_sgemm", 12.25, 30, "CUDA functions", 0),
    )
    assert kinds(trace) == {"aten::mm": "CPU_OP", "volta_sgemm": "COMPUTE"}
    assert [(row["time_ns"], row["is_end"]) for row in trace.flows.to_pylist()] == [(0, False), (1750, True)]
    assert [(track.kind, track.group) for track in trace.tracks] == [("thread", "CPU functions"), ("stream", "GPU 0")]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"traceEvents": []}',
        '[{"ph":"M","name":"process_name","pid":1,"args":{"name":"x"}}]',
        '[{"ph":"X","name":"no time"}]',
    ],
)
def test_nothing_in_it_is_one_clear_error(tmp_path, text):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(TraceError) as error:
        ingest.read(path)
    assert error.value.hint


def test_sniffing():
    assert generic.sniff(b'\xef\xbb\xbf \n[\n {"ph": "B"')
    assert generic.sniff(b'{"displayTimeUnit": "ms", "traceEvents" : [')
    assert not generic.sniff(b'[{"frame": {"name": "ROOT"}, "metrics": {}}]')
    assert not generic.sniff(b'["ph"]')
    assert kineto.sniff(b'{"schemaVersion": 1, "traceEvents": []')
    assert kineto.sniff(b'[{"ph": "X", "cat": "Kernel", "name": "k"}]')
    assert not kineto.sniff(b'[{"ph": "X", "cat": "kernel"}, {"ph": "B"}]')


def test_rows_beyond_those_held_back_are_the_same(tmp_path, monkeypatch):
    records = [
        record
        for i in range(50)
        for record in (
            span(f"s{i % 3}", 10 * i, 4),
            {"ph": "B", "name": "b", "ts": 10 * i + 1, "pid": 1, "tid": 1},
            {"ph": "E", "ts": 10 * i + 2, "pid": 1, "tid": 1},
        )
    ]
    before = slices(trace_of(tmp_path, *records))
    monkeypatch.setattr(gather, "IN_FILE_ORDER", 10)
    assert slices(trace_of(tmp_path, *records)) == before


def test_colours_of_names_are_kept(tmp_path, monkeypatch):
    path = tmp_path / "coloured.json"
    events = [{"ph": "X", "pid": 1, "tid": 1, "ts": at, "dur": 5, "name": name, **more} for at, (name, more) in enumerate([
        ("good", {"cname": "good"}), ("own", {"args": {"color": "#7B9"}}), ("wide", {"args": {"color": "#76b900ff"}}),
        ("unknown", {"cname": "no such colour"}), ("plain", {}),
        ("odd", {"cname": 5, "args": {"color": {"r": 1}}}), ("list", {"args": [1]})])]
    path.write_text(json.dumps(events))
    trace = ingest.read(path)
    assert trace.colours == {"good": "#007d00", "own": "#77bb99", "wide": "#76b900"}
    monkeypatch.setattr("profiles.ingest.core.columns.MAX_COLOURS", 2)
    assert len(ingest.read(path).colours) == 2
