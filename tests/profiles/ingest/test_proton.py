"""Triton Proton's trees: the truth of a recording, what is wrong with another, sums up the tree."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.ingest import read
from profiles.ingest.core.source import Source
from profiles.ingest.naming.names import short_name
from profiles.ingest.other import proton
from profiles.ingest.trace import Category, TraceError
from tests.profiles.ingest.corpus import CORPUS, DATA

SOFTMAX = CORPUS / "proton" / "tritonbench_h100_softmax.hatchet"
DEVICES = {"CUDA": {"0": {"arch": "90", "bus_width": 4096, "clock_rate": 1, "memory_clock_rate": 1_000_000, "num_sms": 10}}}


def node(name: str, *children: Any, **metrics: Any) -> dict[str, Any]:
    return {"frame": {"name": name, "type": "function"}, "metrics": {key.replace("time_ns", "time (ns)"): value
                                                                    for key, value in metrics.items()}, "children": list(children)}


def load(tmp_path, *children: Any, devices: Any = None, data: bytes | None = None) -> Any:
    path = tmp_path / "p.hatchet"
    path.write_bytes(json.dumps([node("ROOT", *children), devices or DEVICES]).encode() if data is None else data)
    with Source(path) as source:
        assert proton.sniff(source.peek())
        return proton.read(source)


def table(summary, title: str) -> list[dict[str, Any]]:
    found = next(each for each in summary.tables if each.title == title)
    return [dict(zip([column.name for column in found.columns], row, strict=True)) for row in found.rows]


def test_the_truth_of_a_recording():
    summary = read(SOFTMAX)
    assert (summary.format, summary.integrity.records_read, summary.integrity.records_kept) == ("proton", 28, 28)
    assert (sum(k.launches for k in summary.kernels), sum(k.total_ns for k in summary.kernels)) == (18, 91711)
    sums: dict[str, list[int]] = {}
    for kernel in summary.kernels:
        sums.setdefault(kernel.name, []).append(kernel.total_ns)
    top = sorted(((sum(times), len(times), name[:50]) for name, times in sums.items()), reverse=True)
    assert [each[:2] for each in top[:5]] == [(18368, 3), (17985, 3), (17952, 3), (14111, 3), (12288, 3)]
    assert top[3][2] == "softmax_kernel"
    device = summary.devices[0]
    assert (device.compute_capability, device.sm_count) == ("9.0", 132)
    scopes = table(summary, "Scopes")
    assert scopes[0]["Time"] == 91711 and scopes[0]["Launches"] == 18 and max(row["Depth"] for row in scopes) == 3


def test_a_recording_with_work_of_launches_stated():
    summary = read(DATA / "recorded" / "proton_tree.hatchet")
    scopes = {row["Scope or kernel"].strip(): row for row in table(summary, "Scopes")}
    assert scopes["axpy_4194304"]["Operations per second"] == pytest.approx(25165824 / 32384e-9)
    assert scopes["axpy_4194304"]["Bandwidth"] == pytest.approx(150994944 / 32384e-9)
    assert scopes["step"]["Operations"] == 31457280 and scopes["step"]["Operations per second"] is None
    assert table(summary, "Other metrics") == [{"Path": "step", "Metric": "elements", "Value": 5242880.0}]
    assert sum(k.total_ns for k in summary.kernels) == 108_864


def test_what_a_scope_states_is_about_the_kernels_below_it(tmp_path):
    layer = node("layer", node("mm", count=2, time_ns=1000), node("add", count=1, time_ns=500), flops16=3e6, bytes=3000)
    summary = load(tmp_path, layer, node("empty"))
    scopes = {row["Scope or kernel"].strip(): row for row in table(summary, "Scopes")}
    assert scopes["layer"]["Operations per second"] == pytest.approx(2e12) and scopes["layer"]["Bandwidth"] == pytest.approx(2e9)
    assert scopes["layer"]["Of peak bandwidth"] == pytest.approx(100 * 2e9 / (4096 / 8 * 1e9 * 2))
    assert scopes["mm"]["Operations per second"] is None and scopes["empty"]["Time"] == 0


def test_older_spellings_and_units(tmp_path):
    old = {"frame": {"name": "k"}, "metrics": {"Count": 2, "Time (us)": 1.5, "DeviceId": "0", "DeviceType": "HIP"}, "children": []}
    summary = load(tmp_path, old, devices={"HIP": {"0": {"arch": "gfx942", "num_sms": 304}}})
    assert [(k.launches, k.total_ns) for k in summary.kernels] == [(2, 1500)]
    assert (summary.devices[0].name, summary.devices[0].compute_capability) == ("HIP gfx942", None)


def test_message_pack(tmp_path):
    data = msgspec.msgpack.encode([node("ROOT", node("k", count=1, time_ns=7)), DEVICES])
    assert load(tmp_path, data=data).kernels[0].total_ns == 7


@pytest.mark.parametrize(("data", "where", "what"), [
    ((CORPUS / "proton" / "htyu_triton_matmul-WS_invalid_json.hatchet").read_bytes(), "line 97", "expected ','"),
    (SOFTMAX.read_bytes()[:5000], "line ", "not valid JSON"),
    (b'[{"frame": {}, "metrics": {}, "children": ' * 100_000, "the tree", "nest more than"),
    (b'[{"frame": {"name": "ROOT"}, "metrics": [], "children": []}]', "the tree", "not a tree"),
    (json.dumps([node("ROOT", node("a")), {}]).encode(), "the tree", "none of its nodes"),
])
def test_what_cannot_be_read_says_where(tmp_path, data, where, what):
    with pytest.raises(TraceError, match=what) as error:
        load(tmp_path, data=data)
    assert error.value.where.startswith(where)


def test_numbers_that_are_none_are_left_out(tmp_path):
    summary = load(tmp_path, node("k", count=1, time_ns=10, flops=10**30, speed=1e300, text="x"),
                   node("j", count=-3, time_ns=-1))
    assert summary.integrity.repaired == {
        "metrics without a number were left out": 3, "negative times or counts were taken as none": 1}
    assert sum(k.total_ns for k in summary.kernels) == 10


def test_a_trace_of_proton_has_streams_and_scopes(tmp_path):
    path = DATA / "recorded" / "proton_trace.chrome_trace"
    trace = read(path)
    rows = trace.slices.to_pylist()
    kernels = [row for row in rows if row["category"] == Category.COMPUTE]
    assert (trace.format, len(kernels), trace.integrity.records_read, trace.integrity.records_kept) == ("proton-trace", 16, 16, 16)
    events = json.loads(path.read_text())["traceEvents"]
    assert sum(row["dur_ns"] for row in kernels) == round(sum(event["dur"] for event in events) * 1000)
    assert {(row["device"], row["stream"]) for row in kernels} == {(0, 7)}
    scopes = [row for row in rows if row["category"] == Category.GPU_ANNOTATION]
    assert {"step", "torch"} <= {row["name"] for row in scopes} and {row["depth"] for row in scopes} == {0, 1}
    torch = [(row["start_ns"], row["start_ns"] + row["dur_ns"]) for row in scopes if row["name"] == "torch"]
    inside = [row for row in kernels if '"scopes":["step","torch"]' in (row["detail"] or "")]
    assert inside
    for row in inside:
        assert any(start <= row["start_ns"] and row["start_ns"] + row["dur_ns"] <= end for start, end in torch)
    cut = tmp_path / "cut"
    cut.write_bytes(path.read_bytes()[:3000])
    assert read(cut).integrity.truncated_at


@pytest.mark.parametrize(("name", "short"), [
    ("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_6MaxOpsIfEEjfLi4EEEEEvT1_", "reduce_kernel<512, 1, MaxOps<float>>"),
    ("_Z12vecAddKernelPfS_S_i", "vecAddKernel"), ("_ZN5outer5innerEv", "outer::inner"), ("_ZN", "_ZN"), ("_Z9999999a", "a"),
])
def test_mangled_names_are_readable(name, short):
    assert short_name(name) == short


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_reader(tmp_path_factory, data):
    text = bytearray(SOFTMAX.read_bytes()[:4000])
    text += b"]" * data.draw(st.integers(0, 3))
    for _ in range(data.draw(st.integers(0, 5))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("h") / "p"
    path.write_bytes(text)
    try:
        with Source(path) as source:
            proton.read(source)
    except TraceError as error:
        assert error.where and error.hint
