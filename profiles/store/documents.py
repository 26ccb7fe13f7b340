"""Small documents of a profile in the object store, each one JSON object: tables of sums, topics' results, what people typed."""

from __future__ import annotations

import gzip
import json
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from profiles.ingest.trace import Summary
from profiles.rows import json_safe

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
        "columns": [{"name": each.name[:CELL_CHARS], "unit": each.unit, "text": each.text} for each in table.columns],
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
    return {str(kernel): said for kernel, said in document.items() if isinstance(said, dict)} if isinstance(document, dict) else {}


def typed_write(profile_id: int, document: dict[str, dict[str, Any]]) -> None:
    if document:
        replace_object(_typed_key(profile_id), json.dumps(document, ensure_ascii=False).encode())
    elif default_storage.exists(_typed_key(profile_id)):
        default_storage.delete(_typed_key(profile_id))
