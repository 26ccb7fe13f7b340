"""The tables of a stored trace: rows of all levels wait on disk while windows pass, then each table is one Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from profiles.analysis.core.tiles import BIN_BITS, LEVEL_BITS, Levels, Table
from profiles.ingest.arrays import Array
from profiles.ingest.scratch import Spool
from profiles.ingest.windows import MISSING, MISSING32

ROW_GROUP = 16_384                   # of what tiles read: small pieces decode in a millisecond
INDEX_STRIDE = 1024
DRAWN = {"track": "track", "depth": "depth", "start_ns": "start_ns", "dur_ns": "dur_ns", "name_id": "name", "category": "category",
         "instant": "instant"}
ARGUMENTS = ("correlation", "external_id", "device", "stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y",
             "block_z", "registers_per_thread", "smem_bytes", "occupancy_pct", "bytes")
_SLICES = {**DRAWN, **{name: name for name in ARGUMENTS}, "detail_id": "detail"}
_BINS = {**DRAWN, "count": "count", "busy_ns": "busy_ns", "place": "place"}
_DELTA = "DELTA_BINARY_PACKED"


class TraceTables:
    """`add` windows' columns in order of time; `encode` writes slices, arguments, bins and index into a folder."""

    def __init__(self, top: int) -> None:
        self.levels = Levels(top, self._keep)
        self._spool = Spool()
        self._parts: dict[tuple[int, int], list[tuple[int, dict[str, tuple[int, Any]]]]] = {}
        self._rows = {(kind, level): 0 for kind in (0, 1) for level in range(top + 1)}
        self._index: dict[tuple[int, int], list[dict[str, Array]]] = {}

    def _keep(self, kind: int, level: int, table: Table) -> None:
        columns = _SLICES if kind == 0 else _BINS
        place = {stored: (self._spool.write(table[name]), table[name].dtype) for stored, name in columns.items()}
        rows = table["start_ns"].size
        self._parts.setdefault((kind, level), []).append((rows, place))
        first = self._rows[kind, level]
        self._rows[kind, level] += rows
        sampled = np.arange(-first % INDEX_STRIDE, rows, INDEX_STRIDE)
        self._index.setdefault((kind, level), []).append({
            "tile": table["start_ns"][sampled] >> (2 * level + BIN_BITS), "track": table["track"][sampled],
            "depth": table["depth"][sampled], "row": first + sampled})

    def bases(self, kind: int) -> list[int]:
        """Return the first row of every level, and the number of rows."""
        return [0, *np.cumsum([self._rows[kind, level] for level in range(self.levels.top + 1)]).tolist()]

    def encode(self, folder: Path, done: Callable[[int], None]) -> None:
        """Write the three tables into `folder`, side by side.

        Encoding and compression leave the interpreter free.
        """
        slice_base = np.array(self.bases(0), np.int64)

        def bins(table: dict[str, Array]) -> dict[str, Array]:
            place = table.pop("place")
            table["slice"] = (slice_base[place >> LEVEL_BITS] + (place & ((1 << LEVEL_BITS) - 1))).astype(np.uint32)
            table["count"] = table["count"].astype(np.uint32)
            return table

        jobs: list[tuple[str, int, tuple[str, ...], Callable[[dict[str, Array]], Any], list[str], int]] = [
            ("arguments", 0, (*ARGUMENTS, "detail_id"), _nullable, ["correlation", "external_id"], 4 * ROW_GROUP),
            ("slices", 0, tuple(DRAWN), dict, ["start_ns"], ROW_GROUP),
            ("bins", 1, tuple(_BINS), bins, ["start_ns", "slice", "busy_ns"], ROW_GROUP)]
        with ThreadPoolExecutor(2, thread_name_prefix="encode") as pool:
            written: list[Future[None]] = [
                pool.submit(self._encode, folder / f"{name}.parquet", kind, columns, change, delta, group,
                            done if name == "slices" else None) for name, kind, columns, change, delta, group in jobs]
        for future in written:
            future.result()
        write_parquet(folder / "index.parquet", self._index_table(), ["tile", "row"], 1 << 20)

    def _encode(self, path: Path, kind: int, columns: tuple[str, ...], change: Callable[[dict[str, Array]], Any],
                delta: list[str], group: int, done: Callable[[int], None] | None) -> None:
        rows = 0
        with GroupedParquet(path, delta, group) as out:
            for table in self._read(kind, columns):
                rows += table["start_ns"].size if "start_ns" in table else 0
                out.write(pa.table(change(table)))
                if done:
                    done(rows)
            if not out.rows:
                out.write(pa.table(change({name: np.empty(0, kind) for name, kind in _kinds(columns).items()})))

    def _read(self, kind: int, columns: tuple[str, ...]) -> Iterator[dict[str, Array]]:
        """Rows of the levels one after the other, in pieces."""
        for level in range(self.levels.top + 1):
            for rows, place in self._parts.get((kind, level), ()):
                for first in range(0, rows, 4 * ROW_GROUP):
                    count = min(4 * ROW_GROUP, rows - first)
                    yield {name: self._spool.read(place[name][0] + first * place[name][1].itemsize, count, place[name][1])
                           for name in columns}

    def _index_table(self) -> pa.Table:
        parts = []
        for kind in (0, 1):
            base = self.bases(kind)
            for level in range(self.levels.top + 1):
                for part in self._index.get((kind, level), ()):
                    n = part["row"].size
                    parts.append({"table": np.full(n, kind, np.int8), "level": np.full(n, level, np.int8), **part,
                                  "row": part["row"] + base[level]})
        if not parts:
            return pa.table({"table": pa.array([], pa.int8()), "level": pa.array([], pa.int8()), "tile": pa.array([], pa.int64()),
                             "track": pa.array([], pa.int32()), "depth": pa.array([], pa.int16()), "row": pa.array([], pa.int64())})
        return pa.table({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _kinds(columns: tuple[str, ...]) -> dict[str, Any]:
    """Of a table without rows."""
    kinds = {"track": np.int32, "depth": np.int16, "name_id": np.int32, "category": np.uint8, "instant": np.bool_,
             "device": np.int32, "registers_per_thread": np.int32, "occupancy_pct": np.float32, "detail_id": np.int32}
    return {name: kinds.get(name, np.int32 if name[:-2] in ("grid", "block") else np.int64) for name in columns}


def _nullable(table: dict[str, Array]) -> dict[str, pa.Array]:
    """Numbers that are unknown as nulls."""
    out = {}
    for name, values in table.items():
        absent = values < 0 if name == "detail_id" else np.isnan(values) if values.dtype.kind == "f" else \
            values == (MISSING32 if values.dtype == np.int32 else MISSING)
        out[name] = pa.array(values, mask=absent)
    return out


class GroupedParquet:
    """A Parquet file whose row groups all have the same size but the last."""

    def __init__(self, path: Path, delta: list[str], group: int) -> None:
        self._path, self._delta, self._group = path, delta, group
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._count = self.rows = 0

    def __enter__(self) -> GroupedParquet:
        return self

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            plain = [name for name in table.column_names if name not in self._delta]
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="zstd", compression_level=3, use_dictionary=plain,
                column_encoding=dict.fromkeys(self._delta, _DELTA), write_statistics=True)
        self._waiting.append(table)
        self._count += table.num_rows
        self.rows += table.num_rows
        if self._count >= 4 * self._group:
            self._flush(self._count // self._group * self._group)

    def _flush(self, count: int) -> None:
        whole = pa.concat_tables(self._waiting)
        if self._writer is not None:
            self._writer.write_table(whole.slice(0, count), row_group_size=self._group)
        self._waiting, self._count = [whole.slice(count)], whole.num_rows - count

    def __exit__(self, *error: Any) -> None:
        if self._count and not error[0]:
            self._flush(self._count)
        if self._writer is not None:
            self._writer.close()


def write_parquet(path: Path, table: pa.Table, delta: list[str], group: int) -> None:
    with GroupedParquet(path, delta, group) as out:
        for first in range(0, max(table.num_rows, 1), 16 * group):
            out.write(table.slice(first, 16 * group))
