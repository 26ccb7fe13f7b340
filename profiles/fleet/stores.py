"""Which store keeps the fleet's sums: one address decides."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings

from profiles.fleet.postgres_store import PostgresStore
from profiles.fleet.slow.compared import GpuHours
from profiles.fleet.store import Coverage, FleetStore, SumRow
from workers.scope import current

# ---- the store of who may not see the fleet's sums ----
# It answers as one that holds nothing.

_NOTHING = SumRow(None, 0, 0, 0.0, 0.0, 0.0, 0.0, None, None)


class UnseenStore:
    """`profiles.fleet.store.FleetStore` without rows; nothing is written through it."""

    shares_transaction = True

    def top(self, question: Any) -> tuple[list[SumRow], SumRow]:
        return [], _NOTHING

    def coverage(self, question: Any) -> Coverage:
        return Coverage()

    def extent(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name in ("over_time", "watched", "watched_gpus", "telemetry"):
            return lambda *question, **more: []
        if name == "gpu_hours":
            return lambda question: GpuHours.of_rows([])
        raise AttributeError(f"the fleet's sums are of the whole installation: {name} is not for a member of one project")


# ---- which store keeps the fleet's sums ----

def fleet_store() -> FleetStore:
    """Return the store that `RIDGEPOINT_FLEET_URL` names, PostgreSQL where it names none; an empty one for who may not see it."""
    if not current().fleet:
        return cast(FleetStore, UnseenStore())
    if settings.FLEET_URL:
        from profiles.fleet.clickhouse_store import ClickHouseStore

        return ClickHouseStore(settings.FLEET_URL)
    return PostgresStore()
