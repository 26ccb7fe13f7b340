"""Runs one asked-for capture: lease a GPU, run the tool on the target, stream its log, hand the file to ingest."""

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
from typing import Any

from django.core.files.base import File
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from profiles import scratch
from profiles.capture import command as capture_command
from profiles.capture.options import OPTIONS, NcuOptions, OptionsError, TorchOptions
from profiles.capture.services import capture_published
from profiles.models import Capture
from profiles.services import profile_create
from tuner.models import SuiteCapture
from workers import build_code, facts, gpu, jobs, suite_kernels
from workers.capture_log import Log
from workers.child import SandboxError, environment

log = logging.getLogger(__name__)
PROJECT = Path(__file__).resolve().parent.parent
FLUSH_EVERY_S = 0.4
MAX_ATTEMPTS = 3        # a capture that took its worker down this often is not tried again

# Words of the tools → what happened and what to do; the first that is found in the log is told.
_KNOWN = (
    (r"ridgepoint: torch sees no CUDA GPU", "torch sees no CUDA GPU on this worker",
     "install a CUDA build of torch; try nvidia-smi there"),
    (r"ERR_NVGPUCTRPERM", "the driver does not let this user read performance counters",
     "let the worker run as root or with CAP_SYS_ADMIN, or set the module option NVreg_RestrictProfilingToAdminUsers=0 "
     "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)"),
    (r"No kernels were profiled", "no launch matched",
     "loosen the kernel's regular expression, lower launch-skip, or check that the target launches kernels at all"),
    (r"LibraryNotLoaded|Failed to initialize the profiler", "ncu could not start its profiler on this machine",
     "the container or sandbox hides the driver's profiling interface: run the worker on the host or a full VM"),
    (r"Failed to (?:lock|change|set).*clock|clock control", "ncu may not control the clocks here",
     "set clock control to none"),
    (r"Failed to find metric|Unknown metric|not a valid metric|Failed to collect metric",
     "a metric is not known on this GPU", "list them on the worker: ncu --query-metrics"),
    (r"Failed to find section|Unknown section|section.*could not be found", "a section is not known to this ncu",
     "list them on the worker: ncu --list-sections"),
    (r"unrecogni[sz]ed option|the argument .* is invalid", "this version of ncu does not take one of the options",
     "compare the command above with ncu --help on the worker"),
    (r"already profiled|Another profiler|CUPTI_ERROR_MULTIPLE_SUBSCRIBERS|DriverConflict|ResourceUnavailable",
     "another profiler holds the GPU's counters", "stop dcgm's profiling module or the other profiler, then try again"),
    (r"out of memory", "the GPU had too little free memory", "free the GPU, or choose a smaller target"),
    (r"No module named '?(torch|triton)", "the target's interpreter lacks torch or Triton",
     "install the `gpu` extra there, or let the target name another interpreter"),
    (r"ridgepoint: no trace", "the program ended before recording began", "lower wait and warm-up, or run more steps"),
    (r"cannot run ", "the program could not be started", "check the target's path and the worker's PATH"),
)


