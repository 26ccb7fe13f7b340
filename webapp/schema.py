"""Migrations before a command runs: one process at a time, silent when none is due."""

from __future__ import annotations

import sys

from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

_LOCK = 0x52504D47      # "RPMG": the advisory lock that one migrating process holds


def bring_up_to_date() -> None:
    """Apply pending migrations. Two `CREATE TABLE IF NOT EXISTS` at once can clash in PostgreSQL, hence the lock."""
    if not _has_pending():
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        try:
            if _has_pending():
                call_command("migrate", interactive=False, verbosity=0, stdout=sys.stderr, stderr=sys.stderr)
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def _has_pending() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
