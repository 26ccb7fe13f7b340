"""XProf's two forms of one JAX capture on eight GPUs against the truth and each other; TPU and CUPTI by hand."""

import json
import math

import pytest

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table
from profiles.ingest.core.events import MISSING
from profiles.ingest.trace import Category, Trace, TraceError
from profiles.ingest.xplane import reader, wire, xprof
from profiles.ingest.xplane.wire import _M as MESSAGES
from profiles.ingest.xplane.xprof import bytes_of, shape_of
from tests.launches import launch_calls
from tests.profiles.ingest.corpus import CORPUS

JSON, PROTO = CORPUS / "xprof/tracelens_mi300_jax_conv.trace.json.gz", CORPUS / "xprof/tracelens_mi300_jax_conv.xplane.pb"
# truth of corpus/INDEX.md: kernels 235, sum 28137.077 µs, the five of most time
TOP = [
    ("input_transpose_fusion.kd", 40, 14_344_140),
    ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64", 40, 11_852_414),
    ("Im3d2Col.kd", 40, 695_282),
    ("__amd_rocclr_copyBuffer.kd", 35, 563_521),
    ("input_transpose_fusion_1.kd", 40, 488_200),
]


def read(path) -> Trace:
    found = ingest.read(path)
    assert isinstance(found, Trace)
    counted = found.integrity
    assert counted.records_read == counted.records_kept + sum(counted.not_kept.values()) == sum(counted.kinds.values())
    return found


def kernels(trace: Trace) -> list[dict]:
    return [row for row in trace.slices.to_pylist() if row["category"] == Category.COMPUTE]


@pytest.mark.parametrize(("path", "name", "records"), [(JSON, "xprof", 3982), (PROTO, "xplane", 3650)], ids=["json", "xplane"])
def test_kernels_of_the_capture(path, name, records):
    trace = read(path)
    table = kernel_table(trace)
    assert (trace.format, trace.integrity.records_read, trace.integrity.records_kept) == (name, records, records)
    assert (sum(row.launches for row in table), sum(row.total_ns for row in table)) == (235, 28_137_077)
    assert [(row.name[: len(top[0])], row.launches, row.total_ns) for row, top in zip(table, TOP, strict=False)] == TOP
    assert [device.index for device in trace.devices] == list(range(8))
    one = next(row for row in kernels(trace) if row["correlation"] == 172)
    assert [
        one[key]
        for key in (
            "name",
            "device",
            "stream",
            "dur_ns",
            "grid_x",
            "block_x",
            "smem_bytes",
            "registers_per_thread",
            "occupancy_pct",
        )
    ] == ["input_transpose_fusion_1.kd", 1, 19, 6960, 6240, 256, 2112, None, None]
    assert json.loads(one["detail"])["hlo_op"] == "input_transpose_fusion.1"


def test_both_forms_say_the_same():
    def rows(trace):
        first = min(row["start_ns"] for row in kernels(trace))
        return sorted(
            (row["start_ns"] - first, row["dur_ns"], row["name"], row["device"], row["stream"], row["correlation"], row["grid_x"])
            for row in kernels(trace)
        )

    as_json, as_proto = read(JSON), read(PROTO)
    assert rows(as_json) == rows(as_proto)
    for category in (Category.RUNTIME, Category.PYTHON):
        one, other = (
            sorted((row["name"], row["dur_ns"]) for row in trace.slices.to_pylist() if row["category"] == category)
            for trace in (as_json, as_proto)
        )
        assert one == other
        assert one


def test_calls_launch_their_kernels():
    for path in (JSON, PROTO):
        trace = read(path)
        rows = [at for at, row in enumerate(trace.slices["category"].to_pylist()) if row == Category.COMPUTE]
        calls = launch_calls(trace)[rows]
        assert (calls >= 0).sum() > 200
        names = trace.slices["name"].to_pylist()
        assert all(names[call].startswith("hip") for call in calls if call >= 0)


