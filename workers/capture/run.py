"""Runs a capture: lease a GPU, run the tool, stream its log, hand its files to ingest."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from django.utils import timezone

from profiles.base.refused import Refused
from profiles.capture import command as capture_command
from profiles.capture import result_services
from profiles.capture.result_services import Found, results_find, results_keep, results_store
from profiles.capture.selectors import ability_for
from profiles.capture.services import publish_capture
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.launchers import SEVERAL_HOSTS, launcher_of
from profiles.capture.tools.options import Options, ProgramOptions
from profiles.capture.tools.tool import PROFILE, CaptureTool, Failure, Paths, Resolved
from profiles.ingest import scratch
from profiles.ingest.trace import TraceError
from profiles.models import Capture
from tuner.clocks.wish import told_text
from tuner.models import Suite, SuiteCapture
from workers.capture.dumps import Dumps
from workers.capture.execute import STOPPED, TIME_LIMIT, Cancelled, Ended, execute
from workers.capture.facts import facts_store, measure_plain, said_by_tool
from workers.capture.log import CaptureLog
from workers.capture.rank import GPUS
from workers.capture.ranks import Launcher, Ranks, find_launcher
from workers.code.build import BuildCode, build_folder
from workers.core import gpu
from workers.core.child import SandboxError, safe_environment
from workers.fresh import captured

log = logging.getLogger(__name__)
PROJECT = Path(__file__).resolve().parents[2]
AFTER_LIMIT_S = 1800    # of one command that follows the program, such as an export
SIGNALLED = 128         # an exit status above it: ended by the signal of the rest
MAX_ATTEMPTS = 3        # a capture that took its worker down this often is not tried again

# What the target or the launcher says, whatever the tool; between the two stand the tool's own failures.
_NO_GPU = Failure(r"ridgepoint: torch sees no CUDA GPU", "torch sees no CUDA GPU on this worker",
                  "install a CUDA build of torch; try nvidia-smi there")
_RANK_KILLED = Failure(r"(Exit code: +|exited with (exit )?code |EXIT CODE: |exited with status )137|\bKilled\b",
                       "a rank was killed (SIGKILL), and the launcher ended the others",
                       "did the host run out of memory? See the log and dmesg")
_NOT_STARTED = Failure(r"cannot run ", "the program could not be started", "check the target's path and the worker's PATH")


class CaptureError(Exception):
    """A capture without result: where, what and what to do."""

    def __init__(self, where: str, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.error = {"where": where, "what": what, "hint": hint}


@dataclass(frozen=True)
class Plan:
    """What is decided before a GPU is leased."""

    tool: CaptureTool
    options: Options
    argv: list[str]
    paths: Paths
    cwd: Path
    program_environ: dict[str, str]     # as it runs without the tool
    environ: dict[str, str]
    resolved: Resolved
    launcher: Launcher


def run(capture_id: int, worker: str) -> None:
    """Claim the row and end it as done, failed or cancelled; a claimed row is not claimed again.

    A row that is claimed once too often fails before anything is started: it ended `MAX_ATTEMPTS` workers.
    """
    capture = _claim(capture_id, worker)
    if capture is None:
        return
    publish_capture(capture)
    try:
        if capture.stop_asked:              # of the worker that had it before and is gone
            raise Cancelled
        if capture.attempts > MAX_ATTEMPTS:
            raise CaptureError("worker", f"{MAX_ATTEMPTS} workers died over this capture",
                               "see the workers' logs; capture fewer launches, or run the target by hand on that machine")
        with scratch.folder() as folder:                # of a worker that is killed the next one removes it
            _capture(capture, worker, folder)
    except CaptureError as error:
        Capture.leases.end(capture.pk, worker, Capture.Status.FAILED, error=error.error)
    except SandboxError as error:           # of clocks that an owner requires
        Capture.leases.end(capture.pk, worker, Capture.Status.FAILED,
                           error={"where": "clocks", "what": error.what, "hint": error.hint})
    except (Cancelled, gpu.NoLease):
        Capture.leases.end(capture.pk, worker, Capture.Status.CANCELLED)       # where it is still ours: a stop that was asked for
        log.info("capture %s: stopped", capture_id)
    ended = Capture.objects.filter(pk=capture_id).first()
    if ended is not None:                   # its target or its job may be deleted meanwhile
        publish_capture(ended)


def _claim(capture_id: int, worker: str) -> Capture | None:
    claimed = Capture.leases.claim(capture_id, worker, started=timezone.now(), log="", error=None, facts={}, dumps_asked=0)
    return Capture.objects.select_related("target", "owner").get(pk=capture_id) if claimed else None


def _capture(capture: Capture, worker: str, folder: Path) -> None:
    text = CaptureLog(capture.pk, worker)
    options = _options(capture)
    count = CAPTURE_TOOLS[capture.tool].gpus(options)
    cards = _cards(capture, worker, options, count) if count else []
    missing = not CAPTURE_TOOLS[capture.tool].runs_in_target and "missing" in CAPTURE_TOOLS[capture.tool].installed()
    if missing and set(ability_for(options).workers) - {worker}:
        _hand_on(capture, worker)
    plan = make_plan(capture, options, folder)
    text.add(f"$ {_shown(plan)}")
    for line in plan.resolved.lines:
        text.add(line)
    facts_store(capture, worker, plan.resolved.facts)
    title = f"{captured.capture_title(capture)}: {plan.tool.label(plan.options)}"
    dumps = Dumps(capture, worker, plan.tool, folder, text, title)

    def run_program(environ: Mapping[str, str]) -> Ended:
        return _run(capture, worker, plan, environ, text, dumps)

    ended = _run_on_gpus(capture, worker, cards, count, plan, text, run_program) if count else run_program({})
    text.flush(force=True)              # of a tool that fails at once, the last lines say why
    after = _after(plan, text)
    files = results_find(folder, plan.tool.results)
    if not any(file.result.role == PROFILE for file in files):
        _keep(capture, worker, files)
        raise _no_result(plan, after or ended, text)
    wrote, rank_count = sum(file.result is plan.tool.results[0] for file in files), getattr(plan.options, "processes", 1)
    if launcher_of(plan.options) and wrote < rank_count:
        text.add(f"ridgepoint: {wrote} of {rank_count} ranks wrote a result: the profile lacks the others")
    if ended.told:
        text.add(f"ridgepoint: ended by the {ended.told}; what it had recorded is kept")
    elif after or ended.status:
        ended = after or ended
        text.add(f"ridgepoint: the command ended with status {ended.status}; what it wrote is kept")
    text.flush(force=True)
    traces = {file.path.name: result_services.holds(file.path) for file in files if file.path.name.startswith("execution_trace")}
    if traces:
        facts_store(capture, worker, {"holds": traces})
    try:
        mine = results_store(capture, worker, files, notes=f"Capture {capture.pk}: {_shown(plan)}",
                             name=title)
    except TraceError as error:
        raise CaptureError(error.where, error.what, error.hint) from error
    if not mine:
        raise Cancelled


def _keep(capture: Capture, worker: str, found: Sequence[Found]) -> None:
    """Keep what there is beside a profile that could not be made; too large to keep: the capture fails all the same."""
    try:
        results_keep(capture, worker, found)
    except TraceError as error:
        log.warning("capture %s: %s", capture.pk, error)


def _options(capture: Capture) -> Options:
    """Return the options, checked again. Raises CaptureError."""
    try:
        return CAPTURE_TOOLS[capture.tool].options.parse(capture.options)
    except Refused as error:
        raise CaptureError("options", str(error), "queue the capture again with valid options") from error


def _cards(capture: Capture, worker: str, options: Options, count: int) -> list[gpu.Gpu]:
    """Return the GPUs that it may run on: this worker's, for several processes those of its host's other workers too.

    Raises CaptureError; Cancelled where another worker has them.
    """
    here = gpu.gpus_of_host() if count > 1 else gpu.gpus()
    cards = captured.capture_gpus(capture, here)
    if len(cards) >= count:
        return cards
    if here and not cards:              # of a suite whose GPU another worker has
        _hand_on(capture, worker)
    if set(ability_for(options).workers) - {worker}:
        _hand_on(capture, worker)
    if not here:
        raise CaptureError("GPU", "this worker sees no NVIDIA GPU", "check nvidia-smi on the worker")
    raise CaptureError("GPU", f"this worker has {len(here)} GPUs at hand, the capture asks for {count}",
                       f"ask for fewer processes; {SEVERAL_HOSTS}")


def _hand_on(capture: Capture, worker: str) -> NoReturn:
    """Let another worker have it, whom the sweep wakes."""
    Capture.leases.hand_back(worker, capture.pk)
    raise Cancelled


def _run_on_gpus(capture: Capture, worker: str, cards: Sequence[gpu.Gpu], count: int, plan: Plan, text: CaptureLog,
                 run_program: Callable[[Mapping[str, str]], Ended]) -> Ended:
    """Run the tool on GPUs of its own, leased together. Raises NoLease where it is stopped before they are free."""
    def stopped() -> bool:
        return not text.flush(force=True) or text.stop_asked

    with gpu.lease_several(cards, count, should_stop=stopped) as held, captured.suite_clocks(capture, worker, held) as lock:
        for card in held:
            text.add(f"ridgepoint: on {card.name} (GPU {card.index}, driver {card.driver})")
        if lock is not None:
            text.add(f"ridgepoint: clocks: {told_text(lock)}")
        facts_store(capture, worker, {"gpu": held[0].name, **({"clock_lock": lock} if lock is not None else {})})
        return run_program({"CUDA_VISIBLE_DEVICES": ",".join(card.uuid for card in held),
                            **captured.capture_environ(capture, held[0], Path(plan.paths.folder))})


def _run(capture: Capture, worker: str, plan: Plan, environ: Mapping[str, str], text: CaptureLog, dumps: Dumps) -> Ended:
    """Run the program under the tool and, where that was asked for, once without; note what both took."""
    limit_s, began_s = plan.options.time_limit_s, time.monotonic()
    variables = {**environ, GPUS: environ["CUDA_VISIBLE_DEVICES"]} if _hides_gpus(plan, environ) else dict(environ)
    ended = execute(plan.argv, plan.cwd, {**plan.environ, **variables}, text, limit_s, plan.tool.stop, _ranks(plan), dumps.tend)
    whole = not (ended.told or ended.status)
    facts_store(capture, worker, {**said_by_tool(Path(plan.paths.folder)),
                                  "wall_s": round(time.monotonic() - began_s, 2), "whole": whole})
    if whole and isinstance(plan.options, ProgramOptions) and plan.options.plain_run:
        argv = capture_command.plain_command(plan.options, capture.target.argv, plan.paths)
        plain = measure_plain(argv, plan.cwd, {**plan.program_environ, **variables}, text, limit_s, _ranks(plan))
        facts_store(capture, worker, {"plain": {
            **plain, "program": capture_command.program_digest(plan.options, capture.target.argv)}})
    return ended


def _hides_gpus(plan: Plan, environ: Mapping[str, str]) -> bool:
    """Return whether the launcher may take the GPUs' variable away before the ranks start."""
    return plan.launcher.through_rank and not plan.launcher.grants_gpus and "CUDA_VISIBLE_DEVICES" in environ


