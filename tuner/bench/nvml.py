"""What the driver says about the GPUs: name, clocks, temperature, throttling. Reads only, changes nothing."""

from __future__ import annotations

import os
from typing import Any

try:
    import pynvml
except ImportError:                       # nvidia-ml-py comes with the `gpu` extra
    pynvml = None

_ready_pid = 0

# nvmlClocksEventReason*: bits that mean "slower than asked for"; idle and application settings are left out.
_THROTTLE = {0x04: "power cap", 0x08: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)",
             0x80: "power brake"}


def ready() -> bool:
    """Whether NVML answers. Opened once per process: without persistence mode each opening wakes the GPU."""
    global _ready_pid
    if pynvml is None:
        return False
    if _ready_pid != os.getpid():
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return False
        _ready_pid = os.getpid()
    return True


def devices() -> list[dict[str, Any]]:
    """Every GPU the driver shows: index, uuid, name, cc, driver, memory."""
    if not ready():
        return []
    driver = _text(pynvml.nvmlSystemGetDriverVersion())
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        found.append({
            "index": index, "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
            "name": _text(pynvml.nvmlDeviceGetName(handle)), "cc": f"{major}.{minor}", "driver": driver,
            "memory_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)})
    return found


def reading(index: int) -> dict[str, Any]:
    """Clocks in MHz, °C, W, reasons for throttling. Empty without NVML; what a GPU has no sensor for is absent."""
    if not ready():
        return {}
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    asked = {
        "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        "power_w": lambda: round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        "throttle": lambda: _reasons(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
    }
    values = {}
    for name, read in asked.items():
        try:
            values[name] = read()
        except pynvml.NVMLError:          # not every GPU has every sensor
            continue
    return values


def _reasons(bits: int) -> list[str]:
    return [name for bit, name in _THROTTLE.items() if bits & bit]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
