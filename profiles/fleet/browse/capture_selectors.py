"""Deep captures of the fleet: what can be ordered, and what became of what was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from django.db.models import QuerySet

from profiles.analysis.core.sentences import plain_number
from profiles.base.answers import Facts, make_answer
from profiles.fleet.capture_services import Process, is_overdue
from profiles.models import FleetCapture

STATE_WORDS = {"ordered": "waits for its agent", "asked": "recording", "uploading": "uploading", "uploaded": "uploaded",
               "failed": "failed", "overdue": "no news of it", "stopped": "stopped", "joining": "waits for the other ranks"}


@dataclass(frozen=True)
class CaptureLine:
    row: FleetCapture
    state: str                      # of FleetCapture.State, or "overdue"

    @property
    def words(self) -> str:
        return STATE_WORDS[self.state]

    @property
    def is_open(self) -> bool:
        return self.state in ("ordered", "asked", "uploading", "joining")

    @property
    def asked(self) -> str:
        return f"{self.row.steps} step{'s' if self.row.steps > 1 else ''}" if self.row.steps else f"{self.row.milliseconds:,} ms"

    @property
    def is_ready(self) -> bool:
        """Return whether its profile can be opened."""
        return bool(self.row.profile_id and self.row.profile and self.row.profile.status == "ready")

    @property
    def is_ended(self) -> bool:
        """Return whether nothing more comes: its profile was read or failed, or there will be none."""
        if self.row.profile_id and self.row.profile:
            return self.row.profile.status in ("ready", "failed")
        return self.state in ("failed", "overdue", "stopped")

    @property
    def slower(self) -> str:
        """Return how much longer steps were while it was made, with the interval; "" where that is not known."""
        told = (self.row.cost or {}).get("during_pct") or []
        if len(told) != 3 or told[1] is None:
            return ""
        return f"{told[1]:+.1f} %" + (f" ({told[0]:+.1f} to {told[2]:+.1f})" if told[0] is not None and told[2] is not None else "")

    @property
    def cost_title(self) -> str:
        """Return what its cost rests on, or why it is unknown."""
        cost = self.row.cost or {}
        if not self.slower:
            later = "measured half a minute after the trace" if self.state == "uploaded" else "not measured"
            return str(cost.get("why") or later)
        before, during, after = (cost[name][0] for name in ("before_ms", "during_ms", "after_ms"))
        return (f"step {plain_number(before)} ms before, {plain_number(during)} ms during, {plain_number(after)} ms after; "
                f"{plain_number(cost.get('lost_s') or 0)} s lost")

    def as_json(self) -> FleetCaptureJson:
        row = self.row
        return make_answer(
            FleetCaptureJson, row, host=row.agent.host, agent=row.agent.name, steps=row.steps or None, state=self.state,
            milliseconds=row.milliseconds or None, profile=row.profile_id,
            profile_status=row.profile.status if row.profile_id and row.profile else None,
            together=str(row.together) if row.together else None)


class FleetCaptureJson(TypedDict):
    """An order to capture a process, and what became of it; `together`: of processes whose traces become one profile."""

    id: int
    host: str
    agent: str
    pid: int
    job: str
    rank: int | None
    steps: int | None
    milliseconds: int | None
    state: str
    why: str
    took_s: float | None
    bytes: int | None
    profile: int | None
    profile_status: str | None
    shapes: bool
    stacks: bool
    together: str | None
    cost: Facts | None
    created: str


def captures(query: Mapping[str, str]) -> QuerySet[FleetCapture]:
    """Return orders by `job` and `host`, newest first."""
    rows = FleetCapture.objects.select_related("agent", "profile", "ordered_by", "schedule")
    for name, field in (("job", "job"), ("host", "agent__host")):
        if word := query.get(name, "")[:200]:
            rows = rows.filter(**{field: word})
    return rows


def line_of(row: FleetCapture) -> CaptureLine:
    if row.part and not row.profile_id:
        return CaptureLine(row, "joining")
    return CaptureLine(row, "overdue" if is_overdue(row) else row.state)


class ProcessJson(TypedDict):
    """A process that can be captured."""

    process: str
    job: str
    rank: int | None
    host: str
    pid: int
    build: str
    command: str
    gpu: str | None
    on_gpu: bool | None
    launcher: bool


def process_json(process: Process) -> ProcessJson:
    return make_answer(ProcessJson, process, process=process.key, host=process.agent.host, gpu=process.gpu or None)
