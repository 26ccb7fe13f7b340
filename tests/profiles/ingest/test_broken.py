"""Damaged files: what can be read is read, what is lost is counted, and neither time nor memory runs away."""

import gzip
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table
from profiles.analysis.trace.breakdown import MAX_DEVICES, breakdown
from profiles.ingest.chrome import batches
from profiles.ingest.core import pieces
from profiles.ingest.core.source import Limits
from profiles.ingest.ncu import csv_pages
from profiles.ingest.trace import Trace, TraceError
from tests.fuzzing.seeds import seeds
from tests.profiles.ingest.chrome.test_kineto import record, written
from tests.profiles.ingest.corpus import CORPUS
from tests.scale import scale

BROKEN = CORPUS / "broken"
# file -> records read, kept
COUNTS = {
    "hta_event_sync_truncated.json": (86, 85), "hta_event_sync_truncated.json.gz": (112, 111),
    "hta_event_sync_trailing_commas.json": (149, 149), "hta_event_sync_nan_inf.json": (149, 149),
    "hta_event_sync_unescaped_names.json": (149, 149), "hta_event_sync_na_literal.json": (149, 149),
    "hta_event_sync_double_gzip.json.gz": (149, 149), "hta_event_sync_bom.json": (149, 149),
    "hta_event_sync_dup_keys.json": (149, 149), "hta_event_sync_neg_dur.json": (149, 149),
}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("chunk", [1 << 23, 4096, 700])
def test_what_can_be_read_is_read(name, chunk, monkeypatch):
    monkeypatch.setattr(pieces, "CHUNK_BYTES", chunk)
    integrity = ingest.read(BROKEN / name).integrity
    assert (integrity.records_read, integrity.records_kept) == COUNTS[name]
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())
    assert integrity.records_read == sum(integrity.kinds.values())
    assert bool(integrity.truncated_at) == ("truncated" in name)


def test_kernels_survive_the_damage():
    whole = kernel_table(ingest.read(CORPUS / "kineto/hta_cuda_event_sync_multi_stream_a100.json.gz"))
    for name in COUNTS:
        if "truncated" not in name:
            row, = kernel_table(ingest.read(BROKEN / name))
            assert (row.launches, row.total_ns) == (3, 369_000) == (whole[0].launches, whole[0].total_ns), name


def test_damaged_names_are_mended_readably():
    names = ingest.read(BROKEN / "hta_event_sync_unescaped_names.json").slices["name"].to_pylist()
    assert r"C:\temp\new\x_matmul" in names
    assert 'lib = torch.library.Library("_inductor_test", "IMPL")\n(1): mm' in names
    assert any(name.startswith("cfg") and name.endswith(" matmul") for name in names)


@pytest.mark.parametrize(("name", "words"), [
    ("empty.json", "empty"), ("lfs_pointer.ncu-rep", "Git LFS"),
])
def test_what_is_no_profile_is_named(name, words):
    with pytest.raises(TraceError, match=words):
        ingest.read(BROKEN / name)


@pytest.mark.parametrize(("content", "words"), [
    (b"<!doctype html><html>", "HTML"), (b"PK\x03\x04abc", "zip"), (b"\x00\x01\x02\x03" * 9, "unknown binary"),
    (b"[\x1ac\x1b\xa6\xae\x71&l2\xbf", "unknown binary"), (b"{\xff\xfe" * 20, "unknown binary"),
    ('{"größe": 1}'.encode(), "JSON, but not"),
    (b"hello\nworld", "unknown text"), (b'{"a": 1}', "JSON, but not"), (b"   \n ", "white space"),
    (b'{"schemaVersion": 1, "traceEvents": []}', "no records"), (b'{"schemaVersion":1,"deviceProperties":[]}', "no `traceEvents`"),
    (b'{"traceEvents": [1, 2, null, "x"]}', "none of the 4 records"), (b"\x1f\x8b", "gzip"), (b"\x1f\x8b" + b"x" * 99, "gzip"),
    (b'{"traceEvents": ' + b"[" * 100_000, "records"), (b'{"traceEvents": {"a": 1}}', "no `traceEvents` array"),
])
def test_errors_say_what_was_seen_and_what_to_do(content, words, tmp_path):
    path = tmp_path / "upload.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=words) as caught:
        ingest.read(path)
    assert caught.value.where and caught.value.hint


