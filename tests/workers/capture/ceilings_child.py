"""A child that measures without a GPU: real process, real protocol, known numbers."""

import os
import sys

from tuner.tuning import wire
from tuner.tuning.trial import Reason

KINDS = {"copy": "dram", "read": "dram", "write": "dram", "l2": "l2", "l1": "l1"}


def opened(request: dict) -> dict:
    return {"gpu": "NVIDIA H200", "compute_capability": "9.0", "sms": 132, "torch": "2.11"}


def measure(request: dict) -> dict:
    name = request["name"]
    if name == "gemm-fp8":
        raise wire.Rejection(Reason.OTHER, "NotImplementedError: no FP8")
    if name == "gemm-int8":
        os._exit(3)
    kind = KINDS.get(name, "compute")
    rate = {"copy": 4.0e12, "read": 4.4e12, "write": 4.2e12}.get(name, 5e13)
    return {"name": name, "kind": kind, "label": name, "precision": name.split("-")[1] if kind == "compute" else "", "how": "said",
            "facts": {}, "rate": rate, "best": rate, "best_clock_hz": 1.5e9, "sm_clock_hz": 1.5e9, "per_cycle": rate / 1.5e9,
            "spread": 0.01, "n": 10, "launches": 1, "seconds": 1.0, "during": {"power_w": 500}}


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    wire.serve({"open": opened, "measure": measure}, int(sys.argv[1]), int(sys.argv[2]))