def test_lanes_that_repeat_the_time_are_no_work():
    trace = read(JSON)
    derived = [row for row in trace.slices.to_pylist() if row["category"] == Category.GPU_ANNOTATION]
    assert {trace.tracks[row["track"]].name.split(" - ")[0] for row in derived} == {
        "XLA Ops",
        "XLA Modules",
        "Framework Ops",
        "Framework Name Scope",
        "Source code",
    }
    assert {track.group for track in trace.tracks if track.kind == "stream"} == {f"GPU {index}" for index in range(8)}


def test_wall_clock_hosts_and_devices_of_xplane():
    trace = read(PROTO)
    device = trace.devices[3]
    assert (device.name, device.sm_count, device.memory_bytes, device.compute_capability) == ("AMD", 304, 206_141_652_992, "9.4")
    assert trace.base_ns == 1_771_595_639_214_724_894 + 42_880  # profile_start_time + the first event
    assert trace.metadata["hostnames"] == "tw003"
    assert trace.flows.num_rows > 100


def test_texts_of_collectors():
    cupti = shape_of("regs:38 static_shared:1024 dynamic_shared:16 grid:160,1,2 block:1024,1,1 occ_pct:62.5")
    assert cupti == ((160, 1, 2), (1024, 1, 1), 38, 1040, 62.5)
    assert shape_of("regs:38 shm:0 grid:160,1,1 block:1024,1,1")[2:4] == (38, 0)
    rocm = shape_of(" grid:16,1,1 block:512,1,1 private_mem:0 group_mem:64 occ_pct:0")
    assert rocm[:4] == ((16, 1, 1), (512, 1, 1), MISSING, 64)
    assert math.isnan(rocm.occupancy_pct)
    assert shape_of("regs:x grid:1,2 block:1,2,99999999999 occ_pct:nan").grid == (MISSING,) * 3
    assert [
        bytes_of(each)
        for each in ("size:4 dest:1 async:1", "kind_src:pinned kind_dst:device size:8 dest:0 async:1", "kind:x num_bytes:9", "")
    ] == [4, 8, 9, MISSING]


# -- XPlane by hand


def plane(name: str, lines: dict[str, list[dict]], **own):
    """A plane message from lines of events {"name", "at" (ps), "for" (ps), **statistics}."""
    names: dict[str, int] = {}
    stats: dict[str, int] = {}

    def stat(target, key, value):
        target.metadata_id = stats.setdefault(key, len(stats) + 1)
        if isinstance(value, str) and value.startswith("ref:"):
            target.ref_value = stats.setdefault(value[4:], len(stats) + 1)
        elif isinstance(value, str):
            target.str_value = value.encode()
        elif isinstance(value, float):
            target.double_value = value
        else:
            target.int64_value = value

    out = MESSAGES["XPlane"](name=name.encode())
    raw = b""
    for number, (label, events) in enumerate(lines.items()):
        line = MESSAGES["XLine"](id=number + 1, name=label.encode(), timestamp_ns=1000)
        for each in events:
            event = line.events.add(metadata_id=names.setdefault(each["name"], len(names) + 1))
            if "times" in each:
                event.num_occurrences = each["times"]
            else:
                event.offset_ps = each["at"]
            event.duration_ps = each["for"]
            for key, value in each.items():
                if key not in ("name", "at", "for", "times"):
                    stat(event.stats.add(), key, value)
        text = line.SerializeToString()
        raw += b"\x1a" + varint(len(text)) + text
    for key, value in own.items():
        stat(out.stats.add(), key, value)
    for name_, number in names.items():
        entry = out.event_metadata.add(key=number)
        entry.value.id, entry.value.name = number, name_.encode()
        if name_.startswith("%"):
            entry.value.display_name = name_.split(" ")[0][1:].encode()
            stat(entry.value.stats.add(), "hlo_category", "fusion")
    for name_, number in stats.items():
        out.stat_metadata.add(key=number).value.name = name_.encode()
    return out.SerializeToString() + raw


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def space(*planes: bytes) -> bytes:
    return b"".join(b"\x0a" + varint(len(each)) + each for each in planes)


def written(folder, data: bytes):
    path = folder / "x.pb"
    path.write_bytes(data)
    return path


