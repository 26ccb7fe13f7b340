"""Uploaded bytes in the object store, the same ones once: who sends a file again gets a row that names the stored one.

The row of the bytes is locked while they are stored, linked or released, so that two uploads at once store one object, and none
is deleted that another upload is about to use.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import transaction

from profiles.models import Profile, StoredUpload
from profiles.rows import text
from profiles.store.objects import bytes_digest, folder_delete, objects_delete, plain_name, safe_name


def uploads_store(profile: Profile, files: Sequence[File[bytes]]) -> list[dict[str, Any]]:
    """Store the files of a saved profile; return {"key", "name", "bytes", "sha256"} of each, in their order.

    To be called in a transaction. Raises TraceError for a file beyond the bound on uploads, with nothing stored.
    """
    digests = [bytes_digest(file) for file in files]
    rows: dict[str, StoredUpload] = {}
    saved: list[str] = []
    try:
        for sha256, pos in sorted({sha256: pos for pos, (sha256, _) in enumerate(digests)}.items()):      # one order: no deadlock
            row = rows[sha256] = _hold(*digests[pos])
            if not row.key or not default_storage.exists(row.key):
                key = row.key or f"{StoredUpload.FOLDER}/{uuid.uuid4().hex}/{safe_name(files[pos])}"
                saved.append(key)               # before: a disk that fills up leaves a part of it
                row.key = default_storage.save(key, files[pos])
                row.save(update_fields=["key"])
        profile.stored_uploads.set(rows.values())
    except BaseException:
        for key in saved:
            _object_delete(key)
        raise
    return [{"key": rows[sha256].key, "name": text(plain_name(file), 300), "bytes": size, "sha256": sha256}
            for file, (sha256, size) in zip(files, digests, strict=True)]


def _hold(sha256: str, size: int) -> StoredUpload:
    """Return the row of these bytes, locked: that of an earlier upload, or a new one without a key."""
    while True:             # between the two statements another transaction may have released it
        StoredUpload.objects.bulk_create([StoredUpload(sha256=sha256, bytes=size)], ignore_conflicts=True)
        row = StoredUpload.objects.select_for_update().filter(sha256=sha256).first()
        if row is not None:
            return row


def uploads_discard(profile: Profile) -> None:
    """Remove the objects of a profile whose row was rolled back. Those that a row names stay."""
    objects_delete(profile.pk)
    keys = {entry["key"] for entry in profile.metadata.get("files", [])} | {profile.upload_key}
    for key in keys - set(StoredUpload.objects.filter(key__in=keys).values_list("key", flat=True)):
        if key.startswith(f"{StoredUpload.FOLDER}/"):
            _object_delete(key)


def uploads_release(ids: Iterable[int], *, wait: bool = True) -> None:
    """Delete those of these rows that no profile uses any more, and their objects when that is committed.

    `wait`: for uploads of the same bytes that are under way; without it their rows are left alone.
    """
    for pk in StoredUpload.objects.filter(pk__in=ids).order_by("sha256").values_list("pk", flat=True):     # as they are stored
        with transaction.atomic():
            row = StoredUpload.objects.select_for_update(skip_locked=not wait).filter(pk=pk).first()
            if row is None or row.profiles.through._default_manager.filter(storedupload_id=pk).exists():
                continue
            key = row.key
            row.delete()
            transaction.on_commit(lambda key=key: _object_delete(key), robust=True)      # type: ignore[misc]


def uploads_sweep() -> None:
    """Release what no profile uses, left by rows that went with others or by a restored backup."""
    uploads_release(list(StoredUpload.objects.filter(profiles=None).values_list("pk", flat=True)[:1000]), wait=False)


def _object_delete(key: str) -> None:
    if key:
        folder_delete(key.rpartition("/")[0])
