"""A table of `nsys stats`: columns by name whatever their unit, numbers of any locale as base units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from profiles.ingest.ncu.units import NO_VALUE, decimal_sign
from profiles.ingest.trace import Cell

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
            self._decimal = decimal_sign(str(cell) for row in self.rows[:LOCALE_ROWS] for at, cell in enumerate(row)
                                         if at not in text and isinstance(cell, str))
        return self._decimal

    def text(self, row: list[Any], name: str) -> str:
        at = self.place.get(name)
        return str(row[at]).strip() if at is not None and row[at] is not None else ""

    def number(self, row: list[Any], name: str) -> int | float | None:
        """Return a cell in base units (ns, bytes); whole where the file's is."""
        at = self.place.get(name)
        return None if at is None else self.cell(row, at)

    def cell(self, row: list[Any], at: int) -> int | float | None:
        factor, _ = UNITS.get(self.unit(at), (Decimal(1), ""))
        exact = number(row[at], self.decimal)
        if exact is None or abs(exact * factor) > _LARGEST:
            return None
        exact *= factor
        return int(exact) if exact == exact.to_integral_value() else float(exact)

    def unit(self, at: int) -> str:
        name, unit = self.columns[at]
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

    def column_header(self, at: int) -> tuple[str, str, bool]:
        """Return (name, base unit, is it text) of a column as a page shows it."""
        name = self.columns[at][0]
        unit = UNITS[self.unit(at)][1] if self.unit(at) in UNITS else ""
        return name, unit, name in ("GridXYZ", "BlockXYZ") or (not unit and not self._numeric(at))

    def _numeric(self, at: int) -> bool:
        cells = [row[at] for row in self.rows[:LOCALE_ROWS] if str(row[at]).strip().lower() not in NO_VALUE]
        return bool(cells) and all(number(cell, self.decimal) is not None for cell in cells)

    def value(self, row: list[Any], at: int, text: bool) -> Cell:
        return str(row[at]) if text else self.cell(row, at)


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