def test_a_gpu_as_cupti_tells_it(tmp_path):
    lines = {
        "Stream #7(MemcpyH2D,Kernel)": [
            {
                "name": "gemm",
                "at": 5_000_500,
                "for": 2_000_000,
                "correlation_id": 9,
                "group_id": 1,
                "kernel_details": "ref:regs:38 static_shared:0 dynamic_shared:16 grid:160,1,1 block:1024,1,1 occ_pct:50",
            },
            {"name": "MemcpyH2D", "at": 8_000_000, "for": 1_000_000, "memcpy_details": "kind_src:pinned size:4096 dest:0 async:1"},
            {"name": "Memset", "at": 9_500_000, "for": 1_000, "memset_details": "kind:device num_bytes:64 async:1"},
            {"name": "ncclDevKernel_AllReduce_Sum_f32", "at": 10_000_000, "for": 1_000, "kernel_details": "regs:1"},
            {"name": "sum", "times": 3, "for": 9},
        ],
        "Steps": [{"name": "1", "at": 0, "for": 20_000_000}],
    }
    host = {
        "python": [
            {"name": "cudaLaunchKernel", "at": 1_000_000, "for": 500_000, "correlation_id": 9},
            {"name": "train", "at": 0, "for": 3_000_000, "step_num": 4},
            {"name": "mark", "at": 7_000, "for": 0},
            {"name": "$a.py:1 f", "at": 100_000, "for": 10_000, "_p": 5, "_pt": 2},
            {"name": "run", "at": 200_000, "for": 9_000, "_c": 5, "_ct": 2},
        ]
    }
    trace = read(
        written(
            tmp_path,
            space(
                plane("/device:GPU:0", lines, device_vendor="Nvidia", compute_cap_major=9, compute_cap_minor=0, core_count=132),
                plane("/host:CPU", host),
            ),
        )
    )
    rows = {row["name"]: row for row in trace.slices.to_pylist()}
    assert {name: Category(row["category"]).name for name, row in rows.items()} == {
        "gemm": "COMPUTE",
        "MemcpyH2D": "MEMCPY",
        "Memset": "MEMSET",
        "ncclDevKernel_AllReduce_Sum_f32": "COMMUNICATION",
        "1": "GPU_ANNOTATION",
        "cudaLaunchKernel": "RUNTIME",
        "train": "ANNOTATION",
        "mark": "CPU_OP",
        "$a.py:1 f": "PYTHON",
        "run": "CPU_OP",
    }
    gemm = rows["gemm"]
    assert [
        gemm[key] for key in ("start_ns", "dur_ns", "correlation", "registers_per_thread", "smem_bytes", "occupancy_pct", "stream")
    ] == [5000, 2000, 9, 38, 16, 50, 7]
    assert (rows["MemcpyH2D"]["bytes"], rows["Memset"]["bytes"], rows["mark"]["instant"]) == (4096, 64, True)
    assert trace.integrity.not_kept == {"sum of several occurrences, without times": 1}
    assert trace.integrity.remarks["times finer than 1 ns: cut to the nanosecond below"] == 1
    assert [(row["is_end"], row["time_ns"]) for row in trace.flows.to_pylist()] == [(False, 100), (True, 200)]
    assert len(set(trace.flows["flow"].to_pylist())) == 1
    assert (trace.devices[0].name, trace.devices[0].compute_capability, trace.devices[0].sm_count) == ("Nvidia", "9.0", 132)


def test_a_tpu(tmp_path):
    lines = {
        "XLA Modules": [{"name": "jit_f(1)", "at": 0, "for": 9_000_000}],
        "XLA Ops": [
            {"name": "%while.3 = while(...)", "at": 0, "for": 9_000_000},
            {"name": "%fusion.1 = bf16[8] fusion(...)", "at": 1_234_567, "for": 2_000_333},
            {"name": "%all-reduce.2 = f32[8] all-reduce(...)", "at": 4_000_000, "for": 1_000_000},
        ],
        "Async XLA Ops": [{"name": "%copy-start.1 = copy", "at": 0, "for": 9_000_000}],
    }
    trace = read(written(tmp_path, space(plane("/device:TPU:0", lines, device_type_string="TPU v5e"))))
    rows = {row["name"]: row for row in trace.slices.to_pylist()}
    assert {name: Category(row["category"]).name for name, row in rows.items()} == {
        "jit_f(1)": "GPU_ANNOTATION",
        "while.3": "GPU_ANNOTATION",
        "fusion.1": "COMPUTE",
        "all-reduce.2": "COMMUNICATION",
        "copy-start.1": "GPU_ANNOTATION",
    }
    assert (rows["fusion.1"]["start_ns"], rows["fusion.1"]["dur_ns"]) == (1234, 2000)
    assert json.loads(rows["fusion.1"]["detail"]) == {"long_name": "%fusion.1 = bf16[8] fusion(...)", "hlo_category": "fusion"}
    assert (trace.devices[0].name, trace.tracks[0].name) == ("TPU v5e", "XLA Ops")


