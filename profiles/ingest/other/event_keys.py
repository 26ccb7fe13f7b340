"""What the keys of hand-written events mean: times, durations, names, lanes and numbers with a unit in their suffix."""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple

CLOCKS = ("timestamp", "ts", "time", "t", "start_time", "start", "begin")      # the first of them that a record has is its clock
_DURATIONS = ("duration", "dur", "elapsed", "elapsed_time", "execution_time", "wall_time", "total_time", "run_time", "runtime",
              "latency")
_LENGTHS = ("length", "took")                    # a duration where a unit of time stands behind it
_ENDS = ("end_time", "end", "stop")
NAMES = ("name", "event", "label", "op", "operation", "layer", "module", "function")
SHAPES = ("shape", "shapes", "dims", "dtype", "dtypes")       # words of a key whose list is shown with the event
LANES = ("rank", "gpu", "device", "thread")
# an index of a lane; thread idents are as large as addresses
_LARGEST = {"rank": 1_000_000, "gpu": 1_023, "device": 1_023, "thread": 2**63 - 1}
LANE_CHARS = 60
KEY_CHARS = 200
_TIMES = {"": 10**9, "s": 10**9, "sec": 10**9, "seconds": 10**9, "ms": 10**6, "us": 1_000, "ns": 1}
# suffix -> factor to the base unit, base unit
_UNITS: dict[str, tuple[float, str]] = {
    "bytes": (1, "bytes"), "kb": (1e3, "bytes"), "mb": (1e6, "bytes"), "gb": (1e9, "bytes"), "kib": (2**10, "bytes"),
    "mib": (2**20, "bytes"), "gib": (2**30, "bytes"), "pct": (1, "%"), "percent": (1, "%"), "ns": (1e-9, "s"), "us": (1e-6, "s"),
    "ms": (1e-3, "s"), "s": (1, "s"), "w": (1, "W"), "mhz": (1e6, "Hz"), "ghz": (1e9, "Hz")}
DECIMAL_BYTES = ("kb", "mb", "gb")               # 10**3, 10**6, 10**9: their writer may have meant 2**10, …
# Unix time, of today and some hundred years around it, by its size
_UNIX = ((10**9, 2 * 10**10, 10**9, "seconds"), (10**12, 2 * 10**13, 10**6, "milliseconds"),
         (10**15, 2 * 10**16, 1_000, "microseconds"), (10**18, 2 * 10**19, 1, "nanoseconds"))
_CONTEXT = Context(prec=40)
_MOST_NS = 2**62


class Key(NamedTuple):
    """`role`: "clock", "duration", "end", "name", "lane" or "number"; `base`: of a time without its unit; `scale`: to ns, or to
    `unit`."""

    role: str
    base: str
    scale: float
    unit: str | None = None
    suffix: str = ""

    @property
    def is_plain_timestamp(self) -> bool:
        return self.base == "timestamp" and not self.suffix


def clean_text(text: str) -> str:
    """Return a text without lone surrogates, which JSON may hold and UTF-8 may not."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def key_of(text: str) -> Key:
    """Return what a key means. Case does not matter."""
    return _short_key(text[:KEY_CHARS])


@lru_cache(4096)
def _short_key(text: str) -> Key:
    low = text.lower()
    if low in NAMES:
        return Key("name", low, 1)
    if low in LANES:
        return Key("lane", low, 1)
    base, _, suffix = low.rpartition("_") if "_" in low else (low, "", "")
    for role, known in (("clock", CLOCKS), ("duration", _DURATIONS), ("end", _ENDS)):
        if low in known:
            return Key(role, low, _TIMES[""])
        if suffix in _TIMES and base in known:
            return Key(role, base, _TIMES[suffix], suffix=suffix)
    if suffix in _TIMES and base in _LENGTHS:
        return Key("duration", base, _TIMES[suffix], suffix=suffix)
    factor, unit = _UNITS.get(suffix, (1.0, None)) if base else (1.0, None)
    return Key("number", clean_text(text), factor, unit, suffix)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def nanoseconds(value: Any, scale: float) -> int | None:
    """Return a time in ns, exactly as its decimal text says; None where it is no number or beyond any clock."""
    if not is_number(value):
        return None
    try:
        exact = Decimal(value)
        if not exact.is_finite() or exact.adjusted() > 20:
            return None
        ns = int(_CONTEXT.multiply(exact, Decimal(scale)).to_integral_value(context=_CONTEXT))
    except (InvalidOperation, ValueError, OverflowError):
        return None
    return ns if abs(ns) < _MOST_NS else None


def unix_unit(value: Any) -> tuple[int, str] | None:
    """Return ns per unit and the unit's name where the size of a number is that of a Unix time."""
    if not is_number(value):
        return None
    return next(((scale, unit) for low, high, scale, unit in _UNIX if low <= value < high), None)


def lane_value(base: str, value: Any) -> int | str | None:
    """Return an index or a short text that keeps lanes apart; None for what is neither."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST[base]:
        return value
    return clean_text(value) if isinstance(value, str) and 0 < len(value) <= LANE_CHARS else None
