"""Chrome traces of any shape: properties that hold for all, and files made to hurt."""

import json
import random
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiles import ingest
from profiles.ingest.chrome import work
from profiles.ingest.core import build, pairs, pieces
from profiles.ingest.core.pairs import BEGIN, END, ROW, Pairs
from profiles.ingest.trace import Trace, TraceError
from tests.profiles.ingest.chrome.test_chrome import slices, trace_of
from tests.profiles.ingest.corpus import CORPUS
from tests.scale import DEEP, scale

pytestmark = pytest.mark.slow
QUICK = settings(max_examples=60 if DEEP else 25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def nested(draw):
    """Properly nested spans (name, begin, end) of a few threads; all times differ, as they do where clocks are fine enough."""
    out = []
    for thread in range(draw(st.integers(1, 3))):
        clock = [0]

        def spans(level, thread=thread, clock=clock):
            for _ in range(draw(st.integers(0, 3 if level else 4))):
                clock[0] += draw(st.integers(1, 5))
                begin = clock[0]
                if level < 4:
                    spans(level + 1)
                clock[0] += draw(st.integers(1, 5))
                out.append((draw(st.sampled_from("abc")), thread, begin, clock[0]))

        spans(0)
    return out


def as_slices(trace: Trace) -> list[tuple]:
    return sorted(
        (row["name"], trace.tracks[row["track"]].tid, row["start_ns"], row["dur_ns"], row["depth"])
        for row in trace.slices.to_pylist()
    )


def begins_and_ends(spans, names_of_ends=True):
    out = []
    for name, thread, begin, end in spans:
        out.append({"ph": "B", "name": name, "pid": 1, "tid": thread, "ts": begin})
        out.append({"ph": "E", "pid": 1, "tid": thread, "ts": end, **({"name": name} if names_of_ends else {})})
    return out


@QUICK
@given(nested().filter(bool), st.booleans(), st.randoms(use_true_random=False))
def test_begins_and_ends_in_any_order_are_the_slices_they_stand_for(tmp_path, spans, named, chance):
    whole = trace_of(tmp_path, *({"ph": "X", "name": n, "pid": 1, "tid": t, "ts": b, "dur": e - b} for n, t, b, e in spans))
    records = begins_and_ends(spans, named)
    chance.shuffle(records)
    halves = trace_of(tmp_path, *records)
    assert as_slices(halves) == as_slices(whole)
    assert not halves.integrity.not_kept
    assert not halves.integrity.repaired


@QUICK
@given(nested().filter(bool), st.randoms(use_true_random=False))
def test_a_stack_in_parts_and_on_disk_pairs_as_one_in_memory(tmp_path, spans, chance):
    records = sorted(begins_and_ends(spans), key=lambda each: each["ts"])
    rows = np.zeros(len(records), ROW)
    for row, each in zip(rows, records, strict=True):
        row["stack"], row["time"], row["name"] = each["tid"], each["ts"], ord(each["name"])
        row["step"] = BEGIN if each["ph"] == "B" else END

    def paired(size):
        found = Pairs()
        before, pairs.MEMORY_ROWS = pairs.MEMORY_ROWS, size
        try:
            at = 0
            while at < rows.size:
                step = chance.randint(1, 5)
                found.add(rows[at : at + step].copy())
                at += step
            return sorted(
                (int(b["stack"]), int(b["name"]), int(b["time"]), int(e))
                for part in found.finish(10**6)
                for b, e in zip(part.begin, part.end_ns, strict=True)
            )
        finally:
            pairs.MEMORY_ROWS = before

    assert paired(1 << 20) == paired(4) == sorted((t, ord(n), b, e) for n, t, b, e in spans)


@QUICK
@given(st.lists(st.tuples(st.sampled_from("BE"), st.sampled_from(["a", "b", ""]), st.integers(0, 9)), min_size=1, max_size=30))
def test_ends_and_begins_of_no_order_lose_nothing_uncounted(tmp_path, rows):
    """Anything at all: no slice ends before it begins, and every record is in the report."""
    try:
        trace = trace_of(tmp_path, *({"ph": ph, "name": name, "pid": 1, "tid": 1, "ts": ts} for ph, name, ts in rows))
    except TraceError:
        assert not any(ph == "B" for ph, _, _ in rows)
        return
    begins = sum(ph == "B" for ph, _, _ in rows)
    lost = trace.integrity.not_kept.get("end without the begin of its slice", 0)
    never = sum(count for what, count in trace.integrity.repaired.items() if "never ended" in what)
    assert trace.slices.num_rows == begins
    assert begins - never == len(rows) - begins - lost
    assert min(trace.slices["dur_ns"].to_pylist()) >= 0


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    "name",
    "cat",
    "pid",
    "tid",
    "ts",
    "dur",
    "id",
    "args",
    "bp",
    "scope",
    "id2",
    "sf",
    "stack",
    "bind_id",
    "flow_in",
    "flow_out",
    "tdur",
)


