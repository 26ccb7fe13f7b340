"""The process that owns CUDA while a GPU's ceilings are measured; one request per measurement.

Started by workers.capture.ceilings as `python -m tuner.tuning.measure.ceilings_child READ_FD WRITE_FD PARENT_PID`; speaks
tuner.tuning.wire.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton

from tuner.tuning import wire
from tuner.tuning.measure import ceilings, nvml
from tuner.tuning.measure.device import is_alive
from tuner.tuning.trial import Reason

MESSAGE_CHARS = 600


class Bench:
    """Answers the requests of the protocol."""
    def __init__(self, device: torch.device, meter: Callable[[torch.device, int], ceilings.Meter]) -> None:
        self.device, self._make_meter = device, meter
        self.meter: ceilings.Meter

    def handlers(self) -> dict[str, wire.Handler]:
        return {"open": self.open, "measure": self.measure}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return device and software. Raises wire.Failure where nothing can be measured."""
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise wire.Failure("torch sees no CUDA GPU", "install a CUDA build of torch; try nvidia-smi on this worker")
        index = int(request.get("gpu_index", 0))
        self.meter = self._make_meter(self.device, index)
        facts: dict[str, Any] = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
                                 "python": platform.python_version()}
        if self.device.type != "cuda":
            return {**facts, "gpu": platform.processor() or "CPU", "compute_capability": None}
        properties = torch.cuda.get_device_properties(self.device)
        return {**facts, "gpu": properties.name, "compute_capability": f"{properties.major}.{properties.minor}",
                "sms": properties.multi_processor_count, "l2_bytes": properties.L2_cache_size,
                "memory_bytes": properties.total_memory, "idle": nvml.reading(index)}

    def measure(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return one measurement. Raises wire.Rejection where this GPU or torch cannot do it."""
        measurement = ceilings.MEASUREMENTS.get(request["name"])
        if measurement is None:
            raise wire.Failure(f"unknown measurement {request['name']!r}", f"one of {', '.join(ceilings.MEASUREMENTS)}")
        try:
            return ceilings.measure_ceiling(self.meter, measurement, float(request.get("seconds", ceilings.MEASURE_S)))
        except Exception as error:
            reason = Reason.RESOURCES if "OutOfMemory" in type(error).__name__ else Reason.OTHER
            text = f"{type(error).__name__}: {error}".strip()[:MESSAGE_CHARS]
            raise wire.Rejection(reason, text, fatal=not is_alive(self.device)) from error
        finally:
            if self.device.type == "cuda" and is_alive(self.device):
                torch.cuda.empty_cache()


def main(argv: list[str]) -> None:
    """Serve requests until the worker closes its end."""
    read_fd, write_fd, parent_pid = (int(arg) for arg in argv)
    wire.enter_child(parent_pid)
    wire.serve(Bench(torch.device("cuda"), ceilings.CudaMeter).handlers(), read_fd, write_fd)
    os._exit(0)                     # no teardown of a CUDA context that may be poisoned


if __name__ == "__main__":
    main(sys.argv[1:])
