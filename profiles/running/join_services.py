"""Traces of captured processes become profiles: one alone at once, those of several ranks as one profile once all are there."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from uuid import UUID

from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import transaction

from profiles.base.refused import Refused
from profiles.fleet.capture_services import OPEN, is_overdue
from profiles.models import FleetCapture, Profile
from profiles.upload.services import profile_create
from workers import jobs

log = logging.getLogger(__name__)
FOLDER = "captures/parts"
QUEUE, TASK = "ingest", "join"


def take_trace(row_id: int, file: File[bytes], *, name: str, build: str, model: str, notes: str,
               tags: Iterable[str]) -> Profile | None:
    """Take the trace of an order; return its profile, None where those of other processes are waited for.

    Raises:
        Refused: the capture was stopped, or its trace came already.
    """
    with transaction.atomic():
        row = FleetCapture.objects.select_for_update(of=("self",)).select_related("agent", "ordered_by").get(pk=row_id)
        if row.state == FleetCapture.State.STOPPED:
            raise Refused("it was stopped", whole="file")
        if row.part or row.profile_id:
            raise Refused("its trace came already", whole="file")
        if row.together is None:
            row.profile = profile_create(owner=row.ordered_by, file=file, name=name, build=build, model=model, notes=notes,
                                         tags=tags)
            row.save(update_fields=["profile", "changed"])
            return row.profile
        row.part = default_storage.save(f"{FOLDER}/{row.together}/{row.pk}.json.gz", file)
        row.save(update_fields=["part", "changed"])
        if _is_whole(_group(row.together)):
            jobs.enqueue_on_commit(QUEUE, TASK, row.pk)
    return None


def join(row_id: int) -> Profile | None:
    """Make one profile of the traces of processes that were captured together; None where that was done, or some still come."""
    together = FleetCapture.objects.filter(pk=row_id).values_list("together", flat=True).first()
    if together is None:
        return None
    with transaction.atomic():
        rows = list(FleetCapture.objects.select_for_update(of=("self",)).select_related("agent", "ordered_by").filter(
            together=together))
        parts = sorted((row for row in rows if row.part), key=lambda row: (row.rank is None, row.rank or 0, row.pk))
        if not parts or not _is_whole(rows):
            return None
        with ExitStack() as opened:
            files = [File(opened.enter_context(default_storage.open(row.part)), name=_file_name(row)) for row in parts]
            first = parts[0]
            profile = profile_create(owner=first.ordered_by, file=files[0], more_files=files[1:], name=_name(parts, len(rows)),
                                     tags=_tags(parts), notes=_notes(rows, parts))
        keys = [row.part for row in parts]
        FleetCapture.objects.filter(pk__in=[row.pk for row in parts]).update(profile=profile, part="")
        transaction.on_commit(lambda: _forget(keys), robust=True)
    return profile


def wake_joins(waiting: Collection[int] = ()) -> list[int]:
    """Wake a worker for traces whose others ended without one; return rows, one a group."""
    groups = FleetCapture.objects.exclude(part="").exclude(together=None).values_list("together", flat=True).distinct()[:100]
    woken = []
    for together in groups:
        rows = _group(together)
        if _is_whole(rows) and not {row.pk for row in rows} & set(waiting):
            woken.append(rows[0].pk)
            jobs.enqueue(QUEUE, TASK, rows[0].pk)
    return woken


def _group(together: UUID | None) -> list[FleetCapture]:
    return list(FleetCapture.objects.select_related("agent").filter(together=together).order_by("pk"))


def _is_whole(rows: Sequence[FleetCapture]) -> bool:
    return all(row.part or row.state not in OPEN or is_overdue(row) for row in rows)


def _file_name(row: FleetCapture) -> str:
    return f"rank{row.rank}.json.gz" if row.rank is not None else f"process{row.pid}.json.gz"


def _name(parts: Sequence[FleetCapture], asked: int) -> str:
    missing = f" of {asked}" if len(parts) < asked else ""
    return f"{parts[0].job or 'job'}: {len(parts)}{missing} rank{'s' if asked > 1 else ''}"


def _tags(parts: Sequence[FleetCapture]) -> list[str]:
    def named(kind: str, values: Iterable[str]) -> list[str]:
        return [f"{kind}:{value.replace(' ', '_')}" for value in sorted(set(values)) if value]

    return ["fleet", "deep", *named("job", (row.job for row in parts)), *named("host", (row.agent.host for row in parts))[:8]]


def _notes(rows: Sequence[FleetCapture], parts: Sequence[FleetCapture]) -> str:
    lost = [f"process {row.pid} on {row.agent.host}: {row.why or row.state}" for row in rows if not row.part]
    text = f"Captured together: {', '.join(f'process {row.pid} on {row.agent.host}' for row in parts)}."
    return text + (f" No trace of {'; '.join(lost)}." if lost else "")


def _forget(keys: Sequence[str]) -> None:
    for key in keys:
        default_storage.delete(key)


