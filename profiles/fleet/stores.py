"""Which store keeps the fleet's sums: one address decides."""

from __future__ import annotations

from django.conf import settings

from profiles.fleet.postgres_store import PostgresStore
from profiles.fleet.store import FleetStore


def fleet_store() -> FleetStore:
    """Return the store that `RIDGEPOINT_FLEET_URL` names, PostgreSQL where it names none."""
    if settings.FLEET_URL:
        from profiles.fleet.clickhouse_store import ClickHouseStore

        return ClickHouseStore(settings.FLEET_URL)
    return PostgresStore()
