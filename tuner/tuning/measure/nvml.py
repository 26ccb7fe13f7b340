"""Readings of the GPUs from the driver: name, clocks, temperature, throttling. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

try:
    import pynvml
except ImportError:                       # nvidia-ml-py comes with the `gpu` extra
    pynvml = None

_ready_pid = 0

# nvmlClocksEventReason*: bits that mean "slower than asked for"; idle and application settings are left out.
_THROTTLE = {0x04: "power cap", 0x08: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal (hardware)",
             0x80: "power brake"}


def is_ready() -> bool:
    """Return whether NVML answers; it is opened once per process."""
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
    """Return every GPU that the driver shows: index, uuid, name, cc, driver, memory_bytes."""
    if not is_ready():
        return []
    driver = _text(pynvml.nvmlSystemGetDriverVersion())
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        gpus.append({
            "index": index, "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
            "name": _text(pynvml.nvmlDeviceGetName(handle)), "cc": f"{major}.{minor}", "driver": driver,
            "memory_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)})
    return gpus


# Cores that CUDA counts in an SM, by compute capability (CUDA C++ Programming Guide, "Compute Capabilities").
_CORES_PER_SM = {"7.0": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128, "9.0": 128, "10.0": 128, "10.3": 128,
                 "12.0": 128}


def sm_count(index: int, compute_capability: str) -> int | None:
    """Return a GPU's SMs without opening CUDA; None where NVML does not count its cores."""
    per_sm = _CORES_PER_SM.get(compute_capability)
    if per_sm is None or not is_ready():
        return None
    try:
        cores = int(pynvml.nvmlDeviceGetNumGpuCores(pynvml.nvmlDeviceGetHandleByIndex(index)))
    except (pynvml.NVMLError, AttributeError):          # an older driver, or an older nvidia-ml-py
        return None
    return cores // per_sm if cores and cores % per_sm == 0 else None


def minor_number(index: int) -> int | None:
    """Return the number of a GPU's node: 3 of /dev/nvidia3; None where NVML does not tell."""
    if not is_ready():
        return None
    try:
        return int(pynvml.nvmlDeviceGetMinorNumber(pynvml.nvmlDeviceGetHandleByIndex(index)))
    except pynvml.NVMLError:
        return None


def reading(index: int) -> dict[str, Any]:
    """Return clocks (MHz), °C, W and throttle reasons; absent where there is no sensor."""
    if not is_ready():
        return {}
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return _told({
        "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        "power_w": lambda: round(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        "throttle": lambda: _throttle_reasons(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))})


def settings(index: int) -> dict[str, Any]:
    """Return what is set rather than measured: max_sm_clock_mhz, max_memory_clock_mhz, persistence_now; absent where untold."""
    if not is_ready():
        return {}
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return _told({
        "max_sm_clock_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_GRAPHICS),
        "max_memory_clock_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "persistence_now": lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))})


def _told(asked: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    values = {}
    for name, reader in asked.items():
        try:
            values[name] = reader()
        except pynvml.NVMLError:          # not every GPU has every sensor
            continue
    return values


def _throttle_reasons(bits: int) -> list[str]:
    return [name for bit, name in _THROTTLE.items() if bits & bit]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
