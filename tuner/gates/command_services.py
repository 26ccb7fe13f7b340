"""The server half of `manage.py gate`: a gate over this installation's own rows, followed until it has ended.

Workers do the measuring; without one that serves the suite's device the command says so and waits. The offline half, for files,
is in the command itself: it needs no rows.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from django.conf import settings

from profiles.analysis.gate.rule import ERROR_EXIT_CODE
from tuner import gate_client
from tuner.gates import selectors, services
from tuner.gates.reports import REPORTS, document, github
from tuner.models import Gate, Suite
from workers import jobs

FILES = {"markdown": "md", "junit": "junit", "github": "github"}       # option -> kind of report
TEXTS = ("against", "parent", "branch", "title", "url")
PLACES = ("gpu", "toolkit", "driver", "device")
LOOK_EVERY_S = 0.5


def add_arguments(parser: ArgumentParser) -> None:
    """Of the server half; those of `write_reports` hold for files too."""
    rows = parser.add_argument_group("over this server's rows")
    rows.add_argument("--suite", default="", help="name of the benchmark suite")
    rows.add_argument("--build", default="", help="commit or name")
    rows.add_argument("--gate", type=int, metavar="ID", help="follow a gate that was started before")
    for name, what in (("against", "compare with this build; without it, with the baseline"), ("branch", "it is of"),
                       ("parent", "the build before this one"),
                       ("title", "first line of the commit message"), ("url", "of the pull request or pipeline")):
        rows.add_argument(f"--{name}", default="", help=what)
    for name in PLACES:
        rows.add_argument(f"--{name}", default="", help="of the environment to measure in")
    rows.add_argument("--runs", metavar="FILE", help="runs that were measured elsewhere, for a suite of uploaded runs")
    rows.add_argument("--fresh-runs", type=int, metavar="N", help="fresh processes to measure (default: the suite's)")
    rows.add_argument("--configs", metavar="FILE", help="JSON: kernel key -> configuration that this build is measured with")
    rows.add_argument("--timeout", type=float, default=3600.0, metavar="S", help="then exit 2; the gate goes on (default 3600)")
    for name in FILES:
        parser.add_argument(f"--{name}", metavar="FILE", help=f"write the {REPORTS[FILES[name]].title} here")
    parser.add_argument("--head-sha", default="", help="with --github: the commit, where the build is not called by it")
    parser.add_argument("--undecided", default="neutral", choices=github.UNDECIDED, help="with --github: conclusion of AMBIGUOUS")


def run(options: Mapping[str, Any], stdout: TextIO, stderr: TextIO) -> int:
    """The exit code: 0 pass, 1 slower, 2 could not decide, 3 error."""
    try:
        check_reports(options, options["build"])
        gate = Gate.objects.get(pk=options["gate"]) if options["gate"] is not None else _asked(options)
        found = _followed(gate, float(options["timeout"]), stderr)
    except (services.GateRefused, gate_client.GateError) as error:
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
    except (gate_client.GateError, OSError) as error:
        wrong = str(error)
        print(f"error: {wrong}", file=stderr)
    print(json.dumps(found) if options.get("json") == "-" else gate_client.table(found), file=stdout)
    if code is None:
        print(f"no verdict within {options['timeout']:.0f} s; the gate goes on: --gate {found['id']}", file=stderr)
        return gate_client.UNDECIDED
    return ERROR_EXIT_CODE if wrong and code != gate_client.SLOWER else int(code)


def check_reports(options: Mapping[str, Any], build: str = "") -> None:
    """Before anything is run: can the files be written, is the commit of a check run known? Raises GateError."""
    gate_client.check_files([*(options.get(name) for name in FILES), options.get("json")])
    if options.get("gate") is None:
        gate_client.check_commit(options.get("github"), options.get("head_sha", ""), build)


def write_reports(found: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """The files that were asked for, of a gate's document or of the offline command's. Raises OSError, GateError."""
    for name, kind in FILES.items():
        path = options.get(name)
        if path and kind == "github":
            body = github.payload(found, head_sha=options["head_sha"], undecided=options["undecided"])     # type: ignore[arg-type]
            if not body["head_sha"]:
                raise gate_client.GateError("--head-sha: name the commit's whole sha, the build is not called by it")
            Path(path).write_text(document.as_text(body))
        elif path:
            Path(path).write_bytes(REPORTS[kind].make(found))


def _asked(options: Mapping[str, Any]) -> Gate:
    if not options["build"]:
        raise gate_client.GateError("name --suite and --build, or --gate")
    if options["runs"] and options["fresh_runs"] is not None:
        raise gate_client.GateError("--runs and --fresh-runs: one of them")
    environment = {name: options[name] for name in PLACES if options[name]}
    return services.gate_create(
        options["suite"], options["build"], environment=environment or None, **{name: options[name] for name in TEXTS},
        configs=_json(options["configs"]) if options["configs"] else None, runs=options["fresh_runs"],
        records=gate_client.runs_read(options["runs"]) if options["runs"] else None)


def _json(path: str) -> Any:
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise gate_client.GateError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise gate_client.GateError(f"{path}: an object is needed, kernel key -> configuration")
    return found


def _followed(gate: Gate, timeout_s: float, stderr: TextIO) -> dict[str, Any]:
    """The gate's document when it has ended, or as it is after so long."""
    until, said = time.monotonic() + timeout_s, ""
    while gate.status in selectors.GOING and time.monotonic() < until:
        line = f"gate {gate.pk}: {selectors.progress(gate).get('says') or gate.status}{_nobody(gate)}"
        if line != said:
            print(line, file=stderr, flush=True)
            said = line
        time.sleep(LOOK_EVERY_S)
        gate.refresh_from_db()
    return selectors.gate_document(selectors.gate_list().get(pk=gate.pk), base=settings.PUBLIC_URL)


def _nobody(gate: Gate) -> str:
    """Why nothing happens, where nobody could do it."""
    if gate.suite.kind == Suite.Kind.UPLOADED:
        return ""
    job = gate.jobs.order_by("-id").first()
    queue = "replay" if job and job.device.startswith("replay:") else "gpu"
    alive = any(queue in worker.get("queues", ()) for worker in jobs.workers())
    return "" if alive else f" (no {queue} worker answers: manage.py worker {queue})"
