"""What a fork without walls of `tests.warm.parent` begins with: descriptors, folder and path of the test that asked for it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence

from tuner.tuning.measure.fork_server import run_module

MODULE, FOLDER = "RIDGEPOINT_TEST_MODULE", "RIDGEPOINT_TEST_FOLDER"
DESCRIPTORS = ("RIDGEPOINT_ANSWER_FD", "RIDGEPOINT_WHOLE_FD")       # that a child's variables name


def main(arguments: Sequence[str]) -> None:
    """Become the module that a variable names, told of its parent alone."""
    with socket.socket(fileno=os.dup(0)) as sent:
        _, (asked, *others), _, _ = socket.recv_fds(sent, 1, 1 + len(DESCRIPTORS))
    os.dup2(asked, 0)
    os.close(asked)
    os.environ.update({name: str(number) for name, number in zip(DESCRIPTORS, others, strict=True)})
    os.chdir(os.environ.pop(FOLDER))
    sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place and place not in sys.path]
    run_module(os.environ.pop(MODULE), [str(os.getppid())])
