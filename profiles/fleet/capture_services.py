"""Deep captures ordered here: which processes can be asked, what their agents are told, what became of them.

An order travels in the receipt of its agent's next batch (agents only connect outwards), again and again until the agent's state
names it; the agent begins it once."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from profiles.fleet.models import FleetAgent, FleetCapture
from profiles.models import Profile

SILENT = timedelta(minutes=3)       # of an agent that sent nothing for so long: an order would not reach it
OVERDUE = timedelta(minutes=10)     # without news of an order
MOST_PROCESSES = 16                 # in one order
MOST_OPEN = 64                      # of one agent
MOST_STEPS, MOST_MS = 50, 10_000
STEPS, MILLISECONDS = 3, 500
TOGETHER_S = 90                     # from an order to the moment at which several processes begin: each agent has asked by then
OPEN = (FleetCapture.State.ORDERED, FleetCapture.State.ASKED, FleetCapture.State.UPLOADING)


class OrderRefused(ValueError):
    """What cannot be ordered, and why. `field`: of the form."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


@dataclass(frozen=True)
class Process:
    """One that asks its agent whether to record."""

    agent: FleetAgent
    pid: int
    job: str
    rank: int | None

    @property
    def key(self) -> str:
        return f"{self.agent.pk}-{self.pid}"


def processes(job: str = "", host: str = "") -> list[Process]:
    """Return the processes of agents that report which can be captured, by job, host and rank."""
    found = []
    for agent in FleetAgent.objects.filter(last_seen__gte=timezone.now() - SILENT):
        told = agent.state.get("asking") if isinstance(agent.state, dict) else None
        for each in told if isinstance(told, list) else ():
            pid, rank = (each.get("pid"), each.get("rank")) if isinstance(each, dict) else (None, None)
            if not isinstance(pid, int) or not 0 < pid < 2**31:
                continue
            name = each.get("job")
            found.append(Process(agent, pid, name[:200] if isinstance(name, str) else "",
                                 rank if isinstance(rank, int) and 0 <= rank < 2**31 else None))
    wanted = [each for each in found if (not job or each.job == job) and (not host or each.agent.host == host)]
    return sorted(wanted, key=lambda each: (each.job, each.agent.host, -1 if each.rank is None else each.rank, each.pid))


def are_there(job: str = "") -> bool:
    """Return whether any process (of a job) can be captured, without reading them."""
    asking = {"state__asking__contains": [{"job": job}]} if job else {"state__asking__0__isnull": False}
    return FleetAgent.objects.filter(last_seen__gte=timezone.now() - SILENT, **asking).exists()


def order(keys: Collection[str], steps: int | None, milliseconds: int | None, user: Any, why: str = "") -> list[FleetCapture]:
    """Order captures of processes by `Process.key`: so many steps, or a time. Several begin at one moment, and record a time.

    Raises:
        OrderRefused: no process, too many, one that is gone, or sizes outside their limits.
    """
    if not keys:
        raise OrderRefused("process", "choose a process")
    if len(keys) > MOST_PROCESSES:
        raise OrderRefused("process", f"at most {MOST_PROCESSES} processes at once")
    known = {each.key: each for each in processes()}
    if gone := [key for key in keys if key not in known]:
        raise OrderRefused("process", f"{len(gone)} of them no longer ask{'s' if len(gone) == 1 else ''} for captures")
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise OrderRefused("steps", f"1 to {MOST_STEPS} steps")
    if milliseconds is not None and not 10 <= milliseconds <= MOST_MS:
        raise OrderRefused("milliseconds", f"10 to {MOST_MS:,} ms")
    if len(keys) > 1 and steps is not None:
        raise OrderRefused("steps", "several processes begin at one moment: give milliseconds in place of steps")
    for agent in {known[key].agent for key in keys}:
        if agent.captures.filter(state__in=OPEN, changed__gte=timezone.now() - OVERDUE).count() + len(keys) > MOST_OPEN:
            raise OrderRefused("process", f"{agent.host}: {MOST_OPEN} orders are open")
    start_ms = int((time.time() + TOGETHER_S) * 1e3) if len(keys) > 1 else 0
    counted = steps if steps is not None else 0 if milliseconds is not None else STEPS if len(keys) == 1 else 0
    return [FleetCapture.objects.create(
        agent=each.agent, pid=each.pid, job=each.job, rank=each.rank, steps=counted,
        milliseconds=0 if counted else milliseconds or MILLISECONDS, start_ms=start_ms, why_ordered=why[:300],
        ordered_by=user if getattr(user, "is_authenticated", False) else None) for each in map(known.__getitem__, keys)]


def exchange(agent: FleetAgent, state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Take what an agent says of its orders, and return those that it does not know yet."""
    rows = {row.pk: row for row in agent.captures.filter(state__in=OPEN)}
    if not rows:
        return []
    told = state.get("captures")
    for each in told if isinstance(told, list) else ():
        number = each.get("order") if isinstance(each, dict) else None
        row = rows.get(number) if isinstance(number, int) else None
        if row is not None:
            _update(row, each)
    since = timezone.now() - OVERDUE
    return [{"id": row.pk, "pid": row.pid, "job": row.job, "steps": row.steps, "milliseconds": row.milliseconds,
             "start_ms": row.start_ms} for row in rows.values()
            if row.state == FleetCapture.State.ORDERED and row.created >= since]


def _update(row: FleetCapture, told: Mapping[str, Any]) -> None:
    state, why, took_s, size, profile = (told.get(name) for name in ("state", "why", "took_s", "bytes", "profile"))
    if state not in FleetCapture.State.values or state == FleetCapture.State.ORDERED:
        return
    row.state, row.why = state, why[:300] if isinstance(why, str) else ""
    row.took_s = float(took_s) if isinstance(took_s, int | float) and 0 < took_s < 1e6 else None
    row.bytes = size if isinstance(size, int) and 0 < size < 2**62 else None
    if isinstance(profile, int) and 0 < profile < 2**62:        # only what was uploaded as a deep capture of a fleet is linked
        row.profile = Profile.objects.filter(pk=profile, tags__contains=["fleet", "deep"]).first()
    row.save()


def is_overdue(row: FleetCapture) -> bool:
    """Return whether nothing was heard of an order for too long: its agent restarted, or is gone."""
    return row.state in OPEN and row.changed < timezone.now() - OVERDUE
