"""The rows of an installation, for backup and restore: one moment of them, what claims objects, and an empty place for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from profiles.models import Capture, Profile, StoredUpload
from webapp.accounts import LOCAL_USER
from webapp.backup.errors import Refused

# tables that a first start fills by itself
_OF_EVERY_START = {"django_migrations", "django_content_type", "django_session", "auth_permission", "auth_group",
                   "auth_group_permissions"}
# in the schema that the product uses, and of no extension; `{}` is the column of the namespace
_OURS = "{} = current_schema()::regnamespace AND NOT EXISTS (SELECT 1 FROM pg_depend WHERE objid = oid AND deptype = 'e')"


@dataclass(frozen=True)
class Claims:
    """Who holds objects at one moment: profile → (status, attempts), captures, and the keys of uploads."""

    profiles: dict[int, tuple[str, int]]
    captures: set[int]
    uploads: set[str]


@dataclass(frozen=True)
class Snapshot:
    """One moment of all rows; it can be read by its name while `snapshot()` is open."""

    name: str
    claims: Claims
    migrations: list[list[str]]


@contextmanager
def snapshot() -> Iterator[Snapshot]:
    """Hold one moment of all rows, which pg_dump and this process read alike."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")     # it is idle while pg_dump reads
        cursor.execute("SELECT pg_export_snapshot()")
        yield Snapshot(cursor.fetchone()[0], claims(), applied())


def claims() -> Claims:
    profiles = Profile.objects.order_by().values_list("pk", "status", "attempts")
    return Claims({pk: (status, attempts) for pk, status, attempts in profiles},
                  set(Capture.objects.order_by().values_list("pk", flat=True)),
                  set(StoredUpload.objects.order_by().values_list("key", flat=True)))


def users_of(keys: Iterable[str]) -> set[int]:
    """Return the profiles whose uploads these objects are."""
    return set(Profile.objects.filter(stored_uploads__key__in=keys).values_list("pk", flat=True))


def applied() -> list[list[str]]:
    """Return [app, name] of every applied migration; [] of an empty database."""
    return sorted([app, name] for app, name in MigrationRecorder(connection).applied_migrations())


def unknown(migrations: list[list[str]]) -> list[str]:
    """Return those that this version of the product does not have."""
    ours = MigrationLoader(None).disk_migrations
    return [f"{app}.{name}" for app, name in migrations if (app, name) not in ours]


def counts() -> dict[str, int]:
    """Return the number of rows of every table."""
    counts_by_table = {}
    with connection.cursor() as cursor:
        for table in tables():
            cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(table)}")
            counts_by_table[table] = int(cursor.fetchone()[0])
    return counts_by_table


def tables() -> list[str]:
    """Return the tables of this database, those that no model describes too; a partitioned one once."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition AND "
                       f"{_OURS.format('relnamespace')} ORDER BY relname")
        return [name for name, in cursor.fetchall()]


def server_major() -> int:
    connection.ensure_connection()
    return int(connection.pg_version) // 10_000        # type: ignore[attr-defined]    # of PostgreSQL's backend


def describe_data() -> list[str]:
    """Return what an installation holds, in words: [] of one that was at most started."""
    contents = []
    with connection.cursor() as cursor:
        for table in tables():
            if table in _OF_EVERY_START:
                continue
            where = "WHERE username <> %s" if table == "auth_user" else ""
            cursor.execute(f"SELECT count(*) FROM (SELECT 1 FROM {connection.ops.quote_name(table)} {where} LIMIT 1000) AS held",
                           [LOCAL_USER] if where else [])
            number = int(cursor.fetchone()[0])
            if number:
                contents.append(f"{table}: {number if number < 1000 else '1000 or more'}")
    return contents


def refuse_company() -> None:
    """Raise Refused where other sessions use the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
                       "AND backend_type = 'client backend'")
        others = int(cursor.fetchone()[0])
    if others:
        raise Refused(f"{others} other session{'s use' if others > 1 else ' uses'} this database: stop web and workers first")


def drop_all() -> None:
    """Remove all tables with their rows, views, functions and sequences, in one transaction; extensions stay."""
    with transaction.atomic(), connection.cursor() as cursor:
        for kinds, word in (("'r','p'", "TABLE"), ("'v'", "VIEW"), ("'m'", "MATERIALIZED VIEW"), ("'S'", "SEQUENCE")):
            cursor.execute(f"SELECT relname FROM pg_class WHERE relkind IN ({kinds}) AND NOT relispartition AND "
                           f"{_OURS.format('relnamespace')}")
            if names := [connection.ops.quote_name(name) for name, in cursor.fetchall()]:
                cursor.execute(f"DROP {word} {', '.join(names)} CASCADE")
        cursor.execute(f"SELECT oid::regprocedure::text FROM pg_proc WHERE {_OURS.format('pronamespace')}")
        for signature, in cursor.fetchall():
            cursor.execute(f"DROP ROUTINE {signature} CASCADE")


def settle(deleted: Iterable[int], deleted_captures: Iterable[int], reread: Iterable[int]) -> None:
    """Finish what happened between the moment of the rows and that of their objects.

    Profiles and captures that were deleted go; profiles whose derived objects were being written are ingested again.
    """
    with transaction.atomic():
        Capture.objects.filter(pk__in=deleted_captures).delete()
        Profile.objects.filter(pk__in=deleted).delete()
        Profile.objects.filter(pk__in=reread).update(
            status=Profile.Status.UPLOADED, attempts=0, worker="", heartbeat=None, error=None)
