"""Reads of captures of serving engines and of schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

from django.db.models import QuerySet

from profiles.analysis.core.sentences import plain_number
from profiles.base.answers import ErrorJson, Facts, make_answer
from profiles.models import FleetCapture
from profiles.running.engine_services import QUEUE
from profiles.running.fetch_services import HostFolders
from profiles.running.models import CaptureSchedule, EngineCapture, EngineServer
from profiles.running.schedule_services import spent
from workers import jobs

Status = EngineCapture.Status


@dataclass(frozen=True)
class EngineLine:
    row: EngineCapture

    @property
    def is_open(self) -> bool:
        return self.row.status in (Status.QUEUED, Status.RUNNING)

    @property
    def asked(self) -> str:
        row = self.row
        if row.until == EngineCapture.Until.SLOW:
            return f"a {'first token' if row.latency == 'ttft' else 'request'} over {row.threshold_ms:g} ms, ≤ {row.seconds:g} s"
        steps = row.options.get("max_iterations") or row.options.get("num_steps")
        return f"{steps} steps, ≤ {row.seconds:g} s" if row.until == EngineCapture.Until.STEPS else f"{row.seconds:g} s"

    @property
    def slower(self) -> str:
        """Return how much longer an output token took while it was recorded; "" where that is not known."""
        change = (self.row.cost or {}).get("during_pct") or []
        if len(change) != 3 or change[1] is None:
            return ""
        return f"{change[1]:+.1f} %" + (f" ({change[0]:+.1f} to {change[2]:+.1f})" if change[0] is not None else "")

    @property
    def cost_title(self) -> str:
        cost = self.row.cost or {}
        if not self.slower:
            return str(cost.get("why") or "not measured")
        before, during, after = (cost[name][0] for name in ("before_ms", "during_ms", "after_ms"))
        return f"output token {plain_number(before)} ms before, {plain_number(during)} ms during, {plain_number(after)} ms after"


def engine_captures(server: EngineServer | None = None) -> QuerySet[EngineCapture]:
    """Newest first."""
    rows = EngineCapture.objects.select_related("server", "owner", "profile", "schedule")
    return rows.filter(server=server) if server else rows


class EngineCaptureJson(TypedDict):
    """A capture of a serving engine; `seconds`: a time, or at most; `slow_seen`: a slow request came; `cost`: of output tokens."""

    id: int
    server: int
    server_name: str
    until: str
    seconds: float
    threshold_ms: float | None
    latency: str | None
    options: Facts
    build: str
    status: str
    phase: str
    error: ErrorJson | None
    slow_seen: bool | None
    cost: Facts | None
    profile: int | None
    profile_status: str | None
    schedule: int | None
    created: str
    finished: str | None


def engine_json(row: EngineCapture) -> EngineCaptureJson:
    return make_answer(EngineCaptureJson, row, server=row.server_id, server_name=row.server.name, latency=row.latency or None,
                       profile=row.profile_id, profile_status=row.profile.status if row.profile_id and row.profile else None,
                       schedule=row.schedule_id)


class EngineServerJson(TypedDict):
    """A serving engine; `version` and `problem`: of when it was `asked` last."""

    id: int
    name: str
    kind: str
    address: str
    has_token: bool
    results: str
    folder: str
    host: str
    enabled: bool
    version: str | None
    problem: str
    asked: str | None


def server_json(row: EngineServer) -> EngineServerJson:
    """Return a server without its token."""
    return make_answer(EngineServerJson, row, has_token=bool(row.token), version=row.version or None)


class HostJson(TypedDict):
    """A host whose agent fetches traces, and its folders."""

    host: str
    agent: str
    folders: list[str]
    away: bool


def host_json(host: HostFolders) -> HostJson:
    return make_answer(HostJson, host, agent=host.agent.name, away=host.is_away)


def has_worker() -> bool:
    """Return whether a living worker takes captures of serving engines."""
    return any(QUEUE in worker.get("queues", ()) for worker in jobs.workers())


@dataclass(frozen=True)
class ScheduleLine:
    """A schedule with its last capture, of a process or of a server, and what it spent of the day's budget."""

    row: CaptureSchedule
    spent: int
    last: FleetCapture | EngineCapture | None

    @property
    def profile(self) -> Any:
        return self.last.profile if self.last is not None else None

    @property
    def what(self) -> str:
        row = self.row
        if row.server is not None:
            return row.server.name
        ranks, host = f"ranks {row.ranks}" if row.ranks else "", f"on {row.host}" if row.host else ""
        return " ".join(filter(None, (row.job or "the regression's jobs", ranks, host)))

    @property
    def clock(self) -> str:
        row = self.row
        if row.when == CaptureSchedule.When.NIGHT:
            return f"every night {row.minute // 60:02}:{row.minute % 60:02} UTC"
        if row.when == CaptureSchedule.When.REQUESTS:
            return f"1 of {row.requests:,} requests"
        return str(row.get_when_display())


def schedule_lines() -> list[ScheduleLine]:
    """Return every schedule by name."""
    return [schedule_line(row) for row in CaptureSchedule.objects.select_related("server", "author")]


def schedule_line(row: CaptureSchedule) -> ScheduleLine:
    return ScheduleLine(row, spent(row), _last(row))


class ScheduleJson(TypedDict):
    """Captures by a schedule; budgets are captures a day, of it and of its job or server; `spent`: of today's."""

    id: int
    name: str
    enabled: bool
    when: str
    minute: int
    requests: int
    server: int | None
    job: str
    host: str
    ranks: str
    most: int
    options: Facts
    per_day: int
    per_job_day: int
    spent: int
    next_due: str | None
    last_run: str | None
    last_why: str
    profile: int | None


def schedule_json(line: ScheduleLine) -> ScheduleJson:
    return make_answer(ScheduleJson, line.row, server=line.row.server_id, spent=line.spent,
                       profile=line.last.profile_id if line.last else None)


def _last(row: CaptureSchedule) -> FleetCapture | EngineCapture | None:
    rows: Any = (EngineCapture if row.server_id else FleetCapture).objects
    capture: FleetCapture | EngineCapture | None = rows.filter(schedule=row).select_related("profile").order_by("-pk").first()
    return capture
