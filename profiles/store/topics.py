"""What the topics' analyses found, kept beside the trace: one small JSON object per topic, made again when it is of another
version of the analysis or of the trace."""

from __future__ import annotations

import gzip
import json
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage


def _key(profile_id: int, topic: str) -> str:
    return f"profiles/{profile_id}/topics/{topic}.json.gz"


def topic_read(profile_id: int, topic: str, version: int, written: int) -> dict[str, Any] | None:
    """Return the document of this version of the analysis, or None.

    `written` names what of the trace it must be of.
    """
    try:
        with default_storage.open(_key(profile_id, topic), "rb") as file:
            document: dict[str, Any] = json.loads(gzip.decompress(file.read()))
    except (FileNotFoundError, EOFError, OSError, ValueError):
        return None
    return document if (document.get("version"), document.get("written")) == (version, written) else None


def topic_write(profile_id: int, topic: str, document: dict[str, Any]) -> None:
    packed = gzip.compress(json.dumps(document, ensure_ascii=False, allow_nan=False).encode(), 5, mtime=0)
    if default_storage.exists(_key(profile_id, topic)):
        default_storage.delete(_key(profile_id, topic))
    default_storage.save(_key(profile_id, topic), ContentFile(packed))
