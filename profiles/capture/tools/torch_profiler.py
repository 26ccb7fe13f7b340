"""torch.profiler: a trace of whole steps of a Python program, recorded from inside its own process."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from profiles.base.refused import Refused
from profiles.capture.tools.launchers import PROCESS_FIELDS, PROGRAM, READ_PROCESSES, ProcessOptions
from profiles.capture.tools.options import TIME_LIMIT_S, choice_of, read_yes_or_no, whole_number
from profiles.capture.tools.tool import (
    COMMON_FAILURES,
    KEPT,
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

LAUNCHER = "workers/capture/torch_capture.py"       # below Ridgepoint's folder
DUMP = "dump-*.pickle"                              # one each time that somebody asks for a snapshot
MAX_STEPS = 1000
MAX_SKIPPED = 1_000_000
MOST_DUMPS = 8                                      # memory snapshots asked for while it runs; workers.capture.torch_memory too
STEPS = {"auto": "the program's own steps", "whole": "the whole run", "none": "no trace: a memory snapshot alone"}
MEMORY = {"off": "", "end": "at the end, or when memory runs out", "oom": "only when memory runs out",
          "request": "when asked on its page, on Stop, or where the program calls ridgepoint_snapshot()"}
_FLAGS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules", "all_threads", "sync_events",
          "execution_trace", "end_after")


@dataclass(frozen=True)
class TorchOptions(ProcessOptions):
    """A trace by torch.profiler."""

    steps: str = "auto"
    skip_first: int = 0                    # steps before the first cycle
    wait: int = 1                          # steps passed over in each cycle: the first compile and allocate
    warmup: int = 1                        # steps with the profiler on, thrown away
    active: int = 3                        # steps recorded
    repeat: int = 1                        # cycles; each is a trace of its own
    record_shapes: bool = True
    with_stack: bool = False
    profile_memory: bool = False
    with_flops: bool = False
    with_modules: bool = False
    all_threads: bool = False              # experimental: threads that Python did not start
    sync_events: bool = False              # experimental: waits for events, streams and the GPU
    execution_trace: bool = False          # Chakra, beside the trace
    memory: str = "off"                    # when a snapshot of the allocator is written
    memory_entries: int = 100_000          # of its history, the last ones
    end_after: bool = True                 # end the program once the trace is written

    TOOL = "torch"
    READ = {
        "steps": choice_of(STEPS), "skip_first": whole_number(0, MAX_SKIPPED), "wait": whole_number(0, MAX_STEPS),
        "warmup": whole_number(0, MAX_STEPS), "active": whole_number(1, MAX_STEPS), "repeat": whole_number(1, 20),
        **dict.fromkeys(_FLAGS, read_yes_or_no), "memory": choice_of(MEMORY), "memory_entries": whole_number(1000, 5_000_000),
        **READ_PROCESSES, "plain_run": read_yes_or_no, "time_limit_s": whole_number(*TIME_LIMIT_S)}

    def problems(self) -> dict[str, str]:
        if self.steps == "none" and self.memory == "off":
            return {"memory": "without a trace, choose when the memory snapshot is written"}
        return super().problems()

    def cut_short(self) -> str:
        return "steps are timed with and without recording in the same run" if self.steps == "auto" else ""

    def steps_needed(self) -> int:
        """Return how many steps the program must make until the last trace is written."""
        return self.skip_first + self.repeat * (self.wait + self.warmup + self.active)


def build_argv(options: TorchOptions, program: Sequence[str], trace: str, paths: Paths) -> list[str]:
    """Return the command that writes `trace`: the launcher goes between the interpreter and the script. Raises Refused."""
    if options.processes > 1 and options.launcher == PROGRAM:
        raise Refused({"launcher": "torch.profiler records from inside each process: choose what starts them"})
    if program[0] != paths.python and not PurePosixPath(program[0]).name.startswith("python"):
        raise Refused({"target": "torch.profiler records from inside Python: the target must begin with {python} or python"})
    if len(program) < 2 or not ((program[1] == "-m" and len(program) > 2) or program[1].endswith(".py")):
        raise Refused({"target": "torch.profiler needs a target of the form {python} script.py … or {python} -m module …"})
    flags = [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(options, name)]
    return [program[0], str(PurePosixPath(paths.project) / LAUNCHER), "--out", trace, "--steps", options.steps,
            "--wait", str(options.wait), "--warmup", str(options.warmup), "--active", str(options.active), *_more(options), *flags,
            "--", *program[1:]]


def _more(options: TorchOptions) -> list[str]:
    """Return the words of what differs from the launcher's own defaults."""
    more = [("--skip-first", options.skip_first, 0), ("--repeat", options.repeat, 1), ("--memory", options.memory, "off")]
    if options.memory != "off":
        more.append(("--memory-entries", options.memory_entries, None))
    return [word for flag, value, default in more if value != default for word in (flag, str(value))]