def _ranks(plan: Plan) -> Ranks | None:
    return Ranks(Path(plan.paths.folder)) if plan.launcher.through_rank else None


def _after(plan: Plan, text: CaptureLog) -> Ended | None:
    """Run what follows the program, in turn; return how the first ended that failed."""
    files, failed = sorted(path.name for path in Path(plan.paths.folder).iterdir()), None
    for argv in plan.tool.after(plan.options, files, plan.paths):
        text.add(f"$ {capture_command.shell_text(argv)}")
        ended = execute(argv, Path(plan.paths.folder), plan.environ, text, AFTER_LIMIT_S)
        failed = failed or (ended if ended.status or ended.told else None)
    return failed


def _shown(plan: Plan) -> str:
    return capture_command.shell_text(plan.argv, plan.tool.environ(plan.options, plan.paths))


def make_plan(capture: Capture, options: Options, folder: Path) -> Plan:
    """Return the plan: the tool and the target's folder found here. Raises CaptureError."""
    target, tool = capture.target, CAPTURE_TOOLS[capture.tool]
    installed = {} if tool.runs_in_target else tool.installed()
    if "missing" in installed:
        raise CaptureError(tool.name, installed["missing"], f"install {tool.title} on the worker")
    own = {**safe_environment(), "PYTHONUNBUFFERED": "1", **target.env}
    try:
        launcher = find_launcher(options, tool.gpus(options), own)
    except Refused as error:
        raise CaptureError("".join(error.fields), error.what, "choose another launcher, or another worker") from error
    paths = Paths(installed.get("path", ""), python=sys.executable, project=str(PROJECT), folder=str(folder), installed=installed,
                  launcher=launcher.words)
    try:
        resolved = tool.resolve(options, paths)
    except Refused as error:
        raise CaptureError(tool.title, error.what, "change the options and capture again") from error
    try:
        argv = capture_command.build_command(resolved.options, target.argv, paths)
    except Refused as error:
        where = "".join(f"target {target.name}" if field == "target" else field for field in error.fields)
        raise CaptureError(where, error.what, "change it, and capture again") from error
    cwd = Path(target.cwd) if target.cwd else PROJECT
    if not cwd.is_dir():
        raise CaptureError(f"target {target.name}", f"the worker has no folder {cwd}", "change the target's folder")
    environ = {**launcher.environ, **own, **_build_environment(capture)}
    return Plan(tool, options, argv, paths, cwd, environ, {**environ, **tool.environ(options, paths)}, resolved, launcher)


