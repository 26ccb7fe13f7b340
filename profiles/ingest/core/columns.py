"""Decoded records to columns, one batch per piece: after `add` no record object survives, only numpy arrays and ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal, InvalidOperation
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.arrays import Array, Bools, Floats, Int32, Ints
from profiles.ingest.core.events import MISSING
from profiles.ingest.naming.names import clip_name
from profiles.ingest.trace import Integrity

NAME_CHARS = 8192                # longer names are clipped (and counted)
MAX_NAMES, MAX_NAME_CHARS = 200_000, 32 << 20
MAX_DETAILS, MAX_DETAIL_CHARS = 200_000, 48 << 20
FURTHER_NAMES = "(further names)"
_EXACT_US = float(2**43)         # below it a float64 of microseconds still rounds to the right nanosecond


class Ids(dict[Hashable, int]):
    """Value -> number, given out in order of first sight; `values` lists them."""

    def __init__(self) -> None:
        super().__init__()
        self.values_in_order: list[Any] = []

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self.values_in_order)
        self.values_in_order.append(key)
        return number

    def column(self, keys: Sequence[Any]) -> Int32:
        try:
            return np.fromiter(map(self.__getitem__, keys), np.int32, len(keys))
        except TypeError:                                   # an unhashable value where a text belongs
            return np.fromiter((self[_hashable(key)] for key in keys), np.int32, len(keys))


class NameIds(Ids):
    """Names, clipped (with a digest of the whole) so that a hostile one of 100 MB costs nothing.

    Beyond MAX_NAMES or MAX_NAME_CHARS in all, further ones share one: a file of two million names took 3 GB.
    """

    clipped = beyond = chars = 0

    def __missing__(self, key: Any) -> int:
        if not isinstance(key, str):
            return self[str(key)]
        if len(key) > NAME_CHARS:
            self.clipped += 1
            return self[clip_name(key, NAME_CHARS)]
        if (len(self) >= MAX_NAMES or self.chars + len(key) > MAX_NAME_CHARS) and key != FURTHER_NAMES:
            self.beyond += 1
            return self[FURTHER_NAMES]
        self.chars += len(key)
        return super().__missing__(key)


class DetailIds(Ids):
    """Arguments that are only shown. Beyond MAX_DETAILS or MAX_DETAIL_CHARS in all, further ones are left out (-1)."""

    beyond = chars = 0

    def __missing__(self, key: Any) -> int:
        size = len(key) if isinstance(key, str) else len(key[-1])
        if len(self) >= MAX_DETAILS or self.chars + size > MAX_DETAIL_CHARS:
            self.beyond += 1
            return -1
        self.chars += size
        return super().__missing__(key)


class Table:
    """Something that follows from each value of an `Ids`, worked out once per value and looked up for whole columns."""

    def __init__(self, ids: Ids, make: Callable[[Any], Any], kind: Any) -> None:
        self._ids, self._make, self._known = ids, make, 0
        self._values = np.empty(64, kind)

    def __call__(self, column: Int32) -> Array:
        count = len(self._ids.values_in_order)
        if count > self._values.size:
            self._values = np.concatenate((self._values, np.empty(count, self._values.dtype)))
        for number in range(self._known, count):
            self._values[number] = self._make(self._ids.values_in_order[number])
        self._known = max(self._known, count)
        values: Array = self._values[column]
        return values


def _hashable(value: Any) -> Hashable:
    if isinstance(value, tuple):
        return tuple(_hashable(part) for part in value)
    return value if isinstance(value, (str, int, float, bytes, type(None))) else str(value)


def _column(values: Sequence[Any], dtype: type[np.generic]) -> Array:
    """Return one number for each value. Raises TypeError, ValueError, OverflowError where one is no number; lists are none."""
    column = np.array(values, dtype=dtype)
    if column.ndim != 1:                # numpy makes a table of lists that are all of one length
        raise ValueError("lists in place of numbers")
    return column


def nanoseconds(values: Sequence[Any], again: Callable[[], Sequence[Any]]) -> tuple[Ints, Bools]:
    """Convert decoded microseconds to int64 ns; also return which were no number at all.

    The time of such is 0.

    Decimal text below 2**43 µs survives float64 to the nanosecond, whole numbers survive to 2**53. Beyond that `again`
    gives the values once more, as the texts in the file.
    """
    try:
        us = _column(values, np.float64)                    # None becomes NaN
    except (TypeError, ValueError, OverflowError):
        return _by_text(values)
    bad = ~np.isfinite(us)
    us[bad] = 0.0
    largest = np.abs(us).max(initial=0.0)
    if largest < _EXACT_US:
        whole = np.floor(us)                                # apart: the product of both would round once more
        return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000.0).astype(np.int64), bad
    if largest < 2**53 and not any(type(value) is float for value in values):
        return us.astype(np.int64) * 1000, bad
    return _by_text(again())


def _by_text(values: Sequence[Any]) -> tuple[Ints, Bools]:
    out = np.zeros(len(values), np.int64)
    bad = np.zeros(len(values), np.bool_)
    for i, value in enumerate(values):
        text = bytes(value).decode("utf-8", "replace") if isinstance(value, msgspec.Raw) else str(value)
        try:
            ns = int((Decimal(text.strip('" ')) * 1000).to_integral_value())
        except (InvalidOperation, ValueError, OverflowError):
            bad[i] = True
            continue
        bad[i] = abs(ns) >= 2**62
        out[i] = 0 if bad[i] else ns
    return out, bad


def integers(values: Sequence[Any]) -> Ints:
    """Convert ids of any spelling to int64, MISSING where there is none.

    Unsigned 64-bit ids keep their bits.
    """
    try:
        return _column(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value) for value in values], dtype=np.int64)


def _integer(value: Any) -> int:
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            return MISSING
    if not isinstance(value, (int, float)) or not MISSING < value < 2**64:      # NaN is neither
        return MISSING
    return int(value) - 2**64 if value >= 2**63 else int(value)


def optional(values: Iterable[Any]) -> Ints:
    """Like `integers`, with None for missing."""
    return integers([MISSING if value is None else value for value in values])


def floats(values: Sequence[Any]) -> Floats:
    """Convert numbers of any spelling to float64, NaN where there is none."""
    try:
        return _column(values, np.float64)                  # None becomes NaN
    except (TypeError, ValueError, OverflowError):
        out = np.full(len(values), np.nan)
        for i, value in enumerate(values):
            try:
                out[i] = float(value)
            except (TypeError, ValueError, OverflowError):
                continue
        return out


def triples(values: Sequence[Any]) -> Ints:
    """Grids and blocks [x, y, z] -> int64 (n, 3), MISSING where there is none."""
    out = np.full((len(values), 3), MISSING, np.int64)
    rows = [i for i, value in enumerate(values) if type(value) is list and len(value) == 3]
    try:
        whole = np.array([values[i] for i in rows], np.int64).reshape(len(rows), 3)
    except (TypeError, ValueError, OverflowError):          # something in them is no number
        whole = np.array([[_integer(part) for part in values[i]] for i in rows], np.int64).reshape(-1, 3)
    out[rows] = np.where((whole > -2**31) & (whole < 2**31), whole, MISSING)
    return out


def decode_args(form: Any, raws: Sequence[Any]) -> tuple[list[Any], int]:
    """Decode all argument texts of one kind in one call.

    Also returned: how many could not be understood (they become empty).
    """
    if form not in _decoders:
        _decoders[form] = msgspec.json.Decoder(list[form])
    for texts in (raws, [raw or b"{}" for raw in map(bytes, raws)] if not all(raws) else ()):   # some have no arguments
        try:
            decoded = _decoders[form].decode(b"[" + b",".join(texts) + b"]")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if len(decoded) == len(raws):
            return decoded, 0
    return _one_by_one(form, raws)


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _one_by_one(form: Any, raws: Sequence[Any]) -> tuple[list[Any], int]:
    out, bad = [], 0
    single = msgspec.json.Decoder(form)
    for raw in map(bytes, raws):
        try:
            out.append(single.decode(raw.decode("utf-8", "replace") or "{}"))
        except (msgspec.DecodeError, RecursionError):
            out.append(form())
            bad += raw not in (b"", b"null")
    return out, bad


def detail_ids(ids: DetailIds, arguments: Sequence[Any], named: Sequence[tuple[str, str]]) -> Int32:
    """Return, for each record, the number of its shown arguments in `ids`.

    -1 where it has none, -2 where `ids` is full.

    A value of `ids` is (names in the file, their raw JSON texts joined by NUL).
    """
    names = tuple(name for _, name in named)
    values = map(attrgetter(*(attribute for attribute, _ in named)), arguments)
    here = Ids()                                            # of this piece: its few hundred texts then join all others
    numbers = here.column(list(map(b"\0".join, values)))
    nothing = b"\0" * (len(named) - 1)
    distinct_ids = [-1 if key == nothing else ids[names, key] for key in here.values_in_order]
    ids_of_details = np.array(distinct_ids, np.int32)
    ids_of_details[(ids_of_details < 0) & np.array([key != nothing for key in here.values_in_order], np.bool_)] = -2
    return ids_of_details[numbers]


def detail_text(value: tuple[Any, ...]) -> str:
    """JSON text of one value of `detail_ids`."""
    names, texts = value
    shown = [f'"{name}": {raw.decode("utf-8", "replace")}'
             for name, raw in zip(names, texts.split(b"\0"), strict=True) if raw not in (b"", b"null")]
    return "{" + ", ".join(shown) + "}"


# Colours that a program gave to what it names: one per name, as "#rrggbb".

MAX_COLOURS = 10_000
_HEX = re.compile(r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})(?:[0-9a-fA-F]{2})?", re.ASCII)
_SEVERAL = "a name with several colours: the first is shown"

# What `cname` may say: tracing/tracing/base/color_scheme.html of catapult (Trace Event Format, "cname").
RESERVED = {
    "thread_state_uninterruptible": "#b67d8f", "thread_state_iowait": "#ff8c00", "thread_state_running": "#7ec894",
    "thread_state_runnable": "#85a0d2", "thread_state_sleeping": "#f0f0f0", "thread_state_unknown": "#c79b7d",
    "background_memory_dump": "#00b4b4", "light_memory_dump": "#0000b4", "detailed_memory_dump": "#b400b4",
    "vsync_highlight_color": "#0000ff", "generic_work": "#7d7d7d", "good": "#007d00", "bad": "#b47d00", "terrible": "#b40000",
    "black": "#000000", "grey": "#dddddd", "white": "#ffffff", "yellow": "#ffff00", "olive": "#646400",
    "rail_response": "#4387fd", "rail_animation": "#f44a3f", "rail_idle": "#ee8e00", "rail_load": "#0da861",
    "startup": "#e6e600", "heap_dump_stack_frame": "#808080", "heap_dump_object_type": "#0000ff",
    "heap_dump_child_node_arrow": "#cc6600", "cq_build_running": "#ffff77", "cq_build_passed": "#99ee66",
    "cq_build_failed": "#ee8888", "cq_build_abandoned": "#bbbbbb", "cq_build_attempt_runnig": "#dede4b",
    "cq_build_attempt_passed": "#67da23", "cq_build_attempt_failed": "#c55151",
}


def colour_of(value: Any) -> str | None:
    """Return "#rrggbb" of what a trace event says: a reserved name, "#rgb", "#rrggbb" or "#rrggbbaa"; else None."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    match = _HEX.fullmatch(value)
    if match is None:
        return RESERVED.get(value)
    digits = match[1].lower()
    return "#" + ("".join(digit * 2 for digit in digits) if len(digits) == 3 else digits)


def colour_of_argb(value: int) -> str | None:
    """Return "#rrggbb" of NVTX's ARGB number; None where it is none, or all of it is transparent (0: no colour was set)."""
    unsigned = value & 0xFFFFFFFF if -(1 << 31) <= value < 1 << 32 else 0
    return f"#{unsigned & 0xFFFFFF:06x}" if unsigned >> 24 else None


class Colours:
    """One colour per name, the first that the file gives; at most MAX_COLOURS names."""

    def __init__(self, integrity: Integrity) -> None:
        self.by_name: dict[str, str] = {}
        self._integrity = integrity

    def add(self, name: str, colour: str | None) -> None:
        if colour is None or not name:
            return
        name = clip_name(name, NAME_CHARS)
        first_colour = self.by_name.get(name)
        if first_colour is None and len(self.by_name) < MAX_COLOURS:
            self.by_name[name] = colour
        elif first_colour is None:
            self._integrity.remark(f"names with a colour beyond the first {MAX_COLOURS:,}: in the colour of their category")
        elif first_colour != colour:
            self._integrity.remark(_SEVERAL)