def slowdown(options: TorchOptions) -> str:
    """Return what recording does to a step's time, where it was measured (docs/fleet-loss.md: CUDA activity alone)."""
    if options.steps == "none":
        return ""
    more = [name for name, on in (("Python stacks", options.with_stack), ("modules", options.with_modules),
                                  ("memory", options.profile_memory), ("all threads", options.all_threads)) if on]
    slower = "steps 0 to 36 % longer while it records (an H200, docs/fleet-loss.md)"
    return f"{slower}; more with {' and '.join(more)}" if more else slower


TOOL = CaptureTool(
    name=TorchOptions.TOOL, title="torch.profiler", heading="Trace with torch.profiler", purpose="a trace of whole steps",
    note="A step ends where the program calls `ridgepoint_step()`, which the launcher puts among Python's builtins; in a program "
         "that never does, at each `step()` of a torch optimizer. One that has neither is run again and recorded as a whole.",
    options=TorchOptions, argv=build_argv, results=(
        Result("trace*.json.gz"), Result("only-snapshot*.pickle", what="memory snapshot"),
        Result("cycle-*.json.gz", LINKED), Result("snapshot*.pickle", LINKED, "memory snapshot"),
        Result(DUMP, LINKED, "memory snapshot on request"),
        Result("execution_trace*.json.gz", KEPT, "execution trace (Chakra)")), installed=lambda: package_version("torch"),
    runs_in_target=True, label=lambda options: "memory snapshot" if options.steps == "none" else "torch.profiler",
    stop=Stop(grace_s=120, signal=signal.SIGTERM), slowdown=slowdown,
    dumps=lambda options: MOST_DUMPS if options.memory != "off" else 0,
    form=(
        Field("steps", "Record", "choice", choices=STEPS),
        Group((Field("wait", "Wait", "number", "steps passed over"),
               Field("warmup", "Warm-up", "number", "steps thrown away"),
               Field("active", "Active", "number", "steps recorded"))),
        Group((Field("skip_first", "Skip first", "number", "steps before all cycles"),
               Field("repeat", "Repeat", "number", "cycles, each a profile of its own"))),
        Field("record_shapes", "Input shapes of operators", "yes"),
        Field("with_stack", "Python stacks (slower, larger)", "yes"),
        Field("profile_memory", "Memory allocations", "yes"),
        Group(summary="More in the trace", fields=(
            Field("with_flops", "FLOP of operators", "yes"),
            Field("with_modules", "Modules (TorchScript)", "yes"),
            Field("all_threads", "All threads", "yes"),
            Field("sync_events", "CUDA synchronization", "yes"),
            Field("execution_trace", "Execution trace (Chakra) beside it", "yes"))),
        Group(summary="Memory snapshot", fields=(
            Field("memory", "Write a snapshot", "choice", choices=MEMORY),
            Field("memory_entries", "Events kept", "number", "the allocator's last ones"))),
        Field("end_after", "End the program once the trace is written", "yes"),
        PROCESS_FIELDS,
        PLAIN_RUN,
        TIME_LIMIT,
    ),
    failures=(
        *COMMON_FAILURES,
        Failure(r"ridgepoint: no trace was asked for, and no memory snapshot", "no memory snapshot was written",
                "choose to write it at the end, or let the program call ridgepoint_snapshot()"),
        Failure(r"ridgepoint: no trace", "the program ended before recording began", "lower wait and warm-up, or run more steps"),
    ),
)