def test_a_tpu_as_trace_json(tmp_path):
    def name(pid, tid, what, text):
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": text}}

    records = [
        name(3, None, "process_name", "/device:TPU:0"),
        name(3, 1, "thread_name", "XLA Ops"),
        name(3, 2, "thread_name", "Steps"),
        {"ph": "X", "pid": 3, "tid": 1, "ts": 1.5, "dur": 2.000333, "name": "fusion.1", "args": {"long_name": "%fusion.1"}},
        {"ph": "X", "pid": 3, "tid": 2, "ts": 1.5, "dur": 2.1, "name": "7", "args": {"group_id": "7"}},
        {},
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": records}))
    trace = read(path)
    assert [(row["name"], Category(row["category"]).name, row["dur_ns"]) for row in trace.slices.to_pylist()] == [
        ("fusion.1", "COMPUTE", 2000), ("7", "GPU_ANNOTATION", 2100),
    ]
    assert (trace.format, trace.integrity.records_read, trace.integrity.records_kept) == ("xprof", 6, 6)


def test_sniffing_tells_xplane_from_other_protobuf():
    head = PROTO.read_bytes()[:4096]
    assert reader.sniff(head)
    assert not reader.sniff(b"\x0a\x10\x40\x80\x01" + bytes(30))
    assert not reader.sniff(b"\n[{}]")
    assert not reader.sniff(b"\x0a")
    assert xprof.sniff(b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},\n"traceEvents":[')
    assert not xprof.sniff(b'{"traceEvents":[{"ph":"X"}]}')


@pytest.mark.parametrize("part", [0.05, 0.3, 0.5, 0.9, 0.999])
def test_a_file_that_ends_early_keeps_what_is_there(tmp_path, part):
    data = PROTO.read_bytes()
    at = int(len(data) * part)
    try:
        trace = read(written(tmp_path, data[:at]))
    except TraceError as error:
        assert part <= 0.5
        assert error.where
        return
    assert trace.integrity.truncated_at == f"byte {trace.integrity.truncated_at.split()[1]}"
    assert 0 < trace.integrity.records_kept <= 3650


def test_hostile_fields():
    for data in (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0a" + b"\x80" * 20, b"\x0b\x0c", b"\x0a\x05ab"):
        with pytest.raises(wire.Damage):
            list(wire.fields(data, 0, len(data)))


def test_strange_values(tmp_path):
    huge = {
        "name": "x" * 20_000,
        "at": 2**62,
        "for": 2**62,
        "correlation_id": -1,
        "text": "\x00" + "y" * 5000,
        "inf": float("inf"),
        "nan": float("nan"),
    }
    lines = {
        "": [huge, {"name": "ok", "at": 1000, "for": 1000}],
        "Stream #99999999999999999999": [{"name": "k", "at": 1, "for": 1}],
    }
    trace = read(written(tmp_path, space(plane("/device:GPU:99999999999", lines), plane("/device:GPU:1", lines))))
    assert trace.slices.num_rows == 6
    assert all(row["detail"] is None or json.loads(row["detail"]) for row in trace.slices.to_pylist())


def test_streams_come_before_the_lanes_that_repeat_their_time():
    names = [track.name for track in read(JSON).tracks if track.device == 0]
    assert names[:4] == ["stream 16", "stream 17", "stream 15", "stream 18"]
    assert all(name.endswith("from #16") for name in names[4:])
    assert [track.name for track in read(PROTO).tracks if track.device == 0] == ["stream 15", "stream 16", "stream 17", "stream 18"]
