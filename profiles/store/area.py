"""The slices of an area of the timeline, and what they can be grouped and chosen by: stored columns, tracks, any argument.

A value has a key of whole numbers that stays the same for a stored trace, so that a link can name it.

They are read a window of time after the other, so that memory does not grow with the area.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq

from profiles.ingest.arrays import Array, Bools, Ints
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import Category
from profiles.store import trace as store
from profiles.store.columns import read_whole
from profiles.store.related import LAUNCHED_NEEDS, RAN_NEEDS, operator_names, step_name, steps_launched, steps_ran
from profiles.store.timeline import Timeline

Rows = dict[str, Array]
Key = tuple[int, ...]
NULL = -(2**63)
DETAILS = 3_000_000                 # distinct arguments that are looked through for one key
_SAMPLED = 20_000                   # of which the names of keys are taken
ARGUMENT = "arg:"
_CATEGORIES = [category.name.lower() for category in Category]


class UnknownColumn(KeyError):
    """No such column: which ones there are."""


@dataclass(frozen=True)
class Column:
    """`codes` gives the parts of every row's key, `value` what people read for a key (None: the slices say nothing)."""

    key: str
    title: str
    kind: str                       # "text" | "number" | "category" | "track"
    needs: tuple[str, ...]
    codes: Callable[[Timeline, Rows], list[Array]]
    value: Callable[[Timeline, Key], Any]

    def equal(self, timeline: Timeline, rows: Rows, key: Key) -> Bools:
        same = np.ones(rows["slice"].size, np.bool_)
        for values, code in zip(self.codes(timeline, rows), key, strict=True):
            same &= values == code
        return same


def _stored_column(key: str, title: str, *names: str, kind: str = "number") -> Column:
    needs = names or (key,)

    def value(_: Timeline, key: Key) -> Any:
        if key[0] in (NULL, -(2**31)):
            return None
        return key[0] if len(key) == 1 else " × ".join(str(part) for part in key)

    return Column(key, title, kind, needs, lambda _, rows: [rows[name].astype(np.int64) for name in needs], value)


def _of_track(key: str, title: str) -> Column:
    """What the track says: equal texts of several tracks are one value, known by the first of them."""
    def codes(timeline: Timeline, rows: Rows) -> list[Array]:
        texts = [track[key] for track in timeline.tracks]
        first = {text: number for number, text in reversed(list(enumerate(texts)))}
        return [np.array([first[text] for text in texts] or [0], np.int64)[rows["track"]]]

    return Column(key, title, "text", ("track",), codes, lambda timeline, value: timeline.tracks[value[0]][key])


def _track(timeline: Timeline, key: Key) -> str:
    track = timeline.tracks[key[0]]
    return f"{track['group']} / {track['name']}"


def _short(timeline: Timeline, rows: Rows) -> list[Array]:
    return [_short_ids(timeline.profile_id, timeline.etag, len(timeline.names))[rows["name_id"]]]


@lru_cache(maxsize=8)
def _short_ids(profile_id: int, etag: str, count: int) -> Ints:
    """Name id -> the first name id with the same short name."""
    names = read_whole(store.local_path(store.key(profile_id, "names.parquet")))["name"].to_pylist()[:count]
    first: dict[str, int] = {}
    return np.array([first.setdefault(short_name(name), number) for number, name in enumerate(names)] or [0], np.int64)


def _occupancy(_: Timeline, rows: Rows) -> list[Array]:
    """Tenths of a percent; unknown is the null of integers."""
    return [np.where(np.isfinite(rows["occupancy_pct"]), np.nan_to_num(rows["occupancy_pct"]) * 10, NULL).astype(np.int64)]


def _operator(timeline: Timeline, rows: Rows) -> list[Array]:
    return [operator_names(timeline, rows)]


COLUMNS: dict[str, Column] = {column.key: column for column in (
    Column("name", "Name", "text", ("name_id",), lambda _, rows: [rows["name_id"].astype(np.int64)],
           lambda timeline, key: timeline.names[key[0]]),
    Column("short_name", "Short name", "text", ("name_id",), _short, lambda timeline, key: short_name(timeline.names[key[0]])),
    Column("category", "Category", "category", ("category",), lambda _, rows: [rows["category"].astype(np.int64)],
           lambda _, key: _CATEGORIES[key[0]] if 0 <= key[0] < len(_CATEGORIES) else "other"),
    Column("track", "Track", "track", ("track",), lambda _, rows: [rows["track"].astype(np.int64)], _track),
    _of_track("group", "Process or GPU"), _of_track("kind", "Kind of track"),
    _stored_column("depth", "Depth"), _stored_column("device", "Device"), _stored_column("stream", "Stream"),
    _stored_column("grid", "Grid", "grid_x", "grid_y", "grid_z", kind="text"),
    _stored_column("block", "Block", "block_x", "block_y", "block_z", kind="text"),
    _stored_column("registers_per_thread", "Registers per thread"), _stored_column("smem_bytes", "Shared memory per block"),
    Column("occupancy_pct", "Occupancy (%)", "number", ("occupancy_pct",), _occupancy,
           lambda _, key: None if key[0] == NULL else key[0] / 10),
    _stored_column("bytes", "Bytes"),
    Column("operator", "Operator that launched it", "text", ("correlation", "external_id", "category"), _operator,
           lambda timeline, key: None if key[0] < 0 else timeline.names[key[0]]),
    Column("step_launched", "Step that launched it", "text", LAUNCHED_NEEDS,
           lambda timeline, rows: [steps_launched(timeline, rows)], lambda timeline, key: step_name(timeline, key[0])),
    Column("step_ran", "Step in which it began", "text", RAN_NEEDS,
           lambda timeline, rows: [steps_ran(timeline, rows)], lambda timeline, key: step_name(timeline, key[0])),
    _stored_column("correlation", "Correlation"), _stored_column("external_id", "External id"),
)}


