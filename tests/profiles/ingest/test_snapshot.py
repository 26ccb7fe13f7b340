"""PyTorch memory snapshots: what torch said of the same moment, and pickles that are none of ours."""

from __future__ import annotations

import collections
import gzip
import io
import json
import os
import pickle
import pickletools
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.ingest import read
from profiles.ingest.core.source import Source
from profiles.ingest.other import snapshot
from profiles.ingest.other.plain_pickle import PlainPickle
from profiles.ingest.trace import TraceError
from tests.profiles.ingest.corpus import DATA

RECORDED = DATA / "recorded" / "torch_snapshot.pickle"
FRAMES = [{"name": "alloc", "filename": "/x/site-packages/torch/a.py", "line": 1},
          {"name": "mine", "filename": "/home/me/train.py", "line": 7}]


def load(tmp_path, data: Any) -> Any:
    path = tmp_path / "s.pickle"
    path.write_bytes(data if isinstance(data, bytes) else pickle.dumps(data))
    found = read(path)
    assert found.integrity.records_read == found.integrity.records_kept + sum(found.integrity.not_kept.values())
    return found


def table(trace, title: str) -> list[dict[str, Any]]:
    found = next(each for each in trace.tables if each.title.startswith(title))
    return [dict(zip([column.name for column in found.columns], row, strict=True)) for row in found.rows]