@settings(max_examples=150 if DEEP else 25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.fixed_dictionaries(
            {"ph": st.sampled_from("XBEiIRbenSTpFstfCMPNODvVc()Z") | VALUE}, optional=dict.fromkeys(KEYS, VALUE)
        ),
        max_size=12,
    ),
    st.fixed_dictionaries({}, optional={"stackFrames": VALUE, "displayTimeUnit": VALUE, "otherData": VALUE}),
)
def test_records_of_any_types_are_read_or_counted(tmp_path, records, around):
    whole = json.dumps({"traceEvents": [{"ph": "X", "name": "x", "ts": 1, "dur": 1}, *records], **around})
    trace = trace_of(tmp_path, text=whole)
    assert trace.integrity.records_read == len(records) + 1
    assert trace.slices.num_rows >= 1


@pytest.mark.deep
@pytest.mark.parametrize("name", ["speedscope_simple.json", *(pytest.param(name, marks=pytest.mark.deep_only) for name in (
    "speedscope_zero-duration-events.json", "perfetto_flow_events_v2.json"))])
def test_cut_at_every_byte(tmp_path, name):
    """Of a cut file a profile with its loss, or one error: never a crash, never more than the whole has.

    Of files of more than a kilobyte every seventh byte, unless in `make test-deep`.
    """
    data = (CORPUS / "chrome" / name).read_bytes()
    whole = ingest.read(CORPUS / "chrome" / name).integrity.records_read
    path = tmp_path / "cut.json"
    kept = 0
    for at in [*range(0, len(data), 1 if DEEP or len(data) < 1000 else 7), len(data) - 1]:
        path.write_bytes(data[:at])
        try:
            trace = ingest.read(path)
        except TraceError as error:
            assert error.where
            assert error.hint
            assert kept == 0
            continue
        counted = trace.integrity
        assert counted.records_read == counted.records_kept + sum(counted.not_kept.values()) <= whole
        kept = max(kept, counted.records_kept)
    assert kept >= whole - 1


@pytest.mark.parametrize("chunk", [64, 300, 1 << 21])
def test_pieces_of_any_size_read_alike(tmp_path, chunk, monkeypatch):
    monkeypatch.setattr(pieces, "CHUNK_BYTES", chunk)
    chance = random.Random(7)
    records = [
        {"ph": "X", "name": f"n{i % 5}", "pid": 1, "tid": i % 3, "ts": 10 * i, "dur": chance.randint(0, 25), "args": {"i": i}}
        for i in range(200)
    ]
    records += [{"ph": ph, "name": "b", "pid": 1, "tid": 9, "ts": 10 * i + (ph == "E") * 5} for i in range(50) for ph in "BE"]
    records += [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "app"}}]
    trace = trace_of(tmp_path, *records)
    assert (trace.slices.num_rows, trace.integrity.records_kept, len(trace.tracks)) == (250, 301, 4)
    assert {track.group for track in trace.tracks} == {"app (1)"}


def within(seconds: float, megabytes: float, path) -> Trace | TraceError:
    tracemalloc.start()
    begin = time.process_time()             # of this process: others may keep the machine busy
    try:
        found = ingest.read(path)
        assert isinstance(found, Trace)
    except TraceError as error:
        found = error
    took, (_, peak) = time.process_time() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < seconds
    assert peak < megabytes * 2**20
    return found


@pytest.mark.deep
def test_deep_nesting_of_values(tmp_path):
    path = tmp_path / "deep.json"
    path.write_bytes(
        b'[{"ph":"X","name":"ok","ts":1,"dur":1},{"ph":"X","name":"deep","ts":1,"dur":1,"args":{"a":'
        + b"[" * scale(2_000_000)
        + b"]" * scale(2_000_000)
        + b"}},\n"
        + b'{"ph":"X","name":"last","ts":5,"dur":1}]'
    )
    found = within(60, 300, path)
    assert isinstance(found, Trace)
    assert {"ok", "last"} <= set(found.slices["name"].to_pylist())


def test_deep_nesting_of_slices(tmp_path):
    path = tmp_path / "deep.json"
    n = 100_000 if DEEP else 40_000
    path.write_bytes(b"[" + b",".join([b'{"ph":"B","name":"a","pid":1,"tid":1,"ts":%d}' % i for i in range(n)]) + b"]")
    found = within(60, 500, path)
    assert isinstance(found, Trace)
    assert found.slices.num_rows == n
    assert found.slices["depth"].to_numpy().max() <= 32_000
    assert sum(found.integrity.repaired.values()) >= n


def test_a_string_of_many_megabytes(tmp_path):
    path = tmp_path / "long.json"
    path.write_bytes(
        b'[{"ph":"X","name":"'
        + b"x" * (20 << 20)
        + b'","ts":1,"dur":1,"pid":1,"tid":1,"args":{"s":"'
        + b"y" * (20 << 20)
        + b'"}},\n{"ph":"X","name":"ok","ts":2,"dur":1,"pid":1,"tid":1}]'
    )
    found = within(60, 600, path)
    assert isinstance(found, Trace)
    assert max(len(name) for name in found.slices["name"].to_pylist()) <= 8192
    assert found.integrity.repaired["arguments longer than 16 KiB were cut"] == 1


