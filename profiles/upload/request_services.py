"""Uploads over HTTP: one that is sent again because its answer was lost finds the profile that it made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.files.base import File
from django.db import IntegrityError, transaction

from profiles.ingest.trace import TraceError
from profiles.models import Profile
from profiles.rows import text
from profiles.store.objects import plain_name
from profiles.upload.services import profile_create, upload_check
from workers import request_keys


class KeyTaken(TraceError):
    """The key belongs to the upload of another file."""


def profile_upload(files: Sequence[File[bytes]], request_key: str, *, owner: Any, **fields: Any) -> Profile:
    """Check and store one file, or the ranks of one job; return the profile, that of before where the request came before.

    request_key  of the caller's making ("" is none); it counts for one account in one project

    Raises TraceError for what can be known to be wrong with a file or a key, KeyTaken for the key of another file.
    """
    sent: Sequence[File[bytes] | None] = files or (None,)
    first, *more = [upload_check(file) for file in sent]
    if not request_key:
        return profile_create(file=first, more_files=more, owner=owner, **fields)
    if not request_keys.is_key(request_key):
        raise TraceError("Idempotency-Key", f"this key is not taken: {request_keys.WHAT}", "send a UUID")
    what = text(plain_name(first) or "upload", 300), sum(file.size for file in (first, *more))
    if (standing := _standing(request_key, owner, what)) is not None:
        return standing
    try:
        with transaction.atomic():
            return profile_create(file=first, more_files=more, owner=owner, request_key=request_key, **fields)
    except IntegrityError:                          # the same request, sent twice, has just committed
        if (standing := _standing(request_key, owner, what)) is not None:
            return standing
        raise


def _standing(request_key: str, owner: Any, what: tuple[str, int]) -> Profile | None:
    """Return the profile of this key; `what`: name of the first file and bytes of all. Raises KeyTaken."""
    profile = Profile.objects.filter(owner=owner, request_key=request_key).first()
    if profile is not None and (profile.file_name, profile.upload_bytes) != what:
        raise KeyTaken("Idempotency-Key", f"profile {profile.pk}, another file, was uploaded with this key", "take a new key")
    return profile
