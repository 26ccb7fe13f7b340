"""The migrations that stand for many make what the many make."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

OURS = ("profiles", "tuner", "webapp")
# what PostgreSQL holds, whatever the order in which columns and constraints were made
FACTS = {
    "columns": "SELECT table_name, column_name, udt_name, is_nullable, column_default, character_maximum_length, is_identity "
               "FROM information_schema.columns WHERE table_schema = 'public'",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "constraints": "SELECT conrelid::regclass::text, contype, pg_get_constraintdef(oid), conname FROM pg_constraint "
                   "WHERE connamespace = 'public'::regnamespace",
    "triggers": "SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "partitions": "SELECT partrelid::regclass::text, pg_get_partkeydef(partrelid) FROM pg_partitioned_table",
    "migrations": "SELECT app, name FROM django_migrations WHERE name NOT LIKE '%\\_squashed\\_%'",
    "projects": "SELECT id, slug, name FROM webapp_project",
}


def without_squashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on only the steps are found, as where a database has some of them."""
    whole = MigrationLoader.load_disk

    def load_steps(loader: MigrationLoader) -> None:
        whole(loader)
        for key in [key for key, each in loader.disk_migrations.items() if each.replaces and key[0] in OURS]:
            del loader.disk_migrations[key]
    monkeypatch.setattr(MigrationLoader, "load_disk", load_steps)


def models_by_name() -> dict[str, str]:
    """Each model of ours as the migrations leave it: fields, options, bases."""
    return {f"{app}.{name}": "\n".join([
        *(f"{field}: {' '.join(map(repr, each.deconstruct()[1:]))}".lower() for field, each in sorted(state.fields.items())),
        *(f"{key}: {sorted(map(repr, value)) if key in ('indexes', 'constraints') else value!r}"
          for key, value in sorted(state.options.items()) if value), repr(state.bases)])
        for (app, name), state in MigrationLoader(None).project_state().models.items() if app in OURS}


def test_the_state_is_that_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    squashed = models_by_name()
    without_squashed(monkeypatch)
    steps = models_by_name()
    assert len(steps) > 80 and sorted(squashed) == sorted(steps)
    assert [(squashed[name], steps[name]) for name in steps if squashed[name] != steps[name]] == []


@pytest.mark.deep_only
@pytest.mark.servers
def test_the_tables_are_those_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    by_squash = migrated("squashed")
    without_squashed(monkeypatch)
    by_steps = migrated("stepped")
    for what in FACTS:
        assert by_squash[what] == by_steps[what] and by_steps[what], what


def migrated(name: str) -> dict[str, list[Any]]:
    """What a fresh database holds when `migrate` has run."""
    server, name = os.environ["DATABASE_URL"], f"{name}_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        usual = connection.settings_dict["NAME"]
        connection.close()
        connection.settings_dict["NAME"] = name
        try:
            call_command("migrate", verbosity=0, interactive=False)
            with connection.cursor() as cursor:
                found = {}
                for what, query in FACTS.items():
                    cursor.execute(query)
                    found[what] = sorted(cursor.fetchall(), key=repr)
                return found
        finally:
            connection.close()
            connection.settings_dict["NAME"] = usual
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
