"""What slices can be grouped and chosen by: stored columns, what their tracks say, and any argument of theirs.

A value has a key of whole numbers that stays the same for a stored trace, so that a link can name it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
from profiles.store.operators import operator_names
from profiles.store.related import LAUNCHED_NEEDS, RAN_NEEDS, step_name, steps_launched, steps_ran
from profiles.store.timeline import Timeline

Rows = dict[str, Array]
Key = tuple[int, ...]
NULL = -(2**63)
DETAILS = 3_000_000                 # distinct arguments that are looked through for one key
_SAMPLED = 20_000                   # of which the names of keys are taken
ARGUMENT = "arg:"
_CATEGORIES = [each.name.lower() for each in Category]


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
        for values, wanted in zip(self.codes(timeline, rows), key, strict=True):
            same &= values == wanted
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
    known = column(name)
    width = len(known.needs) if known.key in ("grid", "block") else 1
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
