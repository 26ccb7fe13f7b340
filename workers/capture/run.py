"""Runs a capture: lease a GPU, run the tool, stream its log, hand the file to ingest."""

from __future__ import annotations

import logging
import os
import re
import select
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.core.files.base import File
from django.db import transaction
from django.utils import timezone

from profiles import scratch
from profiles.capture import command as capture_command
from profiles.capture.services import publish_capture
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.options import Options, OptionsError
from profiles.capture.tools.tool import CaptureTool, Failure, Paths, Resolved, TargetError
from profiles.models import CAPTURE_LEASES, Capture
from profiles.upload.services import profile_create
from tuner.models import SuiteCapture
from workers.capture.log import CaptureLog
from workers.core import build_code, gpu, reaper
from workers.core.child import SandboxError, safe_environment
from workers.fresh import captured

log = logging.getLogger(__name__)
PROJECT = Path(__file__).resolve().parents[2]
FLUSH_EVERY_S = 0.4
MAX_ATTEMPTS = 3        # a capture that took its worker down this often is not tried again

# What the target or the launcher says, whatever the tool; between the two stand the tool's own failures.
_NO_GPU = Failure(r"ridgepoint: torch sees no CUDA GPU", "torch sees no CUDA GPU on this worker",
                  "install a CUDA build of torch; try nvidia-smi there")
_NOT_STARTED = Failure(r"cannot run ", "the program could not be started", "check the target's path and the worker's PATH")