class CaptureError(Exception):
    """The capture has no result; the row gets where, what and what to do."""

    def __init__(self, where: str, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.error = {"where": where, "what": what, "hint": hint}


class Cancelled(Exception):
    """The row is no longer ours to run: somebody stopped it, or another worker has it."""


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before a GPU is leased."""

    options: NcuOptions | TorchOptions
    argv: list[str]
    result: Path
    cwd: Path
    environ: dict[str, str]


def run(capture_id: int, worker: str) -> None:
    """Claim the row and end it as done, failed or cancelled. Safe twice: a claimed row is not claimed again.

    A row that is claimed once too often fails before anything is started: it ended `MAX_ATTEMPTS` workers.
    """
    capture = _claim(capture_id, worker)
    if capture is None:
        return
    capture_published(capture)
    try:
        if capture.attempts > MAX_ATTEMPTS:
            raise CaptureError("worker", f"{MAX_ATTEMPTS} workers died over this capture",
                               "see the workers' logs; capture fewer launches, or run the target by hand on that machine")
        with scratch.folder() as folder:                # of a worker that is killed the next one removes it
            _capture(capture, worker, folder)
    except CaptureError as error:
        _end(capture, worker, status=Capture.Status.FAILED, error=error.error)
    except (Cancelled, gpu.NoLease):
        log.info("capture %s: stopped", capture_id)
    capture_published(Capture.objects.get(pk=capture_id))


def _claim(capture_id: int, worker: str) -> Capture | None:
    free = Q(status=Capture.Status.QUEUED) | Q(status=Capture.Status.RUNNING) & jobs.dead()
    claimed = Capture.objects.filter(free, pk=capture_id).update(
        status=Capture.Status.RUNNING, worker=worker, heartbeat=Now(), started=timezone.now(), log="", error=None,
        attempts=F("attempts") + 1)
    return Capture.objects.select_related("target", "owner").get(pk=capture_id) if claimed else None


def _capture(capture: Capture, worker: str, folder: Path) -> None:
    text = Log(capture.pk, worker)

    def stopped() -> bool:
        return not text.flush(force=True)

    here = gpu.gpus()
    if not here:
        raise CaptureError("GPU", "this worker sees no NVIDIA GPU", "check nvidia-smi on the worker")
    cards = suite_kernels.cards(capture, here)
    if not cards:
        _hand_back(capture, worker)
        raise Cancelled
    plan = plan_for(capture, folder)
    text.add(f"$ {capture_command.shown(plan.argv)}")
    with gpu.lease(cards, should_stop=stopped) as card:
        text.add(f"ridgepoint: on {card.name} (GPU {card.index}, driver {card.driver})")
        status = execute(plan, {"CUDA_VISIBLE_DEVICES": card.uuid, **suite_kernels.environ(capture, card, folder)}, text)
    text.flush(force=True)              # of a tool that fails at once, the last lines say why
    if not plan.result.exists():
        raise _failure(plan.argv[0], status, text)
    if status:
        text.add(f"ridgepoint: the command ended with status {status}; what it wrote is kept")
    text.flush(force=True)
    _keep(capture, worker, plan)


def plan_for(capture: Capture, folder: Path) -> Plan:
    """Options from the row, checked again; tools found on this host. Raises CaptureError."""
    target = capture.target
    try:
        options = OPTIONS[capture.tool].parse(capture.options)
    except OptionsError as error:
        raise CaptureError("options", str(error), "queue the capture again with valid options") from error
    found = facts.ncu() if capture.tool == Capture.Tool.NCU else {"path": ""}
    if "missing" in found:
        raise CaptureError("ncu", found["missing"], "install Nsight Compute on the worker")
    try:
        argv = capture_command.command(options, target.argv, ncu=found["path"], python=sys.executable,
                                       launcher=str(PROJECT / capture_command.LAUNCHER), folder=str(folder))
    except capture_command.TargetError as error:
        raise CaptureError(f"target {target.name}", str(error), "change the target") from error
    cwd = Path(target.cwd) if target.cwd else PROJECT
    if not cwd.is_dir():
        raise CaptureError(f"target {target.name}", f"the worker has no folder {cwd}", "change the target's folder")
    name = capture_command.NCU_REPORT if capture.tool == Capture.Tool.NCU else capture_command.TORCH_TRACE
    return Plan(options, argv, folder / name, cwd, {**environment(), "PYTHONUNBUFFERED": "1", **target.env, **_of_build(capture)})


def _of_build(capture: Capture) -> dict[str, str]:
    """A suite's capture runs the build's own code: its folder goes first on PYTHONPATH. Raises CaptureError."""
    said = {"RIDGEPOINT_BUILD": capture.build}
    asked = SuiteCapture.objects.filter(capture=capture).select_related("job__suite").first()
    try:
        code = build_code.folder(asked.job.suite.build_path, capture.build) if asked is not None else None
    except SandboxError as error:
        raise CaptureError(f"build {capture.build}", error.what, error.hint) from error
    if code is not None:
        own = capture.target.env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
        said["PYTHONPATH"] = os.pathsep.join([str(code), *([own] if own else [])])
    return said


def execute(plan: Plan, environ: dict[str, str], text: Log) -> int:
    """Run to the end, the time limit or a stop; its exit status. Raises Cancelled, CaptureError on the time limit."""
    guard = [sys.executable, str(PROJECT / "workers" / "guard.py"), *plan.argv]
    process = subprocess.Popen(guard, cwd=plan.cwd, env={**plan.environ, **environ}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _follow(process, time.monotonic() + plan.options.time_limit_s, plan.options.time_limit_s, text)
        return process.wait()
    finally:
        _end_process(process)


def _follow(process: subprocess.Popen[bytes], end: float, limit_s: int, text: Log) -> None:
    """Feed the log until the command closes its output. The guard ends with everything it started."""
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
    """Closing the guard's input makes it end the command and all of its children."""
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


def _failure(program: str, status: int, text: Log) -> CaptureError:
    where = f"{Path(program).name}, exit status {status}"
    if own := re.search(r"ridgepoint: (.{1,300} cannot be launched: .{1,300})", text.tail):
        return CaptureError(where, own[1], "the log has the whole story")
    for pattern, what, hint in _KNOWN:
        if re.search(pattern, text.tail, re.IGNORECASE):
            return CaptureError(where, what, hint)
    last = next((line for line in reversed(text.tail.splitlines()) if line.strip()), "it printed nothing")
    return CaptureError(where, f"no report was written; the last line was: {last[:300]}", "the log has the whole story")


def _keep(capture: Capture, worker: str, plan: Plan) -> None:
    """The file becomes a profile and the row is done, together or not at all."""
    ncu = isinstance(plan.options, NcuOptions)
    label = f"ncu {plan.options.kernel or 'all kernels'}" if ncu else "torch.profiler"
    with plan.result.open("rb") as stream, transaction.atomic():
        if not Capture.objects.select_for_update().filter(
                pk=capture.pk, worker=worker, status=Capture.Status.RUNNING).exists():
            raise Cancelled
        profile = profile_create(
            owner=capture.owner, file=File(stream, name=f"capture-{capture.pk}-{plan.result.name}"),
            name=f"{suite_kernels.title(capture)}: {label}", build=capture.build, model=capture.model, tags=capture.tags,
            notes=f"Capture {capture.pk}: {capture_command.shown(plan.argv)}")
        Capture.objects.filter(pk=capture.pk).update(
            profile=profile, status=Capture.Status.DONE, finished=timezone.now(), heartbeat=None)


def _hand_back(capture: Capture, worker: str) -> None:
    """Of a suite whose GPU another worker has: the row waits as if nobody had taken it; the sweep wakes workers until one can."""
    Capture.objects.filter(pk=capture.pk, worker=worker, status=Capture.Status.RUNNING).update(
        status=Capture.Status.QUEUED, worker="", heartbeat=None, attempts=F("attempts") - 1)


def _end(capture: Capture, worker: str, **fields: Any) -> None:
    Capture.objects.filter(pk=capture.pk, worker=worker, status=Capture.Status.RUNNING).update(
        **fields, finished=timezone.now(), heartbeat=None)


