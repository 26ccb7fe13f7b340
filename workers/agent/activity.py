"""How busy a GPU's SMs, tensor cores and memory are, in %, from NVML's GPM metrics (Hopper and later). No profiler is locked out.

Beside telemetry this says before CUPTI is attached whether a job keeps its GPU busy: one that does not may be bound by its
launches, and attaching to those leaves 7 to 13 % of their time lost (H200)."""

from __future__ import annotations

import importlib
import time
from typing import Any

METRICS = {"sm_pct": 2, "tensor_pct": 5, "dram_pct": 10}         # NVML_GPM_METRIC_SM_UTIL, ANY_TENSOR_UTIL, DRAM_BW_UTIL
LOOK_S = 2.0


class Activity:
    """Means over the time between two calls of `read`, of one GPU.

    Raises:
        Exception: of the NVML module: the GPU or the driver has no GPM.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise RuntimeError("the GPU has no GPM metrics")
        self._nvml, self._handle = nvml, handle
        self._last, self._next = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self._last)

    def read(self) -> dict[str, float]:
        """Return {column: %} since the call before; what is not told is missing."""
        nvml = self._nvml
        nvml.nvmlGpmSampleGet(self._handle, self._next)
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
        asked.sample1, asked.sample2 = self._last, self._next
        for at, metric in enumerate(METRICS.values()):
            asked.metrics[at].metricId = metric
        nvml.nvmlGpmMetricsGet(asked)
        self._last, self._next = self._next, self._last
        found = {name: (asked.metrics[at].nvmlReturn, float(asked.metrics[at].value)) for at, name in enumerate(METRICS)}
        return {name: value for name, (error, value) in found.items() if not error and 0 <= value <= 100}

    def close(self) -> None:
        for sample in (self._last, self._next):
            self._nvml.nvmlGpmSampleFree(sample)


def sm_pct(uuids: list[str], seconds: float = LOOK_S, nvml: Any = None) -> float | None:
    """Return how active the SMs of the busiest of some GPUs are, None where nothing says it."""
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
        watched = [Activity(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)) for uuid in uuids]
        time.sleep(seconds)
        found = [each.read().get("sm_pct") for each in watched]
        for each in watched:
            each.close()
    except Exception:                   # no module, no driver, no GPM, a MIG slice: unknown
        return None
    known = [each for each in found if each is not None]
    return max(known) if known else None
