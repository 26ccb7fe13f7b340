"""A child that times kernels without a GPU: real process, real protocol. What it does, the build's own code may say.

`speeds.py` of the build's folder, found on PYTHONPATH, gives µs and what happens; each compile leaves a file in Triton's folder.
"""

import importlib
import os
import sys
import time
from pathlib import Path

from tuner.tuning import wire
from tuner.tuning.trial import Reason

try:
    speeds = importlib.import_module("speeds")
except ImportError:
    speeds = None


class Bench:
    def open(self, request):
        assert request["policy"]["min_samples"] == request["policy"]["max_samples"] and request["library"] is False
        if request["shape"].get("fail"):
            raise wire.Failure("no such shape", "choose another")
        self.operator, self.samples, self.clock = request["operator"], request["policy"]["max_samples"], 1980
        return {"gpu": "Imaginary GPU", "compute_capability": "9.0", "sms": 132, "torch": "2.11.0", "cuda": "13.0",
                "triton": "3.6.0", "driver": "1.0", "source_hash": getattr(speeds, "HASH", "0" * 64),
                "policy": request["policy"], "library_ms": None}

    def compile(self, request):
        do = getattr(speeds, "DO", {}).get(self.operator, "")
        if do == "refuse":
            raise wire.Rejection(Reason.COMPILE, "CompilationError: no", compile_s=0.1)
        folder = Path(os.environ["TRITON_CACHE_DIR"])
        found = (folder / self.operator).exists()
        (folder / self.operator).write_text("compiled")
        return {"compile_s": 0.0 if found else 1.0, "registers": 32, "spills": 0, "smem_bytes": 1024}

    def run(self, request):
        do = getattr(speeds, "DO", {}).get(self.operator, "")
        if do == "die":
            print("last words", flush=True)
            os._exit(3)
        if do == "hang":
            time.sleep(60)
        us = getattr(speeds, "US", {}).get(self.operator, 10.0) + (os.getpid() % 7) * 0.01
        samples = [us / 1000 + at * 1e-6 for at in range(self.samples)]
        return {"median_ms": samples[len(samples) // 2], "samples_ms": samples, "ended": "max_samples", "n": len(samples),
                "facts": {"pid": os.getpid(), "relative_error": 1e-4, "config": request["config"],
                          "clocks": {"sm_clock_mhz": {"min": 1965, "median": self.clock, "max": 1980}}}}


if __name__ == "__main__":
    wire.enter_child(int(sys.argv[3]))
    bench = Bench()
    wire.serve({"open": bench.open, "compile": bench.compile, "run": bench.run}, int(sys.argv[1]), int(sys.argv[2]))
