"""A worker's warm parent for checks of kernel files: the real one, but for the operators' kernels, which no check needs.

    python -m tests.tuner.bring.checking …        as workers.core.warm starts it
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tuner.tuning import wire
from tuner.tuning.measure.fork_server import Server
from workers.core import sandbox_inside, warm, warm_walled
from workers.tune import own

CHECKS = ("tuner.bring.pasted", "tuner.bring.child", "tuner.bring.cuda")


@contextmanager
def checking_parent() -> Iterator[warm.Keeper]:
    """Let this process's checks be forks of one parent meanwhile."""
    keeper = warm.Keeper(own.warm_environ(), module=__name__)
    warm.keep(keeper, walled=True)
    keeper.tend()
    try:
        yield keeper
    finally:
        warm.keep(None, walled=True)
        keeper.close()


def serve(requests_fd: int, report_fd: int) -> None:
    from tuner.tuning.measure.warm import freeze, import_modules, renew, touched_cuda

    without = import_modules([name for name in warm_walled.ALSO if name.startswith(CHECKS)])
    sys.modules["tuner.bring.child"].make_ready()
    freeze()
    server = Server(socket.socket(fileno=requests_fd), report_fd, touched_cuda, renew, sandbox_inside.enter_fork)
    server.report({"ready": True, "seconds": 0.0, "threads": 1, "without": without})
    server.serve()
    os._exit(0)


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    serve(int(sys.argv[1]), int(sys.argv[2]))
