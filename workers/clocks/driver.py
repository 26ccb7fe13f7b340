"""The clocks and the persistence mode of one GPU through NVML: read, set and put back. Imports neither Django nor torch.

What NVML calls locked clocks (`nvmlDeviceSetGpuLockedClocks`) can be set and reset, not read: whether somebody had locked them
before cannot be known, and putting them back means the driver's own. The reason "application or locked clocks" hints at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import pynvml
except ImportError:                       # nvidia-ml-py comes with the `gpu` extra
    pynvml = None

from profiles.base.refused import Refused
from tuner.clocks.wish import ClockWish

# nvmlClocksEventReason*, all of them: 0x02 stands while application clocks or locked clocks hold the GPU back
REASONS = {0x01: "idle", 0x02: "application or locked clocks", 0x04: "power cap", 0x08: "hardware slowdown", 0x10: "sync boost",
           0x20: "thermal (software)", 0x40: "thermal (hardware)", 0x80: "power brake", 0x100: "display clocks"}
PERSISTENCE, GRAPHICS, MEMORY = "persistence mode", "graphics clock", "memory clock"      # what can be changed, in this order


class DriverRefused(Exception):
    """The driver did not do what it was asked; the text is for people."""


def open_gpu(uuid: str) -> Any:
    """Return NVML's handle of a GPU. Raises DriverRefused."""
    if pynvml is None:
        raise DriverRefused("nvidia-ml-py is not installed on this worker")
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        raise DriverRefused(f"the driver: {error}") from error


def find_state(gpu: Any) -> dict[str, Any]:
    """Return what the driver says of persistence mode, clocks (MHz) and why they are as they are; None where it does not say."""
    sm, memory = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    reasons = _ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons, gpu)
    return {
        "persistence": _ask(pynvml.nvmlDeviceGetPersistenceMode, gpu),
        "sm_clock_mhz": _ask(pynvml.nvmlDeviceGetClockInfo, gpu, sm),
        "memory_clock_mhz": _ask(pynvml.nvmlDeviceGetClockInfo, gpu, memory),
        "application_sm_mhz": _ask(pynvml.nvmlDeviceGetApplicationsClock, gpu, sm),
        "application_memory_mhz": _ask(pynvml.nvmlDeviceGetApplicationsClock, gpu, memory),
        "max_sm_mhz": _ask(pynvml.nvmlDeviceGetMaxClockInfo, gpu, pynvml.NVML_CLOCK_GRAPHICS),
        "reasons": None if reasons is None else [name for bit, name in REASONS.items() if reasons & bit],
        "locked_clocks": "not readable through NVML"}


def graphics_clock(gpu: Any, wish: ClockWish, found: dict[str, Any]) -> int:
    """Return the graphics clock in MHz that a wish means on this GPU. Raises Refused."""
    memory = wish.memory_mhz or _ask(pynvml.nvmlDeviceGetMaxClockInfo, gpu, pynvml.NVML_CLOCK_MEM)
    supported = (_ask(pynvml.nvmlDeviceGetSupportedGraphicsClocks, gpu, memory) if memory else None) or []
    return wish.graphics_mhz(found["max_sm_mhz"], supported)


def memory_clock(gpu: Any, wish: ClockWish) -> int | None:
    """Return the memory clock in MHz that a wish names; None for none. Raises Refused for one that the driver lacks."""
    supported = _ask(pynvml.nvmlDeviceGetSupportedMemoryClocks, gpu) or []
    if wish.memory_mhz is not None and supported and wish.memory_mhz not in supported:
        offered = ", ".join(map(str, sorted(supported)))
        raise Refused({"memory_mhz": f"the driver offers memory clocks of {offered} MHz, not {wish.memory_mhz}"})
    return wish.memory_mhz


def set_persistence(gpu: Any, on: bool) -> None:
    """Switch persistence mode. Raises DriverRefused."""
    _do(PERSISTENCE, lambda: pynvml.nvmlDeviceSetPersistenceMode(gpu, int(on)))


def lock_graphics(gpu: Any, mhz: int) -> None:
    """Hold the graphics clock, which the SM clock follows. Raises DriverRefused."""
    _do(GRAPHICS, lambda: pynvml.nvmlDeviceSetGpuLockedClocks(gpu, mhz, mhz))


def lock_memory(gpu: Any, mhz: int) -> None:
    """Hold the memory clock. Raises DriverRefused."""
    _do(MEMORY, lambda: pynvml.nvmlDeviceSetMemoryLockedClocks(gpu, mhz, mhz))


def put_back(gpu: Any, change: str, found: dict[str, Any]) -> None:
    """Undo one change: clocks go back to the driver, persistence mode to what was found. Raises DriverRefused."""
    undo: dict[str, Callable[[], Any]] = {
        GRAPHICS: lambda: pynvml.nvmlDeviceResetGpuLockedClocks(gpu),
        MEMORY: lambda: pynvml.nvmlDeviceResetMemoryLockedClocks(gpu),
        PERSISTENCE: lambda: pynvml.nvmlDeviceSetPersistenceMode(gpu, int(found["persistence"]))}
    _do(change, undo[change])


def _ask(read: Callable[..., Any], *of: Any) -> Any:
    try:
        return read(*of)
    except pynvml.NVMLError:                # not every GPU, and not every driver, says everything
        return None


def _do(what: str, change: Callable[[], Any]) -> None:
    try:
        change()
    except pynvml.NVMLError_NoPermission as error:
        raise DriverRefused(f"{what}: no permission; the worker needs root or CAP_SYS_ADMIN on its host") from error
    except pynvml.NVMLError as error:
        raise DriverRefused(f"{what}: {str(error).lower()}") from error
