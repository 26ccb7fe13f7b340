"""`manage.py capture engine` and `manage.py capture schedule`: what the pages of captures of what runs can do."""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from profiles.base.refused import Refused
from profiles.running import engine_services, schedule_services, selectors
from profiles.running.models import CaptureSchedule, EngineCapture, EngineServer

LOOK_S = 0.5
OPEN = (EngineCapture.Status.QUEUED, EngineCapture.Status.RUNNING)
PLAIN = ("when", "job", "host", "ranks", "most", "requests", "per_day", "per_job_day")
OF_PROCESSES = ("steps", "milliseconds")


def add_engine_arguments(engine: ArgumentParser) -> None:
    engine.add_argument("server", help="its name")
    _add_ends(engine)
    engine.add_argument("--build", default="")
    engine.add_argument("--wait", type=float, default=900.0, metavar="S", help="for its profile (default %(default)s)")
    engine.add_argument("--json", action="store_true", help="one JSON document on standard output")


def add_schedule_arguments(schedule: ArgumentParser) -> None:
    schedule.add_argument("do", choices=("list", "add", "change", "pause", "resume", "delete"))
    schedule.add_argument("name", nargs="?", default="")
    schedule.add_argument("--rename", metavar="NAME")
    schedule.add_argument("--when", choices=CaptureSchedule.When.values)
    schedule.add_argument("--at", metavar="HH:MM", help="every night: UTC")
    schedule.add_argument("--requests", type=int, metavar="N", help="one of so many requests of the server")
    schedule.add_argument("--server", metavar="NAME", help="a capture of it: --until, --seconds, -p …")
    schedule.add_argument("--job")
    schedule.add_argument("--host")
    schedule.add_argument("--ranks", metavar="0,2-5")
    schedule.add_argument("--most", type=int, metavar="N", help="processes where no ranks are named")
    schedule.add_argument("--milliseconds", type=int, help="of processes")
    schedule.add_argument("--steps", type=int, help="of processes, in place of milliseconds")
    schedule.add_argument("--no-shapes", action="store_true", default=None)
    schedule.add_argument("--stacks", action="store_true", default=None)
    _add_ends(schedule)
    schedule.add_argument("--per-day", type=int, metavar="N", help="captures of the schedule")
    schedule.add_argument("--per-job-day", type=int, metavar="N", help="of its job or server, by anyone")
    schedule.add_argument("--json", action="store_true", help="one JSON document on standard output")


def _add_ends(parser: ArgumentParser) -> None:
    parser.add_argument("--until", choices=EngineCapture.Until.values, help="of a server (default seconds)")
    parser.add_argument("--seconds", type=float, help="of a server: how long, of steps and slow requests at most")
    parser.add_argument("--threshold-ms", type=float, help="--until slow: of a request")
    parser.add_argument("--latency", choices=("e2e", "ttft"), help="--until slow: of whole requests or first tokens")
    parser.add_argument("-p", "--parameter", action="append", metavar="NAME=VALUE",
                        help="of the engine's own /start_profile, again and again: -p num_steps=4 -p activities=CPU,GPU")


def capture_engine(options: Mapping[str, Any]) -> dict[str, Any]:
    """Capture a server and wait for its profile; return the capture, "why" where none came."""
    server = _server(options["server"])
    try:
        row = engine_services.capture_create(server, {**_ends(options), "build": options["build"]}, None)
    except Refused as refused:
        raise CommandError(str(refused)) from refused
    end_s = time.monotonic() + options["wait"]
    try:
        while (now := selectors.engine_captures().get(pk=row.pk)) and not _is_ended(now) and time.monotonic() < end_s:
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        engine_services.capture_stop(row)
        raise
    error = now.error or {}
    why = ": ".join(filter(None, (error.get("what"), error.get("hint")))) or (now.phase if now.status in OPEN else "")
    return {**selectors.engine_json(now), "why": why}


def change_schedules(options: Mapping[str, Any]) -> dict[str, Any]:
    """List, add, change, pause, resume or delete; return {"schedules": those that it was about}."""
    do, name = options["do"], options["name"]
    if do == "list":
        return {"schedules": [selectors.schedule_json(line) for line in selectors.schedule_lines()]}
    row = None if do == "add" else CaptureSchedule.objects.select_related("server").filter(name=name).first()
    if do != "add" and row is None:
        raise CommandError(f"there is no schedule {name!r}")
    if row is not None and do in ("pause", "resume", "delete"):
        schedule_services.schedule_change(row, do)
        return {"schedules": [] if do == "delete" else [selectors.schedule_json(selectors.schedule_line(row))]}
    try:
        row = schedule_services.schedule_save(row, **_fields(row, name, options))
    except Refused as refused:
        raise CommandError(str(refused)) from refused
    return {"schedules": [selectors.schedule_json(selectors.schedule_line(row))]}


def _fields(row: CaptureSchedule | None, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    base = schedule_services.schedule_fields(row) if row else {"name": name, "when": options["when"] or "night", "options": {}}
    fields = {**base, **{option: options[option] for option in PLAIN if options[option] is not None}}
    if options["rename"]:
        fields["name"] = options["rename"]
    if options["at"] is not None:
        fields["minute"] = _minute(options["at"])
    if options["server"] is not None:
        fields["server"] = _server(options["server"]) if options["server"] else None
    if fields.get("server"):
        ends = {key: value for key, value in _ends(options).items() if value not in (None, {})}
        fields["options"] = {**(base["options"] if base.get("server") else {}), **ends}
    else:
        own = {option: options[option] for option in OF_PROCESSES if options[option] is not None}
        before = {} if base.get("server") else {option: value for option, value in base["options"].items()
                                                if not (own and option in OF_PROCESSES)}
        fields["options"] = {**before, **own, **({"shapes": False} if options["no_shapes"] else {}),
                             **({"stacks": True} if options["stacks"] else {})}
    return fields


def _ends(options: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {}
    for option in options["parameter"] or ():
        key, is_given, value = option.partition("=")
        if not is_given:
            raise CommandError(f"-p NAME=VALUE, not {option!r}")
        parameters[key] = value
    return {**{name: options[name] for name in ("until", "seconds", "threshold_ms", "latency")}, "options": parameters}


def _server(name: str) -> EngineServer:
    server = EngineServer.objects.filter(name=name).first()
    if server is None:
        names = ", ".join(EngineServer.objects.values_list("name", flat=True)[:20])
        raise CommandError(f"there is no server {name!r}" + (f": {names}" if names else "; an owner names servers"))
    return server


def _minute(text: str) -> int:
    hour, _, minute = text.partition(":")
    if not (hour.isdecimal() and minute.isdecimal() and len(text) < 6 and int(hour) < 24 and int(minute) < 60):
        raise CommandError("--at HH:MM")
    return int(hour) * 60 + int(minute)


def _is_ended(row: EngineCapture) -> bool:
    if row.status == EngineCapture.Status.DONE:
        return row.profile is None or row.profile.status in ("ready", "failed")
    return row.status not in OPEN
