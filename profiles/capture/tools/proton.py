"""Proton: Triton's own profiler. Sums by scope, or a trace, of every kernel of a Python program."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from profiles.base.refused import Refused
from profiles.capture.tools.options import TIME_LIMIT_S, ProgramOptions, choice_of, read_yes_or_no, whole_number
from profiles.capture.tools.tool import (
    COMMON_FAILURES,
    LINKED,
    PLAIN_RUN,
    TIME_LIMIT,
    CaptureTool,
    Failure,
    Field,
    Group,
    Paths,
    Result,
    Stop,
    package_version,
)

LAUNCHER = "workers/capture/proton_capture.py"       # below Ridgepoint's folder
DATA = {"tree": "sums of kernels by scope", "trace": "each kernel in time"}
CONTEXT = {"shadow": "the scopes that the program names", "python": "Python's call stack"}
BACKEND = {"auto": "as the GPU asks for", "cupti": "NVIDIA's, whole kernels", "instrumentation": "inside Triton kernels"}
MODE = {"none": "", "pcsampling": "where in a kernel the warps wait", "periodic_flushing": "each step a profile of its own"}
STARTS_AT = 1_000_000
MAX_STEPS = 100_000


@dataclass(frozen=True)
class ProtonOptions(ProgramOptions):
    """A profile by Proton."""

    data: str = "tree"
    context: str = "shadow"
    backend: str = "auto"
    mode: str = "none"
    interval: int = 1000                   # of PC sampling, as Proton takes it
    hook: bool = True                      # what launches say of themselves: FLOP, bytes, a name
    skip_first: int = 0                    # steps before it starts
    active: int = 0                        # steps recorded; 0: until the program ends
    end_after: bool = True                 # end the program once the profile is written

    TOOL = "proton"
    READ = {
        "data": choice_of(DATA), "context": choice_of(CONTEXT), "backend": choice_of(BACKEND), "mode": choice_of(MODE),
        "interval": whole_number(1, 10**9), "hook": read_yes_or_no, "skip_first": whole_number(0, STARTS_AT),
        "active": whole_number(0, MAX_STEPS), "end_after": read_yes_or_no,
        "plain_run": read_yes_or_no, "time_limit_s": whole_number(*TIME_LIMIT_S)}

    def problems(self) -> dict[str, str]:
        if self.mode != "none" and self.backend == "instrumentation":
            return {"mode": f"{self.mode} is of CUPTI: with instrumentation, none"}
        if self.mode == "pcsampling" and self.data == "trace":
            return {"data": "PC sampling counts: tree"}
        return super().problems()

    def cut_short(self) -> str:
        return "steps are timed with and without recording in the same run" if self.active else ""


def build_argv(options: ProtonOptions, program: Sequence[str], result: str, paths: Paths) -> list[str]:
    """Return the command that writes into `result`'s folder: the launcher before the script. Raises Refused."""
    if program[0] != paths.python and not PurePosixPath(program[0]).name.startswith("python"):
        raise Refused({"target": "Proton records from inside Python: the target must begin with {python} or python"})
    if len(program) < 2 or not ((program[1] == "-m" and len(program) > 2) or program[1].endswith(".py")):
        raise Refused({"target": "Proton needs a target of the form {python} script.py … or {python} -m module …"})
    words = ["--out", result, "--data", options.data, "--context", options.context, "--backend", options.backend]
    if options.mode != "none":
        words += ["--mode", options.mode]
    if options.mode == "pcsampling":
        words += ["--interval", str(options.interval)]
    for flag, value in (("--skip-first", options.skip_first), ("--active", options.active)):
        words += [flag, str(value)] if value else []
    words += [flag for flag, on in (("--hook", options.hook), ("--end-after", options.end_after)) if on]
    return [program[0], str(PurePosixPath(paths.project) / LAUNCHER), *words, "--", *program[1:]]


def slowdown(options: ProtonOptions) -> str:
    """Return what recording costs by Proton's own documentation (its README)."""
    return f"{'about 20' if options.mode == 'pcsampling' else 'up to 1.5'} times as long (Proton's README)"


TOOL = CaptureTool(
    name=ProtonOptions.TOOL, title="Proton", heading="Triton kernels with Proton", purpose="sums of kernels by scope",
    note="A step ends where the program calls `ridgepoint_step()`, else at each `step()` of a torch optimizer.",
    options=ProtonOptions, argv=build_argv,
    results=(Result("proton.hatchet"), Result("proton.hatchet_msgpack"), Result("proton.chrome_trace"), Result("proton.part_0.*"),
             Result("proton.part_*", LINKED)),
    installed=lambda: package_version("triton"), runs_in_target=True, slowdown=slowdown,
    stop=Stop(grace_s=60, signal=signal.SIGTERM), label=lambda options: f"Proton {options.data}",
    form=(
        Field("data", "Record", "choice", choices=DATA),
        Field("context", "Scopes", "choice", choices=CONTEXT),
        Group((Field("skip_first", "Skip first", "number", "steps before it starts"),
               Field("active", "Active", "number", "steps; 0: to the end"))),
        Field("hook", "FLOP and bytes of launches (hook)", "yes"),
        Group(summary="Backend and mode", fields=(
            Field("backend", "Backend", "choice", choices=BACKEND),
            Field("mode", "Mode", "choice", choices=MODE),
            Field("interval", "PC sampling interval", "number"))),
        Field("end_after", "End the program once the profile is written", "yes"),
        PLAIN_RUN,
        TIME_LIMIT,
    ),
    failures=(
        Failure(r"ridgepoint: Proton of Triton \S+ has no", "the target's Triton is too old for one of the options",
                "the log names it; choose another mode, or install a newer Triton there"),
        Failure(r"ridgepoint: Proton does not start: .*active drivers", "Triton sees no GPU on this worker",
                "try nvidia-smi there"),
        Failure(r"cuptiSubscribe|CUPTI_ERROR", "CUPTI could not be used",
                "another profiler may hold it, or the driver does not let this user profile"),
        *COMMON_FAILURES,
        Failure(r"ridgepoint: no profile", "the program ended before recording began", "lower the steps that are skipped"),
    ),
)
