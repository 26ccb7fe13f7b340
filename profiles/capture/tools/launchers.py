"""What starts a program as several processes of one host, one GPU each, and how each process knows its rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import PurePosixPath
from typing import Any

from profiles.capture.tools.options import ProgramOptions, choice_of, whole_number
from profiles.capture.tools.tool import Field, Group, Paths

MAX_PROCESSES = 64
PROGRAM = "program"
LAUNCHERS = {
    "torchrun": "torch.distributed", "mpirun": "Open MPI, MPICH", "mpiexec": "MPICH, Open MPI",
    "srun": "Slurm", PROGRAM: "it starts them itself"}
THROUGH_RANK = ("mpirun", "mpiexec", "srun")        # what these start sets RANK, WORLD_SIZE and LOCAL_RANK, as torchrun does
RANK = "workers/capture/rank.py"                    # below Ridgepoint's folder
SEVERAL_HOSTS = ("a capture records the processes of one worker's host. Start the job yourself with an agent on each host, then "
                 "capture its running processes (Fleet · Captures)")
_ELASTIC = ("torch.distributed.run", "torch.distributed.launch")
_COUNT = {"torchrun": ("--nnodes",), "srun": ("-N", "--nodes"), "deepspeed": ("--num_nodes",)}
_LISTS = {"srun": ("-w", "--nodelist"), "mpirun": ("-H", "-host", "--host", "-hosts"), "deepspeed": ("-i", "--include")}
_PYTHON = re.compile(r"python|\{python\}")


@dataclass(frozen=True)
class ProcessOptions(ProgramOptions):
    """Options of a tool that can record several processes: one GPU each, all on one host."""

    processes: int = 1
    launcher: str = "torchrun"             # used where there are several


READ_PROCESSES = {"processes": whole_number(1, MAX_PROCESSES), "launcher": choice_of(LAUNCHERS)}
PROCESS_FIELDS = Group((Field("processes", "Processes", "number", "one GPU each, leased together"),
                        Field("launcher", "Started by", "choice", choices=LAUNCHERS)))


def launcher_of(options: Any) -> str:
    """Return the launcher that is put before the tool; "" where there is none."""
    several = getattr(options, "processes", 1) > 1 and options.launcher != PROGRAM
    return str(options.launcher) if several else ""


def rank_variable(options: Any) -> str:
    """Return the variable that tells each process its rank; "" where the tool sees one process."""
    return "RANK" if launcher_of(options) else ""


def launch(options: Any, argv: Sequence[str], paths: Paths) -> list[str]:
    """Return `argv` behind its launcher, which starts the tool once a process; as it is where there is one process."""
    launcher = launcher_of(options)
    if not launcher:
        return list(argv)
    count = str(options.processes)
    if launcher == "torchrun":
        return [paths.python, "-m", _ELASTIC[0], "--standalone", "--nproc-per-node", count, "--no-python", *argv]
    starts = ["srun", "--nodes=1", f"--ntasks={count}"] if launcher == "srun" else [launcher, "-n", count]
    return [*starts, *paths.launcher, paths.python, str(PurePosixPath(paths.project) / RANK), launcher, paths.folder, *argv]


def starts_several(program: Sequence[str]) -> str:
    """Return the launcher that a target's own command begins with, "" for none."""
    name = PurePosixPath(program[0]).name
    if (name in LAUNCHERS and name != PROGRAM) or name == "deepspeed":
        return name
    module = program[2] if len(program) > 2 and program[1] == "-m" and _PYTHON.match(name) else ""
    return "torchrun" if module in _ELASTIC else ""


def asks_for_hosts(program: Sequence[str]) -> str:
    """Return the words of a target's own launcher that ask for several hosts: "--nnodes 2"; "" for none.

    Its words end where the program that it starts begins: at a Python, or at a script.
    """
    launcher = starts_several(program).replace("mpiexec", "mpirun")
    start = 3 if program[1:2] == ["-m"] else 1
    own = list(takewhile(lambda word: not (_PYTHON.match(PurePosixPath(word).name) or word.endswith(".py")), program[start:]))
    for flag, value, words in _flags(own):
        counted = flag in _COUNT.get(launcher, ()) and re.fullmatch(r"[0-9]+([:-][0-9]+)?", value)
        if (counted and value not in ("1", "1:1", "1-1")) or (flag in _LISTS.get(launcher, ()) and re.search(r",|\[|@.*@", value)):
            return words
    return ""


def _flags(words: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return (flag, value, both as they stand) of "--flag value", "--flag=value" and "-Nvalue"."""
    flags = [(word, after, f"{word} {after}") for word, after in pairwise([*words, ""]) if word.startswith("-")]
    flags += [(*word.split("=", 1), word) for word in words if word.startswith("--") and "=" in word]      # type: ignore[misc]
    return flags + [(word[:2], word[2:], word) for word in words if re.fullmatch(r"-[A-Za-z]..*", word)]
