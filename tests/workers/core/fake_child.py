"""A GPU child without a GPU: real process, real protocol, "kernels" that do what a configuration's `do` says."""

import ctypes
import os
import subprocess
import sys
import time

from tuner.tuning import wire
from tuner.tuning.trial import Reason


def opened(request: dict) -> dict:
    if request["shape"].get("fail"):
        raise wire.Failure("no such shape", "choose another")
    if request["shape"].get("die"):
        os._exit(4)
    return {"gpu": "Imaginary GPU", "compute_capability": "9.0", "library_ms": 2.0, "policy": {"cold_l2": True},
            "driver": "1.0", "pid": os.getpid()}


def compiled(request: dict) -> dict:
    match request["config"]["do"]:
        case "refuse":
            raise wire.Rejection(Reason.COMPILE, "CompilationError: no", compile_s=0.1)
        case "compile-hang":
            time.sleep(60)
    return {"compile_s": 0.25}


def run(request: dict) -> dict:
    began_s = time.monotonic()
    match request["config"]["do"]:
        case "exit":
            print("last words")
            sys.stdout.flush()
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "hang":
            while True:
                time.sleep(1)
        case "hang-with-child":
            subprocess.Popen(["sleep", "61.5"])
            time.sleep(60)
        case "lie":
            raise wire.Rejection(Reason.WRONG, "relative error 0.5", relative_error=0.5)
        case "resources":
            raise wire.Rejection(Reason.RESOURCES, "OutOfResources: shared memory")
        case "sticky":
            raise wire.Rejection(Reason.CRASH, "an illegal memory access was encountered", fatal=True)
        case "garbage":
            os.write(int(sys.argv[2]), b"\xff\xff\xff\xff not a message")
            time.sleep(60)
        case "nap":
            time.sleep(0.25)
        case "chatter":
            print("x" * 100_000)
            os.write(1, b"straight to the descriptor\n")
    return {"median_ms": 1.0, "min_ms": 0.9, "p90_ms": 1.2, "n": 10, "spread": 0.01, "ended": "settled",
            "samples_ms": [1.0] * 10, "facts": {"pid": os.getpid(), "seed": request["seed"], "began_s": began_s,
                                                 "ended_s": time.monotonic()}}


def finalists(request: dict) -> list:
    return [run({"config": config, "seed": 0}) for config in request["configs"]]


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    wire.serve({"open": opened, "compile": compiled, "run": run, "finalists": finalists},
               int(sys.argv[1]), int(sys.argv[2]))
