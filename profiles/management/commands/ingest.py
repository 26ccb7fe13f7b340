"""Ingest files from the command line, each in a process of its own, so that its peak memory is its own.

With --json exactly one JSON document goes to standard output; everything else goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.files.base import File
from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from profiles.analysis.core.sentences import plural
from profiles.ingest.trace import TraceError
from profiles.models import Profile
from profiles.profile.selectors import kernel_rows, shape_rows
from profiles.upload.services import profile_create, profile_fail
from webapp.management.in_project import ProjectCommand
from workers import disk, jobs
from workers.leases import is_alive

TOP_KERNELS = 20


class Command(ProjectCommand):
    help = "Ingest profiles: Kineto JSON, Nsight Compute reports and CSV, gzipped or not. Exit 1 when any failed."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
        parser.add_argument("--build", default="", help="git sha or name of the build")
        parser.add_argument("--model", default="")
        parser.add_argument("--tags", default="", help="separated by commas")
        parser.add_argument("--group", action="store_true", help="the files are ranks of one job: make one profile of them")
        parser.add_argument("--ranks-by-file", action="store_true",
                            help="with --group: number the ranks by file, for engines that each state rank 0")

    def handle(self, *_: Any, **options: Any) -> None:
        fields = {"build": options["build"], "model": options["model"], "tags": options["tags"].split(","),
                  "ranks_by_file": options["ranks_by_file"]}
        groups = [options["files"]] if options["group"] else [[name] for name in options["files"]]
        entries = []
        for names in groups:
            entries.append(_ingest(names, fields))
            if not options["json"]:
                self.stdout.write(_line(entries[-1]))
        if options["json"]:
            self.stdout.write(json.dumps({"profiles": entries}, ensure_ascii=False, allow_nan=False))
        if any(entry["status"] != Profile.Status.READY for entry in entries):
            self.stdout.flush()
            raise CommandError(_failures(entries), returncode=1)


def _ingest(names: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    """One profile of the files, read by a child process. What cannot even be opened is an entry without an id."""
    worker = f"command-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        disk.require_room()
        with ExitStack() as opened:
            files = [File(opened.enter_context(Path(name).open("rb")), name=Path(name).name) for name in names]
            written = datetime.fromtimestamp(Path(names[0]).stat().st_mtime, UTC) if len(names) == 1 else None
            profile = profile_create(owner=None, file=files[0], more_files=files[1:], worker=worker, written=written, **fields)
    except disk.NoRoom as error:
        return _entry(names, None, {"where": names[0], "what": error.what, "hint": error.hint})
    except OSError as error:
        return _entry(names, None, {"where": error.filename or names[0], "what": error.strerror or str(error),
                                    "hint": "check the path and that it can be read"})
    except TraceError as error:
        return _entry(names, None, error.as_json())
    os.environ["RQ_WORKER_ID"] = worker
    with _output_to_errors():
        _wait_for_another(profile, worker)
        why = import_string(jobs.INGEST_THIS)(profile.pk)
        _wait_for_another(profile, worker)
    if profile.status == Profile.Status.INGESTING:
        profile_fail(profile.pk, worker, what=f"the process that read it {why or 'did not end it'}",
                     hint="Standard error has its log.")
        profile.refresh_from_db()
    return _entry(names, profile, profile.error)


def _wait_for_another(profile: Profile, worker: str) -> None:
    """Wait while another worker reads the profile: storing a large upload takes longer than its first heartbeat lasts."""
    profile.refresh_from_db()
    while profile.worker != worker and Profile.objects.filter(is_alive(), pk=profile.pk, status=Profile.Status.INGESTING).exists():
        time.sleep(0.5)
        profile.refresh_from_db()


@contextmanager
def _output_to_errors() -> Iterator[None]:
    """Standard output belongs to the command's document: what is printed meanwhile goes to standard error."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(output, 1)
        os.close(output)


def _entry(names: list[str], profile: Profile | None, error: dict[str, str] | None) -> dict[str, Any]:
    shown = profile or Profile(status=Profile.Status.FAILED)
    shapes = _shapes(profile) if profile else {}
    entry = {
        "id": shown.pk, "file": names[0], "format": shown.format or None, "status": str(shown.status), "error": error,
        "records_read": shown.integrity.get("records_read", 0), "records_kept": shown.integrity.get("records_kept", 0),
        "integrity": shown.integrity, "launches": shown.launches, "gpu_time_ns": shown.gpu_time_ns,
        "top_kernels": [{"name": row.name, "short_name": row.short_name, "launches": row.launches, "total_ns": row.total_ns,
                         "shapes": shapes.get(row.pk, [])}
                        for row in kernel_rows(profile)[:TOP_KERNELS]] if profile else [],
        "seconds": shown.seconds, "peak_rss_bytes": shown.peak_rss_bytes, "stored_bytes": shown.stored_bytes,
    }
    return {**entry, "files": names} if len(names) > 1 else entry


def _shapes(profile: Profile) -> dict[int, list[dict[str, Any]]]:
    """Of each of the top kernels what it worked on, most time first: count, total, p50, p95."""
    columns = ("grid", "block", "operator", "dims", "dtype", "shapes", "launches", "total_ns", "p50_ns", "p95_ns")
    top = [row.pk for row in kernel_rows(profile)[:TOP_KERNELS]]
    by_kernel: dict[int, list[dict[str, Any]]] = {}
    for row in shape_rows(profile).filter(kernel__in=top):
        by_kernel.setdefault(row.kernel_id, []).append({name: getattr(row, name) for name in columns})
    return by_kernel


def _line(entry: dict[str, Any]) -> str:
    if entry["status"] != Profile.Status.READY:
        return f"{entry['file']}: failed"
    spent = "an unknown time" if entry["gpu_time_ns"] is None else f"{entry['gpu_time_ns'] / 1e6:,.3f} ms"
    return (f"{entry['file']}: profile {entry['id']}, {entry['format']}, {entry['records_kept']:,} of "
            f"{plural(entry['records_read'], 'record')}, {plural(entry['launches'], 'launch')}, {spent} of "
            f"kernel time, {entry['seconds']:.2f} s, {entry['peak_rss_bytes'] / 1e6:,.0f} MB")


def _failures(entries: list[dict[str, Any]]) -> str:
    failed = [entry for entry in entries if entry["status"] != Profile.Status.READY]
    return "\n".join(f"{entry['file']}: {entry['error']['where']}: {entry['error']['what']}. {entry['error']['hint']}"
                     for entry in failed if entry["error"]) or "an ingest failed"
