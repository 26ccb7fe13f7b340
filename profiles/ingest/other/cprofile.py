"""Statistics of cProfile and profile (`python -m cProfile -o run.prof`): sums per function and per caller → `Summary`.

Lib/cProfile.py and Lib/pstats.py of CPython: marshal's bytes of {(file, line, name): (primitive calls, calls, own seconds,
cumulative seconds, {caller: (calls, primitive calls, own seconds, cumulative seconds)})}. In a caller's tuple the two counts stand
the other way round; the older `profile` module writes a count alone there. Built-in functions have the file "~" and line 0.
"""

from __future__ import annotations

import heapq
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from profiles.ingest.core.source import Source
from profiles.ingest.naming.names import clip_name
from profiles.ingest.other.marshal_walk import Damage, MarshalWalk, Pairs
from profiles.ingest.trace import CellRows, Integrity, Summary, SummaryTable, TraceError, summary_columns, with_rows

FORMAT = "cprofile"
MAX_FUNCTIONS = 200_000
MAX_CALLS = 500_000                      # pairs of caller and callee that are looked at
FUNCTION_ROWS, CALL_ROWS = 20_000, 20_000
NAME_CHARS, FILE_CHARS = 1_000, 500
_LONGEST_S = 10**9                       # 31 years
_MOST_CALLS = 2**53
_TEXTS, _NUMBERS = b"stuaA", b"iIlrR"
_HINT = "Write it again with `python -m cProfile -o run.prof program.py` (or Profile.dump_stats) and upload it unchanged."
_FUNCTIONS = summary_columns("Function: text | File: text | Calls: count | Primitive calls: count | Own: ns | Share: pct | "
                             "Cumulative: ns")
_CALLS = summary_columns("Caller: text | Callee: text | Caller's file: text | Callee's file: text | Calls: count | "
                         "Primitive calls: count | Own: ns | Cumulative: ns")
Function = tuple[str, int, str]          # file, line, name


class Sums(NamedTuple):
    """Counts and times of a function, or of it as called by one other. Unknown is None."""

    calls: int | None
    primitive: int | None
    own_ns: int | None
    total_ns: int | None


@dataclass
class _Contents:
    functions: list[tuple[Function, Sums]] = field(default_factory=list)
    calls: list[tuple[Function, Function, Sums]] = field(default_factory=list)      # caller, callee


def sniff(head: bytes) -> bool:
    """Tell whether content is marshal's bytes of a dict whose first key is (text, number, text)."""
    if len(head) < 8 or head[0] & 0x7F != ord("{"):
        return False
    small = head[1] & 0x7F == ord(")") and head[2] == 3
    if not small and not (head[1] & 0x7F == ord("(") and head[2:6] == b"\3\0\0\0"):
        return False
    offset = 3 if small else 6
    kind = head[offset] & 0x7F
    if kind in b"zZ":
        offset += 2 + head[offset + 1]
    elif kind in _TEXTS and len(head) >= offset + 5:
        offset += 5 + struct.unpack_from("<I", head, offset + 1)[0]
    else:
        return False
    return offset < len(head) and head[offset] & 0x7F in _NUMBERS


def read(source: Source) -> Summary:
    """Raises TraceError where no function can be read."""
    integrity = Integrity()
    contents = _Contents()
    walk = MarshalWalk(source.read)
    try:
        for number, (key, value) in enumerate(walk.entries()):
            _take(key, value, contents, integrity)
            if number % 4096 == 0:
                source.progress("reading", integrity.records_read)
        if walk.rest():
            integrity.notes.append(f"Bytes behind the statistics, from byte {walk.at}, were not read.")
    except Damage as damage:
        _note_damage(damage, source, integrity)
        if not contents.functions:
            raise TraceError(f"byte {damage.at}", f"the statistics cannot be read: {damage.what}", _HINT) from None
    if not contents.functions:
        raise TraceError("the statistics", "none of the entries is a function with its calls and times", _HINT)
    integrity.settle()
    tables = [_function_table(contents, integrity), _call_table(contents, integrity)]
    return Summary(FORMAT, [], with_rows(tables), integrity, metadata=_metadata(contents))


def _note_damage(damage: Damage, source: Source, integrity: Integrity) -> None:
    integrity.truncated_at = f"byte {damage.at}"
    integrity.notes.append(f"Only what stands before byte {damage.at} was read: {damage.what}.")
    if source.damage:
        integrity.notes.append(f"The compressed file ends early: {source.damage}.")


def _take(key: Any, value: Any, contents: _Contents, integrity: Integrity) -> None:
    """Keep one entry of the statistics: a function and those that call it."""
    _count_record(integrity, "functions")
    function = _function(key)
    if function is None or type(value) is not tuple or len(value) != 5:
        integrity.drop("entries that are not a function with its calls and times")
        return
    if len(contents.functions) >= MAX_FUNCTIONS:
        integrity.drop(f"functions beyond the first {MAX_FUNCTIONS:,}")
        return
    primitive, calls, own, total, callers = value
    contents.functions.append((function, _sums(calls, primitive, own, total, integrity)))
    if not isinstance(callers, Pairs):
        integrity.repair("functions whose callers are not a dict: shown without them")
        return
    left = max(0, MAX_CALLS - integrity.kinds.get("calls", 0))
    for caller, numbers in callers[:left]:
        _take_call(_function(caller), function, numbers, contents, integrity)
    _count_record(integrity, "calls", len(callers) - left, f"pairs of caller and callee beyond the first {MAX_CALLS:,}")


