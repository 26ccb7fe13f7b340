"""The objects of a profile, or of a capture, as a whole: everything lies under one prefix. And how bytes come in.

Small documents are one JSON object each: tables of sums, topics' results, what people typed. LAUNCHES is one small Parquet object.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import logging
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from django.conf import settings
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import ContentFile, File
from django.core.files.storage import default_storage
from django.utils.text import get_valid_filename

from profiles.analysis.compare.comparison import LAUNCHES
from profiles.ingest.trace import Summary, TraceError
from profiles.rows import json_safe, text

log = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20


def prefix(profile_id: int) -> str:
    return f"profiles/{profile_id}"


def capture_prefix(capture_id: int) -> str:
    return f"captures/{capture_id}"


def plain_name(file: File[bytes]) -> str:
    """Return the name of an incoming file without folders."""
    return PurePosixPath(str(file.name or "upload").replace("\\", "/")).name


def bytes_digest(file: File[bytes]) -> tuple[str, int]:
    """Read a file through; return the SHA-256 of its bytes in hex, and their number.

    The bound on uploads holds whatever size the client announced. Raises TraceError.
    """
    digest, size = hashlib.sha256(), 0
    file.seek(0)
    while chunk := file.read(_CHUNK_BYTES):
        size += len(chunk)
        if size > settings.UPLOAD_MAX_BYTES:
            raise TraceError(str(file.name), f"more than {settings.UPLOAD_MAX_BYTES:,} bytes", "record fewer steps")
        digest.update(chunk)
    file.seek(0)
    return digest.hexdigest(), size


def safe_name(file: File[bytes]) -> str:
    """Return the name of an incoming file as a key may end with."""
    try:
        return get_valid_filename(text(plain_name(file)))[-120:]
    except SuspiciousFileOperation:       # nothing valid is left of the name
        return "upload"


def bytes_store(folder: str, file: File[bytes]) -> dict[str, Any]:
    """Store a file in `folder`; return {"key", "name", "bytes", "sha256"}. Raises TraceError, as `bytes_digest` does."""
    sha256, size = bytes_digest(file)
    key = default_storage.save(f"{folder}/{safe_name(file)}", file)
    return {"key": key, "name": text(plain_name(file), 300), "bytes": size, "sha256": sha256}


def capture_objects_delete(capture_id: int) -> None:
    """Remove the files that were kept of a capture."""
    _delete(capture_prefix(capture_id), keep=())


def objects_delete(profile_id: int) -> None:
    """Remove everything that is stored for this profile alone; its upload is released (profiles.upload.files_services)."""
    _delete(prefix(profile_id), keep=())


def folder_delete(folder: str) -> None:
    """Remove all objects below a folder."""
    _delete(folder, keep=())


def derived_delete(profile_id: int) -> None:
    """Remove what an ingest wrote; the upload and what people typed stay."""
    _delete(prefix(profile_id), keep=("upload", "typed"))


def _delete(folder: str, keep: tuple[str, ...]) -> None:
    try:
        folders, files = default_storage.listdir(folder)
    except FileNotFoundError:
        return
    for name in files:
        default_storage.delete(f"{folder}/{name}")
    for name in folders:
        if name not in keep:
            _delete(f"{folder}/{name}", keep=())
    if not keep:
        # a folder store keeps the empty folder; a bucket has none to remove
        with suppress(OSError):
            default_storage.delete(folder)


CELL_CHARS = 4_000
MOST_TYPED_BYTES = 1_000_000


def replace_object(key: str, content: bytes) -> int:
    """Store an object in place of one that has its key; return the stored bytes."""
    if default_storage.exists(key):
        default_storage.delete(key)
    default_storage.save(key, ContentFile(content))
    return len(content)


def _tables_key(profile_id: int) -> str:
    return f"profiles/{profile_id}/tables.json.gz"


def write_summary(profile_id: int, summary: Summary) -> int:
    """Store the tables, as small as what the tool printed; return the stored bytes."""
    tables = [{
        "title": table.title[:CELL_CHARS], "note": table.note[:CELL_CHARS],
        "columns": [{"name": column.name[:CELL_CHARS], "unit": column.unit, "text": column.text} for column in table.columns],
        "rows": [[cell[:CELL_CHARS] if isinstance(cell, str) else cell for cell in row] for row in table.rows],
    } for table in summary.tables]
    return replace_object(_tables_key(profile_id),
                          gzip.compress(json.dumps(json_safe(tables), ensure_ascii=False).encode(), 6, mtime=0))


def tables_of(profile_id: int) -> list[dict[str, Any]]:
    """Return the stored tables, empty where there are none.

    [{"title", "note", "columns": [{"name", "unit", "text"}], "rows"}].
    """
    try:
        with default_storage.open(_tables_key(profile_id), "rb") as file:
            tables: list[dict[str, Any]] = json.loads(gzip.decompress(file.read()))
    except FileNotFoundError:
        return []
    return tables


# What the topics' analyses found: one object per topic, made again when it is of another version of the analysis or of the trace.


def _topic_key(profile_id: int, topic: str) -> str:
    return f"profiles/{profile_id}/topics/{topic}.json.gz"


def topic_read(profile_id: int, topic: str, version: int, written: int) -> dict[str, Any] | None:
    """Return the document of this version of the analysis, or None.

    `written` names what of the trace it must be of.
    """
    try:
        with default_storage.open(_topic_key(profile_id, topic), "rb") as file:
            document: dict[str, Any] = json.loads(gzip.decompress(file.read()))
    except (FileNotFoundError, EOFError, OSError, ValueError):
        return None
    return document if (document.get("version"), document.get("written")) == (version, written) else None


def topic_write(profile_id: int, topic: str, document: dict[str, Any]) -> None:
    replace_object(_topic_key(profile_id, topic),
                   gzip.compress(json.dumps(document, ensure_ascii=False, allow_nan=False).encode(), 5, mtime=0))


# What people typed of a profile's kernels: the operator's shape where the trace tells none, by name.


def _typed_key(profile_id: int) -> str:
    return f"profiles/{profile_id}/typed/work.json"


def typed_read(profile_id: int) -> dict[str, dict[str, Any]]:
    """Return {kernel: {"operator", "dims", "dtype"}}, {} where nobody typed any."""
    try:
        with default_storage.open(_typed_key(profile_id), "rb") as file:
            document = json.loads(file.read(MOST_TYPED_BYTES))
    except (FileNotFoundError, OSError, ValueError):
        return {}
    return {str(kernel): work for kernel, work in document.items() if isinstance(work, dict)} if isinstance(document, dict) else {}


def typed_write(profile_id: int, document: dict[str, dict[str, Any]]) -> None:
    if document:
        replace_object(_typed_key(profile_id), json.dumps(document, ensure_ascii=False).encode())
    elif default_storage.exists(_typed_key(profile_id)):
        default_storage.delete(_typed_key(profile_id))


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
