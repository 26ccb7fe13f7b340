"""A compile process without a compiler: real process, real protocol, which does what a configuration's `build` says."""

import os
import sys
import time

from tuner.tuning import wire
from tuner.tuning.trial import Reason

FACTS = {"registers": 128, "spills": 0, "smem_bytes": 4096, "occupancy_pct": 25.0}


aimed: dict = {}


def opened(request: dict) -> dict:
    aimed.update(request)
    if request["shape"].get("no_meta"):
        raise wire.Failure("no compile ahead: this kernel reads its inputs")
    if request["shape"].get("compiler_dies"):
        os._exit(5)
    return {"aimed": [request["compute_capability"], request["sms"]]}


def compiled(request: dict) -> dict:
    config = request["config"]
    match config.get("build", "fine"):
        case "hang":
            time.sleep(60)
        case "abort":
            os.abort()
        case "refuse":
            raise wire.Rejection(Reason.COMPILE, "CompilationError: no such tile", compile_s=0.1)
        case "too big":
            raise wire.Rejection(Reason.RESOURCES, "does not fit: shared memory", smem_bytes=500_000)
        case "garbage":
            os.write(int(sys.argv[2]), b"\xff\xff\xff\xff not a message")
            time.sleep(60)
        case "spills":
            return {**FACTS, "spills": 700, "compile_s": 0.1}
        case "slow":
            time.sleep(0.3)
    return {**FACTS, "compile_s": 0.3 if config.get("build") == "slow" else 0.05, "compiler": os.getpid(),
            "compiled_for": aimed["shape"].get("size")}


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    wire.serve({"open": opened, "compile": compiled}, int(sys.argv[1]), int(sys.argv[2]))