def damaged(tmp_path, middle: str, count: int = 40):
    """`count` good records before and after `middle`."""
    good = [json.dumps(record(ts=i)) for i in range(count)]
    return written(tmp_path, text='{"schemaVersion":1,"traceEvents":[' + ",\n".join(good) + "," + middle + ","
                   + ",\n".join(good) + "]}")


@pytest.mark.parametrize(("middle", "kept"), [
    ('{"ph":"X","name":"a"b"c","pid":0,"tid":7,"ts":1,"dur":1}', 81),
    ('{"ph":"X","name":"a}, {\\"ph\\":\\"X\\", ","pid":0,"tid":7,"ts":1,"dur":1}', 81),
    ('{"ph":"X","name":"tab\there","pid":0,"tid":7,"ts":1,"dur":1}', 81),
    ('{"ph":"X","name":"k","pid":0,"tid":7,"ts":1,"dur":-nan,"args":{"a":inf,,}}', 81),
    ('{"ph":"X","name":"k","pid":0,"tid":7,"ts":nan,"dur":1}', 80),
    ('{"ph":"X","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{"x":[{"ph":1},{"ph":2}]}}', 81),
    ('{"ph":"X","name":"k","pid":0,', 80),
    ('{"ph":"X","name":"k" "pid":0}', 80),
    ("17,null", 80),
    ("{{{{{{", 80), ("}}}]", 80), ('"', 80),
])
@pytest.mark.parametrize("chunk", [1 << 23, 900])
def test_only_the_damaged_record_is_lost(middle, kept, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "CHUNK_BYTES", chunk)
    integrity = ingest.read(damaged(tmp_path, middle)).integrity
    assert integrity.records_kept >= kept - 1
    assert integrity.records_kept <= kept
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())


def test_every_cut_of_a_file_gives_the_records_before_it(tmp_path):
    text = json.dumps({"schemaVersion": 1, "traceEvents": [record(ts=i, name=f"k{i}") for i in range(30)]})
    begin = text.index("[") + 1
    for cut in range(begin + 1, len(text), 37):
        path = written(tmp_path, text=text[:cut])
        whole = text[begin:cut].count("}")
        if not whole:
            continue
        integrity = ingest.read(path).integrity
        assert integrity.records_kept == whole, cut
        assert integrity.truncated_at or cut == len(text)


def elapsed(path, limits: Limits | None = None):
    """What the file came to, and the seconds of this process: others may keep the machine busy."""
    began = time.process_time()
    try:
        return ingest.read(path, limits=limits), time.process_time() - began
    except TraceError as error:
        return error, time.process_time() - began


@pytest.mark.slow
@pytest.mark.deep
def test_nothing_but_damage_costs_linear_time(tmp_path):
    bad = '{"ph":"X","name":"a,"pid":0,"tid":7,"ts":x1,"dur":1}'
    few = scale(10_000)
    _, short = elapsed(written(tmp_path, text='{"schemaVersion":1,"traceEvents":[' + ",".join([bad] * few) + "]}"))
    found, long = elapsed(written(tmp_path, text='{"schemaVersion":1,"traceEvents":[' + ",".join([bad] * 8 * few) + "]}"))
    assert isinstance(found, TraceError)
    assert long < 30 * max(short, 0.1)


@pytest.mark.slow
@pytest.mark.deep
def test_hostile_shapes_are_bounded(tmp_path):
    good = json.dumps(record())
    deep = '{"ph":"X","name":"deep","ts":1,"args":' + "[" * scale(2_000_000) + "]" * scale(2_000_000) + "}"
    found, _ = elapsed(written(tmp_path, text='{"schemaVersion":1,"traceEvents":[' + ",".join([good, deep, good]) + "]}"))
    assert found.integrity.records_kept == 2
    huge = json.dumps(record(name="x" * scale(30_000_000)))
    found, _ = elapsed(written(tmp_path, text='{"schemaVersion":1,"traceEvents":[' + ",".join([good, huge, good]) + "]}"))
    assert found.integrity.records_kept == 3
    assert max(len(name) for name in found.slices["name"].to_pylist()) < 10_000
    lanes = [record(tid=i, ts=i) for i in range(scale(50_000))]
    found, _ = elapsed(written(tmp_path, *lanes))
    assert len(found.tracks) == scale(50_000)


