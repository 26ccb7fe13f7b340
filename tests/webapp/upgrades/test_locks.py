"""A migration that would lock a large table says so, and one that would not keeps silent."""

from __future__ import annotations

from io import StringIO

import pytest
from django.contrib.postgres import operations as postgres
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.migration import Migration
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState

from webapp.management.commands import migrate
from webapp.upgrades import locks


def found(*operations: Operation) -> list[str]:
    """Return the first word of each lock that these would hold on a table of a million rows."""
    state = ProjectState()
    state.add_model(ModelState("profiles", "large", [
        ("id", models.BigAutoField(primary_key=True)), ("name", models.CharField(max_length=80)),
        ("number", models.IntegerField(null=True))], {"db_table": "profiles_large"}))
    state.add_model(ModelState("profiles", "small", [("id", models.BigAutoField(primary_key=True))]))
    migration = Migration("9999_test", "profiles")
    migration.operations = list(operations)
    return [each.lock for each in locks.find_locks(migration, state, {"profiles_large": 1_000_000}.get)]


INDEX = models.Index(fields=["number"], name="large_number")
CHECK = models.CheckConstraint(condition=models.Q(number__gt=0), name="large_positive")


@pytest.mark.parametrize(("operation", "lock"), [
    (migrations.AddIndex("large", INDEX), locks.WRITES),
    (migrations.AddConstraint("large", CHECK), locks.ALL_SCAN),
    (migrations.AddConstraint("large", models.UniqueConstraint(fields=["name"], name="u")), locks.ALL_SCAN),
    (migrations.AddConstraint("large", models.UniqueConstraint(fields=["name"], name="u", condition=models.Q(number=1))),
     locks.WRITES),
    (migrations.AlterUniqueTogether("large", {("name", "number")}), locks.ALL_SCAN),
    (migrations.AlterField("large", "number", models.BigIntegerField(null=True)), locks.ALL_REWRITE),
    (migrations.AlterField("large", "name", models.CharField(max_length=40)), locks.ALL_REWRITE),
    (migrations.AlterField("large", "number", models.IntegerField()), locks.ALL_SCAN),
    (migrations.AlterField("large", "number", models.IntegerField(null=True, db_index=True)), locks.WRITES),
    (migrations.AddField("large", "owner", models.IntegerField(null=True, db_index=True)), locks.WRITES),
    (migrations.AddField("large", "code", models.IntegerField(null=True, unique=True)), locks.ALL_SCAN),
    (migrations.RunSQL("UPDATE profiles_large SET number = 1"), locks.UNKNOWN),
    (migrations.SeparateDatabaseAndState(database_operations=[migrations.AddIndex("large", INDEX)]), locks.WRITES),
])
def test_what_locks_is_told(operation: Operation, lock: str) -> None:
    assert found(operation) == [lock]


@pytest.mark.parametrize("operation", [
    postgres.AddIndexConcurrently("large", INDEX), postgres.AddConstraintNotValid("large", CHECK),
    migrations.AddField("large", "note", models.TextField(default="")),
    migrations.AddField("large", "n", models.IntegerField(null=True)),
    migrations.AlterField("large", "name", models.CharField(max_length=120)),
    migrations.AlterField("large", "name", models.TextField()),
    migrations.AlterField("large", "name", models.CharField(max_length=80, blank=True)),
    migrations.RemoveField("large", "number"), migrations.RenameField("large", "number", "amount"),
    migrations.AlterModelOptions("large", {"ordering": ["id"]}),
    migrations.AddIndex("small", models.Index(fields=["id"], name="s")),
    migrations.CreateModel("another", [("id", models.BigAutoField(primary_key=True))]),
    migrations.SeparateDatabaseAndState(state_operations=[migrations.AddIndex("large", INDEX)]),
])
def test_what_does_not_lock_is_not(operation: Operation) -> None:
    assert found(operation) == []


def test_operations_follow_each_other() -> None:
    """A table that a migration renames is known by its new name afterwards, a new one holds no rows."""
    assert found(migrations.CreateModel("fresh", [("id", models.BigAutoField(primary_key=True)), ("n", models.IntegerField())]),
                 migrations.AddIndex("fresh", models.Index(fields=["n"], name="fresh_n")),
                 migrations.RenameField("large", "number", "amount"),
                 migrations.AddIndex("large", models.Index(fields=["amount"], name="large_amount"))) == [locks.WRITES]


def test_every_kind_of_operation_of_our_migrations_is_known() -> None:
    """Whatever stands in the migrations of this project is judged, and not called unknown for want of a rule."""
    from django.db.migrations.loader import MigrationLoader

    judged = (*locks.SAFE, migrations.AddIndex, migrations.AddConstraint, migrations.AlterUniqueTogether, migrations.AddField,
              migrations.AlterField, migrations.RunPython, migrations.RunSQL, migrations.SeparateDatabaseAndState)
    ours = [each for (app, _), each in MigrationLoader(None).disk_migrations.items() if app in ("profiles", "tuner", "webapp")]
    assert len(ours) > 40
    assert {type(each).__name__ for migration in ours for each in migration.operations if not isinstance(each, judged)} == set()


@pytest.mark.django_db
def test_migrate_says_it_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pg_class SET reltuples = 250000 WHERE relname = 'profiles_profile'")
    assert locks.table_rows()["profiles_profile"] == 250_000
    migration = Migration("9999_test", "profiles")
    migration.operations = [migrations.AddIndex("profile", models.Index(fields=["name"], name="profile_name"))]
    whole = locks.pending_locks
    assert whole() == []                                # nothing is pending
    monkeypatch.setattr(migrate, "pending_locks", lambda: whole([(migration, False)]))
    said = StringIO()
    call_command("migrate", verbosity=0, stdout=StringIO(), stderr=said)
    line = said.getvalue().strip()
    assert line.startswith("profiles.9999_test: Create index profile_name on field(s) name of model profile: ")
    assert "profiles_profile (about 250,000 rows)" in line
    assert "SHARE: writes wait" in line and line.endswith("how long is unknown")


def test_a_lock_reads_as_one_line() -> None:
    text = str(locks.Lock("profiles.0099_x", "Add field", "profiles_profile", 1_500_000, locks.WRITES))
    assert "\n" not in text and "1,500,000 rows" in text
