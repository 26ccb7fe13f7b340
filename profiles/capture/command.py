"""The argument vector of a capture: shown before it is queued, run by the worker. Never a shell string."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from profiles.capture.options import NcuOptions, TorchOptions

PYTHON = "{python}"            # in a target: the worker's own interpreter
LAUNCHER = "workers/torch_capture.py"
NCU_REPORT, TORCH_TRACE = "report.ncu-rep", "trace.json.gz"


class TargetError(ValueError):
    """The target cannot be run by this tool; the text says why."""


def target_problems(argv: Sequence[str]) -> str | None:
    """Why this cannot be a target's argument vector."""
    if not argv or not argv[0].strip():
        return "name a program, for example {python} -m workers.targets.layer"
    if any("\0" in part or len(part) > 1000 for part in argv) or len(argv) > 200:
        return "at most 200 arguments of 1,000 characters each, without NUL"
    if argv[0].startswith("-"):
        return "the first argument is the program and cannot begin with a dash"
    return None


def command(options: NcuOptions | TorchOptions, target: Sequence[str], *, ncu: str = "ncu", python: str = "python",
            launcher: str = LAUNCHER, folder: str = ".") -> list[str]:
    """What the worker runs; the report or trace is written into `folder`. Raises TargetError."""
    problem = target_problems(target)
    if problem:
        raise TargetError(problem)
    program = [python if part == PYTHON else part for part in target]
    if isinstance(options, NcuOptions):
        return [*_ncu(options, ncu, f"{folder}/{NCU_REPORT}"), *program]
    return _torch(options, program, target[0], launcher, f"{folder}/{TORCH_TRACE}")


def _ncu(options: NcuOptions, ncu: str, report: str) -> list[str]:
    argv = [ncu, "--export", report, "--force-overwrite", "--target-processes", "all",
            "--replay-mode", options.replay_mode, "--cache-control", options.cache_control,
            "--clock-control", options.clock_control, "--launch-skip", str(options.launch_skip),
            "--launch-count", str(options.launch_count)]
    if options.kernel:
        argv += ["--kernel-name", f"regex:{options.kernel}"]
    if options.set != "none":
        argv += ["--set", options.set]
    for section in options.sections:
        argv += ["--section", section]
    if options.metrics:
        argv += ["--metrics", ",".join(options.metrics)]
    if options.nvtx_include:
        argv += ["--nvtx", "--nvtx-include", options.nvtx_include]
    if options.import_source:
        argv += ["--import-source", "yes"]
    return argv


def _torch(options: TorchOptions, program: list[str], asked: str, launcher: str, trace: str) -> list[str]:
    """The launcher goes between the interpreter and the script: the profiler runs inside the program's own process."""
    if asked != PYTHON and not PurePosixPath(asked).name.startswith("python"):
        raise TargetError("torch.profiler records from inside Python: the target must begin with {python} or python")
    if len(program) < 2 or not ((program[1] == "-m" and len(program) > 2) or program[1].endswith(".py")):
        raise TargetError("torch.profiler needs a target of the form {python} script.py … or {python} -m module …")
    flags = [f"--{name.replace('_', '-')}" for name in ("record_shapes", "with_stack", "profile_memory", "end_after")
             if getattr(options, name)]
    return [program[0], launcher, "--out", trace, "--steps", options.steps, "--wait", str(options.wait),
            "--warmup", str(options.warmup), "--active", str(options.active), *flags, "--", *program[1:]]


def shown(argv: Sequence[str]) -> str:
    """The command as one would type it: for reading, never for running."""
    return shlex.join(argv)
