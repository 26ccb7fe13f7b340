"""What becomes of the files that a capture left: profiles to ingest, and files kept for download."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.files.base import File
from django.db import transaction

from profiles.capture.tools.tool import KEPT, OWNERS, PROFILE, Result
from profiles.models import Capture, CaptureFile, Profile
from profiles.store.objects import bytes_store, capture_objects_delete, capture_prefix
from profiles.upload.files_services import uploads_discard
from profiles.upload.services import profile_create


@dataclass(frozen=True)
class Found:
    """One file of the capture's folder and what the tool says of it."""

    path: Path
    result: Result


def results_find(folder: Path, results: Sequence[Result]) -> list[Found]:
    """Return the files that the tool wrote, in the order of its table and of their names; each belongs to the first that fits."""
    found: dict[Path, Found] = {}
    for result in results:
        for path in sorted(folder.glob(result.name)):
            if path.is_file() and not path.is_symlink() and path.stat().st_size:
                found.setdefault(path, Found(path, result))
    return list(found.values())


def results_store(capture: Capture, worker: str, found: Sequence[Found], *, name: str, notes: str) -> bool:
    """Create the profiles and rows of files and end the capture as done, in one transaction.

    `found` holds at least one PROFILE file; several are the ranks of one job. False, with nothing stored, when the capture
    is no longer `worker`'s. Raises TraceError for a file beyond the bound on uploads.
    """
    made: list[Profile] = []
    try:
        with transaction.atomic():
            if Capture.leases.lock(capture.pk, worker) is None:
                return False
            main = [each for each in found if each.result.role == PROFILE]
            profile = _profile(capture, main, name, notes)
            made.append(profile)
            rows = _rows_of_profile(capture, main, profile)
            for each in found:
                if each.result.role in (KEPT, OWNERS):
                    rows.append(_kept(capture, each))
                elif each.result.role != PROFILE:
                    linked = _profile(capture, [each], f"{name} · {each.result.what or each.path.name}", notes)
                    made.append(linked)
                    rows += _rows_of_profile(capture, [each], linked)
            CaptureFile.objects.bulk_create(rows)
            return Capture.leases.end(capture.pk, worker, Capture.Status.DONE, profile=profile)
    except BaseException:               # the store knows no transaction
        for each_made in made:
            uploads_discard(each_made)
        capture_objects_delete(capture.pk)
        raise


def dump_store(capture: Capture, worker: str, found: Found, *, name: str) -> bool:
    """Create the profile of one file while the capture goes on. False, with nothing stored, when it is no longer `worker`'s.

    The capture's row is not locked meanwhile: its heartbeat goes on. Raises TraceError.
    """
    if not Capture.leases.is_held(capture.pk, worker):
        return False
    profile = None
    try:
        with transaction.atomic():
            profile = _profile(capture, [found], f"{name} · {found.result.what} ({found.path.stem})",
                               f"Asked for while capture {capture.pk} ran.")
            CaptureFile.objects.bulk_create(_rows_of_profile(capture, [found], profile))
    except BaseException:               # the store knows no transaction
        if profile is not None:
            uploads_discard(profile)
        raise
    return True


def results_keep(capture: Capture, worker: str, found: Sequence[Found]) -> None:
    """Keep for download what a capture left that cannot become a profile. Raises TraceError, with nothing stored."""
    try:
        with transaction.atomic():
            if Capture.leases.lock(capture.pk, worker) is not None:
                CaptureFile.objects.bulk_create([_kept(capture, each) for each in found])
    except BaseException:
        capture_objects_delete(capture.pk)
        raise


def _profile(capture: Capture, found: Sequence[Found], name: str, notes: str) -> Profile:
    with ExitStack() as opened:
        files = [File(opened.enter_context(each.path.open("rb")), name=f"capture-{capture.pk}-{each.path.name}") for each in found]
        return profile_create(owner=capture.owner, file=files[0], more_files=files[1:], name=name, build=capture.build,
                              model=capture.model, tags=capture.tags, notes=notes)


def _rows_of_profile(capture: Capture, found: Sequence[Found], profile: Profile) -> list[CaptureFile]:
    stored: Sequence[dict[str, Any]] = profile.metadata.get("files") or [
        {"bytes": profile.upload_bytes, "sha256": profile.sha256}]
    return [CaptureFile(capture=capture, role=each.result.role, name=each.path.name, what=each.result.what, profile=profile,
                        bytes=said["bytes"], sha256=said["sha256"]) for each, said in zip(found, stored, strict=True)]


def _kept(capture: Capture, found: Found) -> CaptureFile:
    """Store one file for download, whatever its role was to be."""
    with found.path.open("rb") as stream:
        stored = bytes_store(capture_prefix(capture.pk), File(stream, name=found.path.name))
    role = OWNERS if found.result.role == OWNERS else KEPT
    return CaptureFile(capture=capture, role=role, what=found.result.what, **stored)
