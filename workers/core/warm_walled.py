"""The warm parent of children that go behind walls: own kernels compiled and measured, candidates judged, files checked.

Started by workers.core.warm as tuner.tuning.measure.fork_server is, with the variables that the walls give and no other: what this
process ever read, its forks can read. It loads nothing of anybody's; each fork goes behind the walls before it does.
"""

from __future__ import annotations

import sys

from tuner.tuning.measure import fork_server
from workers.core import sandbox_inside

ALSO = ("tuner.bring.travel.measuring", "tuner.bring.travel.compiling", "tuner.candidates.judge.compiling",
        "tuner.candidates.judge.child", "tuner.bring.pasted", "tuner.bring.child",
        "tuner.bring.cuda.compiling", "tuner.bring.cuda.child")


def main(argv: list[str]) -> None:
    """Become a warm parent whose forks go behind walls."""
    fork_server.main(argv, sandbox_inside.enter_fork, ALSO)


if __name__ == "__main__":
    main(sys.argv[1:])
