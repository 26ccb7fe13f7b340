"""What a search asks of a slice: a text or a pattern in its name, or something about its arguments."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.ingest.arrays import Bools
from profiles.store import trace as store
from profiles.store.columns import read_whole
from profiles.store.timeline import Timeline

MODES = ("name", "regex", "argument")
NAMES_TOLD = 20_000                 # matched names that an answer lists
PATTERN_CHARACTERS = 500
_READ_THROUGH = 200_000             # distinct arguments whose JSON is parsed; of more the text decides
_NUMBER = re.compile(r"\s*([a-z_]+)\s*(>=|<=|=|>|<)\s*(-?[0-9]+(?:\.[0-9]+)?)\s*", re.IGNORECASE)
_KEY = re.compile(r"\s*([^=]{1,200}?)\s*=(.*)", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
_COLUMNS = {"correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
            "registers_per_thread", "smem_bytes", "occupancy_pct", "bytes"}
_SPELLED = {"registers": "registers_per_thread", "shared memory": "smem_bytes", "external id": "external_id",
            "occupancy": "occupancy_pct"}


class Terms:
    """`match` says which rows of a range are hits; `names` are the ids of the names that match (None: not a matter of names)."""

    def __init__(self, timeline: Timeline, text: str, mode: str) -> None:
        self.names: list[int] | None = None
        self.nothing = False                # no slice can be a hit
        self._compared: tuple[str, Callable[[Any, Any], Any], float] | None = None
        self._wanted: Bools = np.zeros(0, np.bool_)
        self._column = "name_id"
        if mode == "argument":
            self._argument(timeline, text)
        else:
            self._wanted = _matching(pa.array(timeline.names, pa.string()), text, mode == "regex")
            hits = np.flatnonzero(self._wanted)
            self.names = hits.tolist() if hits.size <= NAMES_TOLD else None
            self.nothing = not hits.size

    def _argument(self, timeline: Timeline, text: str) -> None:
        number = _NUMBER.fullmatch(text)
        column = _SPELLED.get(number[1].lower(), number[1].lower()) if number else ""
        if number and column in _COLUMNS:
            self._compared = (column, _COMPARE[number[2]], float(number[3]))
            return
        self._column = "detail_id"
        table = read_whole(store.local_path(store.key(timeline.profile_id, "details.parquet")), columns=["detail"])
        self._wanted = _details(table["detail"].combine_chunks(), text)
        self.nothing = not self._wanted.any()

    def match(self, timeline: Timeline, lo: int, hi: int) -> Bools:
        """Return which of the rows [lo, hi) of the stored slices are hits."""
        if self._compared:
            column, compare, wanted = self._compared
            values = timeline.arguments.read_uncached(lo, hi, (column,))[column]
            known = np.isfinite(values) if values.dtype.kind == "f" else values != np.iinfo(values.dtype).min
            mask: Bools = known & compare(values, wanted)
            return mask
        table = timeline.slices if self._column == "name_id" else timeline.arguments
        ids = table.read_uncached(lo, hi, (self._column,))[self._column]
        return self._wanted[ids] if self._column == "name_id" else (ids >= 0) & self._wanted[np.maximum(ids, 0)]


def _matching(texts: pa.Array, text: str, is_pattern: bool) -> Bools:
    """Raises ValueError where a pattern does not compile (RE2: no back references, time linear in the text)."""
    if not len(texts):
        return np.zeros(0, np.bool_)
    if is_pattern and len(text) > PATTERN_CHARACTERS:
        raise ValueError(f"A pattern may have {PATTERN_CHARACTERS} characters.")
    try:
        hits = pc.match_substring_regex(texts, text) if is_pattern else pc.match_substring(texts, text, ignore_case=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"Not a valid regular expression: {str(error).removeprefix('Invalid regular expression: ')}.") from None
    mask: Bools = hits.fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


def _details(texts: pa.Array, text: str) -> Bools:
    """Arguments (JSON texts) that hold the text anywhere, or under `key=` the value."""
    pair = _KEY.fullmatch(text)
    if not pair:
        return _matching(texts, text, False)
    key, value = pair[1].lower(), pair[2].strip().lower()
    mask = _matching(texts, f'"{pair[1]}"', False)
    if value:
        mask &= _matching(texts, json.dumps(value)[1:-1], False)
    rows = np.flatnonzero(mask)
    if rows.size <= _READ_THROUGH:
        for row, each in zip(rows.tolist(), texts.take(pa.array(rows)).to_pylist(), strict=True):
            mask[row] = _holds(each, key, value)
    return mask


def _holds(text: str, key: str, value: str) -> bool:
    try:
        pairs = json.loads(text, strict=False)
    except ValueError:
        return True                         # no JSON: the text said so
    if not isinstance(pairs, dict):
        return False
    return any(name.lower() == key and value in (held if isinstance(held, str) else json.dumps(held)).lower()
               for name, held in pairs.items())