def _build_environment(capture: Capture) -> dict[str, str]:
    """Return PYTHONPATH with the build's own code first. Raises CaptureError."""
    variables = {"RIDGEPOINT_BUILD": capture.build}
    suite_capture = SuiteCapture.objects.filter(capture=capture).select_related("job__suite").first()
    try:
        code = _code_folder(suite_capture.job.suite, capture.build) if suite_capture is not None else None
    except SandboxError as error:
        raise CaptureError(f"build {capture.build}", error.what, error.hint) from error
    if code is not None:
        own = capture.target.env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join([str(code), *([own] if own else [])])
    return variables


def _code_folder(suite: Suite, build: str) -> Path | None:
    """Return where the build's code lies: fetched as an owner allowed, or where `build_path` says. Raises SandboxError."""
    fetched = BuildCode(suite)
    if fetched.code is None:
        return build_folder(suite.build_path, build)
    try:
        return fetched.folder(build, fetched.known(build))[0]
    finally:
        fetched.release()           # it was used last of all: others are deleted before it


def _no_result(plan: Plan, ended: Ended, text: CaptureLog) -> CaptureError | Cancelled:
    """Return why there is nothing to ingest."""
    if ended.told == STOPPED:
        return Cancelled()
    if ended.told == TIME_LIMIT:
        return CaptureError("time limit", f"not done within {plan.options.time_limit_s:,} s: stopped",
                            "raise the time limit, profile fewer launches, or choose a smaller set")
    return _failure(plan, ended.status, text)


def _failure(plan: Plan, status: int, text: CaptureLog) -> CaptureError:
    where = f"{Path(plan.argv[0]).name}, exit status {status}"
    if own := re.search(r"ridgepoint: (.{1,300} cannot be launched: .{1,300})", text.tail):
        return CaptureError(where, own[1], "the log has the whole story")
    for failure in (_NO_GPU, *plan.tool.failures, *((_RANK_KILLED,) if plan.launcher.through_rank else ()), _NOT_STARTED):
        if re.search(failure.pattern, text.tail, re.IGNORECASE):
            return CaptureError(where, failure.what, failure.hint)
    if status > SIGNALLED:              # as a shell tells it, and the reaper
        number = status - SIGNALLED
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return CaptureError(where, f"ended by {name} before a report was written",
                            "the system's out-of-memory killer sends SIGKILL: see dmesg on the worker; the log has the last lines")
    last = next((line for line in reversed(text.tail.splitlines()) if line.strip() and not line.startswith("$ ")),
                "it printed nothing")
    return CaptureError(where, f"no report was written; the last line was: {last[:300]}", "the log has the whole story")
