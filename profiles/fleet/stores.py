"""Which store keeps the fleet's sums: one address decides."""

from __future__ import annotations

from typing import cast

from django.conf import settings

from profiles.fleet.postgres_store import PostgresStore
from profiles.fleet.store import FleetStore
from profiles.fleet.unseen_store import UnseenStore
from workers.scope import current


def fleet_store() -> FleetStore:
    """Return the store that `RIDGEPOINT_FLEET_URL` names, PostgreSQL where it names none; an empty one for who may not see it."""
    if not current().fleet:
        return cast(FleetStore, UnseenStore())
    if settings.FLEET_URL:
        from profiles.fleet.clickhouse_store import ClickHouseStore

        return ClickHouseStore(settings.FLEET_URL)
    return PostgresStore()
