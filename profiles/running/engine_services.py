"""Serving engines that may be captured, named by owners, and what engineers ask of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.retention.services import require_quota
from profiles.running.engines import LATENCIES, STEPS, Engine, EngineProblem, read_parameters
from profiles.running.fetch_services import agent_for, hosts
from profiles.running.models import CaptureSchedule, EngineCapture, EngineServer
from workers import disk, jobs
from workers.outgoing import parse_address
from workers.secret import Unreadable, seal, unseal

QUEUE, TASK = "replay", "engine"        # a worker that is idle most of the time: it waits for an engine up to minutes
MOST_SERVERS = 200
LEAST_S, MOST_S = 0.1, 120.0
MOST_THRESHOLD_MS = 3_600_000
KEPT = "\0"                             # of a token that is not changed


def server_save(server: EngineServer | None = None, *, name: str, kind: str, address: str, token: str = KEPT,
                results: str = "folder", folder: str = "", host: str = "", enabled: bool = True,
                author: Any = None) -> EngineServer:
    """Name a server or change one. `token`: KEPT leaves it as it is. `host`: whose agent fetches the traces.

    Raises:
        Refused: what is wrong, by field.
    """
    server = server or EngineServer(author=author if getattr(author, "is_authenticated", False) else None)
    token = "" if token == KEPT and server.pk is None else token
    name, address, folder = name.strip(), address.strip().rstrip("/"), folder.strip()
    host = host.strip() if results == EngineServer.Results.AGENT else ""
    errors = _server_problems(server, name, kind, address, token, results, folder)
    if host or results == EngineServer.Results.AGENT:
        errors |= _host_problems(host, folder)
    if errors:
        raise Refused(errors, whole="request")
    if address != server.address or kind != server.kind:
        server.version, server.problem, server.asked = "", "", None
    server.name, server.kind, server.address, server.results, server.folder = name, kind, address, results, folder
    server.host, server.enabled = host, enabled
    if token != KEPT:
        server.token = seal(token)
    server.save()
    return server


def _server_problems(server: EngineServer, name: str, kind: str, address: str, token: str, results: str,
                     folder: str) -> dict[str, str]:
    errors: dict[str, str] = {}
    if not 0 < len(name) <= 80 or not name.isprintable():
        errors["name"] = "a name of 1 to 80 characters"
    elif EngineServer.objects.filter(name=name).exclude(pk=server.pk).exists():
        errors["name"] = "there is a server of this name already"
    if kind not in EngineServer.Kind.values:
        errors["kind"] = f"one of {', '.join(EngineServer.Kind.values)}"
    try:
        if parse_address(address).query:
            errors["address"] = "an address without a query: http://host:8000"
    except Refused as refused:
        errors["address"] = str(refused)
    if token != KEPT and (len(token) > 300 or not token.isprintable()):
        errors["token"] = "at most 300 printable characters"
    if results not in EngineServer.Results.values:
        errors["results"] = f"one of {', '.join(EngineServer.Results.values)}"
    elif results == EngineServer.Results.BUCKET:
        if not folder or folder.startswith("/") or ".." in folder.split("/") or folder.split("/")[0] in ("profiles", "captures"):
            errors["folder"] = "a folder of the object store that is the engine's own, as engines/llama"
    elif not folder.startswith("/") or ".." in folder.split("/"):
        errors["folder"] = "the absolute path of the folder that the engine writes to"
    if len(folder) > 400 or "\0" in folder:
        errors["folder"] = "at most 400 characters"
    if server.pk is None and EngineServer.objects.count() >= MOST_SERVERS:
        errors["name"] = f"{MOST_SERVERS} servers are named already"
    return errors


def _host_problems(host: str, folder: str) -> dict[str, str]:
    try:
        agent_for(host, folder)
    except Refused as refused:
        of_folder = any(row.host == host for row in hosts())
        return {"folder" if of_folder else "host": f"{refused}: {refused.hint}"}
    return {}


def engine_of(server: EngineServer) -> Engine:
    """Return what speaks to a server. Raises EngineProblem where its token cannot be read."""
    try:
        token = unseal(server.token)
    except Unreadable as error:
        raise EngineProblem(str(error)) from error
    return Engine(server.kind, server.address, token, settings.ENGINE_PRIVATE)


def ask_version(server: EngineServer) -> EngineServer:
    """Ask a server for its version, within seconds, and keep what it answered."""
    try:
        server.version, server.problem = engine_of(server).version(), ""
    except EngineProblem as problem:
        server.problem = f"{problem.what}{'; ' + problem.hint if problem.hint else ''}"[:300]
    server.asked = timezone.now()
    EngineServer.objects.filter(pk=server.pk).update(version=server.version, problem=server.problem, asked=server.asked)
    return server


def wanted(server: EngineServer, fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the fields of a capture of a server as they are kept, and what is wrong by field.

    `fields`: until, seconds, threshold_ms, latency, build, and the parameters of the engine in `options`.
    """
    until = fields.get("until") or EngineCapture.Until.SECONDS
    errors: dict[str, str] = {}
    if until not in EngineCapture.Until.values:
        return {}, {"until": f"one of {', '.join(EngineCapture.Until.values)}"}
    options = fields.get("options") or {}
    if not isinstance(options, Mapping):
        return {}, {"options": "parameters by name"}
    parameters, wrong = read_parameters(server.kind, options, server.folder)
    errors |= wrong
    steps = STEPS[server.kind]
    if until == EngineCapture.Until.STEPS and not parameters.get(steps):
        errors[steps] = "how many steps are recorded"
    if until != EngineCapture.Until.STEPS and parameters.get(steps):
        errors[steps] = "only of a capture by steps: leave it empty"
    seconds = _number(fields.get("seconds"), 2.0 if until == EngineCapture.Until.SECONDS else 60.0)
    if seconds is None or not LEAST_S <= seconds <= MOST_S:
        errors["seconds"] = f"{LEAST_S:g} to {MOST_S:g} s"
    threshold_ms = None
    latency = fields.get("latency") or "e2e"
    if until == EngineCapture.Until.SLOW:
        threshold_ms = _number(fields.get("threshold_ms"), None)
        if threshold_ms is None or not 0 < threshold_ms <= MOST_THRESHOLD_MS:
            errors["threshold_ms"] = "a latency in ms"
        if latency not in LATENCIES[server.kind]:
            errors["latency"] = f"one of {', '.join(LATENCIES[server.kind])}"
    build = str(fields.get("build") or "").strip()
    if len(build) > 80 or not build.isprintable():
        errors["build"] = "at most 80 characters"
    return {"until": until, "options": parameters, "seconds": seconds, "threshold_ms": threshold_ms,
            "latency": latency if until == EngineCapture.Until.SLOW else "", "build": build}, errors


