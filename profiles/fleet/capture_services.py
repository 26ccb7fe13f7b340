"""Deep captures ordered here: which processes can be asked, what their agents are told, what became of them.

An order travels in an answer to its agent (agents only connect outwards), again and again until the agent's state names it; the
agent begins it once. While processes ask for captures, their agent asks for orders every few seconds, more rarely where agents are
many."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict

from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.fleet.agent_services import agent_take
from profiles.fleet.models import FleetAgent, FleetCapture
from profiles.models import Profile
from profiles.retention.services import require_quota
from profiles.rows import json_safe
from workers import clock, disk

GPU_WORKERS = "gpu-worker:"         # names of GPU workers that stand in for an agent of their host
SILENT = timedelta(minutes=3)       # of an agent that sent nothing for so long: an order would not reach it
OVERDUE = timedelta(minutes=10)     # without news of an order
MOST_PROCESSES = 16                 # in one order
MOST_OPEN = 64                      # of one agent
MOST_STEPS, MOST_MS = 50, 10_000
STEPS, MILLISECONDS = 3, 500
TOGETHER_S = 20                     # from an order to the moment at which several processes begin, beside `ask_again_s`
ASKS_A_S = 20                       # of all agents: questions for orders
TOGETHER_OF_BEFORE_S = 90           # of agents that ask for orders once a minute only
LEAST_AGAIN_S, MOST_AGAIN_S = 2.0, 60.0
COSTS = ("before_ms", "during_ms", "after_ms", "during_pct", "after_pct")
STOPPED_LATELY = timedelta(minutes=5)       # agents are told to stop for so long
MOST_COMMAND, MOST_WORD = 300, 200
OPEN = (FleetCapture.State.ORDERED, FleetCapture.State.ASKED, FleetCapture.State.UPLOADING)


@dataclass(frozen=True)
class Process:
    """One that asks its agent whether to record. `gpu`: UUID, or its number as CUDA counts; "" where it is not known.

    `on_gpu`: None where that may not be looked at. A `launcher` started others that ask, and holds no GPU itself."""

    agent: FleetAgent
    pid: int
    job: str
    rank: int | None
    build: str = ""
    command: str = ""
    gpu: str = ""
    on_gpu: bool | None = None
    launcher: bool = False

    @property
    def key(self) -> str:
        return f"{self.agent.pk}-{self.pid}"


def processes(job: str = "", host: str = "", gpu: str = "", launchers: bool = False) -> list[Process]:
    """Return the processes of agents that report which can be captured, by job, host and rank; launchers only where asked for."""
    pool = [process for agent in FleetAgent.objects.filter(last_seen__gte=timezone.now() - SILENT) for process in _asking(agent)]
    selection = [process for process in pool if (not job or process.job == job) and (not host or process.agent.host == host)
                 and (not gpu or process.gpu == gpu) and (launchers or not process.launcher)]
    return sorted(selection, key=lambda each: (each.job, each.agent.host, -1 if each.rank is None else each.rank, each.pid))


def _asking(agent: FleetAgent) -> Iterator[Process]:
    reports = agent.state.get("asking") if isinstance(agent.state, dict) else None
    for report in reports if isinstance(reports, list) else ():
        pid, rank = (report.get("pid"), report.get("rank")) if isinstance(report, dict) else (None, None)
        if not isinstance(pid, int) or not 0 < pid < 2**31:
            continue
        index, on_gpu = report.get("index"), report.get("on_gpu")
        gpu = _word(report.get("gpu")) or (f"GPU {index}" if isinstance(index, int) and 0 <= index < 1024 else "")
        yield Process(agent, pid, _word(report.get("job")), rank if isinstance(rank, int) and 0 <= rank < 2**31 else None,
                      _word(report.get("build")), _word(report.get("command"))[:MOST_COMMAND], gpu,
                      on_gpu if isinstance(on_gpu, bool) else None, report.get("role") == "launcher")


def _word(value: Any, most: int = MOST_COMMAND) -> str:
    return "".join(value.split("\0"))[:most] if isinstance(value, str) else ""


def with_ranks(found: Sequence[Process], ranks: str) -> list[Process]:
    """Return those of ranks as "0,2-5"; all where it is empty. Raises Refused."""
    if not ranks.strip():
        return list(found)
    numbers: set[int] = set()
    for part in ranks.split(","):
        low, dash, high = part.strip().partition("-")
        if not (low.isdecimal() and (high.isdecimal() if dash else True) and len(low) < 7 and len(high) < 7):
            raise Refused({"ranks": "ranks as 0,2-5"})
        numbers.update(range(int(low), min(int(high or low), int(low) + 4096) + 1))
    return [process for process in found if process.rank in numbers]


def chosen(job: str = "", host: str = "", pid: int = 0, ranks: str = "", most: int = 1, build: str = "") -> list[str]:
    """Return keys of processes by job, host and pid: those of ranks, else the first `most`; none where nothing is asked for.

    `build`: only processes that say they run it; where none does, those that do not say what they run.

    Raises:
        Refused: `ranks` has another form.
    """
    pool = [process for process in processes(job, host) if pid in (0, process.pid)] if job or host or pid else []
    if build:
        pool = [process for process in pool if process.build == build] or [process for process in pool if not process.build]
    return [process.key for process in with_ranks(pool, ranks)][:MOST_PROCESSES + 1 if ranks.strip() else max(1, most)]


def again_s() -> float:
    """Return how often an agent with processes that ask for captures may ask for orders, in seconds."""
    reporting = FleetAgent.objects.filter(last_seen__gte=timezone.now() - SILENT).count()
    return min(MOST_AGAIN_S, max(LEAST_AGAIN_S, reporting / ASKS_A_S))


class OrderJson(TypedDict, total=False):
    """What an agent shall do: make capture `id` of a process, collect traces of fetch `fetch` from a folder; `stop`: no more."""

    id: int
    pid: int
    job: str
    steps: int | None
    milliseconds: int | None
    start_ms: int | None
    shapes: bool
    stacks: bool
    fetch: int
    folder: str
    prefix: str
    begin: bool
    collect: bool
    stop: bool


def orders_for(name: str, host: str, state: Mapping[str, Any], token: Any = None) -> dict[str, Any]:
    """Take what an agent says of its processes and orders, between its batches; return {"orders", "again_s"}.

    Raises:
        AgentConflict: the name is that of another token.
    """
    with transaction.atomic():
        agent = agent_take(name, state.get("machine"), token)
        report = {key: state[key] for key in ("asking", "captures", "folders", "kind", "version", "run") if key in state}
        agent.state = json_safe({**(agent.state if isinstance(agent.state, dict) else {}), **report})
        agent.host, agent.last_seen = host or agent.host, timezone.now()
        agent.save(update_fields=["state", "host", "last_seen"])
        return {"orders": exchange(agent, state), "again_s": again_s()}


def are_there(job: str = "") -> bool:
    """Return whether any process (of a job) can be captured, without reading them."""
    asking = {"state__asking__contains": [{"job": job}]} if job else {"state__asking__0__isnull": False}
    return FleetAgent.objects.filter(last_seen__gte=timezone.now() - SILENT, **asking).exists()


@dataclass(frozen=True)
class Wanted:
    """What is recorded of each process: so many steps, or a time; neither: a few steps of one process, half a second of several."""

    steps: int | None = None
    milliseconds: int | None = None
    shapes: bool = True
    stacks: bool = False

    def check(self, count: int) -> None:
        """Raises Refused where the sizes are outside their limits."""
        if self.steps is not None and not 1 <= self.steps <= MOST_STEPS:
            raise Refused({"steps": f"1 to {MOST_STEPS} steps"})
        if self.milliseconds is not None and not 10 <= self.milliseconds <= MOST_MS:
            raise Refused({"milliseconds": f"10 to {MOST_MS:,} ms"})
        if count > 1 and self.steps is not None:
            raise Refused({"steps": "several processes begin at one moment: give milliseconds in place of steps"})


def order(keys: Collection[str], steps: int | None, milliseconds: int | None, user: Any, why: str = "", *, shapes: bool = True,
          stacks: bool = False, schedule_id: int | None = None) -> list[FleetCapture]:
    """Order captures of processes by `Process.key`: so many steps, or a time. Several begin at one moment, record a time, and
    become one profile.

    Raises:
        Refused: no process, too many, one that is gone, or sizes outside their limits.
        NoRoom: the disk is too full for what they would send.
    """
    disk.require_room()
    require_quota()
    extent = Wanted(steps, milliseconds, shapes, stacks)
    keys = list(dict.fromkeys(keys))
    if not keys:
        raise Refused({"process": "choose a process"})
    if len(keys) > MOST_PROCESSES:
        raise Refused({"process": f"at most {MOST_PROCESSES} processes at once"})
    process_by_key = {process.key: process for process in processes(launchers=True)}
    if gone := [key for key in keys if key not in process_by_key]:
        raise Refused({"process": f"{len(gone)} of them no longer ask{'s' if len(gone) == 1 else ''} for captures"})
    if any(process_by_key[key].launcher for key in keys):
        raise Refused({"process": "a launcher runs nothing on a GPU: choose the processes that it started"})
    extent.check(len(keys))
    for agent in {process_by_key[key].agent for key in keys}:
        if agent.captures.filter(state__in=OPEN, changed__gte=timezone.now() - OVERDUE).count() + len(keys) > MOST_OPEN:
            raise Refused({"process": f"{agent.host}: {MOST_OPEN} orders are open"})
    several = len(keys) > 1
    start_ms = int((clock.now_s() + together_s(process_by_key[key].agent for key in keys)) * 1e3) if several else 0
    counted = steps if steps is not None else 0 if milliseconds is not None or several else STEPS
    return [FleetCapture.objects.create(
        agent=process.agent, pid=process.pid, job=process.job[:MOST_WORD], rank=process.rank, steps=counted,
        milliseconds=0 if counted else milliseconds or MILLISECONDS, start_ms=start_ms, why_ordered=why[:300], shapes=shapes,
        stacks=stacks, together=together, schedule_id=schedule_id,
        ordered_by=user if getattr(user, "is_authenticated", False) else None)
        for together in [uuid.uuid4() if several else None] for process in map(process_by_key.__getitem__, keys)]


def together_s(agents: Iterable[FleetAgent]) -> int:
    """Return how far ahead the moment lies at which several processes begin: each agent, and each process, has asked by then."""
    return round(TOGETHER_S + again_s()) if all(agent.run for agent in agents) else TOGETHER_OF_BEFORE_S


def with_others(row: FleetCapture) -> list[FleetCapture]:
    """Return a capture with those that were ordered together with it."""
    return [row] if row.together is None else list(FleetCapture.objects.filter(together=row.together))


def stop(rows: Iterable[FleetCapture]) -> int:
    """End captures that have not come yet; return how many. Their agent hears of it with its next question."""
    return FleetCapture.objects.filter(pk__in=[row.pk for row in rows], state__in=OPEN).update(
        state=FleetCapture.State.STOPPED, why="", changed=timezone.now())


def exchange(agent: FleetAgent, state: Mapping[str, Any]) -> list[OrderJson]:
    """Take what an agent says of its orders, and return those that it does not know yet, and those that it is to stop."""
    run = state.get("run")
    run = run if isinstance(run, int) and 0 < run < 2**62 else 0
    if run and run < agent.run:             # told before the agent was started anew, and late
        return []
    news: dict[int, Mapping[str, Any]] = {}
    reports = state.get("captures")
    for report in reports if isinstance(reports, list) else ():
        number = report.get("order") if isinstance(report, dict) else None
        if isinstance(number, int) and 0 < number < 2**62:
            news[number] = report
    rows = {row.pk: row for row in agent.captures.filter(state__in=OPEN)}
    for number in rows.keys() & news.keys():
        _update(rows[number], news[number])
    if run > agent.run:
        FleetAgent.objects.filter(pk=agent.pk).update(run=run)
        agent.captures.filter(pk__in=rows, state__in=[FleetCapture.State.ASKED, FleetCapture.State.UPLOADING]).exclude(
            pk__in=news).update(state=FleetCapture.State.FAILED, why="its agent was started anew meanwhile", changed=timezone.now())
    costs = {number: report["cost"] for number, report in news.items() if isinstance(report.get("cost"), dict)}
    for row in agent.captures.filter(pk__in=costs, cost__isnull=True):
        FleetCapture.objects.filter(pk=row.pk).update(cost=_cost(costs[row.pk]))
    since = timezone.now() - OVERDUE
    stopped = agent.captures.filter(state=FleetCapture.State.STOPPED, changed__gte=timezone.now() - STOPPED_LATELY)
    orders: list[OrderJson] = [
        {"id": row.pk, "pid": row.pid, "job": row.job, "steps": row.steps, "milliseconds": row.milliseconds,
         "start_ms": row.start_ms, "shapes": row.shapes, "stacks": row.stacks} for row in rows.values()
        if row.state == FleetCapture.State.ORDERED and row.created >= since]
    orders += [{"id": pk, "stop": True} for pk in stopped.values_list("pk", flat=True)
               if news.get(pk, {}).get("state", "asked") == "asked"]
    return orders


def _cost(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cost as it may be shown: numbers and short lists of them, and why it is unknown."""
    def number(value: Any) -> float | None:
        return float(value) if isinstance(value, int | float) and abs(value) < 1e12 else None

    if isinstance(report.get("why"), str):
        return {"why": _word(report["why"])}
    found = {name: [number(each) for each in report[name]][:3] for name in COSTS if isinstance(report.get(name), list)}
    return {**found, "lost_s": number(report.get("lost_s"))} if len(found) == len(COSTS) else {"why": "its agent told no cost"}


