"""Traces of serving engines that lie on their hosts: which agents may fetch them, what these are told, what they bring.

An agent tells which folders its own configuration allows, and is asked for nothing else. It speaks of a capture each time that it
asks for orders; one that is silent, or was started anew meanwhile, ends the capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.fleet.capture_services import again_s
from profiles.models import FleetAgent
from profiles.running.models import EngineCapture, EngineFetch

FOLDER = "captures/fetched"
MOST_FILES = 64
MOST_FOLDERS, MOST_FOLDER = 16, 400
LEAST_SILENT_S = 20.0               # without a word of the agent
ALLOW = "ridgepoint-agent --trace-folders /a:/b, or RIDGEPOINT_AGENT_TRACE_FOLDERS, names the folders that it may fetch from"
OPEN = (EngineFetch.State.ORDERED, EngineFetch.State.WATCHING, EngineFetch.State.UPLOADING)
State = EngineFetch.State


@dataclass(frozen=True)
class HostFolders:
    """Folders that the agent of a host fetches from, as it told last."""

    agent: FleetAgent
    folders: tuple[str, ...]

    @property
    def host(self) -> str:
        return self.agent.host

    @property
    def is_away(self) -> bool:
        return self.agent.last_seen is None or self.agent.last_seen < timezone.now() - silent()

    @property
    def words(self) -> str:
        return f"{self.host}: {', '.join(self.folders)}{' (away)' if self.is_away else ''}"


def silent() -> timedelta:
    """Return after how long without a word an agent that asks for orders is away."""
    return timedelta(seconds=max(LEAST_SILENT_S, 5 * again_s()))


def hosts() -> list[HostFolders]:
    """Return hosts whose agents may fetch traces, by name; of several agents of a host the one that was seen last."""
    by_host = {agent.host: HostFolders(agent, _folders(agent)) for agent in FleetAgent.objects.filter(
        state__folders__0__isnull=False).exclude(host="").exclude(last_seen=None).order_by("last_seen")}
    return [by_host[host] for host in sorted(by_host) if by_host[host].folders]


def agent_for(host: str, folder: str) -> FleetAgent:
    """Return the agent that may fetch from a folder of a host. Raises Refused: there is none, or not from there."""
    row = next((row for row in hosts() if row.host == host), None)
    if row is None:
        raise Refused(f"no agent of {host or 'a host'} fetches traces", hint=ALLOW)
    if not any(folder == root or folder.startswith(root.rstrip("/") + "/") for root in row.folders):
        raise Refused(f"the agent of {host} fetches from {', '.join(row.folders)} only", hint=ALLOW)
    return row.agent


def present_agent(host: str, folder: str) -> FleetAgent:
    """Return the agent that may fetch from a folder of a host, and asks for orders. Raises Refused."""
    agent = agent_for(host, folder)
    if HostFolders(agent, ()).is_away:
        raise Refused(f"the agent of {host} is away: it was heard last at {agent.last_seen:%Y-%m-%d %H:%M:%S} UTC",
                           hint="start it again: systemctl status ridgepoint-agent")
    return agent


def why_not(host: str, folder: str) -> str:
    """Return why nothing would be fetched now, "" where it would."""
    try:
        present_agent(host, folder)
    except Refused as refused:
        return f"{refused}. {refused.hint}"
    return ""


def begin(capture: EngineCapture, host: str, folder: str, prefix: str) -> EngineFetch:
    """Order an agent to watch a folder from now on. Raises Refused: it may not, or is away."""
    agent = present_agent(host, folder)
    return EngineFetch.objects.create(capture=capture, agent=agent, folder=folder, prefix=prefix, heard=timezone.now())


def check(fetch: EngineFetch) -> EngineFetch:
    """Return a fetch as it stands now. Raises Refused where nothing more will come of it."""
    row = EngineFetch.objects.select_related("agent").get(pk=fetch.pk)
    where = f"the traces stay in {row.folder} on {row.agent.host}"
    if row.state == State.FAILED:
        raise Refused(f"the agent of {row.agent.host}: {row.why}", hint=where)
    if row.state in OPEN and (row.heard or row.created) < timezone.now() - silent():
        raise Refused(f"the agent of {row.agent.host} went silent", hint=where)
    return row


def collect(fetch: EngineFetch) -> None:
    """The engine has stopped: the agent uploads what came, once nothing grows."""
    EngineFetch.objects.filter(pk=fetch.pk).update(collect=True)


def end(capture: EngineCapture) -> None:
    """Forget what was fetched for a capture; its agent is told to stop."""
    for fetch in EngineFetch.objects.filter(capture=capture):
        EngineFetch.objects.filter(pk=fetch.pk, state__in=OPEN).update(state=State.FAILED, why="the capture ended")
        _forget(fetch.pk)


def clear_ended() -> None:
    """Forget what was fetched for captures whose worker ended before it could."""
    for fetch in EngineFetch.objects.exclude(parts={}).exclude(capture__status__in=["queued", "running"])[:100]:
        _forget(fetch.pk)


def orders_for(name: str, told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Take what an agent says of its fetches; return those that it shall begin, collect or stop."""
    machine = told.get("machine")
    agents = {entry.machine: entry for entry in FleetAgent.objects.filter(name=name)}      # `capture_services.orders_for` has it
    agent = agents.get(machine if isinstance(machine, str) else "") or next(iter(agents.values()), None)
    if agent is None:
        return []
    reports = {report["fetch"]: report for report in _list(told.get("fetches"))
               if isinstance(report, dict) and isinstance(report.get("fetch"), int)}
    rows = {row.pk: row for row in agent.fetches.filter(state__in=OPEN, capture__status=EngineCapture.Status.RUNNING)}
    for row in rows.values():
        _hear(row, reports.get(row.pk))
    orders: list[dict[str, Any]] = []
    for row in rows.values():
        if row.state == State.ORDERED and row.pk not in reports:
            orders.append({"fetch": row.pk, "folder": row.folder, "prefix": row.prefix, "begin": True})
        elif row.state == State.WATCHING and row.collect:
            orders.append({"fetch": row.pk, "folder": row.folder, "prefix": row.prefix, "collect": True})
    return orders + [{"fetch": number, "stop": True} for number in reports if number not in rows]


