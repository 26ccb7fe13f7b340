"""Uploads over HTTP: one sent again because its answer was lost finds the profile that it made; files that came together.

Of the latter: whether they look like ranks of one job, and what can be done where they were refused so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction

from profiles.analysis.trace.one_job import job_name, like_ranks
from profiles.ingest.trace import DifferentJobs, TraceError
from profiles.models import Profile, ingest_queue
from profiles.rows import text
from profiles.store.objects import plain_name
from profiles.upload import ingest_run
from profiles.upload.files_services import uploads_discard
from profiles.upload.services import profile_create, profile_delete, profile_publish, upload_check
from workers import jobs, trail


def files_asked(names: Sequence[str]) -> dict[str, Any]:
    """What a page that was handed several files has to ask: whether they look like ranks of one job, and that job's name."""
    return {"ranks": like_ranks(names), "job": job_name(names)}


def profile_apart(profile: Profile) -> list[Profile]:
    """Load the files that were refused as ranks of one job as profiles of their own, in place of the refused row.

    They are read from the store: nobody sends them again. Raises TraceError where the row was not refused for that.
    """
    profiles: list[Profile] = []
    try:
        with transaction.atomic():
            row = Profile.objects.select_for_update().get(pk=profile.pk)
            stored = row.metadata.get("files") or []
            if row.status != Profile.Status.FAILED or (row.error or {}).get("kind") != DifferentJobs.KIND or len(stored) < 2:
                raise TraceError(row.name, "these files were not refused as ranks of different jobs", "open the profile as it is")
            for entry in stored:
                with default_storage.open(entry["key"], "rb") as file:
                    profiles.append(profile_create(
                        owner=row.owner, file=File(file, name=entry["name"]), build=row.build, model=row.model, tags=row.tags,
                        notes=row.notes, recorded=row.recorded))
            profile_delete(row)
    except BaseException:                   # the rows go with the transaction, their objects with this
        for each_made in profiles:
            uploads_discard(each_made)
        raise
    return profiles


def profile_number_by_file(profile: Profile) -> Profile:
    """Read the files once more that were refused since several state one rank: each file's number among them is its rank.

    Raises TraceError where the row was not refused for that alone.
    """
    with transaction.atomic():
        row = Profile.objects.select_for_update().get(pk=profile.pk)
        if row.status != Profile.Status.FAILED or (row.error or {}).get("why") != DifferentJobs.SAME_RANK:
            raise TraceError(row.name, "these files were not refused for stating the same rank", "open the profile as it is")
        row.metadata = {**row.metadata, ingest_run.RANKS_BY_FILE: True}
        row.status, row.error, row.worker, row.attempts = Profile.Status.UPLOADED, None, "", 0
        row.save(update_fields=["metadata", "status", "error", "worker", "attempts"])
        jobs.enqueue_on_commit(ingest_queue(row), "ingest", row.pk)
    profile_publish(row)
    return row


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
    if not trail.is_key(request_key):
        raise TraceError("Idempotency-Key", f"this key is not taken: {trail.WHAT}", "send a UUID")
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
