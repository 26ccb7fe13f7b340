"""Captures from the command line: of what runs already; a memory snapshot of one under way. Exit 1 where nothing came of it."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from profiles.base.refused import Refused
from profiles.capture import services
from profiles.fleet import capture_services
from profiles.fleet.browse import capture_selectors
from profiles.fleet.browse.capture_selectors import CaptureLine
from profiles.management.running_commands import add_engine_arguments, add_schedule_arguments, capture_engine, change_schedules
from profiles.models import Capture, FleetCapture
from webapp.management.in_project import ProjectCommand

WAIT_S, LOOK_S = 300.0, 0.5
NOBODY = "no such process asks for captures: it needs KINETO_USE_DAEMON=1, and an agent or a GPU worker on its host"
APPEAR_S = 15.0                     # a process that just began asks every 5 s


class Command(ProjectCommand):
    help = ("Capture what runs: PyTorch processes that were started with KINETO_USE_DAEMON=1, on a host with an agent or a GPU "
            "worker; vLLM and SGLang servers; and both by a schedule. Ask a capture under way for a memory snapshot; delete one.")
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True)
        running = commands.add_parser("running", help="capture a process or the ranks of a job; waits for the profile")
        running.add_argument("--pid", type=int, default=0)
        running.add_argument("--job", default="")
        running.add_argument("--host", default="")
        running.add_argument("--ranks", default="", metavar="0,2-5", 
                             help="of the job; they begin at one moment and become one profile")
        running.add_argument("--most", type=int, default=1, metavar="N", help="processes where no ranks are named (default 1)")
        how = running.add_mutually_exclusive_group()
        how.add_argument("--seconds", type=float)
        how.add_argument("--steps", type=int, help="of the job's optimizer, in place of seconds")
        running.add_argument("--no-shapes", action="store_true")
        running.add_argument("--stacks", action="store_true", help="Python stacks as well: slower")
        running.add_argument("--wait", type=float, default=WAIT_S, metavar="S",
                             help="for the process and its profile (default %(default)s)")
        running.add_argument("--json", action="store_true", help="one JSON document on standard output")
        dump = commands.add_parser("dump", help="a memory snapshot now, of a capture that records memory history")
        delete = commands.add_parser("delete", help="an ended capture with its log and the files that were kept; profiles stay")
        for command in (dump, delete):
            command.add_argument("capture", type=int, metavar="ID")
        add_engine_arguments(commands.add_parser("engine", help="capture a vLLM or SGLang server; waits for the profile"))
        add_schedule_arguments(commands.add_parser("schedule", help="list, add, change, pause, resume or delete schedules"))

    def handle(self, *_: Any, **options: Any) -> None:
        if options["what"] in ("dump", "delete"):
            self.change(options["what"], options["capture"])
        elif options["what"] == "schedule":
            self.schedules(change_schedules(options), options["json"])
        elif options["what"] == "engine":
            self.end(capture_engine(options), options["json"], "done")
        else:
            self.end(self.running(options), options["json"], "ready")

    def schedules(self, document: dict[str, Any], as_json: bool) -> None:
        for schedule in document["schedules"] if not as_json else ():
            paused = "" if schedule["enabled"] else " (paused)"
            self.stdout.write(f"{schedule['name']}{paused}: {schedule['when']}, next {schedule['next_due'] or 'when one opens'}, "
                              f"{schedule['spent']} of {schedule['per_day']} today {schedule['last_why']}".rstrip())
        if as_json:
            self.stdout.write(json.dumps(document))

    def end(self, document: dict[str, Any], as_json: bool, good: str) -> None:
        if as_json:
            self.stdout.write(json.dumps(document))
        else:
            self.stdout.write(f"{document['status']}: {document.get('why') or 'profile'} {document['profile'] or ''}".strip())
        if document["status"] != good or not document["profile"]:
            raise SystemExit(1)

    def change(self, what: str, capture_id: int) -> None:
        capture = Capture.objects.filter(pk=capture_id).first()
        if capture is None:
            raise CommandError(f"there is no capture {capture_id}")
        try:
            if what == "dump":
                self.stdout.write(f"snapshot {services.capture_dump(capture)} of capture {capture_id} is asked for")
            else:
                services.capture_delete(capture)
                self.stdout.write(f"deleted capture {capture_id}")
        except Refused as refused:
            raise CommandError(f"capture {capture_id}: {refused}") from refused

    def running(self, options: dict[str, Any]) -> dict[str, Any]:
        """Order, and wait until the profile is ready: {"profile", "status", "captures"}, with "why" where it is not."""
        if not (options["job"] or options["pid"] or options["host"]):
            raise CommandError("--pid, --job or --host says which process")
        end_s = time.monotonic() + options["wait"]
        rows: list[FleetCapture] = []
        try:
            keys = self._keys(options, end_s)
            if not keys:
                return _refused(NOBODY)
            rows = capture_services.order(
                keys, options["steps"], None if options["seconds"] is None else round(1000 * options["seconds"]), None,
                "from the command line", shapes=not options["no_shapes"], stacks=options["stacks"])
            lines = self._wait(rows, end_s)
        except Refused as refused:
            return _refused(refused.what)
        except KeyboardInterrupt:
            capture_services.stop(rows)
            raise
        return _document(lines)

    def _keys(self, options: dict[str, Any], end_s: float) -> list[str]:
        appear_s = min(end_s, time.monotonic() + APPEAR_S)
        while True:
            keys = capture_services.chosen(options["job"], options["host"], options["pid"], options["ranks"], options["most"])
            if keys or time.monotonic() >= appear_s:
                return keys
            time.sleep(LOOK_S)

    def _wait(self, rows: list[FleetCapture], end_s: float) -> list[CaptureLine]:
        words: dict[int, str] = {}
        while True:
            captures = FleetCapture.objects.select_related("agent", "profile").filter(pk__in=[row.pk for row in rows])
            lines = [capture_selectors.line_of(row) for row in captures]
            for line in lines:
                if words.get(line.row.pk) != line.words:
                    words[line.row.pk] = line.words
                    self.stderr.write(f"process {line.row.pid} on {line.row.agent.host}: {line.words} {line.row.why}".rstrip())
            if time.monotonic() >= end_s or all(line.is_ended for line in lines):
                return lines
            time.sleep(LOOK_S)


def _refused(why: str) -> dict[str, Any]:
    return {"profile": None, "status": "failed", "why": why, "captures": []}


def _document(lines: list[CaptureLine]) -> dict[str, Any]:
    profiles = sorted({line.row.profile_id for line in lines if line.row.profile_id})
    why = next((line.row.why for line in lines if line.row.why), "")
    if any(line.is_ready for line in lines):
        status = "ready"
    elif any(not line.is_ended for line in lines):
        status, why = "waiting", why or "no profile yet: --wait gives it longer"
    else:
        status = next((line.state for line in lines if line.state in ("failed", "stopped", "overdue")), "failed")
    return {"profile": profiles[0] if profiles else None, "status": status, **({"why": why} if status != "ready" else {}),
            "captures": [line.as_json() for line in lines]}
