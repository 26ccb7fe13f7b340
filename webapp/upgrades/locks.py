"""Which pending migrations would lock a large table, told before they run.

The locks are PostgreSQL's (Explicit Locking, ALTER TABLE, CREATE INDEX). How long they last depends on rows, disk and load, so
nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.postgres import operations as postgres
from django.db import connection, migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

LARGE_ROWS = 100_000        # from about here on people notice
WRITES = "SHARE: writes wait while it is built"
ALL_SCAN = "ACCESS EXCLUSIVE: reads and writes wait while every row is checked"
ALL_REWRITE = "ACCESS EXCLUSIVE: reads and writes wait while the table is written anew"
UNKNOWN = "unknown: it runs statements of its own"

# these take a lock for a moment and read no rows, or wait beside readers and writers
SAFE: tuple[type[Operation], ...] = (
    migrations.CreateModel, migrations.DeleteModel, migrations.RenameModel, migrations.RenameField, migrations.RenameIndex,
    migrations.RemoveField, migrations.RemoveIndex, migrations.RemoveConstraint, migrations.AlterModelOptions,
    migrations.AlterModelManagers, migrations.AlterModelTable, migrations.AlterModelTableComment,
    postgres.AddIndexConcurrently, postgres.RemoveIndexConcurrently, postgres.AddConstraintNotValid, postgres.ValidateConstraint,
    postgres.CreateExtension)


@dataclass(frozen=True)
class Lock:
    """One operation that holds a lock on a table for as long as its rows take."""

    migration: str          # "profiles.0015_fleet"
    operation: str
    table: str
    rows: int               # estimated
    lock: str

    def __str__(self) -> str:
        return (f"{self.migration}: {self.operation}: {self.table} (about {self.rows:,} rows), lock {self.lock}; "
                "how long is unknown")


def pending_locks(plan: Iterable[tuple[Migration, bool]] | None = None, *, large_rows: int = LARGE_ROWS) -> list[Lock]:
    """Return the locks of a plan (default: of everything that is pending) on tables of at least `large_rows` rows."""
    executor = MigrationExecutor(connection)
    planned = list(executor.migration_plan(executor.loader.graph.leaf_nodes()) if plan is None else plan)
    sizes = {table: rows for table, rows in table_rows().items() if rows >= large_rows}
    if not planned or not sizes:
        return []
    state: ProjectState = executor._create_project_state(with_applied_migrations=True)      # type: ignore[attr-defined]
    locks: list[Lock] = []
    for migration, backwards in planned:
        if not backwards:
            locks += find_locks(migration, state, sizes.get)
    return locks


def find_locks(migration: Migration, state: ProjectState, rows_of: Callable[[str], int | None]) -> Iterator[Lock]:
    """Yield the locks of one migration; `state` is moved past it. `rows_of` answers for large tables alone."""
    app = migration.app_label
    for operation in _flatten(migration.operations):
        before = state.clone()
        operation.state_forwards(app, state)
        for table, lock in _locks_of(operation, app, before, state):
            if not table:           # any table of the app
                sizes = ((rows_of(name) or 0, name) for name in map(_table, _models(before, app)))
                rows, table = max(sizes, default=(0, ""))
            else:
                rows = rows_of(table) or 0
            if rows:
                yield Lock(f"{app}.{migration.name}", operation.describe(), table, rows, lock)


def table_rows() -> dict[str, int]:
    """Return the estimated rows of every table: what was last analysed, or counted since."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT c.relname, greatest(c.reltuples, s.n_live_tup, 0)::bigint FROM pg_class c "
                       "JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.relnamespace = current_schema()::regnamespace")
        return dict(cursor.fetchall())


def _flatten(operations: Iterable[Operation]) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, migrations.SeparateDatabaseAndState):
            yield from _flatten(operation.database_operations)
            yield migrations.SeparateDatabaseAndState(state_operations=operation.state_operations)
        else:
            yield operation


def _locks_of(operation: Any, app: str, before: ProjectState, after: ProjectState) -> Iterator[tuple[str, str]]:
    """Yield (table, lock); table "" stands for any of the app's."""
    if isinstance(operation, (*SAFE, migrations.SeparateDatabaseAndState)):
        return
    if isinstance(operation, migrations.RunPython | migrations.RunSQL):
        named = (getattr(operation, "hints", None) or {}).get("tables", ("",))
        yield from ((table, UNKNOWN) for table in named)
        return
    model = before.models.get((app, str(getattr(operation, "model_name", getattr(operation, "name", ""))).lower()))
    if model is None:
        yield "", UNKNOWN
    elif isinstance(operation, migrations.AddIndex):
        yield _table(model), WRITES
    elif isinstance(operation, migrations.AddConstraint):
        partial = isinstance(operation.constraint, models.UniqueConstraint) and (
            operation.constraint.condition is not None or bool(operation.constraint.expressions))
        yield _table(model), WRITES if partial else ALL_SCAN
    elif isinstance(operation, migrations.AlterUniqueTogether):
        yield _table(model), ALL_SCAN
    elif isinstance(operation, migrations.AddField):
        yield from ((_table(model), lock) for lock in _of_new_field(operation.field))
    elif isinstance(operation, migrations.AlterField):
        old = before.apps.get_model(app, operation.model_name)._meta.get_field(operation.name)
        new = after.apps.get_model(app, operation.model_name)._meta.get_field(operation.name)
        yield from ((_table(model), lock) for lock in _of_changed_field(old, new))
    else:
        yield _table(model), UNKNOWN


def _of_new_field(field: Any) -> Iterator[str]:
    """A new column costs nothing, whatever constant it holds; its index and a value of each row's own do."""
    constant = not field.has_db_default() or isinstance(field.db_default, str | int | float | bool)
    if getattr(field, "generated", False) or not constant:
        yield ALL_REWRITE
    elif field.unique:
        yield ALL_SCAN
    elif field.db_index:
        yield WRITES


def _of_changed_field(old: Any, new: Any) -> Iterator[str]:
    was, becomes = old.db_parameters(connection)["type"] or "", new.db_parameters(connection)["type"] or ""
    if was != becomes and not _is_wider_text(was, becomes):
        yield ALL_REWRITE
    elif (old.null and not new.null) or (new.unique and not old.unique):
        yield ALL_SCAN
    elif new.db_index and not old.db_index:
        yield WRITES


def _is_wider_text(was: str, becomes: str) -> bool:
    """PostgreSQL changes these in the catalogue alone."""
    if not was.startswith("varchar") or not (becomes == "text" or becomes.startswith("varchar")):
        return False
    return becomes in ("text", "varchar") or (was != "varchar" and _length(becomes) >= _length(was))


def _length(kind: str) -> int:
    return int(kind.partition("(")[2].rstrip(")"))


def _models(state: ProjectState, app: str) -> list[Any]:
    return [model for (label, _), model in state.models.items() if label == app]


def _table(model: Any) -> str:
    return str(model.options.get("db_table") or f"{model.app_label}_{model.name_lower}")
