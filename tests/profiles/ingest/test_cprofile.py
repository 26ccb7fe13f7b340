"""Statistics of cProfile: what pstats and marshal say of the same file, and bytes that are none of theirs."""

from __future__ import annotations

import cProfile
import marshal
import profile
import pstats
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.analysis.core import result
from profiles.analysis.core.kernels import summary_table
from profiles.ingest.core.source import Source
from profiles.ingest.other import cprofile, marshal_walk
from profiles.ingest.trace import TraceError
from tests.profiles.ingest.corpus import DATA

RECORDED = DATA / "cprofile" / "json_re_sleep.prof"
A, B = ("/home/me/a.py", 3, "work"), ("~", 0, "<built-in method builtins.len>")
PLAIN = {A: (1, 3, 0.5, 1.25, {}), B: (7, 7, 0.25, 0.25, {A: (7, 6, 0.125, 0.25)})}


def load(tmp_path, data: Any) -> Any:
    path = tmp_path / "x.prof"
    path.write_bytes(data if isinstance(data, bytes) else marshal.dumps(data))
    with Source(path) as source:
        assert cprofile.sniff(source.peek())
        found = cprofile.read(source)
    integrity = found.integrity
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values()) == sum(integrity.kinds.values())
    return found


def table(summary, title: str) -> list[dict[str, Any]]:
    found, = (each for each in summary.tables if each.title == title)
    return [dict(zip([column.name for column in found.columns], row, strict=True)) for row in found.rows]


def check(summary, truth: dict[Any, Any]) -> None:
    """Every row against marshal's own reading."""
    def place(key: tuple[str, int, str]) -> str | None:
        return None if key[0] == "~" else f"{key[0]}:{key[1]}"

    functions = sorted((key[2], place(key) or "", nc, cc, round(tt * 1e9), round(ct * 1e9))
                       for key, (cc, nc, tt, ct, _) in truth.items())
    assert functions == sorted((row["Function"], row["File"] or "", row["Calls"], row["Primitive calls"], row["Own"],
                                row["Cumulative"]) for row in table(summary, "Functions"))
    calls = sorted((caller[2], place(caller) or "", key[2], place(key) or "", *said[:2], round(said[3] * 1e9))
                   for key, value in truth.items() for caller, said in value[4].items())
    assert calls == sorted((row["Caller"], row["Caller's file"] or "", row["Callee"], row["Callee's file"] or "", row["Calls"],
                            row["Primitive calls"], row["Cumulative"]) for row in table(summary, "Calls"))


def test_a_recording_says_what_pstats_says(tmp_path):
    summary = load(tmp_path, RECORDED.read_bytes())
    stats = pstats.Stats(str(RECORDED))
    assert (summary.metadata["calls"], summary.metadata["primitive calls"]) == (stats.total_calls, stats.prim_calls)
    assert summary.metadata["own time"] == f"{stats.total_tt:.3f} s"
    (_, _, name), (_, _, own_s, *_) = max(stats.stats.items(), key=lambda pair: pair[1][2])
    assert summary.metadata["headline"].endswith(f"; {name} itself takes {100 * own_s / stats.total_tt:.1f} % of it.")
    check(summary, marshal.loads(RECORDED.read_bytes()))      # our own recording
    rows = table(summary, "Functions")
    assert rows[0]["Function"] == "<built-in method time.sleep>" and rows[0]["Calls"] == 183
    assert [row["Own"] for row in rows] == sorted((row["Own"] for row in rows), reverse=True)
    assert sum(row["Share"] for row in rows) == pytest.approx(100)
    assert summary.integrity.kinds == {"functions": 205, "calls": 342} and summary.integrity.truncated_at is None


def test_it_has_no_kernels_and_its_tables_fit(tmp_path):
    summary = load(tmp_path, RECORDED.read_bytes())
    result.cut_tables(summary)
    assert summary_table(summary) == [] and [len(each.rows) for each in summary.tables] == [205, 342]
    assert not summary.integrity.remarks


def nested(depth: int) -> int:
    return nested(depth - 1) + len("x") if depth else 0


