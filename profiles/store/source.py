"""What is inside the launches of a report, in the object store, one small object per launch and kind.

Under profiles/<id>/inside/: `<launch>-instructions.parquet` (trace.INSTRUCTIONS and a column per metric),
`<launch>-periodic.parquet` (trace.PERIODIC), `files.parquet` and `lines.parquet` (FILES, LINES: for queries), and
`index.json.gz`, written after them: source files with their text, and of every launch how many instructions and samples it
has, and NVIDIA's marks.
"""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.core.files.storage import default_storage

from profiles.ingest.trace import Report, SourceFile, SourceMark
from profiles.rows import json_safe
from profiles.store.columns import read_whole
from profiles.store.objects import replace_object

FILES = pa.schema([("number", pa.int32()), ("name", pa.string())])
LINES = pa.schema([("number", pa.int32()), ("line", pa.int32()), ("text", pa.string())])
Index = dict[int, "Inside"]


@dataclass(frozen=True)
class Inside:
    """What is stored of one launch."""

    instructions: int = 0
    samples: int = 0
    marks: tuple[SourceMark, ...] = ()


def key(profile_id: int, name: str) -> str:
    return f"profiles/{profile_id}/inside/{name}"


def inside_write(profile_id: int, report: Report) -> int:
    """Store what is inside the launches of a report; returns the stored bytes."""
    stored, launches = 0, {}
    for launch in report.launches:
        if launch.instructions is None and launch.periodic is None:
            continue
        rows = samples = 0
        if launch.instructions is not None:
            rows = launch.instructions.num_rows
            stored += _table_write(profile_id, f"{launch.index}-instructions.parquet", launch.instructions)
        if launch.periodic is not None:
            samples = launch.periodic.num_rows
            stored += _table_write(profile_id, f"{launch.index}-periodic.parquet", launch.periodic)
        launches[launch.index] = {"instructions": rows, "samples": samples, "marks": [asdict(mark) for mark in launch.marks]}
    if not launches:
        return stored
    stored += _table_write(profile_id, "files.parquet", pa.Table.from_pylist(
        [{"number": number, "name": file.name} for number, file in enumerate(report.files)], FILES))
    stored += _table_write(profile_id, "lines.parquet", pa.Table.from_pylist(
        [{"number": number, "line": line, "text": text} for number, file in enumerate(report.files)
         for line, text in enumerate((file.text or "").splitlines(), 1)], LINES))
    document = {"files": [asdict(file) for file in report.files], "launches": launches}
    packed = gzip.compress(json.dumps(json_safe(document), ensure_ascii=False).encode(), 6, mtime=0)
    return stored + replace_object(key(profile_id, "index.json.gz"), packed)


def _table_write(profile_id: int, name: str, table: pa.Table) -> int:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", write_statistics=False, store_schema=False)
    return replace_object(key(profile_id, name), out.getvalue())


def index_read(profile_id: int) -> tuple[list[SourceFile], Index]:
    """Return the source files by their number, and what is stored of which launch.

    Both empty where the report holds none.
    """
    try:
        with default_storage.open(key(profile_id, "index.json.gz"), "rb") as file:
            document: dict[str, Any] = json.loads(gzip.decompress(file.read()))
    except FileNotFoundError:
        return [], {}
    launches = {int(number): Inside(entry["instructions"], entry["samples"], tuple(SourceMark(**mark) for mark in entry["marks"]))
                for number, entry in document["launches"].items()}
    return [SourceFile(**entry) for entry in document["files"]], launches


def instructions_read(profile_id: int, launch: int) -> pa.Table | None:
    """Return INSTRUCTIONS of one launch with its metrics; None where none is stored."""
    return _table_read(profile_id, f"{launch}-instructions.parquet")


def periodic_read(profile_id: int, launch: int) -> pa.Table | None:
    """Return PERIODIC of one launch; None where none is stored."""
    return _table_read(profile_id, f"{launch}-periodic.parquet")


def _table_read(profile_id: int, name: str) -> pa.Table | None:
    try:
        with default_storage.open(key(profile_id, name), "rb") as file:
            return read_whole(file)
    except FileNotFoundError:
        return None
