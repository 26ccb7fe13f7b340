"""How busy a GPU is: its SMs, tensor cores and memory by NVML's GPM metrics (Hopper and later), and the share of time in which any
kernel runs by NVML's utilisation. No profiler is locked out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
METRICS = {"sm_pct": 2, "tensor_pct": 5, "dram_pct": 10}         # NVML_GPM_METRIC_SM_UTIL, ANY_TENSOR_UTIL, DRAM_BW_UTIL


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
        for index, metric in enumerate(METRICS.values()):
            asked.metrics[index].metricId = metric
        nvml.nvmlGpmMetricsGet(asked)
        self._last, self._next = self._next, self._last
        found = {name: (asked.metrics[at].nvmlReturn, float(asked.metrics[at].value)) for at, name in enumerate(METRICS)}
        return {name: value for name, (error, value) in found.items() if not error and 0 <= value <= 100}

    def close(self) -> None:
        for sample in (self._last, self._next):
            self._nvml.nvmlGpmSampleFree(sample)


class _Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Busy:
    """The share of time in which a kernel runs on the GPUs of this process: `look` once in a while, `pct` in the end.

    By the driver's own library and ctypes, so that a job needs no module for it. NVML's samples span 1/6 s to 1 s; other processes
    on the same GPU count as well."""

    def __init__(self, uuids: Sequence[str], library: str = LIBRARY) -> None:
        self._seen: dict[str, list[int]] = {}
        self._handles: dict[str, ctypes.c_void_p] = {}
        try:
            self._nvml = ctypes.CDLL(library)
            if self._nvml.nvmlInitWithFlags(0):
                return
        except (OSError, AttributeError):
            return
        for uuid in uuids:
            handle = ctypes.c_void_p()
            if not self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
                self._handles[uuid], self._seen[uuid] = handle, []

    def look(self) -> None:
        """Ask each GPU once."""
        for uuid, handle in self._handles.items():
            rates = _Rates()
            if not self._nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)):
                self._seen[uuid].append(rates.gpu)

    def pct(self) -> float | None:
        """Return the mean of the least busy GPU, in % of the time; None where NVML does not say, as of a part of a GPU (MIG)."""
        if not self._seen or not all(self._seen.values()):
            return None
        return min(sum(samples) / len(samples) for samples in self._seen.values())