@pytest.mark.deep
def test_more_threads_chains_and_counters_than_tracks(tmp_path, monkeypatch):
    """With a tenth of the records, of a tenth of the tracks that are kept."""
    monkeypatch.setattr(build, "MAX_LANES", scale(build.MAX_LANES))
    path = tmp_path / "many.json"
    records = [b'{"ph":"X","name":"a","pid":%d,"tid":%d,"ts":%d,"dur":1}' % (i % 70, i, i) for i in range(scale(70_000))]
    records += [
        b'{"ph":"%c","name":"c%d","id":%d,"cat":"x","pid":1,"tid":1,"ts":%d}' % (b"be"[j], i, i, i + j)
        for i in range(scale(5000))
        for j in (0, 1)
    ]
    records += [b'{"ph":"C","name":"k%d","pid":1,"ts":1,"args":{"v":1}}' % i for i in range(scale(5000))]
    path.write_bytes(b"[" + b",".join(records) + b"]")
    found = within(120, 600, path)
    assert isinstance(found, Trace)
    assert len(found.tracks) == build.MAX_LANES + 1
    assert found.slices.num_rows == scale(75_000)


def test_more_gpus_than_any_job_has_are_unknown_ones(tmp_path, monkeypatch):
    """Many analyses look at each GPU on its own: a file whose kernels each name another one kept a worker for minutes."""
    monkeypatch.setattr(build, "MAX_GPUS", 3)
    kernel = '{"ph":"X","cat":"kernel","name":"k","pid":%d,"tid":7,"ts":%d,"dur":1,"args":{"device":%d,"stream":7}}'
    path = tmp_path / "gpus.json"
    path.write_text('{"schemaVersion":1,"traceEvents":[' + ",".join(kernel % (i, 2 * i, i) for i in range(9)) + "]}")
    found = ingest.read(path)
    assert found.slices["device"].to_pylist() == [0, 1, 2] + [None] * 6
    assert found.integrity.records_kept == 9
    assert found.integrity.repaired["records of GPUs beyond the first 3: of an unknown GPU"] == 6


@pytest.mark.parametrize(
    "number", ["NaN", "-Infinity", "N/A", "1e400", "-1e-400", "99999999999999999999999999", "1" * 5000, '"x"', "true", "{}", "[1]"]
)
@pytest.mark.parametrize("field", ["ts", "dur", "pid", "tid", "id"])
def test_numbers_that_are_none(tmp_path, field, number):
    record = {"ph": '"B"', "name": '"a"', "pid": "1", "tid": "1", "ts": "1", "dur": "1", "id": "1", field: number}
    text = (
        "[{"
        + ",".join(f'"{key}":{value}' for key, value in record.items())
        + '},{"ph":"X","name":"ok","pid":1,"tid":1,"ts":2,"dur":1}]'
    )
    trace = trace_of(tmp_path, text=text)
    assert trace.integrity.records_read == 2
    assert "ok" in trace.slices["name"].to_pylist()


def test_keys_that_stand_twice(tmp_path):
    trace = trace_of(
        tmp_path,
        text='{"traceEvents":[{"ph":"X","ph":"X","name":"a","name":"b","ts":1,"ts":2,"dur":1,"args":{"k":1,"k":2}}],'
        '"displayTimeUnit":"ms","displayTimeUnit":"ns"}',
    )
    assert slices(trace) == [("b", 0, 1, 0)]
    assert trace.metadata["displayTimeUnit"] == "ns"


@pytest.mark.deep
def test_chains_that_never_end_are_linear(tmp_path):
    """Many stacks that do not pair: worked through in one pass."""
    path = tmp_path / "odd.json"
    path.write_bytes(
        b'[{"ph":"X","name":"ok","ts":0,"dur":1},'
        + b",".join(b'{"ph":"e","name":"x","id":%d,"cat":"c","pid":1,"tid":1,"ts":%d}' % (i, i) for i in range(scale(60_000)))
        + b"]"
    )
    found = within(60 if DEEP else 10, 400, path)
    assert isinstance(found, Trace)
    assert found.integrity.not_kept == {"end without the begin of its asynchronous slice": scale(60_000)}


def test_arguments_that_are_all_different_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "MAX_DETAILS", 5)
    trace = trace_of(tmp_path, *({"ph": "X", "name": "a", "ts": i, "dur": 1, "args": {"i": i}} for i in range(9)))
    assert [row is None for row in trace.slices["detail"].to_pylist()] == [False] * 5 + [True] * 4
    assert trace.integrity.repaired == {"arguments left out: the trace has too many distinct ones": 4}
