"""Deep captures of the fleet: what can be ordered, and what became of what was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from profiles.fleet.capture_services import is_overdue
from profiles.models import FleetCapture

STATE_WORDS = {"ordered": "waits for its agent", "asked": "recording", "uploading": "uploading", "uploaded": "uploaded",
               "failed": "failed", "overdue": "no news of it"}


@dataclass(frozen=True)
class CaptureLine:
    row: FleetCapture
    state: str                      # of FleetCapture.State, or "overdue"

    @property
    def words(self) -> str:
        return STATE_WORDS[self.state]

    @property
    def is_open(self) -> bool:
        return self.state in ("ordered", "asked", "uploading")

    @property
    def asked(self) -> str:
        return f"{self.row.steps} step{'s' if self.row.steps > 1 else ''}" if self.row.steps else f"{self.row.milliseconds:,} ms"

    def as_json(self) -> dict[str, Any]:
        row = self.row
        return {"id": row.pk, "host": row.agent.host, "agent": row.agent.name, "pid": row.pid, "job": row.job, "rank": row.rank,
                "steps": row.steps or None, "milliseconds": row.milliseconds or None, "state": self.state, "why": row.why,
                "took_s": row.took_s, "bytes": row.bytes, "profile": row.profile_id, "created": row.created.isoformat()}


def captures(query: Mapping[str, str]) -> QuerySet[FleetCapture]:
    """Return orders by `job` and `host`, newest first."""
    rows = FleetCapture.objects.select_related("agent", "profile", "ordered_by")
    for name, field in (("job", "job"), ("host", "agent__host")):
        if word := query.get(name, "")[:200]:
            rows = rows.filter(**{field: word})
    return rows


def line_of(row: FleetCapture) -> CaptureLine:
    return CaptureLine(row, "overdue" if is_overdue(row) else row.state)
