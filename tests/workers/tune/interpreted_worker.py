"""`python -m tests.workers.tune.interpreted_worker check|tune ID`: one row as a worker takes it, on Triton's interpreter.

In the environment of a running product: own kernels are compiled and measured behind the walls, without a GPU.
"""

import os
import sys
from pathlib import Path

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")


def main(what: str, row: str) -> None:
    from webapp.embedded import ensure

    ensure.name_servers(Path(os.environ["RIDGEPOINT_HOME"]))
    django.setup()
    from tests.tuner.bring.own.programs import CARD, ON_THE_CPU
    from workers.core import gpu
    from workers.tune import check, gpu_child, lead, own

    gpu_child.SPARES = 0
    own.PROGRAMS = ON_THE_CPU
    gpu.gpus = lambda: [CARD]
    {"check": check.run, "tune": lead.run}[what](int(row), "interpreted")


if __name__ == "__main__":
    main(*sys.argv[1:])
