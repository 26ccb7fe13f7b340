"""The real compile process; where a configuration's fault says so, the compiler never ends or dies."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from tuner.tuning import wire
from tuner.tuning.measure.compiler import Compiler, enter


class Faulty(Compiler):
    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        fault = request["config"].pop("fault", "")
        if fault == "compiler hangs":
            time.sleep(600)
        elif fault == "compiler dies":
            os.abort()
        return super().compile(request)


if __name__ == "__main__":
    enter(int(sys.argv[3]))
    wire.serve(Faulty().handlers(), int(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)
