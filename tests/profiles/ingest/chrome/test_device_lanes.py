"""What runs on other devices than NVIDIA's: read as their work, or said to be unknown; never as work of the CPU."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiles import ingest
from profiles.ingest.chrome.ascend import TASKS, UNKNOWN_TASK
from profiles.ingest.chrome.kinds import STRANGE, device_kind
from profiles.ingest.trace import GPU_WORK, KERNELS, Category, Trace
from profiles.profile.selectors import STRANGE_LANES, answer
from tests.profiles.ingest.corpus import DATA

CASES = DATA / "cases"


def read(path: Path, events: Any = None) -> Trace:
    if events is not None:
        path.write_text(json.dumps(events))
    trace = ingest.read(path)
    assert isinstance(trace, Trace)
    return trace


def kernels(trace: Trace) -> list[dict[str, Any]]:
    return [row for row in trace.slices.to_pylist() if row["category"] in KERNELS]


def test_ascend_tasks_are_the_work_and_computing_is_none() -> None:
    events = json.loads((CASES / "trace_view.json").read_text(), parse_float=Decimal)
    counted = sum(round(each["dur"] * 1000) for each in events if each["ph"] == "X" and each["pid"] == 3)
    trace = read(CASES / "trace_view.json")
    rows = kernels(trace)
    assert len(rows) == 10 and sum(row["dur_ns"] for row in rows) == counted == 501_250
    track = trace.tracks[rows[0]["track"]]
    assert (track.group, track.name, track.device, track.stream) == ("Ascend Hardware", "Stream 2", 0, 2)
    assert trace.devices[0].name == "Ascend NPU"
    rows_of_all = trace.slices.to_pylist()
    assert Counter(row["category"] for row in rows_of_all if row["name"] == "Computing") == {Category.GPU_ANNOTATION: 10}
    calls = [row for row in rows_of_all if row["category"] == Category.RUNTIME]
    assert len(calls) == 10 and calls[3]["correlation"] == rows[3]["correlation"] == 3


def test_ascend_tasks_are_told_by_their_type(tmp_path: Path) -> None:
    types = {"AI_CORE": Category.COMPUTE, "KERNEL_AIVEC": Category.COMPUTE, "AIV_SQE": Category.COMPUTE,
             "MIX_AIC": Category.COMPUTE, "SDMA_SQE": Category.MEMCPY, "MEMCPY_ASYNC": Category.MEMCPY,
             "NOTIFY_WAIT_SQE": Category.SYNC, "Event Wait": Category.SYNC, "PLACE_HOLDER_SQE": Category.SYNC,
             "FUTURE_SQE": Category.GPU_ANNOTATION}
    events = [{"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "Ascend Hardware"}},
              *({"ph": "X", "name": name, "pid": 3, "tid": 1, "ts": 10 * i, "dur": 5, "args": {"Task Type": name}}
                for i, name in enumerate(types))]
    trace = read(tmp_path / "msprof.json", events)
    assert {row["name"]: row["category"] for row in trace.slices.to_pylist()} == types
    assert trace.integrity.remarks == {f"{UNKNOWN_TASK} (FUTURE_SQE)": 1}
    assert not {"NOTIFY_WAIT", "EVENT_WAIT"} & {name for name, kind in TASKS.items() if kind in GPU_WORK}


def test_mtia_waits_are_no_work() -> None:
    trace = read(CASES / "mtia.json")
    rows = kernels(trace)
    assert {row["name"] for row in rows} == {"pe_exe"} and sum(row["dur_ns"] for row in rows) == 250_000
    assert {(row["device"], row["stream"]) for row in rows} == {(17, 108)}
    assert {row["category"] for row in trace.slices.to_pylist() if row["name"] == "event_wait"} == {Category.SYNC}
    assert {trace.tracks[row["track"]].group for row in rows} == {"MTIA 17"}


def test_a_recording_of_mtia_against_an_own_count() -> None:
    path = DATA / "corpus/mtia/hta_mtia_inference_rank0.json.gz"
    events = [each for each in json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
              if each.get("cat") == "mtia_ccp_events"]
    work = [each for each in events if each["name"] in ("pe_exe", "merge", "remote")]
    rows = kernels(trace := read(path))
    assert len(rows) == len(work) == 97
    assert sum(row["dur_ns"] for row in rows) == pytest.approx(float(sum(each["dur"] for each in work)) * 1000, abs=len(work))
    kinds = Counter(row["category"] for row in trace.slices.to_pylist() if row["name"] in {each["name"] for each in events})
    assert kinds == {Category.COMPUTE: 97, Category.MEMCPY: 877, Category.SYNC: 48 + 291}


@pytest.mark.parametrize(("name", "kind"), [
    ("event_record", Category.SYNC), ("event_wait", Category.SYNC), ("barrier", Category.SYNC), ("stream_sync", Category.SYNC),
    ("dma_request", Category.MEMCPY), ("memcpy_h2d", Category.MEMCPY), ("copy", Category.MEMCPY), ("pe_exe", Category.COMPUTE),
    ("index_copy-dtype_Double", Category.COMPUTE), ("aten::copy_.out-dtype_Half", Category.COMPUTE),
    ("awaited_add", Category.COMPUTE), ("fc-dtype_Float", Category.COMPUTE)])
def test_kernels_of_other_devices_are_told_from_their_own_records(name: str, kind: Category) -> None:
    assert device_kind(name) == kind


def test_kernels_of_onnx_runtime_lie_on_their_stream() -> None:
    trace = read(CASES / "cuda_profile.json")
    rows = kernels(trace)
    assert len(rows) == 5 and sum(row["dur_ns"] for row in rows) == 250_000
    assert {(row["device"], row["stream"], row["grid_x"], row["block_x"]) for row in rows} == {(0, 7, 132, 256)}
    assert {(trace.tracks[row["track"]].group, trace.tracks[row["track"]].name) for row in rows} == {("GPU 0", "stream 7")}
    nodes = {row["category"] for row in trace.slices.to_pylist() if row["name"].endswith("_kernel_time")}
    assert nodes == {Category.CPU_OP}, "the time of a node is the host's"


def test_times_of_rocprof_are_the_nanoseconds_it_states() -> None:
    events = json.loads((CASES / "rocprofv1_truncated_us.json").read_text())["traceEvents"]
    spans = [each["args"] for each in events if each.get("ph") == "X"]
    counted = sum(int(each["DurationNs"]) for each in spans)
    rows = kernels(read(CASES / "rocprofv1_truncated_us.json"))
    assert sum(row["dur_ns"] for row in rows) == counted == 190_000
    begins = sorted(int(each["BeginNs"]) for each in spans)
    assert sorted(row["start_ns"] + begins[0] for row in rows) == begins


@pytest.mark.parametrize("name", ["HPU 3", "Gaudi2 device", "NeuronCore 0 queues", "XPU accelerator"])
def test_what_lies_on_an_unknown_device_is_said(name: str, tmp_path: Path) -> None:
    """In PyTorch's traces a category decides, not a process: no kernel is guessed there."""
    trace = read(tmp_path / "trace.json", {"schemaVersion": 1, "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": name}},
        {"ph": "X", "cat": "hpu_op", "name": "gemm", "pid": 9, "tid": 1, "ts": 1, "dur": 5},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]})
    assert trace.integrity.remarks == {STRANGE: 1} and not kernels(trace)
    profile = SimpleNamespace(summary={}, kind="trace", integrity=trace.integrity.as_json(), wall_ns=5000)
    said, = answer(profile, [])  # type: ignore[arg-type]
    assert said[0].startswith("1 record on lanes of a device that is not known") and STRANGE.startswith(STRANGE_LANES)


@pytest.mark.parametrize(("name", "work", "strange"), [
    ("NPU 1", 1, 0), ("XPU:2", 1, 0), ("GPU 3", 1, 0), ("Gaudi2 device", 0, 1), ("python", 0, 0),
    ("com.android.device/hal.so", 0, 0), ("CPU device threads", 0, 0), ("NPU driver", 0, 0), ("renderer", 0, 0)])
def test_devices_of_any_chrome_trace(name: str, work: int, strange: int, tmp_path: Path) -> None:
    trace = read(tmp_path / "trace.json", [
        {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": name}},
        {"ph": "X", "name": "step", "pid": 9, "tid": 1, "ts": 1, "dur": 5}])
    assert (len(kernels(trace)), trace.integrity.remarks.get(STRANGE, 0)) == (work, strange)
    row, = trace.slices.to_pylist()
    assert row["category"] == (Category.COMPUTE if work else Category.OTHER if strange else Category.CPU_OP)