def _hear(row: EngineFetch, report: Mapping[str, Any] | None) -> None:
    """An agent that says nothing of what it had begun was started anew: what lay in the folder before is not known any more."""
    row.heard = timezone.now()
    if report is None:
        if row.state != State.ORDERED:
            row.state, row.why = State.FAILED, "it was started anew meanwhile"
    elif report.get("state") in State.values and report["state"] != State.ORDERED:
        row.state, row.whole = report["state"], report.get("whole") is True
        row.why = "".join(str(report.get("why") or "").split("\0"))[:300]
    EngineFetch.objects.filter(pk=row.pk, state__in=OPEN).update(state=row.state, whole=row.whole, why=row.why, heard=row.heard)


def check_upload(fetch: EngineFetch, number: int) -> None:
    """Raises Refused: nobody waits for this file."""
    if fetch.capture.status != EngineCapture.Status.RUNNING or not fetch.collect or fetch.state not in (
            State.WATCHING, State.UPLOADING):
        raise Refused("nobody waits for it: the capture ended", whole="file")
    if number >= MOST_FILES:
        raise Refused(f"at most {MOST_FILES} files", whole="file")


def take_file(fetch_id: int, number: int, file: File[bytes]) -> None:
    """Keep a file of a fetch until its worker makes the profile. The same number again changes nothing.

    Raises:
        Refused: nobody waits for it, or it is too much.
    """
    name = (file.name or "trace.json")[-200:]
    key = default_storage.save(f"{FOLDER}/{fetch_id}/{number}-{uuid4().hex[:12]}", file)
    try:
        with transaction.atomic():
            fetch = EngineFetch.objects.select_for_update(of=("self",)).select_related("capture").get(pk=fetch_id)
            check_upload(fetch, number)
            if str(number) in fetch.parts:
                default_storage.delete(key)
                return
            parts = {**fetch.parts, str(number): [key, name, file.size]}
            if sum(size for _, _, size in parts.values()) > settings.UPLOAD_MAX_BYTES:
                raise Refused(f"its traces are above {settings.UPLOAD_MAX_BYTES:,} bytes: record fewer steps", whole="file")
            EngineFetch.objects.filter(pk=fetch_id).update(parts=parts, heard=timezone.now())
    except Refused:
        default_storage.delete(key)
        raise


def _forget(fetch_id: int) -> None:
    with transaction.atomic():
        fetch = EngineFetch.objects.select_for_update().get(pk=fetch_id)
        keys = [key for key, _, _ in fetch.parts.values()]
        EngineFetch.objects.filter(pk=fetch_id).update(parts={})
    for key in keys:
        default_storage.delete(key)


def _folders(agent: FleetAgent) -> tuple[str, ...]:
    folders = agent.state.get("folders") if isinstance(agent.state, dict) else None
    return tuple(folder for folder in _list(folders)[:MOST_FOLDERS]
                 if isinstance(folder, str) and folder.startswith("/") and len(folder) <= MOST_FOLDER and folder.isprintable())


def _list(told: Any) -> Sequence[Any]:
    return told if isinstance(told, list) else ()
