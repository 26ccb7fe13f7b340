"""What the server of a schedule answers before the schedule is locked: a server may take seconds, and nobody waits for it then."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.running import engine_services
from profiles.running.engines.client import EngineProblem
from profiles.running.models import CaptureSchedule
from workers import jobs

ASKED_MS = 25_000                       # a server is asked by one worker at a time; it answers within seconds or not at all
When = CaptureSchedule.When


@dataclass(frozen=True)
class Look:
    """`problem`: why the server did not say it."""

    server_id: int | None = None
    version: str = ""
    requests: float | None = None
    problem: str = ""


def may_ask(schedule: CaptureSchedule) -> bool:
    """Return whether no other worker asks the server now: many would wait for one that does not answer."""
    key = f"ridgepoint:schedule:{schedule.pk}:{schedule.next_due}"
    return schedule.server is None or jobs.take_turn(key, ASKED_MS)


def look_at(schedule: CaptureSchedule) -> Look:
    """Ask the server of a schedule what decides over it, within seconds."""
    server = schedule.server
    if server is None:
        return Look()
    if schedule.when == When.BUILD:
        return Look(server.pk, version=engine_services.ask_version(server).version)
    if schedule.when != When.REQUESTS:
        return Look(server.pk)
    try:
        count = engine_services.engine_of(server).metrics().requests(server.kind)
    except EngineProblem as problem:
        return Look(server.pk, problem=problem.what)
    return Look(server.pk, requests=count, problem="its metrics do not count requests" if count is None else "")
