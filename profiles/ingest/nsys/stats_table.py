"""A table of `nsys stats`: columns by name whatever their unit, numbers of any locale as base units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from profiles.ingest.arrays import Array
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.source import Source
from profiles.ingest.naming.names import is_collective
from profiles.ingest.ncu.sections import NO_VALUE, decimal_sign
from profiles.ingest.trace import Category, Cell, Device, Integrity, Trace, Track

# unit in brackets -> (factor, base unit)
UNITS: dict[str, tuple[Decimal, str]] = {
    "ns": (Decimal(1), "ns"), "nsec": (Decimal(1), "ns"), "us": (Decimal(10**3), "ns"), "usec": (Decimal(10**3), "ns"),
    "µs": (Decimal(10**3), "ns"), "ms": (Decimal(10**6), "ns"), "msec": (Decimal(10**6), "ns"), "s": (Decimal(10**9), "ns"),
    "sec": (Decimal(10**9), "ns"), "%": (Decimal(1), "pct"), "B": (Decimal(1), "bytes"), "bytes": (Decimal(1), "bytes"),
    "KB": (Decimal(10**3), "bytes"), "MB": (Decimal(10**6), "bytes"), "GB": (Decimal(10**9), "bytes"),
    "KiB": (Decimal(2**10), "bytes"), "MiB": (Decimal(2**20), "bytes"), "GiB": (Decimal(2**30), "bytes"),
    "B/s": (Decimal(1), "B/s"), "KB/s": (Decimal(10**3), "B/s"), "MB/s": (Decimal(10**6), "B/s"), "GB/s": (Decimal(10**9), "B/s"),
    "KiB/s": (Decimal(2**10), "B/s"), "MiB/s": (Decimal(2**20), "B/s"), "GiB/s": (Decimal(2**30), "B/s"),
}
_COLUMN = re.compile(r"^(?P<name>.*?)\s*\((?P<unit>[^()]*)\)$")
_SPACES = re.compile(r"[\u00a0\u202f' ]")
_GROUPED = re.compile(r"-?\d{1,3}(?:[\u00a0\u202f' ]\d{3})+(?:[.,]\d+)?")
# "Average" of 2021 is today's "Avg"; nsys 2021 has no unit there, and its unit is the total's
_RENAMED = {"average": "avg", "minimum": "min", "maximum": "max", "median": "med", "calls": "num calls", "time": "time"}
_NAMES = ("Name", "Range", "Operation", "Event", "Marker", "Function", "Category")
_STATES = ("total time", "total", "start", "avg", "tavg", "duration", "api start", "total dur")
_LARGEST = 2**62
LOCALE_ROWS = 200


def split(column: str) -> tuple[str, str]:
    """"Total Time (ns)" -> ("Total Time", "ns"); brackets that hold no unit belong to the name."""
    match = _COLUMN.match(column.strip())
    return (match["name"], match["unit"]) if match and match["unit"] in UNITS else (column.strip(), "")


def is_header(cells: Sequence[Any]) -> bool:
    """Tell whether these are the columns of a table of nsys stats.

    Times or sizes with their unit, and a name.
    """
    if not 3 <= len(cells) <= 100 or not all(isinstance(cell, str) and len(cell) < 200 for cell in cells):
        return False
    parts = [split(cell) for cell in cells]
    named = any(name.split(" ")[-1] in _NAMES for name, _ in parts)
    with_unit = [name for name, unit in parts if unit]
    return named and (any(name.lower() in _STATES for name in with_unit) or len(with_unit) >= 4)


@dataclass
class Table:
    """Rows of one report. `title` is the report's name ("cuda_gpu_kern_sum") where the file says it."""

    title: str
    names: list[str]
    rows: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.columns = [split(name) for name in self.names]
        self.place: dict[str, int] = {}
        for place, (name, _) in enumerate(self.columns):
            key = name.lower()
            self.place.setdefault(_RENAMED.get(key, key), place)
        self._decimal: str | None = None

    def has(self, *names: str) -> bool:
        return all(name in self.place for name in names)

    @property
    def decimal(self) -> str:
        """The decimal sign of this file's numbers."""
        if self._decimal is None:
            text = {self.place[name] for name in ("name", "range", "operation", "kernel name", "api name") if name in self.place}
            self._decimal = decimal_sign(str(cell) for row in self.rows[:LOCALE_ROWS] for place, cell in enumerate(row)
                                         if place not in text and isinstance(cell, str))
        return self._decimal

    def text(self, row: list[Any], name: str) -> str:
        place = self.place.get(name)
        return str(row[place]).strip() if place is not None and row[place] is not None else ""

    def number(self, row: list[Any], name: str) -> int | float | None:
        """Return a cell in base units (ns, bytes); whole where the file's is."""
        place = self.place.get(name)
        return None if place is None else self.cell(row, place)

    def cell(self, row: list[Any], index: int) -> int | float | None:
        factor, _ = UNITS.get(self.unit(index), (Decimal(1), ""))
        exact = number(row[index], self.decimal)
        if exact is None or abs(exact * factor) > _LARGEST:
            return None
        exact *= factor
        return int(exact) if exact == exact.to_integral_value() else float(exact)

    def unit(self, index: int) -> str:
        name, unit = self.columns[index]
        if not unit and name.lower() in _RENAMED and "total time" in self.place:      # 2021: "Average" of "Total Time (ns)"
            return self.columns[self.place["total time"]][1] if name.lower() not in ("calls", "time") else ""
        return unit

    def whole(self, row: list[Any], name: str) -> int | None:
        value = self.number(row, name)
        return round(value) if value is not None else None

    def real(self, row: list[Any], name: str) -> float | None:
        value = self.number(row, name)
        return float(value) if value is not None else None

    def triple(self, row: list[Any], name: str) -> tuple[int, int, int] | None:
        """"   2   66    1" -> (2, 66, 1)."""
        parts = self.text(row, name).replace(",", " ").strip("()").split()
        sides = [int(part) for part in parts if part.isdecimal() and len(part) < 11]
        return (sides[0], sides[1], sides[2]) if len(parts) == len(sides) == 3 else None

    def column_header(self, index: int) -> tuple[str, str, bool]:
        """Return (name, base unit, is it text) of a column as a page shows it."""
        name = self.columns[index][0]
        unit = UNITS[self.unit(index)][1] if self.unit(index) in UNITS else ""
        return name, unit, name in ("GridXYZ", "BlockXYZ") or (not unit and not self._numeric(index))

    def _numeric(self, index: int) -> bool:
        cells = [row[index] for row in self.rows[:LOCALE_ROWS] if str(row[index]).strip().lower() not in NO_VALUE]
        return bool(cells) and all(number(cell, self.decimal) is not None for cell in cells)

    def value(self, row: list[Any], index: int, text: bool) -> Cell:
        return str(row[index]) if text else self.cell(row, index)