def capture_create(server: EngineServer, given: Mapping[str, Any], owner: Any,
                   schedule: CaptureSchedule | None = None) -> EngineCapture:
    """Queue a capture of a server; a worker is woken on commit. Raises Refused, NoRoom."""
    disk.require_room()
    require_quota()
    fields, errors = wanted(server, given)
    if not server.enabled:
        errors[""] = "the server is switched off"
    if errors:
        raise Refused(errors, whole="request")
    try:
        with transaction.atomic():
            row = EngineCapture.objects.create(server=server, owner=owner if getattr(owner, "is_authenticated", False) else None,
                                               schedule=schedule, **fields)
            jobs.enqueue_on_commit(QUEUE, TASK, row.pk)
    except IntegrityError as error:
        raise Refused("a capture of this server is under way", whole="request") from error
    publish(row)
    return row


def capture_stop(row: EngineCapture) -> bool:
    """Stop a waiting or running capture; its worker tells the engine within a second. False when it had ended already."""
    stopped = EngineCapture.leases.stop(row.pk, EngineCapture.Status.CANCELLED)
    if stopped:
        publish(EngineCapture.objects.get(pk=row.pk))
    return stopped


def publish(row: EngineCapture) -> None:
    """Tell the pages that watch it."""
    data = {"id": row.pk, "status": row.status, "phase": row.phase, "error": row.error, "profile": row.profile_id}
    jobs.publish(f"engine-capture.{row.pk}", "status", data)
    jobs.publish("engine-captures", "status", data)


def _number(value: Any, default: float | None) -> float | None:
    if value in (None, ""):
        return default
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
