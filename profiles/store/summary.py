"""Tables of a `Summary` in the object store: tables.json.gz, one object, as small as what the tool printed."""

from __future__ import annotations

import gzip
import json
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from profiles.ingest.trace import Summary
from profiles.rows import json_safe

CELL_CHARS = 4_000


def key(profile_id: int) -> str:
    return f"profiles/{profile_id}/tables.json.gz"


def write_summary(profile_id: int, summary: Summary) -> int:
    """Store the tables; returns the stored bytes. Overwrites what an earlier ingest left."""
    tables = [{
        "title": table.title[:CELL_CHARS], "note": table.note[:CELL_CHARS],
        "columns": [{"name": each.name[:CELL_CHARS], "unit": each.unit, "text": each.text} for each in table.columns],
        "rows": [[cell[:CELL_CHARS] if isinstance(cell, str) else cell for cell in row] for row in table.rows],
    } for table in summary.tables]
    packed = gzip.compress(json.dumps(json_safe(tables), ensure_ascii=False).encode(), 6, mtime=0)
    if default_storage.exists(key(profile_id)):
        default_storage.delete(key(profile_id))
    default_storage.save(key(profile_id), ContentFile(packed))
    return len(packed)


def tables_of(profile_id: int) -> list[dict[str, Any]]:
    """Return the stored tables, empty where there are none.

    [{"title", "note", "columns": [{"name", "unit", "text"}], "rows"}].
    """
    try:
        with default_storage.open(key(profile_id), "rb") as file:
            tables: list[dict[str, Any]] = json.loads(gzip.decompress(file.read()))
    except FileNotFoundError:
        return []
    return tables
