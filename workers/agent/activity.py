"""How busy a GPU's SMs, tensor cores and memory are, in %, from NVML's GPM metrics (Hopper and later). No profiler is locked
out."""

from __future__ import annotations

from typing import Any

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
        for at, metric in enumerate(METRICS.values()):
            asked.metrics[at].metricId = metric
        nvml.nvmlGpmMetricsGet(asked)
        self._last, self._next = self._next, self._last
        found = {name: (asked.metrics[at].nvmlReturn, float(asked.metrics[at].value)) for at, name in enumerate(METRICS)}
        return {name: value for name, (error, value) in found.items() if not error and 0 <= value <= 100}

    def close(self) -> None:
        for sample in (self._last, self._next):
            self._nvml.nvmlGpmSampleFree(sample)
