"""LAUNCHES of a profile in the object store: one small Parquet object."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from django.core.files.storage import default_storage

from profiles.analysis.compare.launches import LAUNCHES
from profiles.store.documents import replace_object


def key(profile_id: int) -> str:
    return f"profiles/{profile_id}/launches.parquet"


def launches_write(profile_id: int, launches: pa.Table) -> int:
    """Returns the stored bytes."""
    out = io.BytesIO()
    pq.write_table(launches, out, compression="zstd", row_group_size=1 << 20, store_schema=False,
                   column_encoding={"index": "DELTA_BINARY_PACKED"},
                   use_dictionary=[name for name in LAUNCHES.names if name not in ("index", "dur_ns")])
    return replace_object(key(profile_id), out.getvalue())


def launches_read(profile_id: int) -> pa.Table:
    """LAUNCHES with a time; an empty table where the profile has none stored."""
    try:
        with default_storage.open(key(profile_id), "rb") as file:
            table = pq.read_table(pa.BufferReader(file.read()))
    except FileNotFoundError:
        return LAUNCHES.empty_table()
    return table.filter(pc.is_valid(table["dur_ns"])).cast(LAUNCHES).combine_chunks()
