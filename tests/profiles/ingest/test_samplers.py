"""Sampling profilers' own files: speedscope's JSON and V8's .cpuprofile against counts made from their JSON, and damaged ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.ingest import READERS
from profiles.ingest.core import build
from profiles.ingest.core.source import Limits, Source
from profiles.ingest.samplers import cpuprofile, document, speedscope
from profiles.ingest.trace import Category, Trace, TraceError
from tests.profiles.ingest.corpus import DATA
from tests.scale import scale

PYSPY, NODE = DATA / "samplers" / "pyspy.speedscope.json", DATA / "samplers" / "node.cpuprofile"
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
Row = dict[str, Any]


def load(tmp_path: Path, content: Any, reader: Any, limits: Limits | None = None) -> Trace:
    path = tmp_path / "p.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with Source(path, limits=limits) as source:
        trace = reader.read(source)
    assert isinstance(trace, Trace)
    integrity = trace.integrity
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())
    assert integrity.records_read == sum(integrity.kinds.values())
    return trace


def boxes(trace: Trace, track: int = 0) -> list[tuple[str, int, int, int]]:
    """Name, start, end, depth."""
    return sorted(((row["name"], row["start_ns"], row["start_ns"] + row["dur_ns"], row["depth"])
                   for row in trace.slices.to_pylist() if row["track"] == track), key=lambda box: (box[1], box[3]))


def time_by_depth(rows: list[Row]) -> dict[tuple[int, int, str], int]:
    out: Counter[tuple[int, int, str]] = Counter()
    for row in rows:
        out[row["track"], row["depth"], row["name"]] += row["dur_ns"]
    return dict(out)


def speed(*profiles: Any, names: str = "abcdef", **more: Any) -> dict[str, Any]:
    frames = [{"name": name, "file": f"{name}.py", "line": 10 + at, "col": 2} for at, name in enumerate(names)]
    return {"$schema": SCHEMA, "shared": {"frames": frames}, "profiles": list(profiles), **more}


def sampled(samples: Any, weights: Any, unit: Any = "milliseconds", **more: Any) -> dict[str, Any]:
    return {"type": "sampled", "name": "t", "unit": unit, "startValue": 0, "endValue": 9, "samples": samples,
            "weights": weights, **more}


def evented(*events: tuple[str, float, int], unit: str = "microseconds", **more: Any) -> dict[str, Any]:
    return {"type": "evented", "name": "t", "unit": unit, "startValue": 0, "endValue": 100,
            "events": [{"type": kind, "at": at, "frame": frame} for kind, at, frame in events], **more}


def v8(samples: list[Any], deltas: list[Any], **more: Any) -> dict[str, Any]:
    """(root) 1, (idle) 2, (program) 3, (garbage collector) 4, a 5, b 6 in a, c 7 in b, d 8 in a, e 9."""
    children = {1: [2, 3, 4, 5, 9], 5: [6, 8], 6: [7]}
    names = ["(root)", "(idle)", "(program)", "(garbage collector)", "a", "b", "c", "d", ""]
    nodes = [{"id": at, "callFrame": {"functionName": name, "scriptId": "7", "url": "x.js" if at > 4 else "", "lineNumber": at - 5,
                                      "columnNumber": 0}, "children": children.get(at, [])} for at, name in enumerate(names, 1)]
    return {"nodes": nodes, "startTime": 1000, "endTime": 1000 + sum(each for each in deltas if type(each) is int) + 10,
            "samples": samples, "timeDeltas": deltas, **more}


def test_py_spys_recording(tmp_path: Path) -> None:
    raw = json.loads(PYSPY.read_text())
    trace = load(tmp_path, PYSPY.read_bytes(), speedscope)
    names = [frame["name"] for frame in raw["shared"]["frames"]]
    expected: Counter[tuple[int, int, str]] = Counter()
    for track, profile in enumerate(raw["profiles"]):
        for stack in profile["samples"]:
            for depth, frame in enumerate(stack):
                expected[track, depth, names[frame]] += 10_000_000
    rows = trace.slices.to_pylist()
    assert time_by_depth(rows) == dict(expected) and len(raw["profiles"]) == 2
    assert trace.integrity.records_read == trace.integrity.records_kept == sum(len(each["samples"]) for each in raw["profiles"])
    assert [track.name for track in trace.tracks] == [each["name"] for each in raw["profiles"]]
    assert {row["category"] for row in rows} == {Category.PYTHON} and trace.metadata["exporter"] == "py-spy@0.4.3"
    assert len(rows) < sum(len(stack) for each in raw["profiles"] for stack in each["samples"]) / 2, "equal frames are one slice"
    place = json.loads(next(row["detail"] for row in rows if row["name"] == "until"))
    assert place["file"] == "/app/work.py" and place["line"] == next(
        frame["line"] for frame in raw["shared"]["frames"] if frame["name"] == "until")
    assert not trace.integrity.repaired and trace.base_ns is None


def test_nodes_recording(tmp_path: Path) -> None:
    raw = json.loads(NODE.read_text())
    trace = load(tmp_path, NODE.read_bytes(), cpuprofile)
    nodes = {node["id"]: node for node in raw["nodes"]}
    parents = {child: node["id"] for node in raw["nodes"] for child in node.get("children", ())}
    time, begins = raw["startTime"], []
    for delta in raw["timeDeltas"]:
        time += delta
        begins.append(time)
    order = sorted(range(len(begins)), key=lambda at: begins[at])
    ends = [begins[at] for at in order[1:]] + [raw["endTime"]]
    expected: Counter[tuple[int, int, str]] = Counter()
    path: list[str] = []
    for at, end in zip(order, ends, strict=True):
        node = raw["samples"][at]
        name = nodes[node]["callFrame"]["functionName"]
        if name == "(garbage collector)":
            shown = [*path, name]
        else:
            path = []
            while name not in ("(root)", "(idle)", "(program)") and node != 1:
                path.insert(0, nodes[node]["callFrame"]["functionName"] or "(anonymous)")
                node = parents[node]
            shown = path
        for depth, each in enumerate(shown):
            expected[0, depth, each] += (end - begins[at]) * 1000
    assert time_by_depth(trace.slices.to_pylist()) == {key: ns for key, ns in expected.items() if ns}
    assert any(name == "fib" for _, _, name in expected)
    assert trace.integrity.records_read == trace.integrity.records_kept == len(raw["samples"])


def test_equal_frames_are_merged_and_nested(tmp_path: Path) -> None:
    trace = load(tmp_path, speed(sampled([[0, 1], [0, 1, 2], [0, 3], [], [0]], [1, 2.5, 1, 3, 1])), speedscope)
    ms = 1_000_000
    assert boxes(trace) == [("a", 0, 4_500_000, 0), ("b", 0, 3_500_000, 1), ("c", ms, 3_500_000, 2), ("d", 3_500_000, 4_500_000, 1),
                            ("a", 7_500_000, 8_500_000, 0)]
    assert json.loads(trace.slices.to_pylist()[0]["detail"]) == {"file": "a.py", "line": 10, "col": 2}
    assert trace.integrity.remarks == {"samples without a stack: nothing is drawn": 1} and len(trace.integrity.notes) == 1
    assert {row["category"] for row in trace.slices.to_pylist()} == {Category.OTHER}


@pytest.mark.parametrize(("unit", "ns"), [("nanoseconds", 1), ("microseconds", 1000), ("milliseconds", 10**6), ("seconds", 10**9)])
def test_units_and_starts(tmp_path: Path, unit: str, ns: int) -> None:
    late = sampled([[1]], [2], unit, startValue=7, name="late")
    trace = load(tmp_path, speed(sampled([[0], [0]], [1, 2], unit), late), speedscope)
    assert boxes(trace) == [("a", 0, 3 * ns, 0)] and boxes(trace, 1) == [("b", 7 * ns, 9 * ns, 0)]


def test_parts_of_a_unit_do_not_add_up_to_an_error(tmp_path: Path) -> None:
    trace = load(tmp_path, speed(sampled([[0]] * 3000, [1 / 3] * 3000, "nanoseconds")), speedscope)
    assert boxes(trace) == [("a", 0, 1000, 0)]


@pytest.mark.parametrize("unit", ["none", "bytes", "lightyears", None, ["seconds"]])
def test_weights_that_are_no_time_are_left_out_and_said(tmp_path: Path, unit: Any) -> None:
    heap = sampled([[0], [1]], [1, 1], unit)
    trace = load(tmp_path, speed(heap, sampled([[2]], [1])), speedscope)
    (reason, count), = trace.integrity.not_kept.items()
    assert "not measured in time" in reason and count == 2 and [box[0] for box in boxes(trace)] == ["c"]
    with pytest.raises(TraceError, match="not measured in time"):
        load(tmp_path, speed(heap), speedscope)


def test_events(tmp_path: Path) -> None:
    events = ("O", 1, 0), ("O", 1, 1), ("C", 4.5, 1), ("O", 4.5, 2), ("C", 6, 2), ("C", 6, 0)
    trace = load(tmp_path, speed(evented(*events)), speedscope)
    assert boxes(trace) == [("a", 0, 5000, 0), ("b", 0, 3500, 1), ("c", 3500, 5000, 1)]
    assert trace.integrity.records_kept == 6 and not trace.integrity.repaired


def test_events_that_do_not_match(tmp_path: Path) -> None:
    events = ("O", 0, 0), ("O", 1, 1), ("O", 2, 2), ("C", 3, 1), ("C", 4, 2), ("O", 5, 3), ("C", 5, 99)
    trace = load(tmp_path, speed(evented(*events)), speedscope)
    assert boxes(trace) == [("a", 0, 100_000, 0), ("b", 1000, 3000, 1), ("c", 2000, 3000, 2), ("d", 5000, 100_000, 1)]
    assert trace.integrity.not_kept == {"end of a frame that is not open": 2}
    assert trace.integrity.repaired == {"frame that never ended: drawn to the end of what surrounds it": 3}


def test_events_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    trace = load(tmp_path, speed(evented(("C", 4, 0), ("O", 1, 0))), speedscope)
    assert boxes(trace) == [("a", 0, 3000, 0)]


def test_frames_of_the_same_times_stay_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_BATCH", 3)
    events = [each for at in range(40) for each in (
        ("O", at, 0), ("O", at, 1), ("O", at, 2), ("C", at + 1, 2), ("C", at + 1, 1), ("C", at + 1, 0))]
    trace = load(tmp_path, speed(evented(("O", 0, 5), *events, ("C", 40, 5))), speedscope)
    assert {(name, depth) for name, _, _, depth in boxes(trace)} == {("f", 0), ("a", 1), ("b", 2), ("c", 3)}
    assert len(boxes(trace)) == 121 and not trace.integrity.repaired
    monkeypatch.setattr(document, "_BATCH", 2)
    events = [("O", 0, 0), ("O", 0, 1), ("C", 1, 1), ("O", 1, 2), ("C", 1, 2), ("C", 1, 0)]
    assert boxes(load(tmp_path, speed(evented(*events)), speedscope))[:2] == [("a", 0, 1000, 0), ("b", 0, 1000, 1)]


def test_wrong_values_in_samples_are_counted(tmp_path: Path) -> None:
    samples = [[0], ["x"], [0], [0, 77, -1], [1], [1], [1], 5]
    trace = load(tmp_path, speed(sampled(samples, [1, 1, "w", 1, -1, 10**30, None]), 17, {"type": "other"}), speedscope)
    assert boxes(trace) == [("a", 0, 1_000_000, 0), ("a", 2_000_000, 3_000_000, 0), ("(no name)", 2_000_000, 3_000_000, 1),
                            ("(no name)", 2_000_000, 3_000_000, 2)]
    assert trace.integrity.not_kept == {
        "samples that are no list of frame numbers": 1, "samples without a weight, or whose weight is no duration": 5,
        "a profile that is neither sampled nor evented as the format says": 2}
    assert trace.integrity.repaired == {"frames that the file does not describe: drawn without a name": 2}


def test_wrong_frames_keep_their_place(tmp_path: Path) -> None:
    content = speed(sampled([[0, 1, 2, 3]], [1]), names="a")
    content["shared"]["frames"] += [None, {"name": 5, "line": "x", "file": ["y"]}, {"name": "z", "line": -1, "col": 1e300}]
    assert [box[0] for box in boxes(load(tmp_path, content, speedscope))] == ["a", "(no name)", "(no name)", "z"]


def test_long_lists_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "PIECE_BYTES", 10)
    whole = speed(sampled([[at % 6, (at + 1) % 6] for at in range(500)], [1] * 500), evented(("O", 1, 0), ("C", 2, 0)))
    trace = load(tmp_path, whole, speedscope)
    assert boxes(trace)[:3] == [("a", 0, 1_000_000, 0), ("b", 0, 1_000_000, 1), ("b", 1_000_000, 2_000_000, 0)]
    assert len(boxes(trace)) == 1000 and trace.integrity.records_kept == 502
    assert len(boxes(load(tmp_path, v8([5, 6, 7] * 200, [1] * 600), cpuprofile))) == 1 + 200 + 200


def test_the_tree_without_root_idle_and_program(tmp_path: Path) -> None:
    trace = load(tmp_path, v8([5, 7, 2, 8, 1, 3, 9], [0, 10, 10, 10, 10, 10, 10]), cpuprofile)
    assert boxes(trace) == [("a", 0, 20_000, 0), ("b", 10_000, 20_000, 1), ("c", 10_000, 20_000, 2), ("a", 30_000, 40_000, 0),
                            ("d", 30_000, 40_000, 1), ("(anonymous)", 60_000, 70_000, 0)]
    assert trace.integrity.remarks == {f"samples of {name}: nothing is drawn": 1 for name in ("(root)", "(idle)", "(program)")}
    details = {row["name"]: json.loads(row["detail"]) for row in trace.slices.to_pylist()}
    assert details["a"] == {"file": "x.js", "line": 1, "col": 1} and details["d"]["line"] == 4


def test_the_garbage_collector_lies_on_what_ran_before(tmp_path: Path) -> None:
    trace = load(tmp_path, v8([6, 4, 4, 6, 4, 5, 2, 4], [0] + [10] * 7), cpuprofile)
    gc = "(garbage collector)"
    assert boxes(trace) == [("a", 0, 60_000, 0), ("b", 0, 50_000, 1), (gc, 10_000, 30_000, 2), (gc, 40_000, 50_000, 2),
                            (gc, 70_000, 80_000, 0)]


def test_a_lone_program_sample_does_not_part_a_call(tmp_path: Path) -> None:
    trace = load(tmp_path, v8([6, 3, 8, 3, 3, 8, 3, 9], [0] + [10] * 7), cpuprofile)
    assert [box for box in boxes(trace) if box[0] == "a"] == [("a", 0, 30_000, 0), ("a", 50_000, 60_000, 0)]
    assert trace.integrity.repaired == {"a lone (program) between two samples of one call: drawn as the sample before it": 1}


def test_samples_out_of_order_are_sorted(tmp_path: Path) -> None:
    trace = load(tmp_path, v8([5, 9, 6], [0, 20, -10], endTime=1050), cpuprofile)
    assert boxes(trace) == [("a", 0, 20_000, 0), ("b", 10_000, 20_000, 1), ("(anonymous)", 20_000, 50_000, 0)]
    assert trace.integrity.repaired == {"samples out of order: put in order of time": 1}


def test_parents_in_place_of_children(tmp_path: Path) -> None:
    content = v8([7, 8], [0, 10])
    children = {node["id"]: node.pop("children") for node in content["nodes"]}
    for node in content["nodes"]:
        node["parent"] = next((above for above, below in children.items() if node["id"] in below), None)
    assert boxes(load(tmp_path, content, cpuprofile)) == boxes(load(tmp_path, v8([7, 8], [0, 10]), cpuprofile))


def test_the_old_form(tmp_path: Path) -> None:
    def node(number: int, name: str, *children: Any) -> dict[str, Any]:
        return {"id": number, "functionName": name, "url": "x.js", "lineNumber": 3, "columnNumber": 1, "hitCount": 0,
                "callUID": 1, "children": list(children)}

    content = {"head": node(1, "(root)", node(2, "a", node(3, "b")), node(4, "(idle)")), "startTime": 5.0, "endTime": 5.00005,
               "samples": [2, 3, 4, 2], "timestamps": [5_000_000, 5_000_010, 5_000_020, 5_000_040]}
    trace = load(tmp_path, content, cpuprofile)
    assert cpuprofile.sniff(json.dumps(content).encode())
    assert boxes(trace) == [("a", 0, 20_000, 0), ("b", 10_000, 20_000, 1), ("a", 40_000, 50_000, 0)]
    assert json.loads(trace.slices.to_pylist()[0]["detail"]) == {"file": "x.js", "line": 3, "col": 1}
    with pytest.raises(TraceError, match="no times of its samples"):
        load(tmp_path, {key: value for key, value in content.items() if key != "timestamps"}, cpuprofile)


def test_wrong_values_in_a_cpuprofile_are_counted(tmp_path: Path) -> None:
    content = v8([5, 77, "x", 6, 8, 5], [0, 10, 10, None, 10], startTime="soon", endTime=10**40)
    content["nodes"] += [{"id": 5, "callFrame": {}}, {"callFrame": {}}, 3]
    trace = load(tmp_path, content, cpuprofile)
    assert boxes(trace)[0] == ("a", 0, 10_000, 0) and trace.integrity.records_read == 6
    assert trace.integrity.not_kept == {"samples without a time": 1, "samples of a node that the file does not describe": 2}
    assert trace.integrity.repaired == {
        "nodes that could not be understood were left out": 2, "nodes whose id another node has were left out": 1,
        "time steps that are no number: taken as 0": 1}
    assert len(trace.integrity.remarks) == 1, "the end is not stated"


@pytest.mark.slow
def test_circles_and_depths_end(tmp_path: Path) -> None:
    content = v8([10, 11], [0, 10])
    content["nodes"] += [{"id": 10, "callFrame": {"functionName": "x"}, "parent": 11},
                         {"id": 11, "callFrame": {"functionName": "y"}, "parent": 10}]
    trace = load(tmp_path, content, cpuprofile)
    assert trace.integrity.repaired == {"nodes that lie within themselves: drawn as outermost calls": 1}
    deep = {"nodes": [{"id": at, "callFrame": {"functionName": "f"}, "parent": at - 1} for at in range(1, 100_000)],
            "startTime": 0, "endTime": 60, "samples": [1, 99_999, 1, 99_999], "timeDeltas": [10] * 4}
    trace = load(tmp_path, deep, cpuprofile)
    assert max(row["depth"] for row in trace.slices.to_pylist()) == document.MAX_DEPTH - 1
    assert trace.integrity.repaired == {f"samples of calls deeper than {document.MAX_DEPTH} levels: drawn to that depth": 2}


def test_deep_stacks_are_drawn_to_a_depth(tmp_path: Path) -> None:
    stack = [at % 6 for at in range(2000)]
    events = [*(("O", at, at % 6) for at in range(2000)), *(("C", 4000 + at, (1999 - at) % 6) for at in range(2000))]
    for profile in (sampled([stack], [1]), evented(*events)):
        trace = load(tmp_path, speed(profile), speedscope)
        assert trace.slices.num_rows == document.MAX_DEPTH
        assert trace.integrity.repaired == {f"frames deeper than {document.MAX_DEPTH} levels: not drawn": 2000 - document.MAX_DEPTH}


def test_slices_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (document, speedscope, cpuprofile):
        monkeypatch.setattr(module, "MAX_SLICES", 10)
    trace = load(tmp_path, speed(sampled([[0], [1]] * 50, [1] * 100)), speedscope)
    assert (trace.slices.num_rows, trace.integrity.not_kept) == (10, {"samples beyond the first 10 slices": 90})
    trace = load(tmp_path, v8([5, 9] * 50, [1] * 100), cpuprofile)
    assert (trace.slices.num_rows, trace.integrity.not_kept) == (10, {"samples beyond the first 10 slices": 90})


def test_very_many_profiles_share_a_track(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = scale(build.MAX_LANES)
    monkeypatch.setattr(build, "MAX_LANES", lanes)
    count = lanes + 1000
    one = json.dumps(sampled([[0]], [1])).encode()
    head, tail = json.dumps(speed("@")).encode().split(b'"@"')
    trace = load(tmp_path, head + b",".join([one] * count) + tail, speedscope)
    assert trace.slices.num_rows == count and len(trace.tracks) == lanes + 1
    assert sum(trace.integrity.repaired.values()) == count - lanes


@pytest.mark.parametrize("reader", [speedscope, cpuprofile])
@pytest.mark.parametrize("content", [
    b"", b"{", b"{}", b"[]", b"nothing", b'{"profiles":' + b"[" * 100_000, b'{"nodes":' + b'[{"children":' * 50_000,
    b'{"profiles": 5, "shared": 6, "nodes": 7, "samples": 8}', b'{"shared": {"frames": []}, "profiles": [{"type": "sampled"}]}',
    b'{"head": ' + b'{"id": 1, "children": [' * 2000 + b"]}" * 2000 + b"}", b'{"nodes": [{}], "samples": [1], "timeDeltas": [NaN]}',
    b'{"shared": {"frames": {}}, "profiles": [{"type": "evented", "unit": "seconds", "events": {}}]}',
])
def test_what_cannot_be_read_says_why(tmp_path: Path, reader: Any, content: bytes) -> None:
    with pytest.raises(TraceError) as error:
        load(tmp_path, content, reader)
    assert error.value.where and error.value.what and error.value.hint


def test_a_document_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="more than"):
        load(tmp_path, speed(sampled([[0]] * 5000, [1] * 5000)), speedscope, Limits(record_bytes=10_000))


@pytest.mark.slow
def test_a_cut_file_gives_what_it_holds(tmp_path: Path) -> None:
    content, whole = NODE.read_bytes(), load(tmp_path, NODE.read_bytes(), cpuprofile)
    known, last = [row[:2] for row in boxes(whole)], 0
    deltas = content.index(b'"timeDeltas":[') + 14
    for at in range(0, len(content), 97):
        try:
            trace = load(tmp_path, content[:at], cpuprofile)
        except TraceError:
            assert at < deltas + 20
            continue
        assert trace.integrity.truncated_at == f"byte {at}" and trace.integrity.records_kept >= last
        last = trace.integrity.records_kept
        assert last == content[deltas:at].count(b",") and len(boxes(trace)) <= len(known)
    assert last > 800


@pytest.mark.slow
def test_a_cut_speedscope_file_gives_what_it_holds(tmp_path: Path) -> None:
    content = json.dumps(speed(sampled([[0, 1], [2]] * 50, [1] * 100), evented(*[("O", 1, 0), ("C", 2, 0)] * 50))).encode()
    read = []
    for at in range(0, len(content) - 2, 13):
        try:
            trace = load(tmp_path, content[:at], speedscope)
        except TraceError:
            read.append(0)
            continue
        assert trace.integrity.truncated_at == f"byte {at}"
        read.append(trace.integrity.records_kept)
    assert read == sorted(read) and 0 < read.count(0) < len(read) and read[-1] >= 197


def test_a_stack_that_is_cut_is_left_out(tmp_path: Path) -> None:
    frames = json.dumps({"frames": [{"name": "a"}, {"name": "b"}]})
    profile = '{"type": "sampled", "unit": "seconds", "weights": [1, 1], "samples": [[0, 1], [0, 1'
    trace = load(tmp_path, f'{{"shared": {frames}, "profiles": [{profile}'.encode(), speedscope)
    assert trace.integrity.records_read == 1 and [box[2] for box in boxes(trace)] == [10**9] * 2


@pytest.mark.parametrize("name", ["caf\\ud800", "\xff\xfe", "x\\u0001", "C:\\\\temp\\\\x"])
def test_odd_texts(tmp_path: Path, name: str) -> None:
    content = json.dumps(speed(sampled([[0]], [1]), names="a")).replace('"name": "a"', f'"name": "{name}"').encode("latin-1")
    trace = load(tmp_path, content, speedscope)
    assert trace.slices.num_rows == 1 and boxes(trace)[0][0][0] in ("c", "\ufffd", "x", "C")


def test_each_reader_takes_its_own_files_alone() -> None:
    folders = ("chrome", "broken", "recorded", "samplers")
    files = [path for path in DATA.rglob("*.json") if path.is_file() and path.parent.name in folders]
    taken = {path for path in [*files, NODE] for reader in (speedscope, cpuprofile) if reader.sniff(path.read_bytes()[:1 << 16])}
    assert taken == {PYSPY, NODE} and len(files) > 10
    for path in (PYSPY, NODE):
        head = path.read_bytes()
        assert speedscope.sniff(head) != cpuprofile.sniff(head)
        assert {reader.name for reader in READERS if reader.sniff(head)} <= {
            "speedscope JSON (py-spy, rbspy)", "V8 CPU profile (.cpuprofile)"}
    written = json.dumps(speed(sampled([], []))).encode()
    assert speedscope.sniff(b"\xef\xbb\xbf" + written) and speedscope.sniff(written.replace(SCHEMA.encode(), b""))
    assert not speedscope.sniff(b'{"traceEvents": [{"ph": "X", "name": "' + SCHEMA.encode() + b'"}]}')
    assert not cpuprofile.sniff(b'{"head":{"callFrame":{"functionName":"(root)"},"selfSize":0,"children":[]}}'), "a heap profile"
    chunk = b'{"traceEvents":[{"ph":"P","args":{"cpuProfile":{"nodes":[{"callFrame":{"functionName":"f"}}]}}}]}'
    assert not cpuprofile.sniff(chunk)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damage_breaks_a_reader(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    wrong = st.sampled_from([b'"', b"]", b"[", b"{", b"}", b",", b"null", b"-1", b"1e308", b"9" * 40, b"\xff", b"\\", b"[[0]]"])
    both = speed(sampled([[0, 1], [2]], [1, 2]), evented(("O", 0, 1), ("C", 2, 1)))
    for content, reader in ((both, speedscope), (v8([5, 6, 4, 7], [0, 5, 5, 5]), cpuprofile)):
        text = bytearray(json.dumps(content).encode())
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(text) - 1))
            text[at:at + data.draw(st.integers(0, 6))] = data.draw(wrong)
        try:
            load(tmp_path_factory.mktemp("s"), bytes(text), reader)
        except TraceError as error:
            assert error.hint
