"""What people typed of a profile's kernels: the operator's shape where the trace tells none. A small JSON object, by name."""

from __future__ import annotations

import json
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

MOST_BYTES = 1_000_000


def _key(profile_id: int) -> str:
    return f"profiles/{profile_id}/typed/work.json"


def typed_read(profile_id: int) -> dict[str, dict[str, Any]]:
    """Return {kernel: {"operator", "dims", "dtype"}}, {} where nobody typed any."""
    try:
        with default_storage.open(_key(profile_id), "rb") as file:
            document = json.loads(file.read(MOST_BYTES))
    except (FileNotFoundError, OSError, ValueError):
        return {}
    return {str(kernel): said for kernel, said in document.items() if isinstance(said, dict)} if isinstance(document, dict) else {}


def typed_write(profile_id: int, document: dict[str, dict[str, Any]]) -> None:
    if default_storage.exists(_key(profile_id)):
        default_storage.delete(_key(profile_id))
    if document:
        default_storage.save(_key(profile_id), ContentFile(json.dumps(document, ensure_ascii=False).encode()))
