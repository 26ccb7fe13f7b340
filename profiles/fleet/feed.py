"""Launch records of a file into batches, as an agent makes them of what it sees. Plain Python."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import numpy as np

from workers.agent.aggregate import Sums
from workers.agent.launches import MINUTE_NS, MOST_NAME, MOST_WORD, Context, Gpu, Signature, Window, sum_by_code
from workers.agent.wire import Batch, make_batch

CHUNK = 200_000                     # records that are held at once
MOST_LINE = 64 << 10
MOST_REASONS = 20
DAY_MINUTES = 1440
_KINDS = (
    (b"SQLite format 3", "an SQLite file"), (b"NVR\0", "an Nsight Compute report"), (b"PK\x03\x04", "a zip file"),
    (b"\x1f\x8b", "gzip within gzip"), (b"\x28\xb5\x2f\xfd", "zstd data"), (b"\xfd7zXZ", "xz data"), (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"), (b"\x7fELF", "an ELF program"), (b"\x89PNG", "a PNG picture"), (b"%PDF", "a PDF document"))
_Size = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Word = Annotated[str, msgspec.Meta(max_length=MOST_WORD)]


class NoJsonLines(ValueError):
    """A file holds something else than records: what."""


class Record(msgspec.Struct):
    """One line of a file."""

    ts_ns: Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
    dur_ns: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    kernel: Annotated[str, msgspec.Meta(min_length=1)]
    grid: tuple[_Size, _Size, _Size] = (0, 0, 0)
    block: tuple[_Size, _Size, _Size] = (0, 0, 0)
    shared_bytes: _Size = 0
    gpu_uuid: _Word = ""
    gpu_model: _Word = ""
    host: _Word = ""
    job: _Word = ""
    rank: Annotated[int, msgspec.Meta(ge=-1, lt=2**31)] = -1
    build: _Word = ""
    model: _Word = ""
    framework: _Word = ""
    driver: _Word = ""


@dataclass
class Read:
    """What came of a file: `reasons` of rejected lines with how many, and the first of each."""

    records: int = 0
    rejected: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)      # reason -> line
    name: str = ""

    def reject(self, reason: str, line: int) -> None:
        self.rejected += 1
        if reason in self.reasons or len(self.reasons) < MOST_REASONS:
            self.reasons[reason] += 1
            self.first.setdefault(reason, line)


def batches(path: Path, read: Read, simulated: bool = False) -> Iterator[Batch]:
    """Yield the batches of a file of JSON lines, gzip or plain; `read` holds the counts once it is exhausted.

    The digest of its lines is the agent's name: the same file twice is the same batches, and counts once.
    Records are complete: each minute of a GPU was watched from its begin to its end.

    Raises:
        NoJsonLines: its begin holds no JSON object.
        OSError, EOFError, zlib.error: the file cannot be read on; what came before it is in batches already.
    """
    check_head(path)
    read.name = f"file-{_digest(path)}"
    sequence, watched = 0, set[tuple[object, ...]]()
    for records in _chunks(path, read):
        sums = Sums()
        for window in windows(records, simulated):
            place = (window.context, window.gpu, window.start_ns)
            if place in watched:                        # the minute went on in the next chunk: its time counts once
                window = replace(window, observed_ns=0, stands_for_ns=0)
            watched.add(place)
            sums.add(window)
        summed = sums.summed()
        newest = {minute // DAY_MINUTES: minute for minute in sorted(summed.numbered.minutes)}
        for day, minute in newest.items():              # a batch spans no more than a day
            yield make_batch(read.name, sequence, (minute + 1) * MINUTE_NS, [summed], days=(day, day + 1))
            sequence += 1


def check_head(path: Path) -> None:
    """Look at the begin of a file: one without any JSON object on a line is not read line by line.

    Raises:
        NoJsonLines: it has none.
    """
    with _opened(path) as file:
        try:
            head = file.read(MOST_LINE)
        except (OSError, EOFError, zlib.error):         # told where it is read, with what came before it
            return
    if head.strip() and not any(_may_be_object(line) for line in head.splitlines()):
        raise NoJsonLines(f"no JSON lines: it begins with {_kind(head)}; a record is one JSON object a line")


def _may_be_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return len(line) > MOST_LINE // 2 and line.lstrip().startswith(b"{")        # cut off where the head ends


def _kind(head: bytes) -> str:
    for begin, kind in _KINDS:
        if head.startswith(begin):
            return kind
    if head.lstrip().startswith(b"["):
        return "a JSON array"
    try:
        text = head[:40].decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if text and all(letter.isprintable() or letter.isspace() for letter in text):
        return f"the text {text.splitlines()[0]!r}"
    return f"binary data ({head[:8].hex(' ')})"


def windows(records: list[Record], simulated: bool = False) -> Iterator[Window]:
    """Yield one window a minute, GPU and job."""
    numbers: dict[tuple[object, ...], int] = {}
    places: list[tuple[Context, Gpu, int, int]] = []
    names: dict[Signature, int] = {}
    place, key = np.empty(len(records), np.int64), np.empty(len(records), np.int64)
    for i, record in enumerate(records):
        context = Context(record.job, record.build, record.gpu_model, record.model, record.framework, record.driver, simulated)
        gpu = Gpu(record.gpu_uuid, record.gpu_model, record.host)
        place[i] = numbers.setdefault((context, gpu, record.rank, record.ts_ns // MINUTE_NS), len(places))
        if place[i] == len(places):
            places.append((context, gpu, record.rank, record.ts_ns // MINUTE_NS))
        key[i] = names.setdefault(Signature(record.kernel[:MOST_NAME], record.grid, record.block, record.shared_bytes), len(names))
    dur_ns = np.array([record.dur_ns for record in records], np.int64)
    signatures = list(names)
    code, sums = sum_by_code(place * len(signatures) + key, dur_ns)
    number = code // max(1, len(signatures))
    named = replace(sums, signatures=[signatures[own] for own in (code % max(1, len(signatures))).tolist()])
    edges = [*np.flatnonzero(np.diff(number, prepend=-1)).tolist(), number.size]
    for first, kernels in zip(edges, named.split(edges), strict=False):
        context, gpu, rank, minute = places[int(number[first])]
        yield Window(context, gpu, minute * MINUTE_NS, MINUTE_NS, MINUTE_NS, kernels, rank)


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else open(path, "rb")


def _digest(path: Path) -> str:
    """Of what it holds, however it is compressed, up to where it can be read."""
    digest = hashlib.sha256()
    with _opened(path) as file:
        try:
            while piece := file.read(1 << 20):
                digest.update(piece)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            pass
    return digest.hexdigest()[:32]


def _chunks(path: Path, read: Read) -> Iterator[list[Record]]:
    decoder = msgspec.json.Decoder(Record)
    records: list[Record] = []
    with _opened(path) as file:
        lines, ended = enumerate(_lines(file), 1), None
        while True:
            try:
                number, line = next(lines)
            except StopIteration:
                break
            except (OSError, EOFError, zlib.error) as error:        # what came before it counts
                ended = error
                break
            if not line.strip():
                continue
            if len(line) > MOST_LINE:
                read.reject(f"longer than {MOST_LINE:,} bytes", number)
                continue
            try:
                record = decoder.decode(line)
                if "\0" in record.kernel + record.job + record.build + record.host + record.gpu_uuid + record.gpu_model:
                    raise ValueError("a name holds NUL")
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                read.reject(str(error)[:200], number)
                continue
            records.append(record)
            read.records += 1
            if len(records) >= CHUNK:
                yield records
                records = []
    if records:
        yield records
    if ended is not None:
        raise ended


def _lines(file: BinaryIO | gzip.GzipFile) -> Iterator[bytes]:
    """Lines, none held longer than its limit."""
    while line := file.readline(MOST_LINE + 1):
        if len(line) > MOST_LINE and not line.endswith(b"\n"):
            while (rest := file.readline(MOST_LINE)) and not rest.endswith(b"\n"):
                pass
        yield line