def number(cell: Any, decimal: str) -> Decimal | None:
    """Return a number exactly; None where the cell holds none ("", "N/A", NaN, a word)."""
    if isinstance(cell, bool):
        return None
    if isinstance(cell, int | float):
        text = repr(cell)
    elif isinstance(cell, str) and len(cell) < 60:
        text = cell.strip()
        if not text or text.lower() in NO_VALUE:
            return None
        if _SPACES.search(text) and not _GROUPED.fullmatch(text):       # a grid "2 66 1" is no number
            return None
        text = _SPACES.sub("", text).replace("." if decimal == "," else ",", "").replace(decimal, ".")
    else:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() and abs(value.adjusted()) < 40 else None


def total(values: Iterable[int | None]) -> int:
    return sum(value for value in values if value is not None)


# Tables of single events of `nsys stats` (cuda_gpu_trace and its kin) to a `Trace`.

FORMAT = "nsys-stats"
_BATCH = 50_000
_DEVICE = re.compile(r"^(?P<name>.*?)\s*\((?P<index>\d{1,4})\)$")
_COPY = re.compile(r"\[CUDA memcpy (?P<from>\w+)-to-(?P<to>\w+)\]|\[CUDA memcpy (?P<kind>[\w -]+)\]", re.IGNORECASE)
_LETTERS = {"host": "H", "device": "D", "array": "A", "peer": "P"}
# (columns of a table of events) -> start, duration, name; one row may be several events
_EVENTS = (("start", "duration", "name"), ("api start", "api dur", "api function"), ("kernel start", "kernel dur", "kernel name"))


def is_trace(table: Table) -> bool:
    return any(table.has(*columns) for columns in _EVENTS)


def title(table: Table) -> str:
    """The report's name: as the file says, else by its columns."""
    if table.title:
        return table.title
    reports = (("kernel start", "cuda_kern_exec_trace"), ("strm", "cuda_gpu_trace"), ("lvl", "nvtx_pushpop_trace"),
               ("rangeid", "nvtx_startend_trace"), ("corrid", "cuda_api_trace"))
    return next((name for column, name in reports if table.has(column)), "trace")


def trace(source: Source, tables: list[Table], integrity: Integrity) -> Trace:
    """Raises TraceError where no row has a time."""
    build = TraceBuilder(source, FORMAT, integrity)
    devices: dict[int, str] = {}
    rounded = 0
    for table in tables:
        for first in range(0, len(table.rows), _BATCH):
            rows = table.rows[first:first + _BATCH]
            rounded += _take(table, rows, build, devices)
            source.progress("columns", first + len(rows))
    integrity.remark("copies and sets whose size nsys stats rounded to 0.001 of its unit", rounded)
    result = build.finish(devices=[Device(index, name) for index, name in sorted(devices.items())],
                          metadata={"reports": ", ".join(dict.fromkeys(map(title, tables)))})
    integrity.settle()
    return result