def test_a_bomb_ends_at_its_limit(tmp_path):
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"schemaVersion":1,"traceEvents":[')
        for _ in range(64):
            file.write(b" " * (1 << 20))
    found, _ = elapsed(path, Limits(expanded_bytes=32 << 20))
    assert isinstance(found, TraceError) and "expands to more than" in found.what
    found, _ = elapsed(path, Limits(record_bytes=8 << 20))
    assert isinstance(found, TraceError)


GOOD = record(ts=10)


@pytest.mark.parametrize(("ts", "dur"), [
    (1e300, 1), (-4611686018427387, 1), (4000000000000000, 4000000000000000), (1, 1e15), (1, 4611686018427387), (-4e15, 4e15),
    ("1e999999999", 1), (1, "1e9999999"),
])
def test_times_that_no_trace_has_leave_the_others_where_they_are(ts, dur, tmp_path):
    """Sums of times fit: an axis longer than 2**53 ns broke the store (Parquet, JavaScript) and int64."""
    odd = record(name="odd", ts=ts, dur=dur)
    trace = ingest.read(written(tmp_path, GOOD, odd, record(ts=12)))
    start, dur_ns = (trace.slices[name].to_numpy() for name in ("start_ns", "dur_ns"))
    assert start.min() >= 0 and (start + dur_ns).max() <= 2**53
    found = dict(zip(trace.slices["name"].to_pylist(), start.tolist(), strict=True))
    assert max(start) <= 12_000, found
    integrity = trace.integrity
    assert integrity.records_read == 3 == integrity.records_kept + sum(integrity.not_kept.values())
    assert integrity.repaired or integrity.not_kept


@pytest.mark.parametrize("head", [
    '"baseTimeNanoseconds":1e400', '"distributedInfo":{"rank":1e30}', '"distributedInfo":{"rank":99999999999999999999}',
    '"deviceProperties":[{"id":1e30,"name":{},"numSms":"x"},7,null,{"id":99999999999999999999}]', '"deviceProperties":{"a":1}',
])
def test_keys_around_the_records_may_be_anything(head, tmp_path):
    path = written(tmp_path, text='{"schemaVersion":1,' + head + ',"traceEvents":[' + json.dumps(GOOD) + "]}")
    assert ingest.read(path).integrity.records_kept == 1


@pytest.mark.slow
def test_what_shrinks_like_no_trace_is_refused_early(tmp_path):
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b'{"schemaVersion":1,"traceEvents":[' + json.dumps(GOOD).encode() + b",")
        for _ in range(12):
            file.write(b" " * (1 << 20))
    found, _ = elapsed(path, Limits(free_bytes=8 << 20))
    assert isinstance(found, TraceError) and "times the upload" in found.what and found.hint
    assert ingest.read(path).integrity.records_kept == 1


def test_a_table_of_more_cells_than_are_kept_says_how_many_rows_are_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_pages, "MAX_CELLS", 60)
    columns = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
               "Device", "CC", "gpu__time_duration.sum"]
    lines = [columns, [""] * 11 + ["ns"],
             *[[str(i), "1", "p", "h", "k", "9" * 5000, "7", f"({'9' * 5000}, 1, 1)", "(1, 1, ²)", "0", "9.²", "100"]
               for i in range(10)]]
    path = tmp_path / "raw.csv"
    path.write_text("\n".join(",".join(f'"{cell}"' for cell in line) for line in lines))
    integrity = ingest.read(path).integrity
    assert (integrity.records_read, integrity.records_kept, sum(integrity.not_kept.values())) == (10, 4, 6)


