"""The objects of a profile, or of a capture, as a whole: everything lies under one prefix. And how bytes come in."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from django.conf import settings
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.utils.text import get_valid_filename

from profiles.ingest.trace import TraceError
from profiles.rows import text

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
