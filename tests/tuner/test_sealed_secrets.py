"""What the migration sealed is what the product opens, and back."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

from workers.secret import seal, unseal

MIGRATION = importlib.import_module("tuner.migrations.0013_sealed_secrets")


class Row(SimpleNamespace):
    def save(self, update_fields: list[str]) -> None:
        assert update_fields == ["secret"]


def apps_with(rows: list[Row]) -> SimpleNamespace:
    """An app registry whose table of destinations holds these rows."""
    query = SimpleNamespace(iterator=lambda: iter([row for row in rows if row.secret]))
    model = SimpleNamespace(objects=SimpleNamespace(exclude=lambda **empty: query))
    return SimpleNamespace(get_model=lambda app, name: model)


@pytest.mark.parametrize("secret", ["whsec_1", "ünïcode", ""])
def test_the_product_opens_what_the_migration_sealed(secret: str) -> None:
    row = Row(secret=secret)
    MIGRATION.seal(apps_with([row]), None)
    assert unseal(row.secret) == secret and (row.secret != secret or not secret)


def test_the_migration_opens_what_the_product_sealed() -> None:
    row = Row(secret=seal("whsec_1"))
    MIGRATION.unseal(apps_with([row]), None)
    assert row.secret == "whsec_1"