def _take(table: Table, rows: list[list[Any]], build: TraceBuilder, devices: dict[int, str]) -> int:
    """One batch; returns how many sizes in it are rounded."""
    there = [columns for columns in _EVENTS if table.has(*columns)]
    lost = np.ones(len(rows), np.bool_)
    rounded = 0
    for columns in there:
        values: dict[str, list[Any]] = {}
        for index, row in enumerate(rows):
            start, dur = table.whole(row, columns[0]), table.whole(row, columns[1])
            if start is None or dur is None:
                continue
            lost[index] = False
            for key, value in _event(table, row, columns, build, devices).items():
                values.setdefault(key, []).append(value)
            values.setdefault("start_ns", []).append(start)
            values.setdefault("dur_ns", []).append(dur)
        rounded += sum(size not in (MISSING, 0) for size in values.get("bytes", ()))
        if values:
            build.add(**_arrays(values))
    build.integrity.drop("rows without a start or a duration", int(np.count_nonzero(lost)))
    return rounded if "bytes" in table.place and table.unit(table.place["bytes"]) not in ("B", "bytes") else 0


_TYPES: dict[str, Any] = {"name": np.int32, "category": np.uint8, "track": np.int32}


def _arrays(values: dict[str, list[Any]]) -> dict[str, Array]:
    return {key: np.array(column, _TYPES.get(key, np.int64)) for key, column in values.items()}


def _event(table: Table, row: list[Any], columns: tuple[str, str, str], build: TraceBuilder,
           devices: dict[int, str]) -> dict[str, Any]:
    name, on_gpu = table.text(row, columns[2]) or "unnamed", columns[0] == "kernel start" or table.has("strm")
    correlation = table.whole(row, "corrid")
    event: dict[str, Any] = {"correlation": MISSING if correlation is None else correlation}
    if not on_gpu:
        ranged = table.has("lvl") or table.has("rangeid")       # ":steps" is steps of the domain without a name
        return event | {"name": build.names[name.removeprefix(":") if ranged else name], "track": _thread(table, row, build),
                        "category": int(Category.ANNOTATION if ranged else Category.RUNTIME)}
    device, stream = _device(table, row, devices), table.whole(row, "strm")
    shown, category = _work(table, row, name)
    size = table.whole(row, "bytes") or None                # "0.000" MB is less than half a kB, not nothing
    grid = table.triple(row, "gridxyz") or [table.whole(row, f"grd{axis}") for axis in "xyz"]
    block = table.triple(row, "blockxyz") or [table.whole(row, f"blk{axis}") for axis in "xyz"]
    registers = table.whole(row, "reg/trd")
    return event | {
        "name": build.names[shown], "category": int(category), "track": _stream(build, device, stream), "device": device,
        "stream": MISSING if stream is None else stream, "bytes": MISSING if size is None else size,
        "grid": [MISSING if side is None else side for side in grid],
        "block": [MISSING if side is None else side for side in block],
        "registers_per_thread": MISSING if registers is None else registers}


def _work(table: Table, row: list[Any], name: str) -> tuple[str, Category]:
    """Names as in every other format: "[CUDA memcpy Host-to-Device]" is "Memcpy HtoD (Pageable -> Device)"."""
    copy = _COPY.match(name)
    if copy:
        source, target = table.text(row, "srcmemkd"), table.text(row, "dstmemkd")
        ends = f" ({source} -> {target})" if source and target else ""
        letters = [_LETTERS.get((copy[side] or "").lower(), "") for side in ("from", "to")]
        kind = f"{letters[0]}to{letters[1]}" if all(letters) else (copy["kind"] or f"{copy['from']}-to-{copy['to']}")
        return f"Memcpy {kind}{ends}", Category.MEMCPY
    if name.lower().startswith("[cuda memset"):
        return "Memset", Category.MEMSET
    return name, Category.COMMUNICATION if is_collective(name) else Category.COMPUTE


def _device(table: Table, row: list[Any], devices: dict[int, str]) -> int:
    text = table.text(row, "device")
    match = _DEVICE.match(text)
    index = int(match["index"]) if match else table.whole(row, "devid") or 0
    index = index if 0 <= index < 10_000 else 0
    if index not in devices and len(devices) < 1_024:
        devices[index] = (match["name"] if match else text)[:200]
    return index


def _stream(build: TraceBuilder, device: int, stream: int | None) -> int:
    return build.track(("stream", device, stream), lambda: Track(
        kind="stream", name=f"stream {stream}" if stream is not None else "kernels", group=f"GPU {device}", sort=stream or 0,
        device=device, stream=stream))


def _thread(table: Table, row: list[Any], build: TraceBuilder) -> int:
    pid, tid, name = table.text(row, "pid")[:40], table.text(row, "tid")[:40], table.text(row, "thread name")[:80]
    return build.track(("thread", pid, tid), lambda: Track(
        kind="thread", name=f"{name or 'thread'} ({tid})" if tid else name or "calls", group=f"process {pid}" if pid else "process",
        pid=pid or None, tid=tid or None))
