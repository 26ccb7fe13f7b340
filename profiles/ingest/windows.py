"""The slices of a trace as columns: the schema of the whole table, and windows of it for traces that are never held whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from typing import Protocol

import numpy as np
import pyarrow as pa

from profiles.ingest.arrays import Array, Int32

# ---- keep pandas out of this process ----
# pyarrow imports pandas, where it is installed (Bokeh needs it), at the first conversion, to recognise its objects: 0.14 s of every
# process, for objects that Ridgepoint never makes. pyarrow asks once; that it was told no leaves later imports as they are.

class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("not asked for", name=name)
        return None


def keep_pandas_out() -> None:
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(_NoPandas)


# ---- the slices of a trace as columns ----

keep_pandas_out()
_name = pa.dictionary(pa.int32(), pa.string())
# One row per slice (or instant: dur_ns 0 and instant true), ordered by start_ns; the row number is the slice's id
# until the store reorders it.
SLICES = pa.schema([
    ("start_ns", pa.int64()),
    ("dur_ns", pa.int64()),
    ("name", _name),
    ("category", pa.uint8()),
    ("track", pa.int32()),              # index into Trace.tracks
    ("depth", pa.int16()),              # lane within the track: nesting, or overflow lane where slices overlap
    ("instant", pa.bool_()),
    ("correlation", pa.int64()),        # launch call <-> GPU work (one call may own many)
    ("external_id", pa.int64()),        # operator <-> GPU work
    ("device", pa.int32()),
    ("stream", pa.int64()),
    ("grid_x", pa.int32()), ("grid_y", pa.int32()), ("grid_z", pa.int32()),
    ("block_x", pa.int32()), ("block_y", pa.int32()), ("block_z", pa.int32()),
    ("registers_per_thread", pa.int32()),
    ("smem_bytes", pa.int64()),         # static + dynamic, per block
    ("occupancy_pct", pa.float32()),    # 0-100, as the file states it
    ("bytes", pa.int64()),              # moved by a copy, a set or a collective
    ("detail", _name),                  # the remaining arguments worth showing, as JSON text (shapes, dtypes, collective)
])

MISSING = -(2**63)          # an unknown number in a Window; -2**31 in its int32 columns
MISSING32 = -(2**31)
_INT32 = tuple(column.name for column in SLICES if column.type == pa.int32() and column.name != "track")


@dataclass(frozen=True)
class Window:
    """Slices that begin within a stretch of time, ordered by start, as numpy columns named as in SLICES.

    `name` and `detail` are indices into the trace's lists (-1: none); unknown numbers are MISSING, MISSING32 or NaN.
    """

    columns: dict[str, Array]
    end_ns: int                              # behind the last start
    more: bool = False                       # later windows may begin at this one's last start: too many begin there

    @property
    def next_ns(self) -> int:
        """Slices of later windows do not begin before."""
        return self.end_ns - self.more

    def __len__(self) -> int:
        return len(self.columns["start_ns"])


class Slices(Protocol):
    """Slices of a trace that are read in windows, never whole. Names and details are lists of distinct texts."""

    @property
    def rows(self) -> int: ...

    @property
    def names(self) -> list[str]: ...

    @property
    def details(self) -> Sequence[str]: ...

    @property
    def end_ns(self) -> int:
        """Return the end of the slice that ends last."""
        ...

    @property
    def devices(self) -> list[int]:
        """Return the numbers of the GPUs that slices name, ascending."""
        ...

    def windows(self) -> Iterator[Window]: ...


class TableSlices:
    """Slices that are one table in memory, ordered by start."""

    def __init__(self, table: pa.Table) -> None:
        self.rows = table.num_rows
        self._table = table
        self._ids: dict[str, Int32] = {}
        self.names, self.details = self._texts("name"), self._texts("detail")
        start, dur = (table[name].to_numpy() for name in ("start_ns", "dur_ns"))
        self.end_ns = int((start + dur).max()) if len(start) else 0
        self.devices: list[int] = sorted(device for device in table["device"].unique().to_pylist() if device is not None)

    def _texts(self, column: str) -> list[str]:
        encoded = self._table[column].unify_dictionaries().combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.chunk(0) if encoded.num_chunks else pa.array([], _name)
        self._ids[column] = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
        texts: list[str] = encoded.dictionary.to_pylist()
        return texts

    def windows(self) -> Iterator[Window]:
        if self.rows:
            columns = {name: self._column(name) for name in SLICES.names}
            yield Window(columns, int(columns["start_ns"][-1]) + 1)

    def _column(self, name: str) -> Array:
        if name in self._ids:
            return self._ids[name]
        column = self._table[name].combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        if column.null_count:
            column = column.fill_null(float("nan") if name == "occupancy_pct" else False if name == "instant"
                                      else MISSING32 if name in _INT32 else MISSING)
        values: Array = column.to_numpy(zero_copy_only=False)
        return values


def table_of(slices: Slices) -> pa.Table:
    """Return all windows as one SLICES table."""
    parts = [window.columns for window in slices.windows()]
    if not parts:
        return SLICES.empty_table()
    columns = {name: np.concatenate([part[name] for part in parts]) for name in SLICES.names}
    return pa.Table.from_arrays([_arrow(name, columns[name], slices) for name in SLICES.names], schema=SLICES)


def _arrow(name: str, values: Array, slices: Slices) -> pa.Array:
    if name in ("name", "detail"):
        texts = slices.names if name == "name" else list(slices.details)
        used = np.unique(values[values >= 0])
        place = np.full(len(texts) + 1, -1, np.int32)
        place[used] = np.arange(used.size)
        ids = place[values]
        return pa.DictionaryArray.from_arrays(pa.array(ids, mask=ids < 0), pa.array([texts[i] for i in used.tolist()], pa.string()))
    kind = SLICES.field(name).type
    if name == "occupancy_pct":
        return pa.array(values, kind, mask=np.isnan(values))
    if name in _INT32 or (kind == pa.int64() and name not in ("start_ns", "dur_ns")):
        return pa.array(values, kind, mask=values == (MISSING32 if name in _INT32 else MISSING))
    return pa.array(values, kind)