def test_a_file_of_nothing_but_lanes_and_devices_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "MAX_LANES", 100)
    trace = ingest.read(written(tmp_path, *[record(pid=i, tid=i, ts=i, args={"device": i, "stream": i}) for i in range(300)]))
    assert len(trace.tracks) == 101 and trace.slices.num_rows == 300
    assert any("lanes beyond" in reason for reason in trace.integrity.repaired)
    assert len(breakdown(trace).devices) == MAX_DEVICES


def test_a_file_of_nothing_but_kinds_is_bounded(tmp_path):
    strange = [record(ph=f"Z{i}", cat=f"cat{i}") for i in range(20_000)]
    found, seconds = elapsed(written(tmp_path, GOOD, *strange))
    integrity = found.integrity
    assert (integrity.records_read, integrity.records_kept) == (20_001, 1) and seconds < 10
    assert sum(integrity.not_kept.values()) == 20_000 == sum(integrity.kinds.values()) - 1
    assert len(integrity.not_kept) <= 51 and len(integrity.kinds) <= 501


def test_hostile_cells_cost_their_row_only(tmp_path):
    def row(number: int, name: str) -> str:
        return f'"{number}","1","p","h","{name}","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","100"'

    head = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC"'
    path = tmp_path / "raw.csv"
    path.write_text("\n".join([
        head.replace("Host", "H" * 200_000), head + ',"gpu__time_duration.sum"', '"",' * 11 + '"ns"', row(0, "a"),
        row(1, "k" * 1_000_000), row(2, "two\nlines"), row(3, "z"), '"open', *['1abc ""'] * 200_000]))
    found, seconds = elapsed(path)
    assert [launch.kernel for launch in found.launches] == ["a", "two\nlines", "z"]
    assert sum(found.integrity.not_kept.values()) == 2 and seconds < 20


OPTIONAL_KEYS = {"kineto": ("deviceProperties", "distributedInfo", "samples", "stackFrames", "otherData", "displayTimeUnit"),
                 "xprof": ("displayTimeUnit", "metadata", "stackFrames"), "speedscope": ("exporter", "name", "activeProfileIndex"),
                 "cpuprofile": ("startTime", "endTime", "title")}


@pytest.mark.parametrize("kind", OPTIONAL_KEYS)
def test_an_optional_part_of_a_json_file_loses_only_itself(kind: str, tmp_path: Path) -> None:
    document = json.loads(seeds(kind)[0])
    path = tmp_path / "part.json"

    def slices(changed: dict[str, Any]) -> int:
        path.write_text(json.dumps(changed))
        trace = ingest.read(path)
        assert isinstance(trace, Trace)
        integrity = trace.integrity
        assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())
        return trace.parts.rows

    whole = slices({key: value for key, value in document.items() if key not in OPTIONAL_KEYS[kind]})
    for key in OPTIONAL_KEYS[kind]:
        for junk in (5, "x", [], {}, None, [[[]]], {"a": {"b": [1]}}, [{"ts": "x"}]):
            assert slices({**document, key: junk}) == whole, (key, junk)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_table_of_an_nsys_export_loses_only_itself(number: int, tmp_path: Path) -> None:
    """Gone, with columns of another kind, empty of values, with words for numbers."""
    content, path = seeds("nsys-sqlite")[number], tmp_path / "part.sqlite"
    path.write_bytes(content)
    with closing(sqlite3.connect(path)) as database:
        tables = [name for name, in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
    rows = ingest.read(path).integrity.records_read
    for table in tables[:: 1 if len(tables) < 20 else 12]:
        for values in (None, "foreign", "", "junk"):
            path.write_bytes(content)
            with closing(sqlite3.connect(path)) as database:
                columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
                there = database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
                database.execute(f'DROP TABLE "{table}"')
                if values is not None:
                    names = ["zz", "yy"] if values == "foreign" else [f'"{column}"' for column in columns]
                    database.execute(f'CREATE TABLE "{table}" ({", ".join(names)})')
                    database.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(names))})', [values or None] * len(names))
                database.commit()
            integrity = ingest.read(path).integrity
            assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values()), (table, values)
            assert integrity.records_read >= rows - there, (table, values)
