"""Find the libcupti, libcuda and C++ runtime that this process already has, or that lie beside it. Nothing is installed."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

MAPS = Path("/proc/self/maps")
_WHEELS = ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib", "triton/backends/nvidia/lib/cupti")


def loaded(name: str, maps: Path = MAPS) -> str | None:
    """Return the path of a shared library that this process has mapped, by the begin of its file name."""
    try:
        lines = maps.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        start = line.find("/")
        if start >= 0 and os.path.basename(line[start:]).startswith(name) and not line.endswith("(deleted)"):
            return line[start:].strip()
    return None


def find_cupti() -> str | None:
    """Return the libcupti that is loaded, else one of the wheels of torch or of CUDA's folder."""
    path = loaded("libcupti.so")
    if path:
        return path
    return next((str(path) for path in _candidates()), None)


def _candidates() -> Iterator[Path]:
    for folder in sys.path:
        for wheel in _WHEELS[:2]:
            yield from sorted(Path(folder or ".", wheel).glob("libcupti.so.*"))
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            for lib in ("lib64", "extras/CUPTI/lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
                yield from sorted(Path(home, lib).glob("libcupti.so.*"))
    for folder in sys.path:
        yield from sorted(Path(folder or ".", _WHEELS[2]).glob("libcupti.so.*"))


def cuda() -> ctypes.CDLL | None:
    """Return the driver's library where this process has loaded it; it is never loaded for the agent's sake."""
    try:
        return ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def call_driver() -> None:
    """Make a call of the driver that does nothing: a profiler's callbacks see it."""
    library, version = cuda(), ctypes.c_int()
    if library is not None:
        library.cuDriverGetVersion(ctypes.byref(version))


def used_gpus() -> list[str]:
    """Return the UUIDs of the devices that this process has a context on."""
    return [uuid for uuid, _ in used_devices()]


def used_devices() -> list[tuple[str, str]]:
    """Return (UUID, model) of the devices that this process has a context on."""
    library, count = cuda(), ctypes.c_int()
    if library is None or library.cuDeviceGetCount(ctypes.byref(count)):
        return []
    flags, active, gpus = ctypes.c_uint(), ctypes.c_int(), []
    for device in range(count.value):
        if not library.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) and active.value:
            gpus.append(gpu_of(device))
    return gpus


def gpu_of(device: int) -> tuple[str, str]:
    """Return (UUID, model) of a device by its number in this process; ("", "") where the driver does not say."""
    library = cuda()
    if library is None:
        return "", ""
    raw, name, handle = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(256), ctypes.c_int()
    if library.cuDeviceGet(ctypes.byref(handle), device):
        return "", ""
    ask = getattr(library, "cuDeviceGetUuid_v2", None) or library.cuDeviceGetUuid
    uuid = "" if ask(raw, handle) else bytes(raw).hex()
    model = "" if library.cuDeviceGetName(name, 256, handle) else name.value.decode(errors="replace")
    parts = (uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]) if uuid else ()
    return "GPU-" + "-".join(parts) if parts else "", model


def driver_version() -> str:
    library, version = cuda(), ctypes.c_int()
    if library is None or library.cuDriverGetVersion(ctypes.byref(version)):
        return ""
    return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"


class Demangler:
    """C++ names as `c++filt` writes them, where the process has the C++ runtime; else as they are."""

    def __init__(self) -> None:
        path = loaded("libstdc++.so")
        self._libc = ctypes.CDLL(None)
        self._libc.free.argtypes = [ctypes.c_void_p]
        self._libc.free.restype = None
        self._call = None
        if path:
            self._call = getattr(ctypes.CDLL(path), "__cxa_demangle")        # as an attribute Python mangles it
            self._call.restype = ctypes.c_void_p
            self._call.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]

    def __call__(self, name: bytes) -> str:
        if self._call is None or not name.startswith(b"_Z"):
            return name.decode(errors="replace")
        status = ctypes.c_int(-1)
        pointer = self._call(name, None, None, ctypes.byref(status))
        if not pointer or status.value:
            return name.decode(errors="replace")
        try:
            return ctypes.string_at(pointer).decode(errors="replace")
        finally:
            self._libc.free(pointer)