def _update(row: FleetCapture, report: Mapping[str, Any]) -> None:
    state, why, took_s, size, profile = (report.get(name) for name in ("state", "why", "took_s", "bytes", "profile"))
    if state not in (*OPEN, FleetCapture.State.UPLOADED, FleetCapture.State.FAILED) or state == FleetCapture.State.ORDERED:
        return
    row.state, row.why = state, why[:300] if isinstance(why, str) else ""
    row.took_s = float(took_s) if isinstance(took_s, int | float) and 0 < took_s < 1e6 else None
    row.bytes = size if isinstance(size, int) and 0 < size < 2**62 else None
    changed = ["state", "why", "took_s", "bytes", "changed"]
    if isinstance(profile, int) and 0 < profile < 2**62:        # only what was uploaded as a deep capture of a fleet is linked
        capture_profile = Profile.objects.filter(pk=profile, tags__contains=["fleet", "deep"]).first()
        if capture_profile is not None or not row.part:
            row.profile = capture_profile
            changed.append("profile")
    row.save(update_fields=changed)


def is_overdue(row: FleetCapture) -> bool:
    """Return whether nothing was heard of an order for too long: its agent is gone, or forgot it."""
    now = timezone.now()
    return row.state in OPEN and (row.changed < now - OVERDUE or (row.agent.last_seen or now) < now - SILENT)
