"""What starts a program as several processes of one host, one GPU each, and how each process knows its rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from profiles.capture.tools.options import ProgramOptions, choice_of, whole_number
from profiles.capture.tools.tool import Field, Group, Paths

MAX_PROCESSES = 64
PROGRAM = "program"
LAUNCHERS = {
    "torchrun": "torch.distributed", "mpirun": "Open MPI", "mpiexec": "MPICH",
    "srun": "Slurm", PROGRAM: "it starts them itself"}
RANK_VARIABLE = {"torchrun": "RANK", "mpirun": "OMPI_COMM_WORLD_RANK", "mpiexec": "PMI_RANK", "srun": "SLURM_PROCID"}
_ELASTIC = ("torch.distributed.run", "torch.distributed.launch")


@dataclass(frozen=True)
class ProcessOptions(ProgramOptions):
    """Options of a tool that can record several processes: one GPU each, all on one host."""

    processes: int = 1
    launcher: str = "torchrun"             # used where there are several


READ_PROCESSES = {"processes": whole_number(1, MAX_PROCESSES), "launcher": choice_of(LAUNCHERS)}
PROCESS_FIELDS = Group((Field("processes", "Processes", "number", "one GPU each, leased together"),
                        Field("launcher", "Started by", "choice", choices=LAUNCHERS)))


def rank_variable(options: Any) -> str:
    """Return the variable that tells each process its rank; "" where the tool sees one process."""
    return RANK_VARIABLE.get(options.launcher, "") if getattr(options, "processes", 1) > 1 else ""


def launch(options: Any, argv: Sequence[str], paths: Paths) -> list[str]:
    """Return `argv` behind its launcher, which starts the tool once a process; as it is where there is one process."""
    if getattr(options, "processes", 1) == 1 or options.launcher == PROGRAM:
        return list(argv)
    count = str(options.processes)
    starts = {"torchrun": [paths.python, "-m", _ELASTIC[0], "--standalone", "--nproc-per-node", count, "--no-python"],
              "mpirun": ["mpirun", "-n", count], "mpiexec": ["mpiexec", "-n", count],
              "srun": ["srun", "--nodes=1", f"--ntasks={count}"]}
    return [*starts[options.launcher], *argv]


def starts_several(program: Sequence[str]) -> str:
    """Return the launcher that a target's own command begins with, "" for none."""
    name = PurePosixPath(program[0]).name
    if name in RANK_VARIABLE or name == "deepspeed":
        return name
    module = program[2] if len(program) > 2 and program[1] == "-m" and re.match(r"python|\{python\}", name) else ""
    return "torchrun" if module in _ELASTIC else ""
