"""Kineto traces of any size: real recordings repeated, on many ranks, with fresh ids and times moved on. Deterministic.

A recording is cut once at every number that a copy changes (time, ids, process, device, step); a copy is then one join
of the unchanged pieces with a handful of new numbers, so writing costs what copying the text costs. Times keep their low
digits and their fraction: only the count of 10 ms units before them is written anew.

    python -m bench.generator TARGET (--slices N | --bytes N) [--ranks R]        TARGET ending in .gz is compressed
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO

from isal import igzip_threaded

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
# rank r repeats RECORDINGS[r % 4]
RECORDINGS = (DATA / "h200" / "kineto_train.json.gz", DATA / "h200" / "ddp_even_rank0.json.gz",
              DATA / "h200" / "ddp_even_rank1.json.gz", DATA / "corpus" / "kineto" / "tracelens_h100_qwen1.5-0.5b.json.gz")
RANKS = 20                          # of a large trace: 70 tracks
_UNIT_US = 10_000
_BASE_UNITS = 439_426_513           # April 2026, from the recordings' own base time
_ID_DIGITS = 7                      # no id of a recording is longer
_LEAST_PID = 64                     # of a process: GPUs are numbered from 0
_GAP_US = 1_000                     # between copies
_SEPARATOR = b"\n  },\n  {\n"
_SEPARATORS = re.compile(rb"\n {2,4}\},\n {2,4}\{\n")        # PyTorch's own, and that of files somebody formatted anew
_SLOT = re.compile(
    rb'("ts": )(?P<ts>\d+)|(?P<ids>"External id": |"correlation": |"id": |"Ev Idx": |"Record function id": |"Sequence number": |'
    rb'"Python id": |"Python parent id": )'
    rb'(?P<id>\d+)|("pid": )(?P<pid>-?\d+)(,\s+"tid": )(?P<tid>-?\d+)|("device": )(?P<device>-?\d+)|(ProfilerStep#)(?P<step>\d+)')
_TS = re.compile(rb'"ts": (\d+)')
_DUR = re.compile(rb'"dur": (\d+)')
_GLOBAL = re.compile(rb'"pid": (?:"|-1\b)')      # what belongs to no process of a rank: once per file at most
_KIND = re.compile(rb'"ph": "(.)"')


@dataclass(frozen=True)
class Recording:
    """One recording in pieces: `pieces[1::2]` are the slots, `slots` the numbers that fill them."""

    pieces: list[bytes]
    slots: list[int]                # index into what `_numbers` makes of a copy
    low: list[bytes]                # distinct slot values: kind and number
    tracks_text: bytes              # the metadata records, cut in the same way by `_cut`
    units: int                      # length of a copy in 10 ms
    slices: int                     # of a copy (instants too)
    steps: int


@cache
def recording(path: Path) -> Recording:
    text = gzip.decompress(path.read_bytes())
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    body = text[begin:text.rindex(b"]")].strip().removeprefix(b"{\n").removesuffix(b"}").rstrip()
    records = [record for record in _SEPARATORS.split(body) if not _GLOBAL.search(record)]
    timed = [record for record in records if b'"ph": "M"' not in record]
    first = min(int(found[1]) for record in timed if (found := _TS.search(record)))
    last = max(int(found[1]) + int(dur[1] if (dur := _DUR.search(record)) else 0)
               for record in timed if (found := _TS.search(record)))
    pieces, slots, low = _cut(b"  {\n" + _SEPARATOR.join(timed) + b"\n  }", first)
    steps = {int(number) for number in re.findall(rb"ProfilerStep#(\d+)", body)}
    named = [record for record in records if b'"ph": "M"' in record and b"_name" in record]
    return Recording(pieces, slots, low, b"  {\n" + _SEPARATOR.join(named) + b"\n  }",
                     -(-(last - first + _GAP_US) // _UNIT_US),
                     sum(found[1] in b"Xi" for record in timed if (found := _KIND.search(record))), max(len(steps), 1))


def _cut(text: bytes, first_us: int) -> tuple[list[bytes], list[int], list[bytes]]:
    """Pieces and slots of `text`; of each distinct slot value its kind and number ("u3": three units of time on)."""
    pieces: list[bytes] = []
    slots: list[int] = []
    values: dict[bytes, int] = {}
    at = 0

    def slot(value: bytes, upto: int, tail: bytes) -> None:
        nonlocal at, carried
        pieces.append(carried + text[at:upto])
        pieces.append(b"")
        slots.append(values.setdefault(value, len(values)))
        carried = tail

    carried = b""
    for match in _SLOT.finditer(text):
        kind = match.lastgroup
        if kind == "ts":
            units, rest = divmod(max(int(match["ts"]) - first_us, 0), _UNIT_US)
            slot(b"u%d" % units, match.start("ts"), b"%04d" % rest)
        elif kind == "id":
            slot(b"i", match.start("id"), b"%0*d" % (_ID_DIGITS, int(match["id"])))
        elif kind == "tid":
            slot(b"p" + match["pid"], match.start("pid"), b"")
            at = match.end("pid")
            slot(b"t" + match["pid"] + b" " + match["tid"], match.start("tid"), b"")
        elif kind == "device":
            slot(b"d", match.start("device"), b"")
        else:
            slot(b"s" + match["step"], match.start("step"), b"")
        at = match.end()
    pieces.append(carried + text[at:])
    return pieces, slots, list(values)


def _number(value: bytes, rank: int, copy: int, serial: int, unit: int, steps: int) -> bytes:
    kind, rest = value[:1], value[1:]
    if kind == b"u":
        return b"%d" % (_BASE_UNITS + unit + int(rest))
    if kind == b"i":
        return b"%d" % serial
    if kind == b"s":
        return b"%d" % (copy * steps + int(rest))
    if kind == b"d":
        return b"%d" % rank
    pid, _, tid = rest.partition(b" ")
    if int(pid) < _LEAST_PID:                       # a GPU, and helper threads that carry its number
        return b"%d" % rank if kind == b"p" else tid
    return b"%d" % (int(tid if kind == b"t" else pid) + (rank + 1) * 10_000_000)


def copies(ranks: int) -> Iterator[tuple[bytes, int]]:
    """Text and slices of copy after copy, without end, in the order of their times: each rank goes on where it ended."""
    turns = [(0, rank) for rank in range(ranks)]
    number = [0] * ranks
    for serial in count(1):
        unit, rank = heapq.heappop(turns)
        found = recording(RECORDINGS[rank % len(RECORDINGS)])
        numbers = [_number(value, rank, number[rank], serial, unit, found.steps) for value in found.low]
        pieces = found.pieces.copy()
        pieces[1::2] = [numbers[slot] for slot in found.slots]
        yield b"".join(pieces), found.slices
        number[rank] += 1
        heapq.heappush(turns, (unit + found.units, rank))


def _names(ranks: int) -> bytes:
    """What processes and threads are called, rank by rank."""
    out = []
    for rank in range(ranks):
        found = recording(RECORDINGS[rank % len(RECORDINGS)])
        pieces, slots, values = _cut(found.tracks_text, _BASE_UNITS * _UNIT_US)
        numbers = [_number(value, rank, 0, 1, 0, 1) for value in values]
        pieces[1::2] = [numbers[slot] for slot in slots]
        out.append(b"".join(pieces))
    return b",\n".join(out)


def _head(ranks: int) -> bytes:
    devices = [{"id": i, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0,
                "numSms": 132} for i in range(ranks)]
    head = {"schemaVersion": 1, "deviceProperties": devices, "cupti_version": 130001, "record_shapes": 1,
            "baseTimeNanoseconds": 1790857026000000000}
    return json.dumps(head, indent=1).removesuffix("\n}").encode() + b',\n "traceEvents": [\n'


def write(target: Path | IO[bytes], *, slices: int = 0, raw_bytes: int = 0, ranks: int = RANKS) -> tuple[int, int]:
    """Write whole copies until there are `slices` slices or `raw_bytes` bytes of JSON; returns (bytes of JSON, slices)."""
    if not isinstance(target, Path):
        return _write(target, slices, raw_bytes, ranks)
    if target.suffix == ".gz":
        with igzip_threaded.open(target, "wb", compresslevel=1, threads=1) as packed:
            return _write(packed, slices, raw_bytes, ranks)
    with target.open("wb", buffering=0) as plain:
        return _write(plain, slices, raw_bytes, ranks)


def _write(out: IO[bytes], slices: int, raw_bytes: int, ranks: int) -> tuple[int, int]:
    if slices <= 0 and raw_bytes <= 0:
        raise ValueError("say how many slices or bytes")
    head, tail = _head(ranks) + _names(ranks), b"\n]\n}\n"
    out.write(head)
    written, made = len(head) + len(tail), 0
    for text, number in copies(ranks):
        out.write(b",\n")
        out.write(text)
        written, made = written + 2 + len(text), made + number
        if (slices and made >= slices) or (raw_bytes and written >= raw_bytes):
            break
    out.write(tail)
    return written, made


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.generator", description="Write a Kineto trace of any size.")
    parser.add_argument("target", type=Path)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--slices", type=int, default=0)
    size.add_argument("--bytes", type=int, default=0, help="of JSON before compression")
    parser.add_argument("--ranks", type=int, default=RANKS)
    asked = parser.parse_args(arguments)
    began = time.perf_counter()
    written, made = write(asked.target, slices=asked.slices, raw_bytes=asked.bytes, ranks=asked.ranks)
    seconds = time.perf_counter() - began
    sys.stdout.write(f"{written / 1e6:.0f} MB of JSON, {made:,} slices in {seconds:.1f} s, {written / 1e6 / seconds:.0f} MB/s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
