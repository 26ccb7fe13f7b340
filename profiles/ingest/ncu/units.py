"""Numbers and units as `ncu` prints them → base units: ns, byte, hz, percent, and counts.

`ncu` scales units automatically unless told `--print-units base`, with decimal prefixes; versions before 2023.3 write
them out ("usecond", "Gbyte/second", "cycle/nsecond"). Digit grouping and the decimal sign follow the machine's locale.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

_PREFIX = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_TIME_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "nsecond": 1.0, "usecond": 1e3, "msecond": 1e6, "second": 1e9}
_HZ = {"hz": 1.0, "Khz": 1e3, "Mhz": 1e6, "Ghz": 1e9}
_BYTE = re.compile(r"^([KMGTP]?)byte(/.*)?$")
_PER_TIME = re.compile(r"^(.+)/(ns|us|ms|s|nsecond|usecond|msecond|second)$")
_GROUPED_COMMA = re.compile(r"^-?\d{1,3}(,\d{3})+$")
_GROUPED_DOT = re.compile(r"^-?\d{1,3}(\.\d{3})+$")
_NUMBER = re.compile(r"^-?[\d.,\u00a0\u202f' ]*\d[\d.,]*(?:[eE][+-]?\d+)?$")
_INSTANCES = re.compile(r"^(\S+)\s*\(.*;.*\)$")
NO_VALUE = {"", "n/a", "nan", "-nan", "inf", "-inf", "no data", "(not available)"}


def base_unit(unit: str) -> tuple[float, str]:
    """Return (factor, base unit): "Gbyte/s" -> (1e9, "byte/s"), "usecond" -> (1e3, "ns").

    Unknown units stay as they are.
    """
    if unit in _TIME_NS:
        return _TIME_NS[unit], "ns"
    if unit in _HZ:
        return _HZ[unit], "hz"
    rate = _PER_TIME.match(unit)
    if rate:
        factor, inner = base_unit(rate[1])
        per_second = 1e9 / _TIME_NS[rate[2]]
        return factor * per_second, "hz" if inner == "cycle" else f"{inner}/s"
    byte = _BYTE.match(unit)
    if byte:
        return _PREFIX[byte[1]], f"byte{byte[2] or ''}"
    if unit.startswith("%/"):
        # ncu scales "% per byte" as if the bytes stood above the line: 5460 %/byte is printed as 5.46 %/Kbyte
        factor, inner = base_unit(unit[2:])
        return factor, f"%/{inner}"
    return 1.0, unit


def decimal_sign(cells: Iterable[str]) -> str:
    """Return "." or ",": the sign that these cells use for decimals.

    Undecided cells mean ".", NVIDIA's own default.

    Both signs in one number: the last is the decimal one. One sign twice groups digits. A single sign not followed by
    exactly three digits is the decimal one.
    """
    for cell in cells:
        text = cell.strip()
        if not _NUMBER.match(text):
            continue
        comma, dot = text.rfind(","), text.rfind(".")
        if comma >= 0 and dot >= 0:
            return "," if comma > dot else "."
        if comma >= 0 and not _GROUPED_COMMA.match(text):
            return ","
        if dot >= 0 and (not _GROUPED_DOT.match(text) or text.startswith("0")):
            return "."
        if text.count(",") > 1:
            return "."
        if text.count(".") > 1:
            return ","
    return "."


def value_of(cell: str, decimal: str) -> float | str | None:
    """Return a cell as a number, a word ("CachePreferNone"), or None for no value."""
    text = cell.strip()
    instances = _INSTANCES.match(text)
    if instances:                                   # --print-metric-instances: "5 (1; 2; 2)"
        text = instances[1]
    if text.lower() in NO_VALUE:
        return None
    if not _NUMBER.match(text):
        return text
    group = "." if decimal == "," else ","
    plain = re.sub(r"[\u00a0\u202f' ]", "", text).replace(group, "").replace(decimal, ".")
    try:
        number = float(plain)
    except ValueError:
        return text
    return number if math.isfinite(number) else None

