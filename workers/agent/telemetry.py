"""What a host's GPUs say of themselves once a second, as means of a minute: NVML, its GPM metrics, else `dcgmi dmon`.

Unknown stays NaN. Nothing is set on a GPU. SM, tensor and memory activity come from GPM (Hopper and later, no profiler is locked
out) over whole minutes; where a GPU has none, from DCGM if its command is there."""

from __future__ import annotations

import importlib
import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from workers.agent.activity import Activity
from workers.agent.launches import MINUTE_NS, Gpu

NAN = math.nan
MEANS = ("sm_pct", "tensor_pct", "dram_pct", "busy_pct", "power_w", "sm_mhz", "memory_mhz", "temperature_c", "memory_used_bytes",
         "memory_bytes")
COUNTS = ("throttle_s", "thermal_s", "xid_errors", "ecc_errors")
# NVML's bits for why clocks are below what was asked for: power cap, slowdowns, brake; of these the thermal ones
THROTTLED, THERMAL = 0x4 | 0x8 | 0x20 | 0x40 | 0x80, 0x20 | 0x40
DCGM = {"sm_pct": 1002, "tensor_pct": 1004, "dram_pct": 1005}    # DCGM_FI_PROF_SM_ACTIVE, PIPE_TENSOR_ACTIVE, DRAM_ACTIVE
XID_EVENT, ECC_CORRECTED, ECC_UNCORRECTED, VOLATILE = 0x8, 0, 1, 0


@dataclass
class _Minute:
    samples: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def add(self, values: dict[str, float]) -> None:
        self.samples += 1
        for name, value in values.items():
            if math.isnan(value):
                continue
            if name in COUNTS:
                self.counts[name] = self.counts.get(name, 0.0) + value
            else:
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.seen[name] = self.seen.get(name, 0) + 1

    def row(self) -> dict[str, float]:
        means = {name: self.sums[name] / self.seen[name] if name in self.seen else NAN for name in MEANS}
        return {"samples": self.samples, **means, **{name: self.counts.get(name, NAN) for name in COUNTS}}


