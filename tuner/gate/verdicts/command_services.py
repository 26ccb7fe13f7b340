"""The server half of `manage.py gate`: a gate over this installation's own rows, followed until it has ended.

Workers do the measuring; without one that serves the suite's device the command says so and waits. The offline half, for files,
is in the command itself: it needs no rows.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from django.conf import settings
from django.core.management.base import OutputWrapper

from profiles.base.refused import Refused
from tuner.gate import client
from tuner.gate.options import PLACES, check_reports, write_reports
from tuner.gate.reports import document
from tuner.gate.stats.rule import ERROR_EXIT_CODE
from tuner.gate.verdicts import selectors, services
from tuner.models import Gate, Suite
from workers import jobs

TEXTS = ("against", "parent", "branch", "title", "url")
LOOK_EVERY_S = 0.5


def run_command(options: Mapping[str, Any], stdout: TextIO | OutputWrapper, stderr: TextIO | OutputWrapper) -> int:
    """The exit code: 0 pass, 1 slower, 2 could not decide, 3 error."""
    try:
        check_reports(options, options["build"])
        gate = Gate.objects.get(pk=options["gate"]) if options["gate"] is not None else _create_gate(options)
        found = _follow(gate, float(options["timeout"]), stderr)
    except (Refused, client.GateError) as error:
        print(f"error: {error}", file=stderr)
        return ERROR_EXIT_CODE
    except Gate.DoesNotExist:
        print(f"error: there is no gate {options['gate']}", file=stderr)
        return ERROR_EXIT_CODE
    code, wrong = found["exit_code"], ""
    try:
        write_reports(found, options)
        if options.get("json") not in (None, "-"):
            Path(options["json"]).write_text(document.as_text(found))
    except (client.GateError, OSError) as error:
        wrong = str(error)
        print(f"error: {wrong}", file=stderr)
    print(json.dumps(found) if options.get("json") == "-" else client.gate_table(found), file=stdout)
    if code is None:
        print(f"no verdict within {options['timeout']:.0f} s; the gate goes on: --gate {found['id']}", file=stderr)
        return client.UNDECIDED
    return ERROR_EXIT_CODE if wrong and code != client.SLOWER else int(code)


def _create_gate(options: Mapping[str, Any]) -> Gate:
    if not options["build"]:
        raise client.GateError("name --suite and --build, or --gate")
    if options["runs"] and options["fresh_runs"] is not None:
        raise client.GateError("--runs and --fresh-runs: one of them")
    if options["shard"] and not options["runs"]:
        raise client.GateError("--shard is said of --runs")
    environment = {name: options[name] for name in PLACES if options[name]}
    return services.create_gate(
        options["suite"], options["build"], environment=environment or None, **{name: options[name] for name in TEXTS},
        shard=options["shard"], attempt=(options["attempt"] or client.ci_attempt(os.environ)) if options["runs"] else "",
        allow_gone=options["allow_gone"], runs=options["fresh_runs"],
        configs=_load_configs(options["configs"]) if options["configs"] else None,
        records=client.read_runs(options["runs"]) if options["runs"] else None)


def _load_configs(path: str) -> Any:
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise client.GateError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise client.GateError(f"{path}: an object is needed, kernel key -> configuration")
    return found


def _follow(gate: Gate, timeout_s: float, stderr: TextIO | OutputWrapper) -> document.GateDocument:
    """The gate's document when it has ended, or as it is after so long."""
    until, said = time.monotonic() + timeout_s, ""
    while gate.status in Gate.UNDER_WAY and time.monotonic() < until:
        line = f"gate {gate.pk}: {selectors.progress(gate).get('says') or gate.status}{_missing_worker_note(gate)}"
        if line != said:
            print(line, file=stderr, flush=True)
            said = line
        time.sleep(LOOK_EVERY_S)
        gate.refresh_from_db()
    return selectors.gate_document(selectors.gate_list().get(pk=gate.pk), base=settings.PUBLIC_URL)


def _missing_worker_note(gate: Gate) -> str:
    """Why nothing happens, where nobody could do it."""
    if gate.suite.kind == Suite.Kind.UPLOADED:
        return ""
    job = gate.jobs.order_by("-id").first()
    queue = "replay" if job and job.device.startswith("replay:") else "gpu"
    alive = any(queue in worker.get("queues", ()) for worker in jobs.workers())
    return "" if alive else f" (no {queue} worker answers: manage.py worker {queue})"
