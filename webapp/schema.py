"""Migrations before a command runs: one process at a time, silent when none is due."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.apps import apps
from django.core.management import call_command
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from webapp.embedded.launch import CannotStart

OURS = ("profiles", "tuner", "webapp")      # a package's migrations may go with its update
LOOK_EVERY_S = 0.1
_LOCK = 0x52504D47      # "RPMG": the advisory lock that one migrating process holds


class NewerDatabase(CannotStart):
    """The database holds migrations that this code does not have."""


def bring_up_to_date() -> None:
    """Apply pending migrations. Two `CREATE TABLE IF NOT EXISTS` at once can clash in PostgreSQL, hence the lock.

    Raises NewerDatabase, before anything is changed.
    """
    if names := unknown():
        raise NewerDatabase(f"a later version of Ridgepoint wrote this database: {len(names)} of its migrations are unknown here "
                            f"({', '.join(names[:3])}{', …' if len(names) > 3 else ''}). Start that version again, or restore a "
                            "backup that was made before it (docs/operate-backup.md); nothing was changed")
    if not pending():
        return                          # without a plan of them all: importing every migration takes 30 ms of each command
    with connection.cursor() as cursor:
        while not _is_locked(cursor):
            time.sleep(LOOK_EVERY_S)
        try:
            if _has_pending():
                with _collecting():
                    call_command("migrate", interactive=False, verbosity=0, stdout=sys.stderr, stderr=sys.stderr)
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def _is_locked(cursor: CursorWrapper) -> bool:
    """Return whether this process has the lock. An index built concurrently would wait for a question that waits."""
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
    return bool(cursor.fetchone()[0])


@contextmanager
def _collecting() -> Iterator[None]:
    """A start runs without collections. The model states of all migrations would stay: 370 MB, in forked children too."""
    was_enabled = gc.isenabled()
    gc.enable()
    try:
        yield
        gc.collect()
    finally:
        if not was_enabled:
            gc.disable()


def pending() -> set[tuple[str, str]]:
    """Return app label and name of every migration that the database lacks."""
    return _names_on_disk() - set(MigrationRecorder(connection).applied_migrations())


def unknown() -> list[str]:
    """Return "app.migration" of every migration of our apps that the database has and this code lacks."""
    applied = set(MigrationRecorder(connection).applied_migrations())
    return sorted(f"{app}.{name}" for app, name in applied - _names_on_disk() if app in OURS)


def _names_on_disk() -> set[tuple[str, str]]:
    """Return app label and name of every migration of the installed apps."""
    return {(app.label, file.stem) for app in apps.get_app_configs() if MigrationLoader.migrations_module(app.label)[0]
            for file in Path(app.path, "migrations").glob("*.py") if file.name[0] not in "_~"}


def _has_pending() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
