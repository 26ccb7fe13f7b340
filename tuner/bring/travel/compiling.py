"""The process that compiles an own kernel's configurations ahead of the GPU, behind walls: `tuner.tuning.measure.compiler`'s.

Started by workers.tune.own as `python -m tuner.bring.travel.compiling READ_FD WRITE_FD PARENT_PID`. A file that asks for a GPU
while it is imported is answered for one.
"""

from __future__ import annotations

import os
import sys

from tuner.bring.calls.stand_ins import stand_in_gpu
from tuner.bring.travel.measuring import provide
from tuner.tuning import wire
from tuner.tuning.measure import compiler

STANDS_IN_FOR = "9.0"


def main(argv: list[str]) -> None:
    """Serve requests until the worker closes its end."""
    read_fd, write_fd, parent_pid = (int(arg) for arg in argv)
    compiler.enter(parent_pid)
    stand_in_gpu(STANDS_IN_FOR)                     # `open` names the GPU that is compiled for
    provide()
    wire.serve(compiler.Compiler().handlers(), read_fd, write_fd)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
