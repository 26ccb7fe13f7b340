"""The objects of a profile in the store, as a whole: everything lies under one prefix."""

from __future__ import annotations

import logging
from contextlib import suppress

from django.core.files.storage import default_storage

log = logging.getLogger(__name__)


def prefix(profile_id: int) -> str:
    return f"profiles/{profile_id}"


def objects_delete(profile_id: int) -> None:
    """Remove the upload and everything derived from it."""
    _delete(prefix(profile_id), keep=())


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
