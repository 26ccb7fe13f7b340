"""torch.profiler: a trace of whole steps of a Python program, recorded from inside its own process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from profiles.capture.tools.installed import package_version
from profiles.capture.tools.options import TIME_LIMIT_S, Options, choice_of, read_yes_or_no, whole_number
from profiles.capture.tools.tool import (
    COMMON_FAILURES,
    TIME_LIMIT,
    CaptureTool,
    Failure,
    Field,
    Group,
    Paths,
    Result,
    TargetError,
)

LAUNCHER = "workers/capture/torch_capture.py"       # below Ridgepoint's folder
MAX_STEPS = 1000
STEPS = {"auto": "the program's own steps", "whole": "the whole run"}
_FLAGS = ("record_shapes", "with_stack", "profile_memory", "end_after")


@dataclass(frozen=True)
class TorchOptions(Options):
    """A trace by torch.profiler."""

    steps: str = "auto"
    wait: int = 1                          # steps passed over: the first compile and allocate
    warmup: int = 1                        # steps with the profiler on, thrown away
    active: int = 3                        # steps recorded
    record_shapes: bool = True
    with_stack: bool = False
    profile_memory: bool = False
    end_after: bool = True                 # end the program once the trace is written

    TOOL = "torch"
    READ = {
        "steps": choice_of(STEPS), "wait": whole_number(0, MAX_STEPS), "warmup": whole_number(0, MAX_STEPS),
        "active": whole_number(1, MAX_STEPS), "record_shapes": read_yes_or_no, "with_stack": read_yes_or_no,
        "profile_memory": read_yes_or_no, "end_after": read_yes_or_no, "time_limit_s": whole_number(*TIME_LIMIT_S)}

    def steps_needed(self) -> int:
        """Return how many steps the program must make until the trace is written."""
        return self.wait + self.warmup + self.active


def build_argv(options: TorchOptions, program: Sequence[str], trace: str, paths: Paths) -> list[str]:
    """Return the command that writes `trace`: the launcher goes between the interpreter and the script. Raises TargetError."""
    if program[0] != paths.python and not PurePosixPath(program[0]).name.startswith("python"):
        raise TargetError("torch.profiler records from inside Python: the target must begin with {python} or python")
    if len(program) < 2 or not ((program[1] == "-m" and len(program) > 2) or program[1].endswith(".py")):
        raise TargetError("torch.profiler needs a target of the form {python} script.py … or {python} -m module …")
    flags = [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(options, name)]
    return [program[0], str(PurePosixPath(paths.project) / LAUNCHER), "--out", trace, "--steps", options.steps,
            "--wait", str(options.wait), "--warmup", str(options.warmup), "--active", str(options.active), *flags,
            "--", *program[1:]]


TOOL = CaptureTool(
    name=TorchOptions.TOOL, title="torch.profiler", heading="Trace with torch.profiler", purpose="a trace of whole steps",
    note="A step ends where the program calls `ridgepoint_step()`, which the launcher puts among Python's builtins; in a program "
         "that never does, at each `step()` of a torch optimizer. One that has neither is run again and recorded as a whole.",
    options=TorchOptions, argv=build_argv, results=(Result("trace*.json.gz"),), installed=lambda: package_version("torch"),
    runs_in_target=True, label=lambda options: "torch.profiler",
    form=(
        Field("steps", "Record", "choice", choices=STEPS),
        Group((Field("wait", "Wait", "number", "steps passed over"),
               Field("warmup", "Warm-up", "number", "steps thrown away"),
               Field("active", "Active", "number", "steps recorded"))),
        Field("record_shapes", "Input shapes of operators", "yes"),
        Field("with_stack", "Python stacks (slower, larger)", "yes"),
        Field("profile_memory", "Memory allocations", "yes"),
        Field("end_after", "End the program once the trace is written", "yes"),
        TIME_LIMIT,
    ),
    failures=(
        *COMMON_FAILURES,
        Failure(r"ridgepoint: no trace", "the program ended before recording began", "lower wait and warm-up, or run more steps"),
    ),
)
