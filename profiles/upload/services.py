"""What may be done to a profile: create, ingest, edit, delete. The row is the truth; a queue entry only wakes a worker."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.files.base import File
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from profiles.analysis.trace.account.causes import COVERED
from profiles.analysis.trace.one_job import job_name
from profiles.families.services import families_assign
from profiles.ingest.trace import TraceError
from profiles.models import Finding, Profile, ingest_queue
from profiles.progress import Progress
from profiles.retention.services import require_quota
from profiles.rows import json_safe, kernels_copy, text
from profiles.store.objects import derived_delete, objects_delete, plain_name
from profiles.upload import ingest_run
from profiles.upload.files_services import uploads_discard, uploads_release, uploads_store
from workers import disk, jobs
from workers.leases import Superseded

log = logging.getLogger(__name__)
MAX_ATTEMPTS = 3        # a file that took its worker down this often is not tried again
DELETE_ATTEMPTS = 3
FOLLOWS_WITHIN = timedelta(seconds=30)      # of ready: what follows is taken up, or a worker was killed
NO_ROOM = "no room"     # kind of an error that ends by itself once the disk has room


def upload_check(file: File[bytes] | None) -> File[bytes]:
    """Refuse what can be known to be wrong before a byte is read.

    A form or an API refuses with it. Raises TraceError, and NoRoom where the disk is too full for new work or the project stores
    as much as it may.
    """
    disk.require_room()
    if file is None:
        raise TraceError("request", "no file in the upload", "send one or several files in the field `file`")
    where = text(str(file.name or "upload"), 200)
    if not file.size:
        raise TraceError(where, "the file is empty (0 bytes)",
                         "write the trace again: the profiler may have been stopped before it exported")
    if file.size > settings.UPLOAD_MAX_BYTES:
        raise TraceError(where, f"the file has {file.size:,} bytes; at most {settings.UPLOAD_MAX_BYTES:,} are taken",
                         "compress it (.gz), record fewer steps, or let the owner raise RIDGEPOINT_UPLOAD_MAX_BYTES")
    require_quota(file.size)
    return file


def profile_create(*, owner: Any, file: File[bytes], name: str = "", build: str = "", model: str = "",
                   tags: Iterable[str] = (), notes: str = "", recorded: str = "", worker: str = "",
                   more_files: Sequence[File[bytes]] = (), ranks_by_file: bool = False, request_key: str = "",
                   written: datetime | None = None) -> Profile:
    """Store the bytes and the row, wake an ingest worker on commit.

    `worker`: born claimed by that worker, nobody is woken (the command line ingests in its own child).
    `more_files`: further files of the same job (ranks); one profile holds them all, named for the job where nothing is typed.
    `request_key`: of the request that sent it (profiles.upload.request_services).
    `ranks_by_file`: their ranks are their numbers among the files, whatever they state.
    `written`: when the file was last written, where its sender knows.
    Where it fails, neither row nor bytes stay.
    """
    shown = text(plain_name(file) or "upload", 300)
    profile = Profile(
        name=text(name.strip(), 300) or _job_name([file, *more_files]) or shown, file_name=shown, owner=owner,
        build=text(build.strip(), 80), model=text(model.strip(), 120), tags=tags_clean(tags), notes=text(notes),
        recorded=text(recorded, 120), request_key=request_key)
    if worker:
        profile.status, profile.worker, profile.heartbeat = Profile.Status.INGESTING, worker, timezone.now()
    with _discard_objects_on_rollback(profile), transaction.atomic():
        profile.save()
        _uploads_store(profile, [file, *more_files])
        if ranks_by_file and more_files:
            profile.metadata = {**profile.metadata, ingest_run.RANKS_BY_FILE: True}
        if written is not None:
            profile.metadata = {**profile.metadata, ingest_run.WRITTEN: f"{written.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"}
        profile.save()
        if not worker:
            jobs.enqueue_on_commit(ingest_queue(profile), "ingest", profile.pk)
    profile_publish(profile)
    return profile


def _job_name(files: Sequence[File[bytes]]) -> str:
    """Return what the ranks of a job are called together; "" of a single file."""
    return text(job_name([plain_name(file) for file in files]), 300) if len(files) > 1 else ""


@contextmanager
def _discard_objects_on_rollback(profile: Profile) -> Iterator[None]:
    """The store knows no transaction: what was stored for a row that is rolled back goes with it. Ids are never used twice."""
    try:
        yield
    except BaseException:
        if profile.pk:
            uploads_discard(profile)
        raise


def _uploads_store(profile: Profile, files: Sequence[File[bytes]]) -> None:
    """Bytes into the store, what is known of them onto the row; the digest of several files is that of their digests."""
    stored = uploads_store(profile, files)
    profile.upload_key, profile.sha256 = stored[0]["key"], stored[0]["sha256"]
    profile.upload_bytes = sum(entry["bytes"] for entry in stored)
    if len(files) > 1:
        profile.metadata = {"files": stored}
        profile.sha256 = hashlib.sha256("".join(entry["sha256"] for entry in stored).encode()).hexdigest()


def tags_parse(typed: str) -> list[str]:
    """"a, b c" -> ["a", "b", "c"]: as people type them into one field."""
    return typed.replace(",", " ").split()


def tags_clean(tags: Iterable[str]) -> list[str]:
    """Trimmed, cut to 60 characters, each once, in order."""
    return list(dict.fromkeys(text(tag.strip(), 60) for tag in tags if tag.strip()))[:50]


def profile_ingest(profile_id: int, worker: str) -> Profile | None:
    """Read the upload, store columns and tiles, write the rows. Safe twice, and after a kill at any point.

    Returns the row as it stands, None when it is gone. `ready` or `failed` are set in one transaction with everything
    that belongs to them, so that no half profile is ever seen; objects of an earlier attempt are overwritten. Raises MemoryError,
    with the row as it is.
    """
    profile = _claim(profile_id, worker)
    if profile is None:
        return Profile.objects.filter(pk=profile_id).first()
    profile_publish(profile)
    opened_s = time.monotonic()
    try:
        result = ingest_run.read_and_store(profile, Progress(profile_id, worker))
        _keep(profile_id, worker, result, opened_s)
    except Superseded:
        log.info("profile %s: deleted or taken by another worker, stopped", profile_id)
        if not Profile.objects.filter(pk=profile_id).exists():
            objects_delete(profile_id)
            return None
    except TraceError as error:
        log.info("profile %s: %s", profile_id, error)
        _fail(profile_id, worker, error.as_json(), opened_s)
    except MemoryError:                 # no room to end the row here: whoever bounded this process does (workers.stages)
        raise
    except Exception as error:
        if disk.is_full_error(error):
            log.warning("profile %s: the disk is full (%s); read again when there is room", profile_id, error)
        else:
            log.exception("profile %s: ingest failed", profile_id)
        _fail(profile_id, worker, _unexpected_error(error), opened_s)
        if disk.is_full_error(error):
            _note_room(profile_id)
    profile = Profile.objects.filter(pk=profile_id).first()
    if profile is not None:
        profile_publish(profile)
    return profile


def _unexpected_error(error: Exception) -> dict[str, str]:
    if disk.is_full_error(error):
        return {"kind": NO_ROOM, "where": "object store", "what": f"no room on the disk for what it makes ({str(error)[:300]})",
                "hint": "The upload is kept and read again by itself when there is room: free some space, or delete profiles that "
                        "nobody needs."}
    return {"where": "ingest", "what": f"unexpected {type(error).__name__}: {error}"[:500],
            "hint": "This is a fault of Ridgepoint, not necessarily of the file: the worker's log has the traceback. "
                    "The upload is kept; upload it again after an update."}


def _claim(profile_id: int, worker: str) -> Profile | None:
    """One conditional update: waiting rows, rows that lost their worker, and those born claimed by this one."""
    free = Profile.leases.is_free() | Q(status=Profile.Status.INGESTING, worker=worker, attempts=0)
    claimed = Profile.leases.claim(profile_id, worker, free=free & Q(attempts__lt=MAX_ATTEMPTS), error=None)
    return Profile.objects.get(pk=profile_id) if claimed else None


def _mine(profile_id: int, worker: str) -> Profile:
    row = Profile.leases.lock(profile_id, worker)
    if row is None:
        raise Superseded(profile_id)
    return row


def _keep(profile_id: int, worker: str, result: ingest_run.IngestResult, opened_s: float) -> None:
    """Rows of the result and `ready`, in one transaction."""
    with transaction.atomic():
        row = _mine(profile_id, worker)
        _rows_clear(row)
        ids = kernels_copy(profile_id, result.kernels)
        # a family ranks and compares times: a kernel that has none, or none that can be, belongs to none
        families_assign({text(row.name): ids[text(row.name)] for row in result.kernels
                         if row.total_ns is not None and row.name not in result.doubtful})
        result.rows_write(profile_id, ids)
        Finding.objects.bulk_create([
            Finding(profile_id=profile_id, kernel_id=ids.get(text(finding.kernel)) if finding.kernel else None,
                    rule=finding.rule, severity=finding.severity, title=text(finding.title), advice=text(finding.advice),
                    numbers=json_safe(finding.numbers), worth_ns=json_safe(finding.worth_ns))
            for finding in result.findings if finding.rule not in COVERED])
        for field, value in result.fields.items():
            setattr(row, field, json_safe(value))
        row.metadata = {**row.metadata, **row_metadata(row.metadata, result)}
        if len(row.metadata.get("files", [])) > 1 and row.name == row.file_name:     # neither a person nor names of files named it
            row.name = text(str(result.metadata.get("job") or ""), 300) or row.name
        row.status, row.error, row.heartbeat = Profile.Status.READY, None, None
        row.peak_rss_bytes, row.stored_bytes = ingest_run.peak_rss_bytes(), result.stored_bytes
        row.seconds = time.monotonic() - opened_s
        row.follow_due = Now() + FOLLOWS_WITHIN
        row.save()


def row_metadata(before: dict[str, Any], result: ingest_run.IngestResult) -> dict[str, Any]:
    """Return what the file states; the list of uploaded files of a group, and what their sender said of them, stay."""
    entries = {name: before[name] for name in ("files", ingest_run.WRITTEN) if name in before}
    return {**json_safe(result.metadata), **entries}


def profile_fail(profile_id: int, worker: str, *, what: str, hint: str) -> None:
    """End a row whose ingest did not end it: its process died."""
    _fail(profile_id, worker, {"where": "ingest", "what": what, "hint": hint}, time.monotonic())
    profile = Profile.objects.filter(pk=profile_id).first()
    if profile is not None:
        profile_publish(profile)


def part_note(profile_id: int, part: str, why: str) -> None:
    """Keep in the integrity report of a ready profile why a part of it is missing; "" forgets what was said of that part."""
    with transaction.atomic():
        profile = Profile.objects.select_for_update().filter(pk=profile_id).first()
        if profile is None:
            return
        before = profile.integrity.get("notes", [])
        notes = [note for note in before if not note.startswith(f"{part}: ")] + ([f"{part}: {why}"] if why else [])
        if notes != before:
            profile.integrity = {**profile.integrity, "notes": notes}
            profile.save(update_fields=["integrity"])


def _fail(profile_id: int, worker: str, error: dict[str, str], opened_s: float) -> None:
    try:
        with transaction.atomic():
            row = _mine(profile_id, worker)
            _rows_clear(row)
            row.status, row.error, row.summary, row.heartbeat = Profile.Status.FAILED, json_safe(error), {}, None
            row.seconds, row.peak_rss_bytes = time.monotonic() - opened_s, ingest_run.peak_rss_bytes()
            row.save()
    except Superseded:
        log.info("profile %s: failed, but no longer this worker's", profile_id)
        return
    derived_delete(profile_id)


def _rows_clear(row: Profile) -> None:
    row.findings.all().delete()
    row.counter_launches.all().delete()
    row.kernels.all().delete()


def profile_update(profile: Profile, *, name: str | None = None, build: str | None = None, model: str | None = None,
                   tags: Iterable[str] | None = None, notes: str | None = None) -> Profile:
    """Edit what people may edit; None leaves a field as it is."""
    changes: dict[str, Any] = {}
    if name is not None and name.strip():
        changes["name"] = text(name.strip(), 300)
    if build is not None:
        changes["build"] = text(build.strip(), 80)
    if model is not None:
        changes["model"] = text(model.strip(), 120)
    if tags is not None:
        changes["tags"] = tags_clean(tags)
    if notes is not None:
        changes["notes"] = text(notes)
    for field, value in changes.items():
        setattr(profile, field, value)
    if changes:
        profile.save(update_fields=list(changes))
    if "build" in changes or "model" in changes:
        jobs.enqueue_on_commit(jobs.SMALL, "builds", profile.pk)
    return profile


def profile_delete(profile: Profile) -> None:
    """Delete the rows now, and the objects when that is committed.

    An ingest that runs notices and stops. Where a row that refers to the profile is added while it is deleted, PostgreSQL refuses
    at the end, and it is deleted once more, with that row.
    """
    for left in reversed(range(DELETE_ATTEMPTS)):
        try:
            _delete(profile)
            break
        except IntegrityError:
            if not left or transaction.get_connection().in_atomic_block:
                raise
    jobs.publish(f"profile.{profile.pk}", "status", {"status": "deleted"})
    jobs.publish("home", "profile", {"id": profile.pk, "status": "deleted"})


def _delete(profile: Profile) -> None:
    profile_id = profile.pk
    with transaction.atomic():
        # an ingest that is about to write kernels holds the row: they are deleted with it, or it finds the row gone
        Profile.objects.select_for_update().filter(pk=profile_id).first()
        uploads = list(profile.stored_uploads.values_list("pk", flat=True))
        Profile.objects.filter(pk=profile_id).delete()          # and not the row in hand, which would lose its key
        uploads_release(uploads)
        transaction.on_commit(lambda: objects_delete(profile_id), robust=True)
        if profile.build:
            jobs.enqueue_on_commit(jobs.SMALL, "builds", profile_id)


def profiles_fail_hopeless() -> None:
    """End every row that took its worker down `MAX_ATTEMPTS` times as failed, with that as its error."""
    for profile in Profile.objects.filter(Profile.leases.is_lost(), attempts__gte=MAX_ATTEMPTS):
        profile_fail(profile.pk, profile.worker,
                     what=f"the worker died {profile.attempts} times while it read this file",
                     hint="It may need more memory than the worker has: see the worker's log, or record fewer steps.")


def _note_room(profile_id: int) -> None:
    """Keep how much was free when a failed ingest had left its room: with no more than that it would fail again."""
    row = Profile.objects.filter(pk=profile_id, status=Profile.Status.FAILED, error__kind=NO_ROOM).first()
    if row is not None and row.error is not None:
        Profile.objects.filter(pk=profile_id, status=Profile.Status.FAILED).update(
            error={**row.error, "free_bytes": disk.least_free_bytes()})


def profiles_retry_without_room() -> None:
    """Let the rows wait again whose ingest met a full disk, where there is more room now than it had."""
    free_bytes = disk.least_free_bytes(less_rest=True)
    for profile in Profile.objects.filter(status=Profile.Status.FAILED, error__kind=NO_ROOM):
        if free_bytes < (profile.error or {}).get("free_bytes", 0):
            continue
        if Profile.objects.filter(pk=profile.pk, status=Profile.Status.FAILED).update(
                status=Profile.Status.UPLOADED, error=None, worker="", attempts=0):
            log.info("profile %s: there is room again, it is read once more", profile.pk)
            profile.refresh_from_db()
            profile_publish(profile)


def profile_publish(profile: Profile) -> None:
    """Tell the pages that watch a profile, and home, how it stands."""
    data = {
        "status": profile.status, "error": profile.error, "format": profile.format, "kind": profile.kind,
        "launches": profile.launches, "gpu_time_ns": profile.gpu_time_ns, "gpu": profile.gpu, "name": profile.name,
        "seconds": profile.seconds, "records_read": profile.integrity.get("records_read"),
        "records_kept": profile.integrity.get("records_kept"),
    }
    jobs.publish(f"profile.{profile.pk}", "status", data)
    jobs.publish("home", "profile", {"id": profile.pk, "status": profile.status})

