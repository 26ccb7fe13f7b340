"""What a capture tool says about itself. Form, API, command preview and worker read it; nothing else knows the tools.

Plain Python: a worker without Django imports it. Stop needs no code of a tool: the worker ends the tool's process and
everything that it started; a tool that can finish its report before says so (`Stop`).

What is installed on this host, by the words of the thing itself. Nothing is imported.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from typing import Any

from profiles.capture.tools.options import Options

_VERSION_TIMEOUT_S = 30.0


def program_version(path: str) -> dict[str, str]:
    """Return {"path", "version"} of a program that knows --version, or {"missing": why}."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return {"missing": f"{path} does not run: {error}"}
    version = re.search(r"[Vv]ersion (\S+)", done.stdout)
    if done.returncode or not version:
        return {"missing": f"{path} --version says: {(done.stdout + done.stderr).strip()[:300]}"}
    return {"path": path, "version": version[1]}


def program_help(argv: Sequence[str]) -> str:
    """Return what a program prints of its own options; "" where it does not run."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


@lru_cache(maxsize=8)
def package_version(name: str) -> dict[str, str]:
    """Return {"version"} from the installation's metadata, or {"missing": why}."""
    try:
        return {"version": metadata.version(name)}
    except metadata.PackageNotFoundError:
        return {"missing": f"{name} is not installed here: pip install 'ridgepoint[gpu]'"}


PYTHON = "{python}"            # in a target: the worker's own interpreter


# What becomes of a result file.
PROFILE = "profile"            # ingested as the capture's profile; several: the ranks of one job, in one profile
LINKED = "linked"              # ingested as a profile of its own, linked to the capture
KEPT = "kept"                  # kept beside the capture for download
OWNERS = "owners"              # so kept, for those who may change what is run: it may hold secrets of the worker


@dataclass(frozen=True)
class Paths:
    """Where the worker finds things; the defaults are what a preview shows."""

    program: str = ""          # the tool's own; "": its name, found on PATH
    python: str = "python"
    project: str = ""          # Ridgepoint's folder
    folder: str = "."          # the result is written into it
    installed: Mapping[str, str] = field(default_factory=dict)     # what the tool says of itself there; {} where nobody said
    launcher: tuple[str, ...] = ()                                 # what the launcher of several processes needs there


@dataclass(frozen=True)
class Field:
    """One option on the form; its default and its rule stand in the tool's `Options`."""

    name: str
    label: str
    kind: str = "text"         # text, lines, number, choice, many (of `choices`), yes (a tick box)
    help: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)       # value -> what it means; "" where the value says it
    attrs: Mapping[str, str] = field(default_factory=dict)         # HTML attributes of the input


@dataclass(frozen=True)
class Group:
    """Fields that stand side by side, or behind a `summary` until it is opened or one of them has a value."""

    fields: tuple[Field, ...]
    summary: str = ""


@dataclass(frozen=True)
class Failure:
    """Words that a tool prints when it fails, and what they mean."""

    pattern: str               # regular expression, searched in the log without regard to case
    what: str
    hint: str                  # what to do


@dataclass(frozen=True)
class Result:
    """A file that a tool leaves in the capture's folder, or one per rank; ingest finds its format."""

    name: str                  # "report.ncu-rep"; with "*" where each rank's file is named: "trace*.json.gz"
    role: str = PROFILE        # PROFILE, LINKED, KEPT, OWNERS
    what: str = ""             # for people, beside its link: "report for the Nsight Systems window"

    @property
    def plain(self) -> str:
        """The file's name where there is one process only."""
        return self.name.replace("*", "")


@dataclass(frozen=True)
class Stop:
    """How a tool is told to finish its report early. Whatever still runs `grace_s` later is killed."""

    grace_s: float
    signal: int = signal.SIGINT
    to_group: bool = False     # to the tool and everything in its process group; else to the tool alone


@dataclass(frozen=True)
class Resolved:
    """What the worker makes of options before it runs them: wildcards looked up, names of folders found."""

    options: Any
    lines: Sequence[str] = ()                                   # for the log
    facts: Mapping[str, Any] = field(default_factory=dict)      # JSON for the capture's row and page


@dataclass(frozen=True)
class CaptureTool:
    """One way to capture a program. `argv` raises Refused for a program that the tool cannot run."""

    name: str                                                   # in rows, URLs and the API: at most 8 characters, as the column
    title: str
    heading: str                                                # of the choice on the form
    purpose: str                                                # what it is for: "hardware counters of single kernels"
    note: str                                                   # below its fields; `code` between backticks
    options: type[Options]
    form: tuple[Field | Group, ...]
    argv: Callable[[Any, Sequence[str], str, Paths], list[str]]
    # ^ of options, program, the first result's path and paths; %q{NAME} in that path stands for a variable of each process
    results: tuple[Result, ...]                                 # the first is what the capture is for
    label: Callable[[Any], str]                                 # of options: ends the profile's name
    installed: Callable[[], dict[str, str]]                     # {"version", maybe "path"} on this host, or {"missing": why}
    failures: tuple[Failure, ...]                               # the first that the log shows is told
    resolve: Callable[[Any, Paths], Resolved] = lambda options, paths: Resolved(options)     # on the worker; raises Refused
    runs_in_target: bool = False         # in the target's own interpreter: what the worker's lacks refuses no run
    environ: Callable[[Any, Paths], Mapping[str, str]] = lambda options, paths: {}     # beside the worker's and the target's
    after: Callable[[Any, Sequence[str], Paths], list[list[str]]] = lambda options, files, paths: []
    # ^ commands that run once the program has ended, in turn, of the files' names that lie in the folder by then
    needs_gpu: Callable[[Any], bool] = lambda options: True
    without_gpu: str = ""                # what it can record where there is no GPU, for people; "": nothing
    stop: Stop | None = None             # None: Stop ends it at once and nothing is kept
    dumps: Callable[[Any], int] = lambda options: 0      # snapshots of memory that may be asked for while it runs, at most
    one_process: str = ""                # why it cannot record several processes of a job; "": it can
    slowdown: Callable[[Any], str] = lambda options: ""         # expected, for people: "10 to 100 times slower"

    @property
    def result(self) -> str:
        """The name of the file that the capture is for, of one process."""
        return self.results[0].plain

    def gpus(self, options: Any) -> int:
        """Return how many GPUs a capture with these options leases: one a process, or none."""
        return int(getattr(options, "processes", 1)) if self.needs_gpu(options) else 0

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the form in its order, those in groups too."""
        return tuple(entry for element in self.form for entry in (element.fields if isinstance(element, Group) else (element,)))


TIME_LIMIT = Field("time_limit_s", "Time limit (s)", "number")
PLAIN_RUN = Field("plain_run", "Measure its cost: run the program once more without the tool", "yes")
COMMON_FAILURES = (
    Failure(r"already profiled|Another profiler|CUPTI_ERROR_MULTIPLE_SUBSCRIBERS|DriverConflict|ResourceUnavailable",
            "another profiler holds the GPU's counters", "stop dcgm's profiling module or the other profiler, then try again"),
    Failure(r"out of memory", "the GPU had too little free memory", "free the GPU, or choose a smaller target"),
    Failure(r"No module named '?(torch|triton)", "the target's interpreter lacks torch or Triton",
            "install the `gpu` extra there, or let the target name another interpreter"),
)
