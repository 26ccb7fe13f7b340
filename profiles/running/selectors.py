"""Reads of captures of serving engines and of schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from profiles.analysis.core.sentences import plain_number
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
        told = (self.row.cost or {}).get("during_pct") or []
        if len(told) != 3 or told[1] is None:
            return ""
        return f"{told[1]:+.1f} %" + (f" ({told[0]:+.1f} to {told[2]:+.1f})" if told[0] is not None else "")

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


def engine_json(row: EngineCapture) -> dict[str, Any]:
    return {"id": row.pk, "server": row.server_id, "server_name": row.server.name, "until": row.until, "seconds": row.seconds,
            "threshold_ms": row.threshold_ms, "latency": row.latency or None, "options": row.options, "build": row.build,
            "status": row.status, "phase": row.phase, "error": row.error, "slow_seen": row.slow_seen, "cost": row.cost,
            "profile": row.profile_id, "profile_status": row.profile.status if row.profile_id and row.profile else None,
            "schedule": row.schedule_id, "created": row.created.isoformat(),
            "finished": row.finished.isoformat() if row.finished else None}


def server_json(row: EngineServer) -> dict[str, Any]:
    """Return a server without its token."""
    return {"id": row.pk, "name": row.name, "kind": row.kind, "address": row.address, "has_token": bool(row.token),
            "results": row.results, "folder": row.folder, "host": row.host, "enabled": row.enabled, "version": row.version or None,
            "problem": row.problem, "asked": row.asked.isoformat() if row.asked else None}


def host_json(each: HostFolders) -> dict[str, Any]:
    return {"host": each.host, "agent": each.agent.name, "folders": list(each.folders), "away": each.is_away}


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


def schedule_json(line: ScheduleLine) -> dict[str, Any]:
    row = line.row
    return {"id": row.pk, "name": row.name, "enabled": row.enabled, "when": row.when, "minute": row.minute,
            "requests": row.requests, "server": row.server_id, "job": row.job, "host": row.host, "ranks": row.ranks,
            "most": row.most, "options": row.options,
            "per_day": row.per_day, "per_job_day": row.per_job_day, "spent": line.spent,
            "next_due": row.next_due.isoformat() if row.next_due else None,
            "last_run": row.last_run.isoformat() if row.last_run else None, "last_why": row.last_why,
            "profile": line.last.profile_id if line.last else None}


def _last(row: CaptureSchedule) -> FleetCapture | EngineCapture | None:
    rows: Any = (EngineCapture if row.server_id else FleetCapture).objects
    found: FleetCapture | EngineCapture | None = rows.filter(schedule=row).select_related("profile").order_by("-pk").first()
    return found