@pytest.mark.parametrize("module", [cProfile, profile])
def test_a_run_of_this_python(tmp_path, module):
    profiler = module.Profile()
    profiler.runcall(nested, 30)
    path = tmp_path / "run.prof"
    profiler.dump_stats(path)
    summary = load(tmp_path, path.read_bytes())
    row, = (row for row in table(summary, "Functions") if row["Function"] == "nested")
    assert (row["Calls"], row["Primitive calls"]) == (31, 1)
    again, = (row for row in table(summary, "Calls") if row["Caller"] == row["Callee"] == "nested")
    assert again["Calls"] == 30 and (again["Cumulative"] is None) == (module is profile)
    if module is cProfile:
        check(summary, marshal.loads(path.read_bytes()))      # written above


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_marshal(tmp_path, version):
    truth = PLAIN | {("ä.py", 2**40, "n" * 300): (2**33, 2**34, 1, 2.5, {B: (1, 1, 0.0, 1e-9)})}
    check(load(tmp_path, marshal.dumps(truth, version)), truth)


def test_texts_of_python_2(tmp_path):
    """Interned texts are numbered apart and named by R."""
    key = b"(\3\0\0\0" + b"t\4\0\0\0a.py" + b"i\5\0\0\0" + b"t\1\0\0\0f"
    caller = b"(\3\0\0\0" + b"R\0\0\0\0" + b"i\5\0\0\0" + b"R\1\0\0\0"
    said = b"(\4\0\0\0" + b"i\1\0\0\0" * 2 + b"f\0030.5" * 2
    data = b"{" + key + b"(\5\0\0\0" + b"i\1\0\0\0" * 2 + b"f\0030.5" * 2 + b"{" + caller + said + b"00" + b"0"
    check(load(tmp_path, data), {("a.py", 5, "f"): (1, 1, 0.5, 0.5, {("a.py", 5, "f"): (1, 1, 0.5, 0.5)})})


def test_what_is_no_number_is_unknown(tmp_path):
    odd = {("a", 1, "f"): (-1, True, float("nan"), float("inf"), {B: (2**70, 1, -1.0, 1e300)}),
           ("b", 1, "g"): (1, 1, 0.5, 0.5, None), ("c", 1, "h"): (1, 1), "no function": (1, 1, 1.0, 1.0, {}),
           ("d", 1, "i"): (1, 1, 0.1, 0.1, {"no caller": (1, 1, 1.0, 1.0)})}
    summary = load(tmp_path, odd)
    rows = {row["Function"]: row for row in table(summary, "Functions")}
    assert [rows["f"][each] for each in ("Calls", "Primitive calls", "Own", "Share", "Cumulative")] == [None] * 5
    call, = table(summary, "Calls")
    assert (call["Calls"], call["Primitive calls"], call["Own"], call["Cumulative"]) == (None, 1, None, None)
    assert summary.integrity.not_kept == {"entries that are not a function with its calls and times": 2,
                                          "callers that are not a function with its calls": 1}
    assert summary.integrity.repaired == {
        "counts of calls that are none: shown as unknown": 3, "times that are negative or no time at all: shown as unknown": 4,
        "functions whose callers are not a dict: shown without them": 1}


def test_every_cut_keeps_what_stands_before_it(tmp_path):
    data = RECORDED.read_bytes()
    whole, last = table(load(tmp_path, data), "Functions"), 0
    names = {(row["Function"], row["File"], row["Own"]) for row in whole}
    for size in range(500, len(data), 331):
        summary = load(tmp_path, data[:size])
        rows = table(summary, "Functions")
        assert summary.integrity.truncated_at == f"byte {size}" and len(rows) >= last and len(summary.integrity.notes) == 1
        assert {(row["Function"], row["File"], row["Own"]) for row in rows} <= names
        last = len(rows)
    assert 190 < last < 205


def prefix(count: int = 1) -> bytes:
    """The beginning of a dict with some good functions: its end is missing."""
    return marshal.dumps({("a", number, "f"): (1, 1, 0.5, 0.5, {}) for number in range(count)}, 2)[:-1]