class CaptureError(Exception):
    """A capture without result: where, what and what to do."""

    def __init__(self, where: str, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.error = {"where": where, "what": what, "hint": hint}


class Cancelled(Exception):
    """The row is not ours any more: stopped, or another worker has it."""


@dataclass(frozen=True)
class Plan:
    """What is decided before a GPU is leased."""

    tool: CaptureTool
    options: Options
    argv: list[str]
    result: Path
    cwd: Path
    environ: dict[str, str]
    resolved: Resolved


def run(capture_id: int, worker: str) -> None:
    """Claim the row and end it as done, failed or cancelled; a claimed row is not claimed again.

    A row that is claimed once too often fails before anything is started: it ended `MAX_ATTEMPTS` workers.
    """
    capture = _claim(capture_id, worker)
    if capture is None:
        return
    publish_capture(capture)
    try:
        if capture.attempts > MAX_ATTEMPTS:
            raise CaptureError("worker", f"{MAX_ATTEMPTS} workers died over this capture",
                               "see the workers' logs; capture fewer launches, or run the target by hand on that machine")
        with scratch.folder() as folder:                # of a worker that is killed the next one removes it
            _capture(capture, worker, folder)
    except CaptureError as error:
        CAPTURE_LEASES.end(capture.pk, worker, Capture.Status.FAILED, error=error.error)
    except (Cancelled, gpu.NoLease):
        log.info("capture %s: stopped", capture_id)
    publish_capture(Capture.objects.get(pk=capture_id))


def _claim(capture_id: int, worker: str) -> Capture | None:
    claimed = CAPTURE_LEASES.claim(capture_id, worker, started=timezone.now(), log="", error=None)
    return Capture.objects.select_related("target", "owner").get(pk=capture_id) if claimed else None


def _capture(capture: Capture, worker: str, folder: Path) -> None:
    text = CaptureLog(capture.pk, worker)

    def stopped() -> bool:
        return not text.flush(force=True)

    here = gpu.gpus()
    if not here:
        raise CaptureError("GPU", "this worker sees no NVIDIA GPU", "check nvidia-smi on the worker")
    cards = captured.capture_gpus(capture, here)
    if not cards:
        CAPTURE_LEASES.hand_back(worker, capture.pk)     # of a suite whose GPU another worker has: the sweep wakes that one
        raise Cancelled
    plan = make_plan(capture, folder)
    text.add(f"$ {capture_command.shell_text(plan.argv)}")
    for line in plan.resolved.lines:
        text.add(line)
    if plan.resolved.facts:
        Capture.objects.filter(pk=capture.pk, worker=worker).update(facts=dict(plan.resolved.facts))
    with gpu.lease(cards, should_stop=stopped) as card:
        text.add(f"ridgepoint: on {card.name} (GPU {card.index}, driver {card.driver})")
        status = execute(plan, {"CUDA_VISIBLE_DEVICES": card.uuid, **captured.capture_environ(capture, card, folder)}, text)
    text.flush(force=True)              # of a tool that fails at once, the last lines say why
    if not plan.result.exists():
        raise _failure(plan, status, text)
    if status:
        text.add(f"ridgepoint: the command ended with status {status}; what it wrote is kept")
    text.flush(force=True)
    _store_file(capture, worker, plan)


def make_plan(capture: Capture, folder: Path) -> Plan:
    """Return the plan: options checked again, tools found here. Raises CaptureError."""
    target, tool = capture.target, CAPTURE_TOOLS[capture.tool]
    try:
        options = tool.options.parse(capture.options)
    except OptionsError as error:
        raise CaptureError("options", str(error), "queue the capture again with valid options") from error
    installed = {} if tool.runs_in_target else tool.installed()
    if "missing" in installed:
        raise CaptureError(tool.name, installed["missing"], f"install {tool.title} on the worker")
    paths = Paths(installed.get("path", ""), python=sys.executable, project=str(PROJECT), folder=str(folder))
    try:
        resolved = tool.resolve(options, paths)
    except TargetError as error:
        raise CaptureError(tool.title, str(error), "change the options and capture again") from error
    try:
        argv = capture_command.build_command(resolved.options, target.argv, paths)
    except TargetError as error:
        raise CaptureError(f"target {target.name}", str(error), "change the target") from error
    cwd = Path(target.cwd) if target.cwd else PROJECT
    if not cwd.is_dir():
        raise CaptureError(f"target {target.name}", f"the worker has no folder {cwd}", "change the target's folder")
    environ = {**safe_environment(), "PYTHONUNBUFFERED": "1", **target.env, **_build_environment(capture)}
    return Plan(tool, options, argv, folder / tool.result, cwd, environ, resolved)


def _build_environment(capture: Capture) -> dict[str, str]:
    """Return PYTHONPATH with the build's own code first. Raises CaptureError."""
    said = {"RIDGEPOINT_BUILD": capture.build}
    asked = SuiteCapture.objects.filter(capture=capture).select_related("job__suite").first()
    try:
        code = build_code.build_folder(asked.job.suite.build_path, capture.build) if asked is not None else None
    except SandboxError as error:
        raise CaptureError(f"build {capture.build}", error.what, error.hint) from error
    if code is not None:
        own = capture.target.env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
        said["PYTHONPATH"] = os.pathsep.join([str(code), *([own] if own else [])])
    return said


def execute(plan: Plan, environ: dict[str, str], text: CaptureLog) -> int:
    """Run to the end; return the exit status. Raises Cancelled, CaptureError on the time limit."""
    reaped = [sys.executable, reaper.__file__, *plan.argv]
    process = subprocess.Popen(reaped, cwd=plan.cwd, env={**plan.environ, **environ}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _follow(process, time.monotonic() + plan.options.time_limit_s, plan.options.time_limit_s, text)
        return process.wait()
    finally:
        _end_process(process)


def _follow(process: subprocess.Popen[bytes], end: float, limit_s: int, text: CaptureLog) -> None:
    """Feed the log until the command closes its output."""
    output = process.stdout.fileno() if process.stdout else -1
    while True:
        ready, _, _ = select.select([output], [], [], FLUSH_EVERY_S / 2)
        if ready:
            data = os.read(output, 65536)
            if not data:
                break
            text.feed(data)
        if not text.flush():
            raise Cancelled
        if time.monotonic() > end:
            text.flush(force=True)
            raise CaptureError("time limit", f"not done within {limit_s:,} s: stopped",
                               "raise the time limit, profile fewer launches, or choose a smaller set")
    text.close()


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Close the reaper's input, which ends the command and its children."""
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()


def _failure(plan: Plan, status: int, text: CaptureLog) -> CaptureError:
    where = f"{Path(plan.argv[0]).name}, exit status {status}"
    if own := re.search(r"ridgepoint: (.{1,300} cannot be launched: .{1,300})", text.tail):
        return CaptureError(where, own[1], "the log has the whole story")
    for failure in (_NO_GPU, *plan.tool.failures, _NOT_STARTED):
        if re.search(failure.pattern, text.tail, re.IGNORECASE):
            return CaptureError(where, failure.what, failure.hint)
    last = next((line for line in reversed(text.tail.splitlines()) if line.strip()), "it printed nothing")
    return CaptureError(where, f"no report was written; the last line was: {last[:300]}", "the log has the whole story")


def _store_file(capture: Capture, worker: str, plan: Plan) -> None:
    """Create the profile and end the row as done, in one transaction."""
    with plan.result.open("rb") as stream, transaction.atomic():
        if not CAPTURE_LEASES.rows_held_by(worker).select_for_update().filter(pk=capture.pk).exists():
            raise Cancelled
        profile = profile_create(
            owner=capture.owner, file=File(stream, name=f"capture-{capture.pk}-{plan.result.name}"),
            name=f"{captured.capture_title(capture)}: {plan.tool.label(plan.options)}", build=capture.build, model=capture.model,
            tags=capture.tags, notes=f"Capture {capture.pk}: {capture_command.shell_text(plan.argv)}")
        CAPTURE_LEASES.end(capture.pk, worker, Capture.Status.DONE, profile=profile)