def column(key: str) -> Column:
    """Return a column by its key. Raises UnknownColumn."""
    if key in COLUMNS:
        return COLUMNS[key]
    if key.startswith(ARGUMENT) and len(key) <= 200:
        return _argument(key.removeprefix(ARGUMENT))
    raise UnknownColumn(f"there is no column {key[:80]!r}; there are {', '.join(COLUMNS)} and arg:NAME")


def condition(text: str) -> tuple[str, Key]:
    """Parse what rows of a table say of themselves: "grid:4,2,1" -> ("grid", (4, 2, 1)).

    Raises UnknownColumn.
    """
    name, _, numbers = text.rpartition(":")
    key_column = column(name)
    width = len(key_column.needs) if key_column.key in ("grid", "block") else 1
    if not re.fullmatch(r"-?\d{1,19}(,-?\d{1,19})*", numbers) or numbers.count(",") != width - 1:
        raise UnknownColumn(f"{text[:80]!r} is not of the form column:number")
    return name, tuple(int(part) for part in numbers.split(","))


def _argument(name: str) -> Column:
    def codes(timeline: Timeline, rows: Rows) -> list[Array]:
        detail = rows["detail_id"].astype(np.int64)
        same = _canonical(timeline.profile_id, timeline.etag, name)
        return [np.where((detail >= 0) & (detail < same.size), same[np.clip(detail, 0, max(same.size - 1, 0))], -1)]

    def value(timeline: Timeline, key: Key) -> Any:
        return _text(_arguments(timeline, key[0]).get(name)) if key[0] >= 0 else None

    return Column(ARGUMENT + name, name, "text", ("detail_id",), codes, value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) or value is None else msgspec.json.encode(value).decode()


def _parse_arguments(text: str | None) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {"text": text}
    return values if isinstance(values, dict) else {"text": text}


def _arguments(timeline: Timeline, number: int) -> dict[str, Any]:
    with pq.ParquetFile(store.local_path(store.key(timeline.profile_id, "details.parquet"))) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if number < rows:
                return _parse_arguments(file.read_row_group(group, ["detail"])["detail"][number].as_py())
            number -= rows
    return {}


@lru_cache(maxsize=8)
def _canonical(profile_id: int, etag: str, name: str) -> Ints:
    """Detail id -> the first detail id with the same value of an argument, -1 where it has none."""
    first: dict[str, int] = {}
    out: list[int] = []
    with pq.ParquetFile(store.local_path(store.key(profile_id, "details.parquet"))) as file:
        if file.metadata.num_rows > DETAILS:
            raise UnknownColumn(f"this trace has {file.metadata.num_rows:,} different sets of arguments: more than the "
                                f"{DETAILS:,} that are looked through")
        for batch in file.iter_batches(50_000, columns=["detail"]):
            for text in batch["detail"].to_pylist():
                value = _text(_parse_arguments(text).get(name)) if text and name in text else None
                out.append(-1 if value is None else first.setdefault(value, len(out)))
    return np.array(out or [-1], np.int64)


@lru_cache(maxsize=32)
def argument_names(profile_id: int, etag: str) -> tuple[str, ...]:
    """Return the arguments that the trace's slices have, most frequent first.

    Of the first thousands of different ones.
    """
    counts: dict[str, int] = {}
    with pq.ParquetFile(store.local_path(store.key(profile_id, "details.parquet"))) as file:
        batch = next(file.iter_batches(_SAMPLED, columns=["detail"]), None)
        for text in batch["detail"].to_pylist() if batch is not None else []:
            for name in _parse_arguments(text):
                counts[name] = counts.get(name, 0) + 1
    return tuple(sorted((name for name in counts if len(name) <= 100), key=lambda name: -counts[name])[:100])


WINDOW_ROWS = 400_000           # slices that begin in a window, about
_BASE = ("track", "start_ns", "dur_ns", "instant")


