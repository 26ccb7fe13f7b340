"""Ingest files from the command line, each in a process of its own, so that its peak memory is its own.

With --json exactly one JSON document goes to standard output; everything else goes to standard error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from argparse import ArgumentParser
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from django.core.files.base import File
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from profiles.models import Profile
from profiles.selectors.profile import kernel_rows
from profiles.services import profile_create, profile_fail
from profiles.trace import TraceError

TOP_KERNELS = 20
_CHILD = "import sys, django; django.setup(); from workers.tasks import ingest_profile; ingest_profile(int(sys.argv[1]))"


class Command(BaseCommand):
    help = "Ingest profiles: Kineto JSON, Nsight Compute reports and CSV, gzipped or not. Exit 1 when any failed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
        parser.add_argument("--build", default="", help="git sha or name of the build")
        parser.add_argument("--model", default="")
        parser.add_argument("--tags", default="", help="separated by commas")
        parser.add_argument("--group", action="store_true", help="the files are ranks of one job: make one profile of them")

    def handle(self, *_: Any, **options: Any) -> None:
        _migrate()
        fields = {"build": options["build"], "model": options["model"], "tags": options["tags"].split(",")}
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


def _migrate() -> None:
    """The private database of a first start is empty."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", verbosity=0, interactive=False, stdout=sys.stderr)


def _ingest(names: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    """One profile of the files, read by a child process. What cannot even be opened is an entry without an id."""
    worker = f"command-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        with ExitStack() as opened:
            files = [File(opened.enter_context(Path(name).open("rb")), name=Path(name).name) for name in names]
            profile = profile_create(owner=None, file=files[0], more_files=files[1:], worker=worker, **fields)
    except OSError as error:
        return _entry(names, None, {"where": error.filename or names[0], "what": error.strerror or str(error),
                                    "hint": "check the path and that it can be read"})
    except TraceError as error:
        return _entry(names, None, error.as_json())
    connections.close_all()          # the child has its own
    child = subprocess.run([sys.executable, "-c", _CHILD, str(profile.pk)], stdout=sys.stderr, check=False,
                           env={**os.environ, "RQ_WORKER_ID": worker})
    profile.refresh_from_db()
    if profile.status == Profile.Status.INGESTING:
        profile_fail(profile.pk, worker, what=f"the ingest process ended with status {child.returncode}",
                     hint="negative: killed by that signal, 9 often for want of memory; standard error has its log")
        profile.refresh_from_db()
    return _entry(names, profile, profile.error)


def _entry(names: list[str], profile: Profile | None, error: dict[str, str] | None) -> dict[str, Any]:
    found = profile or Profile(status=Profile.Status.FAILED)
    entry = {
        "id": found.pk, "file": names[0], "format": found.format or None, "status": str(found.status), "error": error,
        "records_read": found.integrity.get("records_read", 0), "records_kept": found.integrity.get("records_kept", 0),
        "integrity": found.integrity, "launches": found.launches, "gpu_time_ns": found.gpu_time_ns,
        "top_kernels": [{"name": row.name, "launches": row.launches, "total_ns": row.total_ns}
                        for row in kernel_rows(profile)[:TOP_KERNELS]] if profile else [],
        "seconds": found.seconds, "peak_rss_bytes": found.peak_rss_bytes, "stored_bytes": found.stored_bytes,
    }
    return {**entry, "files": names} if len(names) > 1 else entry


def _line(entry: dict[str, Any]) -> str:
    if entry["status"] != Profile.Status.READY:
        return f"{entry['file']}: failed"
    return (f"{entry['file']}: profile {entry['id']}, {entry['format']}, {entry['records_kept']:,} of "
            f"{entry['records_read']:,} records, {entry['launches']:,} launches, {entry['gpu_time_ns'] / 1e6:,.3f} ms of "
            f"kernel time, {entry['seconds']:.2f} s, {entry['peak_rss_bytes'] / 1e6:,.0f} MB")


def _failures(entries: list[dict[str, Any]]) -> str:
    failed = [entry for entry in entries if entry["status"] != Profile.Status.READY]
    return "\n".join(f"{entry['file']}: {entry['error']['where']}: {entry['error']['what']}. {entry['error']['hint']}"
                     for entry in failed if entry["error"]) or "an ingest failed"