def entry(action: str, address: int, size: int, time: int, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": FRAMES, **more}


def block(address: int, size: int, state: str = "active_allocated") -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": FRAMES}


def segment(*blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    used = sum(each["size"] for each in blocks if each["state"] == "active_allocated")
    return {"device": device, "address": blocks[0]["address"], "total_size": sum(each["size"] for each in blocks), "stream": 0,
            "allocated_size": used, "active_size": used, "segment_type": "large", "blocks": list(blocks)}


def test_the_sums_are_those_that_torch_states():
    truth = json.loads((DATA / "recorded" / "torch_snapshot_truth.json").read_text())
    trace = read(RECORDED)
    memory = table(trace, "Memory")[0]
    assert memory["Allocated at the end"] == truth["allocated_bytes.all.current"]
    assert memory["Peak allocated"] == truth["allocated_bytes.all.peak"]
    assert memory["Reserved at the end"] == truth["reserved_bytes.all.current"]
    assert memory["Peak reserved"] == truth["reserved_bytes.all.peak"]
    assert memory["Blocks in use"] == truth["allocation.all.current"] and memory["Segments"] == truth["segment.all.current"]
    last = {}
    for row in trace.samples.to_pylist():
        last[trace.tracks[row["track"]].name] = row["value"]
    assert last == {"allocated memory": truth["allocated_bytes.all.current"], "active memory": truth["active_bytes.all.current"],
                    "reserved memory": truth["reserved_bytes.all.current"]}
    for title in ("Allocated at the peak of GPU 0", "In use at the end"):
        rows = table(trace, title)
        assert sum(row["Bytes"] for row in rows) == memory["Peak allocated" if "peak" in title else "Allocated at the end"]
        assert sum(row["Share"] for row in rows) == pytest.approx(100)
    assert any("record_formats.py" in str(row["Asked for by"]) for row in table(trace, "Allocated at the peak"))
    assert trace.integrity.records_read == 12 + 14 + 350 + 24


def test_the_walk_builds_what_an_unpickler_would():
    """The oracle is Python's own; the product never constructs it."""
    for protocol in (2, 3, 4, 5):
        plain = pickle.load(RECORDED.open("rb"))                                                  # noqa: S301  # our own recording
        data = pickle.dumps(plain, protocol)
        with Source(_file(data)) as source:
            assert PlainPickle(source).value == plain


def _file(data: bytes):
    import tempfile
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(data)
    return file.name


def test_the_history_may_have_begun_before_its_first_entry(tmp_path):
    data = {"segments": [segment(block(0, 1024), block(1024, 2048), block(3072, 1024, "inactive"))], "device_traces": [[], [
        entry("free_requested", 4096, 512, 10), entry("free_completed", 4096, 512, 11), entry("alloc", 1024, 2000, 20),
        entry("oom", 0, 10**9, 30, device_free=5000)]]}
    data["segments"][0]["device"] = 1
    data["device_traces"][1][3].pop("addr")
    trace = load(tmp_path, data)
    memory = table(trace, "Memory")[0]
    assert [memory[key] for key in ("GPU", "Peak allocated", "Allocated at the end", "Unused of reserved")] == [1, 3072, 3072, 1024]
    peak = table(trace, "Allocated at the peak of GPU 1")
    assert [(row["Bytes"], row["Asked for by"]) for row in peak] == [
        (2048, "mine (train.py:7)"), (1024, "allocated before the recording's first entry")]
    assert table(trace, "Out of memory") == [
        {"GPU": 1, "Time": 20000, "Asked for": 10**9, "Free on the GPU": 5000, "Asked for by": "mine (train.py:7)"}]
    assert list(trace.integrity.remarks.values()) == [1]
    lives = [row for row in trace.slices.to_pylist() if not row["instant"]]
    assert [(row["name"], row["start_ns"], row["dur_ns"], row["bytes"]) for row in lives] == [
        ("mine (train.py:7)", 10000, 10000, 2000)]
    marks = [row["name"] for row in trace.slices.to_pylist() if row["instant"]]
    assert marks == ["free_requested", "free_completed", "alloc", "oom"]


def test_annotations_times_and_states_alone(tmp_path):
    marks = [{"stage": stage, "name": name, "device": 0, "time_us": time} for stage, name, time in
             (("START", "step", 1), ("START", "step", 2), ("END", "step", 5), ("END", "step", 9), ("END", "x", 9),
              ("START", "y", 9))]
    trace = load(tmp_path, {"device_traces": [[entry("alloc", 1, 512, 3)]], "external_annotations": marks})
    found = [(row["start_ns"], row["dur_ns"]) for row in trace.slices.to_pylist() if row["name"] == "step"]
    assert found == [(0, 8000), (1000, 3000)] and sum(trace.integrity.not_kept.values()) == 2
    alone = load(tmp_path, [segment(block(0, 512))])
    assert alone.samples.num_rows == 3 and alone.integrity.notes
    untimed = entry("alloc", 1, 512, 3)
    del untimed["time_us"]
    assert "no times" in load(tmp_path, {"device_traces": [[untimed]]}).integrity.notes[0]


def test_many_overlapping_allocations_are_drawn_as_far_as_there_are_lanes(tmp_path):
    trace = load(tmp_path, {"device_traces": [[entry("alloc", i, 512 * (i + 1), i) for i in range(100)]]})
    lives = [row for row in trace.slices.to_pylist() if not row["instant"]]
    assert len(lives) == 40 and min(row["bytes"] for row in lives) == 512 * 61
    assert list(trace.integrity.remarks.values()) == [60] and not trace.integrity.repaired


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_cut_pickle_gives_what_was_complete(tmp_path, share):
    data = RECORDED.read_bytes()
    trace = load(tmp_path, data[:int(len(data) * share)])
    assert trace.integrity.truncated_at and "in the middle of its data" in trace.integrity.notes[0]
    assert trace.samples.num_rows > 0
    packed = load(tmp_path, gzip.compress(data)[:-2000])
    assert packed.integrity.truncated_at and "gzip" in packed.integrity.notes[0]


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/pwned",)


def opcodes(*parts: bytes) -> bytes:
    return b"\x80\x04" + b"".join(parts)


DEEP = opcodes(b"(" * 10, b"]" * 100_000, b"a" * 99_999, b".")
ATTACKS = {
    "call": (pickle.dumps({"segments": [Evil()]}), r"STACK_GLOBAL .(posix|nt) system"),
    "call 2": (pickle.dumps(Evil(), 2), "GLOBAL"), "object": (pickle.dumps(collections.OrderedDict(a=1)), "GLOBAL"),
    "class": (pickle.dumps(io.BytesIO), "GLOBAL"), "set": (pickle.dumps({"segments": {1, 2}}), "EMPTY_SET"),
    "bytes": (pickle.dumps({"segments": b"x" * 300}), "BINBYTES"), "persistent": (opcodes(b"}", b"Q."), "BINPERSID"),
    "extension": (opcodes(b"\x82\x01."), "EXT1"), "old text": (opcodes(b"I1\n."), "INT"),
    "build": (opcodes(b"}", b"}", b"b."), "BUILD"), "named": (opcodes(b"cos\nsystem\n."), "GLOBAL .os system"),
    "integer keys": (pickle.dumps({"segments": [], 2**61 - 1: 1}), "a key that is no text"),
    "nothing to append to": (opcodes(b"K\x01K\x02a."), "does not fit together"),
    "memo": (opcodes(b"h\x05."), "does not fit together"),
    "no mark": (opcodes(b"]e."), "does not fit together"),
    "two values": (opcodes(b"]]."), "more or less than one"),
    "huge text": (opcodes(b"X", struct.pack("<L", 2**31)), "a text of"),
    "huge number": (opcodes(b"\x8a\xff" + b"\x7f" * 255 + b"."), "16 bytes"),
    "not a snapshot": (pickle.dumps({"weights": [1.0, 2.0]}), "not a memory snapshot"),
    "number": (pickle.dumps(7), "not a memory snapshot"), "nested": (DEEP, "without a history"),
    "future": (b"\x80\x05\x80\x09}.", "protocol"), "empty": (b"\x80\x04.", "more or less"),
    "itself": (opcodes(b"]\x94h\x00a."), "without a history"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_anything_but_plain_data_is_refused(tmp_path, name):
    data, what = ATTACKS[name]
    with pytest.raises(TraceError, match=what) as error:
        load(tmp_path, data)
    assert error.value.hint and not os.path.exists("/tmp/pwned")


def test_no_unpickler_is_constructed(monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an Unpickler")
    for name in ("Unpickler", "_Unpickler", "load", "loads"):
        monkeypatch.setattr(pickle, name, refuse)
    assert read(RECORDED).slices.num_rows == 478


def test_shared_lists_do_not_multiply_the_work(tmp_path):
    blocks = [block(0, 512)] * 20_000
    one = segment(blocks[0])
    one["blocks"] = blocks
    same = {"segments": [one] * 20_000, "device_traces": [[entry("alloc", 1, 512, 1)] * 20_000] * 60}
    trace = load(tmp_path, same)
    assert trace.integrity.records_read == 20_000 + 20_000 + 20_000
    assert trace.integrity.not_kept == {"a segment without blocks of its own, or of an impossible GPU": 19_999}


@pytest.mark.slow
def test_values_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("profiles.ingest.other.plain_pickle.MAX_VALUES", 100_000)
    with pytest.raises(TraceError, match="more than 100,000 values"):
        load(tmp_path, opcodes(b"(", b"]" * 1_000_000, b"t."))


def test_sizes_and_times_of_no_machine(tmp_path):
    odd = [entry("alloc", 1, 2**70, 1), entry("alloc", 2, -5, -(2**80)), entry("alloc", 3, 2**41, 2**90),
           {"action": ["nested"]}, 7, {"action": "alloc", "size": "1", "frames": 3, "time_us": 1.5}]
    trace = load(tmp_path, {"device_traces": [odd], "segments": [{"device": 10**30, "blocks": []}, None]})
    assert trace.integrity.not_kept == {
        "an entry without an action": 2, "a segment without blocks of its own, or of an impossible GPU": 2}
    assert max(row["value"] for row in trace.samples.to_pylist()) == 2**41


SMALL = pickle.dumps({
    "segments": [segment(block(0, 512))], "allocator_settings": {"a": 1}, "external_annotations": [],
    "device_traces": [[entry("alloc", 0, 512, 1), entry("free_requested", 0, 512, 2)]]}, 4)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_reader(tmp_path_factory, data):
    damaged = bytearray(SMALL[:data.draw(st.integers(3, len(SMALL)))])
    for _ in range(data.draw(st.integers(0, 6))):
        damaged[data.draw(st.integers(2, len(damaged) - 1))] = data.draw(st.sampled_from([*range(256), *(
            ord(each.code) for each in pickletools.opcodes)]))
    path = tmp_path_factory.mktemp("s") / "s"
    path.write_bytes(damaged)
    try:
        with Source(path) as source:
            snapshot.read(source)
    except TraceError as error:
        assert error.where and error.hint