@pytest.mark.parametrize(("rest", "what"), [
    (b"c" + bytes(50), "a code object"), (b"\xff", "unknown type 0x7f"), (b"r\xff\xff\xff\x7f", "a reference to value"),
    (b"\xa9\1r\0\0\0\0", "a value that contains it"), (b")\1" * 100_000, "deeper than 16"), (b"{" * 100_000, "deeper than 16"),
    (b"(\xff\xff\xff\x7f", "a tuple of"), (b"(\xff\xff\xff\xff", "a negative size"), (b"s\xff\xff\xff\x7f", "a text of"),
    (b"l\xff\xff\0\0", "digits of 15 bits"), (b"l\1\0\0\0\xff\xff", "more than 15 bits"), (b"f\2xy", "a number that is none"),
    (b"N0", "the end of a dict where a value"), (b")\0010", "the end of a dict where a value")])
def test_hostile_bytes_stop_the_walk_and_no_more(tmp_path, rest, what):
    summary = load(tmp_path, prefix() + rest)
    assert [row["Function"] for row in table(summary, "Functions")] == ["f"]
    assert what in summary.integrity.notes[0] and summary.integrity.truncated_at


def test_limits_of_values_functions_and_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(cprofile, "MAX_FUNCTIONS", 20)
    monkeypatch.setattr(cprofile, "FUNCTION_ROWS", 10)
    summary = load(tmp_path, prefix(50) + b"0")
    assert summary.integrity.not_kept == {"functions beyond the first 20": 30} and len(summary.tables[0].rows) == 10
    assert list(summary.integrity.remarks.values()) == [10] and summary.metadata["calls"] == 20
    monkeypatch.setattr(marshal_walk, "MAX_VALUES", 100)
    assert "more than 100 values" in load(tmp_path, prefix(50) + b"0").integrity.notes[0]
    monkeypatch.setattr(marshal_walk, "MAX_VALUES", 10_000)
    monkeypatch.setattr(marshal_walk, "MAX_ALL_TEXT_BYTES", 21)
    assert len(load(tmp_path, prefix(50) + b"0").tables[0].rows) == 10


def test_one_dict_of_callers_for_many_functions_costs_its_limit(tmp_path, monkeypatch):
    """A reference costs five bytes; what it stands for must not be gone through for each."""
    monkeypatch.setattr(cprofile, "MAX_CALLS", 1_000)
    callers = b"\xfb" + b"".join(b")\3z\1ai" + struct.pack("<i", n) + b"z\1f" + b"i\1\0\0\0" for n in range(300)) + b"0"
    data = b"{" + b")\3z\1ai\0\0\0\0z\1f)\5" + b"i\1\0\0\0" * 4 + callers
    data += b"".join(b")\3z\1ai" + struct.pack("<i", n) + b"z\1g)\5" + b"i\1\0\0\0" * 4 + b"r\0\0\0\0" for n in range(50)) + b"0"
    summary = load(tmp_path, data)
    assert summary.integrity.kinds == {"functions": 51, "calls": 51 * 300}
    assert summary.integrity.not_kept == {"pairs of caller and callee beyond the first 1,000": 51 * 300 - 1_000}


@pytest.mark.parametrize(("data", "where", "what"), [
    (prefix()[:30], "byte 30", "ends before its end"), (b"{" + b")\3z\1ai\0\0\0\0z\1fc", "byte", "code object"),
    (marshal.dumps({("a", 1, "b"): 7}), "the statistics", "none of the entries")])
def test_nothing_readable_is_an_error_in_words(tmp_path, data, where, what):
    with pytest.raises(TraceError, match=what) as error:
        load(tmp_path, data)
    assert error.value.where.startswith(where) and "cProfile" in error.value.hint


def test_bytes_behind_the_end_are_told(tmp_path):
    assert "were not read" in load(tmp_path, marshal.dumps(PLAIN) + b"x").integrity.notes[0]


@pytest.mark.parametrize("head", [
    b"", b"{}", b'{"ph": 1}', b"{(\3\0\0\0", b"\xfb)\2z\1ai\0\0\0\0", b"\x80\4}", b"[)\3", b"{0", b"\xfb)\3s\1"])
def test_what_is_not_taken(head):
    assert not cprofile.sniff(head)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_reader(tmp_path_factory, data):
    content = bytearray(RECORDED.read_bytes()[:3000])
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("m") / "p"
    path.write_bytes(content)
    try:
        with Source(path) as source:
            assert cprofile.read(source).tables
    except TraceError as error:
        assert error.where and error.hint