class Telemetry:
    """`why`: what is not known, "" where NVML answers. `nvml`: NVIDIA's module nvidia-ml-py, found at run time."""

    def __init__(self, host: str, nvml: Any = None) -> None:
        self.why = ""
        self.gpus: list[tuple[Gpu, Any]] = []
        self._minutes: dict[int, dict[int, _Minute]] = {}
        self._ecc: dict[int, float] = {}
        self._gpm: dict[int, Activity] = {}
        self._gpm_minute: int | None = None
        self._events: Any = None
        self.dcgm: Dcgm | None = None
        try:
            self.nvml = nvml or importlib.import_module("pynvml")
            self.nvml.nvmlInit()
            for number in range(self.nvml.nvmlDeviceGetCount()):
                handle = self.nvml.nvmlDeviceGetHandleByIndex(number)
                uuid, model = self.nvml.nvmlDeviceGetUUID(handle), self.nvml.nvmlDeviceGetName(handle)
                self.gpus.append((Gpu(_text(uuid), _text(model), host), handle))
        except ImportError:
            self.why = "no NVML: pip install nvidia-ml-py"
            return
        except Exception as error:              # NVMLError of whichever module it is
            self.why = f"NVML does not answer: {error}"
            return
        self._watch_xids()
        self._begin_gpm()
        if len(self._gpm) < len(self.gpus) and shutil.which("dcgmi"):
            self.dcgm = Dcgm()

    def sample(self, now_ns: int) -> None:
        """Read every GPU once."""
        minute = now_ns // MINUTE_NS
        xids = self._xids()
        if self._gpm_minute is not None and self._gpm_minute != minute:
            self._end_gpm(self._gpm_minute)
        self._gpm_minute = minute
        activity = self.dcgm.read() if self.dcgm else {}
        for number, (gpu, handle) in enumerate(self.gpus):
            values = self._read(number, handle)
            values["xid_errors"] = float(xids.get(gpu.uuid, 0)) if self._events is not None else NAN
            if number not in self._gpm:
                values |= activity.get(number, {})
            self._minutes.setdefault(minute, {}).setdefault(number, _Minute()).add(values)

    def take(self, before_minute: int) -> list[dict[str, Any]]:
        """Return and forget the rows of minutes before one: {"gpu", "minute", columns of wire.TABLES["telemetry"]}."""
        rows = []
        for minute in sorted(key for key in self._minutes if key < before_minute):
            for number, own in self._minutes.pop(minute).items():
                rows.append({"gpu": self.gpus[number][0], "minute": minute, **own.row()})
        return rows

    def close(self) -> None:
        if self.dcgm is not None:
            self.dcgm.close()

    def _read(self, number: int, handle: Any) -> dict[str, float]:
        nvml = self.nvml
        memory = _ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        reasons = _ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        if reasons is None:                     # drivers before 535 have the older word
            reasons = _ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return {"busy_pct": _number(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
                "power_w": _number(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
                "sm_mhz": _number(lambda: nvml.nvmlDeviceGetClockInfo(handle, 1)),
                "memory_mhz": _number(lambda: nvml.nvmlDeviceGetClockInfo(handle, 2)),
                "temperature_c": _number(lambda: nvml.nvmlDeviceGetTemperature(handle, 0)),
                "memory_used_bytes": NAN if memory is None else float(memory.used),
                "memory_bytes": NAN if memory is None else float(memory.total),
                "throttle_s": NAN if reasons is None else float(bool(reasons & THROTTLED)),
                "thermal_s": NAN if reasons is None else float(bool(reasons & THERMAL)),
                "ecc_errors": self._new_ecc(number, handle)}

    def _new_ecc(self, number: int, handle: Any) -> float:
        now = sum(_number(lambda kind=kind: self.nvml.nvmlDeviceGetTotalEccErrors(handle, kind, VOLATILE))     # type: ignore[misc]
                  for kind in (ECC_CORRECTED, ECC_UNCORRECTED))
        if math.isnan(now):
            return NAN
        before, self._ecc[number] = self._ecc.get(number, now), now
        return max(0.0, now - before)

    def _watch_xids(self) -> None:
        try:
            events = self.nvml.nvmlEventSetCreate()
            for _, handle in self.gpus:
                self.nvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, events)
            self._events = events
        except Exception:
            self._events = None                 # not told: NaN

    def _xids(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        while self._events is not None and sum(counts.values()) < 1000:
            try:
                event = self.nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = _text(self.nvml.nvmlDeviceGetUUID(event.device))
            except Exception:                   # a timeout: nothing happened
                break
            counts[uuid] = counts.get(uuid, 0) + 1
        return counts

    def _begin_gpm(self) -> None:
        for number, (_, handle) in enumerate(self.gpus):
            try:
                self._gpm[number] = Activity(self.nvml, handle)
            except Exception:                   # an older GPU or driver
                continue

    def _end_gpm(self, minute: int) -> None:
        """Activity since the end of the minute before becomes that of a minute."""
        for number, activity in list(self._gpm.items()):
            try:
                values = activity.read()
            except Exception:
                del self._gpm[number]
                continue
            own = self._minutes.get(minute, {}).get(number)
            if own is not None:
                own.sums |= values
                own.seen |= dict.fromkeys(values, 1)


class Dcgm:
    """The lines of `dcgmi dmon`, which talks to the host engine that runs."""

    def __init__(self, command: tuple[str, ...] = ("dcgmi",)) -> None:
        argv = [*command, "dmon", "-e", ",".join(map(str, DCGM.values())), "-d", "1000"]
        self._child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._child.stdout
        os.set_blocking(self._child.stdout.fileno(), False)
        self._held = b""
        self._last: dict[int, dict[str, float]] = {}
        self._told_s = time.monotonic()

    def read(self) -> dict[int, dict[str, float]]:
        """Return {GPU: {column: %}} as last told, {} once it is silent."""
        assert self._child.stdout
        data = self._child.stdout.read() or b""
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            words = line.split()
            if len(words) >= 5 and words[0] == b"GPU" and words[1].isdigit():
                self._last[int(words[1])] = {name: _share(word) for name, word in zip(DCGM, words[2:], strict=False)}
                self._told_s = time.monotonic()
        return self._last if time.monotonic() - self._told_s < 5 else {}

    def close(self) -> None:
        self._child.terminate()
        self._child.wait()


def _share(word: bytes) -> float:
    try:
        share = float(word)
    except ValueError:
        return NAN
    return 100 * share if 0 <= share <= 1 else NAN


def _ask(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception:                           # not supported on this GPU, or not permitted: unknown
        return None


def _number(call: Callable[[], Any]) -> float:
    number = _ask(call)
    return NAN if number is None else float(number)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
