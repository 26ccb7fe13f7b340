"""Events written by hand as JSON: the truth of two recordings, what keys mean, and lists that are broken or hostile."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.ingest import READERS, read
from profiles.ingest.core.source import Source
from profiles.ingest.other import event_list, json_records
from profiles.ingest.trace import Category, TraceError
from tests.profiles.ingest.corpus import DATA
from tests.scale import DEEP

SAMPLES, RANKS = DATA / "events" / "memory_samples.json", DATA / "events" / "memory_ranks.jsonl"


def load(tmp_path, data: Any) -> Any:
    path = tmp_path / "events.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode() if isinstance(data, str) else json.dumps(data).encode())
    with Source(path) as source:
        found = event_list.read(source)
    integrity = found.integrity
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values()) == sum(integrity.kinds.values())
    return found


def counters(trace) -> dict[tuple[str, str], list[tuple[int, float]]]:
    out: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in trace.samples.to_pylist():
        track = trace.tracks[row["track"]]
        assert track.kind == "counter"
        out.setdefault((track.group, track.name), []).append((row["time_ns"], row["value"]))
    return out


def events(trace) -> list[tuple[Any, ...]]:
    return [(row["name"], row["start_ns"], row["dur_ns"], row["instant"]) for row in trace.slices.to_pylist()]


def test_a_list_that_a_script_wrote(tmp_path):
    trace = load(tmp_path, SAMPLES.read_bytes())
    records = json.loads(SAMPLES.read_text(), parse_float=Decimal)
    zero = min(record["time"] for record in records)

    def ns(record: Any) -> int:
        return int((record["time"] - zero) * 10**9)

    assert (trace.format, trace.integrity.records_kept, trace.base_ns) == ("event-list", len(records), None)
    assert events(trace) == sorted([
        (record.get("name") or record["event"], ns(record), int(record.get("duration_ms", 0) * 10**6), "event" in record)
        for record in records if "rss_bytes" not in record], key=lambda each: each[1])
    found = counters(trace)
    assert found["events", "rss_bytes"] == [(ns(record), record["rss_bytes"]) for record in records if "rss_bytes" in record]
    assert found["events", "held_mb"] == [(ns(record), record["held_mb"] * 1e6) for record in records if "held_mb" in record]
    assert {track.name: track.unit for track in trace.tracks} == {
        "events": None, "rss_bytes": "bytes", "held_mb": "bytes", "step": None, "freed": None}
    assert json.loads(trace.slices.to_pylist()[0]["detail"]) == {"phase": "warm-up"}
    assert {row["category"] for row in trace.slices.to_pylist()} == {Category.ANNOTATION}
    assert trace.integrity.notes == ["Sizes in _mb were taken as powers of 1,000 bytes (_mib: of 1,024)."]


def test_lines_of_two_ranks_in_unix_time(tmp_path):
    trace = load(tmp_path, RANKS.read_bytes())
    records = [json.loads(line, parse_float=Decimal) for line in RANKS.read_text().splitlines()]
    zero = min(record["timestamp"] for record in records)
    assert trace.base_ns == int(zero * 10**9)
    for rank in (0, 1):
        mine = [record for record in records if record["rank"] == rank and "loss" in record]
        assert counters(trace)[f"rank {rank}", "loss"] == [
            (int((record["timestamp"] - zero) * 10**9), float(record["loss"])) for record in mine]
    assert [event[0] for event in events(trace)] == ["checkpoint"] * 4 and events(trace)[0][2:] == (1_500_000, False)
    assert trace.integrity.notes == ["`timestamp` was taken as Unix time in seconds, by the size of the first one."]


@pytest.mark.parametrize(("key", "first", "second", "apart_ns"), [
    ("time", 0.5, 2, 1_500_000_000), ("t", 0, 1e-9, 1), ("time_ms", 1, 3.5, 2_500_000), ("ts_us", 1, 2, 1_000),
    ("ts_ms", 5, 6, 1_000_000), ("time_ns", 2**60, 2**60 + 1, 1), ("Time_s", 1, 2, 10**9), ("timestamp", 5, 6, 10**9),
    ("timestamp_us", 5, 6, 1_000), ("timestamp", 1_732_334_400, 1_732_334_401, 10**9),
    ("timestamp", 1_732_334_400_000, 1_732_334_400_001, 10**6), ("timestamp", 1_732_334_400_000_000, 1_732_334_400_000_001, 10**3),
    ("timestamp", 1_732_334_400_000_000_000, 1_732_334_400_000_000_001, 1), ("time", 1_732_334_400, 1_732_334_401, 10**9)])
def test_units_of_times(tmp_path, key, first, second, apart_ns):
    trace = load(tmp_path, [{key: first, "name": "a"}, {key: second, "name": "b"}])
    assert [event[1] for event in events(trace)] == [0, apart_ns]
    assert bool(trace.integrity.notes) == (key == "timestamp" and first > 10**9)


def test_a_time_is_exactly_what_its_text_says(tmp_path):
    trace = load(tmp_path, '[{"time": 1732334400.123456789, "name": "a"}, {"time": 1732334400.123456791, "name": "b"}]')
    assert events(trace)[1][1] == 2 and trace.base_ns == 1732334400123456789


def test_size_of_a_unix_time_is_not_guessed_for_other_keys(tmp_path):
    with pytest.raises(TraceError, match="without a time that can be read") as error:
        load(tmp_path, [{"time": 1_732_334_400_000_000, "name": "a"}])
    assert "time_ms" in error.value.hint


def test_units_of_numbers(tmp_path):
    record = {"time": 0, "a_bytes": 3, "b_mb": 2, "c_gb": 1, "d_pct": 50, "e_ms": 250, "f_s": 2, "g_w": 300, "h_mhz": 1980,
              "i_mib": 1, "loss": 0.25, "_s": 4}
    trace = load(tmp_path, [record])
    assert {name: value for (_, name), ((_, value),) in counters(trace).items()} == {
        "a_bytes": 3, "b_mb": 2e6, "c_gb": 1e9, "d_pct": 50, "e_ms": 0.25, "f_s": 2, "g_w": 300, "h_mhz": 1.98e9, "i_mib": 2**20,
        "loss": 0.25, "_s": 4}
    assert {track.name[0]: track.unit for track in trace.tracks} == {
        "a": "bytes", "b": "bytes", "c": "bytes", "d": "%", "e": "s", "f": "s", "g": "W", "h": "Hz", "i": "bytes", "l": None,
        "_": None}


def test_lanes_keep_tracks_apart(tmp_path):
    trace = load(tmp_path, [
        {"time": 0, "name": "a", "thread": "loader"}, {"time": 1, "name": "b", "gpu": 1, "rank": 3, "mem": 5},
        {"time": 2, "name": "c", "device": "cuda:0"}, {"time": 3, "name": "d", "thread": 140_000_000_000_000},
        {"time": 4, "name": "e", "gpu": 97.5}, {"time": 5, "name": "f", "gpu": "x" * 100}])
    assert {(track.group, track.name, track.device) for track in trace.tracks} == {
        ("events", "loader", None), ("rank 3, GPU 1", "events", 1), ("rank 3, GPU 1", "mem", 1), ("cuda:0", "events", None),
        ("events", "thread 140000000000000", None), ("events", "events", None)}
    assert [device.index for device in trace.devices] == [1] and list(trace.integrity.remarks.values()) == [2]


def test_samples_alone_say_so(tmp_path):
    trace = load(tmp_path, [{"time": number, "loss": 1, "mem": 2} for number in range(3)])
    assert trace.metadata == {"headline": "No events, only samples: 3 records of 2 counters."} and trace.slices.num_rows == 0


def test_which_key_is_the_time_and_which_the_name(tmp_path):
    trace = load(tmp_path, [{"time": 7, "ts": 1.0, "ts_ns": 2, "event": 12, "label": "x"}, {"ts": 1, "duration": 0.5},
                            {"time": 9, "name": "other clock"}])
    assert events(trace) == [("12", 0, 0, True), ("unnamed", 999_999_998, 500_000_000, False)]
    assert trace.integrity.not_kept == {"records without a time that can be read": 1}
    assert trace.integrity.notes == ["The time is `ts`; `time` beside it was left out."]


def test_what_is_no_number_is_left_out(tmp_path):
    text = ('[{"time": 0, "name": "a", "x": NaN, "y": Infinity, "z": 1e999, "big": ' + "9" * 400 + ', "ok": 1, "yes": true, '
            '"no": null},'
            '{"time": NaN, "name": "b"}, {"time": "5", "name": "c"}, {"time": true, "name": "d"}, {"time": 1e999999999, '
            '"name": "e"},'
            '{"time": 5}, {"time": 6, "x": NaN}, {"time": 7, "name": "f", "dur": "long"}, {"time": 8, "name": "g", "dur": -1},'
            '{"time": 1e9999999999999999999999, "name": "h"}, {"time": 9, "name": "\\ud800", "list": [1, {"a": 2}]}, 5, "six", '
            '[7]]')
    trace = load(tmp_path, text)
    assert [event[0] for event in events(trace)] == ["a", "f", "g", "?"] and all(event[2] == 0 for event in events(trace))
    assert list(counters(trace)) == [("events", "ok")]
    assert trace.integrity.not_kept == {
        "records without a time that can be read": 5, "records without a name and without a number": 1,
        "records whose numbers are all none, or of counters beyond the limit": 1, "text that is no object": 1}
    assert trace.integrity.repaired["numbers that are NaN, infinite or beyond a float64: left out"] == 5
    assert trace.integrity.repaired["durations that are no number or beyond any clock: drawn as an instant of time"] == 1
    assert json.loads(trace.slices.to_pylist()[0]["detail"]) == {"yes": True}


@pytest.mark.slow
@pytest.mark.parametrize("path", [SAMPLES, RANKS], ids=["list", "lines"])
def test_every_cut_keeps_what_stands_before_it(tmp_path, path):
    data, last = path.read_bytes(), 0
    for size in range(200, len(data) - 3, 37 if DEEP else 149):
        trace = load(tmp_path, data[:size])
        at_an_end = path is RANKS and data[:size].rstrip().endswith(b"}")
        assert bool(trace.integrity.truncated_at) != at_an_end
        assert last <= trace.integrity.records_kept == data[:size].count(b"}")
        last = trace.integrity.records_kept
    packed = gzip.compress(data)
    assert load(tmp_path, packed[:-200]).integrity.truncated_at


def test_one_damaged_record_costs_itself(tmp_path):
    lines = RANKS.read_text().splitlines()
    lines[10], lines[20] = lines[10][:30], lines[20].replace(":", ";")
    trace = load(tmp_path, "\n".join(lines))
    assert trace.integrity.records_kept == len(lines) - 2 and trace.integrity.truncated_at is None
    assert trace.integrity.not_kept == {"damaged, nested too deeply or longer than 1 MB": 2}
    text = SAMPLES.read_text().replace('"rss_bytes": ', '"rss_bytes" ', 1)
    assert load(tmp_path, text).integrity.records_kept == len(json.loads(SAMPLES.read_text())) - 1


def test_deep_nesting_and_long_records(tmp_path):
    good = '{"time": 1, "name": "a"}'
    deep = '{"time": 1, "x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    long = '{"time": 1, "name": "' + "x" * (6 << 20) + '"}'
    number = '{"time": ' + "1" * 10_000 + "}"
    trace = load(tmp_path, f"[{good}, {deep}, {good}, {long}, {number}, {good}]")
    assert trace.integrity.records_kept == 3 and sum(trace.integrity.not_kept.values()) >= 3


def test_damage_costs_no_more_than_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(json_records, "_PATIENCE_CHARS", 10_000)
    trace = load(tmp_path, '[{"time": 1, "name": "a"}, ' + '{"a":[{},' * 100_000)
    assert trace.integrity.records_kept == 1 and "Too much of the file" in trace.integrity.notes[0]


@pytest.mark.slow
def test_tens_of_thousands_of_tracks_names_and_counters(tmp_path):
    count = 100_000 if DEEP else 10_000
    records = [{"time": number, "name": f"n{number}", "thread": f"t{number}", f"c{number}": 1} for number in range(count)]
    trace = load(tmp_path, records)
    assert trace.integrity.records_kept == count and len(trace.tracks) == 2 * event_list.MAX_TRACKS + 1
    assert trace.integrity.repaired["numbers of counters beyond the first 4,096: left out"] == count - 4_096
    wide = {"time": 0, "name": "a"} | {f"k{number}": number for number in range(10_000)}
    assert load(tmp_path, [wide]).integrity.repaired["fields beyond the first 500 of a record: left out"] == 9_502


@pytest.mark.parametrize("data", [
    b"", b"[]", b"{}", b"[1]", b'[{"name": "a"}]', b'[{"time": "12:00", "name": "a"}]', b'[{"time": 1}]',
    b'[{"time": true, "x": 1}]',
    b'[{"time": 1, "x": "y"}]', b'[{"ts": 1, "name": "a", "ph": "X"}]', b'{"traceEvents": [{"ts": 1, "name": "a"}]}',
    b'{"time": 1, "x": 2}', b'{"time": 1, "x": 2}\n{"y": 1}', b'{"time": 1, "x": 2, "nodes": []}\n{"time": 1, "x": 1}',
    b'[{"frame": {"name": "ROOT"}, "time": 1, "x": 1, "children": []}]', b'[[{"time": 1, "x": 1}]]', b'{"time": 1, "x": 1',
    b"[" * 100_000, b'{"a":' * 100_000, b"time,name\n1,a"])
def test_what_is_not_taken(data):
    assert not event_list.sniff(data)


@pytest.mark.parametrize("path", [SAMPLES, RANKS], ids=["list", "lines"])
def test_no_other_reader_takes_them(path):
    head = path.read_bytes()
    assert event_list.sniff(head) and event_list.sniff(b"\xef\xbb\xbf\n " + head)
    assert [reader.name for reader in READERS if reader.sniff(head) and reader.module != event_list.__name__] == []


@pytest.mark.slow
@settings(max_examples=150 if DEEP else 40, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_reader(tmp_path_factory, data):
    content = bytearray(data.draw(st.sampled_from([SAMPLES, RANKS])).read_bytes()[:1500])
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert load(tmp_path_factory.mktemp("e"), bytes(content)).integrity.records_kept
    except TraceError as error:
        assert error.where and error.hint


@pytest.mark.parametrize("length", [{"duration": 0.25}, {"execution_time_ms": 250}, {"length_ms": 250}, {"end_time": 1.75},
                                    {"latency": 0.25}])
def test_a_list_of_a_profiler_of_ones_own_has_lengths_memory_and_shapes(length, tmp_path):
    """As classes in guides write it: a start, a length under one of its names, memory as an object, shapes as lists."""
    path = tmp_path / "profile.json"
    path.write_text(json.dumps([{"op": "conv1", "start_time": 1.5, **length, "memory": {"allocated_mb": 3, "peak_mb": 4.5},
                                 "input_shapes": [[8, 3, 224, 224]], "dtype": "float16", "tags": ["a"]}]))
    trace = read(path)
    row, = trace.slices.to_pylist()
    assert (row["name"], row["dur_ns"], row["instant"]) == ("conv1", 250_000_000, False)
    assert json.loads(row["detail"]) == {"input_shapes": "[[8, 3, 224, 224]]", "dtype": "float16"}
    counters = {trace.tracks[sample["track"]].name: sample["value"] for sample in trace.samples.to_pylist()}
    assert counters == {"memory allocated_mb": 3e6, "memory peak_mb": 4.5e6}
    assert trace.integrity.remarks == {"fields that hold lists or objects: left out": 1}