def _count_record(integrity: Integrity, kind: str, n: int = 1, reason: str = "") -> None:
    """Count records as read, and where there is a reason as not kept."""
    if n > 0:
        integrity.records_read += n
        integrity.count(kind, n)
        if reason:
            integrity.drop(reason, n)


def _take_call(caller: Function | None, callee: Function, said: Any, contents: _Contents, integrity: Integrity) -> None:
    _count_record(integrity, "calls")
    if caller is None or (type(said) is not int and (type(said) is not tuple or len(said) != 4)):
        integrity.drop("callers that are not a function with its calls")
        return
    calls, primitive, own, total = said if isinstance(said, tuple) else (said, None, None, None)
    contents.calls.append((caller, callee, _sums(calls, primitive, own, total, integrity)))


def _function(key: Any) -> Function | None:
    if type(key) is not tuple or len(key) != 3:
        return None
    file, line, name = key
    return key if type(file) is str and type(line) is int and type(name) is str else None


def _sums(calls: Any, primitive: Any, own: Any, total: Any, integrity: Integrity) -> Sums:
    return Sums(_count(calls, integrity), _count(primitive, integrity), _ns(own, integrity), _ns(total, integrity))


def _count(value: Any, integrity: Integrity) -> int | None:
    if isinstance(value, int) and type(value) is not bool and 0 <= value <= _MOST_CALLS:
        return value
    if value is not None:
        integrity.repair("counts of calls that are none: shown as unknown")
    return None


def _ns(value: Any, integrity: Integrity) -> int | None:
    """Seconds to ns. The `profile` module takes its own cost off: a short time may then be below nothing."""
    if isinstance(value, (int, float)) and type(value) is not bool and 0 <= value <= _LONGEST_S:       # NaN is not
        return round(float(value) * 1e9)
    if value is not None:
        integrity.repair("times that are negative or no time at all: shown as unknown")
    return None


def _function_table(contents: _Contents, integrity: Integrity) -> SummaryTable:
    integrity.remark(f"functions beyond the {FUNCTION_ROWS:,} of most own time: in the sums, in no table",
                     max(0, len(contents.functions) - FUNCTION_ROWS))
    everything = sum(sums.own_ns or 0 for _, sums in contents.functions)
    chosen = heapq.nlargest(FUNCTION_ROWS, contents.functions, key=lambda each: (_known(each[1].own_ns), _known(each[1].total_ns)))
    rows: CellRows = [
        [clip_name(function[2], NAME_CHARS), _place(function), sums.calls, sums.primitive, sums.own_ns,
         None if sums.own_ns is None or not everything else 100.0 * sums.own_ns / everything, sums.total_ns]
        for function, sums in chosen]
    return SummaryTable("Functions", _FUNCTIONS, rows, "Own leaves out what a function calls, Cumulative holds it; a call within "
                        "a call of the same function is no primitive one. Share is of the own time of all functions.")


def _call_table(contents: _Contents, integrity: Integrity) -> SummaryTable:
    integrity.remark(f"pairs of caller and callee beyond the {CALL_ROWS:,} of most time: in no table",
                     max(0, len(contents.calls) - CALL_ROWS))
    chosen = heapq.nlargest(CALL_ROWS, contents.calls, key=lambda each: (_known(each[2].total_ns), _known(each[2].calls)))
    rows: CellRows = [
        [clip_name(caller[2], NAME_CHARS), clip_name(callee[2], NAME_CHARS), _place(caller), _place(callee), sums.calls,
         sums.primitive, sums.own_ns, sums.total_ns] for caller, callee, sums in chosen]
    return SummaryTable("Calls", _CALLS, rows, "Times and counts are the callee's, as far as this caller called it.")


def _known(value: int | None) -> int:
    return -1 if value is None else value


def _place(function: Function) -> str | None:
    """Return "file:line"; None for what is built in. Of a long path the end says more."""
    file, line, _ = function
    if file == "~" or not file:
        return None
    return f"{file if len(file) <= FILE_CHARS else '…' + file[1 - FILE_CHARS:]}:{line}"


def _metadata(contents: _Contents) -> dict[str, Any]:
    """Return the sums that pstats prints first, and a sentence with the function of most own time."""
    sums = [entry for _, entry in contents.functions]
    own_ns, calls = sum(entry.own_ns or 0 for entry in sums), sum(entry.calls or 0 for entry in sums)
    (_, _, name), most = max(contents.functions, key=lambda pair: pair[1].own_ns or 0)
    share = f"; {name[:200]} itself takes {100 * (most.own_ns or 0) / own_ns:.1f} % of it" if own_ns else ""
    return {"functions": len(sums), "calls": calls, "primitive calls": sum(entry.primitive or 0 for entry in sums),
            "own time": f"{own_ns / 1e9:.3f} s",
            "headline": f"{calls:,} calls of {len(sums):,} functions take {own_ns / 1e9:.3f} s{share}."}