@dataclass(frozen=True)
class Area:
    """What is asked about: [start_ns, end_ns) of some tracks (None: all), and which of the slices there."""

    start_ns: int
    end_ns: int
    tracks: tuple[int, ...] | None = None
    where: tuple[tuple[str, Key], ...] = ()     # (column, value's key): slices of a row of a table
    least_ns: int | None = None                 # duration within [least_ns, most_ns)
    most_ns: int | None = None

    def mask(self, timeline: Timeline) -> Bools:
        """Track number -> is it of the area."""
        mask = np.zeros(len(timeline.tracks), np.bool_)
        mask[range(len(timeline.tracks)) if self.tracks is None else list(self.tracks)] = True
        return mask

    def on(self, tracks: Bools) -> Area:
        """Return the same time on other tracks, every slice of them."""
        return Area(self.start_ns, self.end_ns, tuple(np.flatnonzero(tracks).tolist()))


@dataclass(frozen=True)
class Window:
    """Slices that overlap [start_ns, end_ns) as columns, by "slice" (their id), with "begin" and "end" clipped to the area."""

    start_ns: int
    end_ns: int
    done: float                 # share of the area's windows behind this one, 0-1
    rows: Rows
    first: Bools    # the window counts it: a slice that reaches over several is in each of them

    @property
    def counted_rows(self) -> Rows:
        return {name: values[self.first] for name, values in self.rows.items()}

    def clip_times(self) -> tuple[Array, Array]:
        """Return begin and end of each slice within the window."""
        return np.maximum(self.rows["begin"], self.start_ns), np.minimum(self.rows["end"], self.end_ns)


def windows(timeline: Timeline, area: Area, names: tuple[str, ...] = (), rows: int = WINDOW_ROWS) -> Iterator[Window]:
    """Yield the area's slices with their `names` (stored columns, of arguments too).

    Always at least one window.
    """
    needed = tuple(dict.fromkeys((*_BASE, *names, *(name for key, _ in area.where for name in column(key).needs))))
    drawn = tuple(name for name in needed if name in timeline.slices.names)
    extra_names = tuple(name for name in needed if name not in drawn)
    mask = area.mask(timeline)
    cuts = timeline.cuts(area.start_ns, area.end_ns, rows)
    for number, (start, end) in enumerate(cuts):
        parts = [_part(timeline, area, mask, span, (start, end), (drawn, extra_names)) for span in timeline.ranges(start, end)]
        part = _none(timeline, needed) if not parts else {
            name: np.concatenate([chunk[name] for chunk in parts]) for name in (*needed, "slice")}
        part["begin"] = np.maximum(part["start_ns"], area.start_ns)
        part["end"] = np.maximum(np.minimum(part["start_ns"] + part["dur_ns"], area.end_ns), part["begin"])
        first = part["start_ns"] >= start if number else np.ones(part["slice"].size, np.bool_)
        yield Window(start, end, (number + 1) / len(cuts), part, first)


def _part(timeline: Timeline, area: Area, mask: Bools, span: tuple[int, int], window: tuple[int, int],
          names: tuple[tuple[str, ...], tuple[str, ...]]) -> Rows:
    """Slices of one range of stored rows that overlap the window and that the area asks for."""
    lo, hi = span
    drawn, extra_names = names
    part = timeline.slices.read_uncached(lo, hi, drawn)
    # an instant, and a slice of no length, is where it is; others are on [start, end)
    keep = mask[part["track"]] & (part["start_ns"] < window[1]) & (part["start_ns"] + np.maximum(part["dur_ns"], 1) > window[0])
    if area.least_ns is not None:
        keep &= part["dur_ns"] >= area.least_ns
    if area.most_ns is not None:
        keep &= part["dur_ns"] < area.most_ns
    if not keep.any():
        said_part = {name: timeline.arguments.read(0, 0, (name,))[name] for name in extra_names}
        return {**{name: values[:0] for name, values in part.items()}, **said_part, "slice": np.empty(0, np.int64)}
    if extra_names:
        part |= timeline.arguments.read_uncached(lo, hi, extra_names)
    part = {name: values[keep] for name, values in part.items()} | {"slice": np.flatnonzero(keep) + lo}
    for name, key in area.where:
        same = column(name).equal(timeline, part, key)
        part = {name: values[same] for name, values in part.items()}
    return part


def _none(timeline: Timeline, names: tuple[str, ...]) -> Rows:
    empty = {name: (timeline.slices if name in timeline.slices.names else timeline.arguments).read(0, 0,
                                                                                                   (name,))[name] for name in names}
    return {**empty, "slice": np.empty(0, np.int64)}


def whole(timeline: Timeline) -> Area:
    """Return the whole trace: its last instant lies at its end."""
    return Area(0, int(timeline.document["end_ns"]) + 1)
