"""Collect kernel records of this process through CUPTI's activity buffers, by ctypes.

attach → open → close → drain → sums → take_out. Between open and close the library writes records; whole buffers come back and are
summed by numpy. `take_out` takes CUPTI out of the process: `cuptiFinalize` in the exit callback of a CUDA call, as NVIDIA's manual
asks (CUPTI, "Dynamic attach and detach"), in a call of the job's own thread between two steps. While other threads launched it
ended 2 of 12 processes on an H200 (CUDA 13.0) within 3,700 times, and a loop that replays CUDA graphs at its next replay
(docs/fleet-loss.md): who calls it sees to both."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.agent.cupti.records import CONCURRENT_KERNEL, RecordsRefused, decode, group, layout
from workers.agent.launches import MOST_NAME, KernelSums, Signature, sum_durations
from workers.agent.libraries import Demangler, call_driver, find_cupti, gpu_of

BUFFER_BYTES = 1 << 20
MOST_WAITING = 32                   # full buffers that are held until the window closes; further ones are summed where they come
DRIVER_API, API_EXIT = 1, 1
OWN_CALL, MOST_CALLS = "cuDriverGetVersion", 2048        # of `libraries.call_driver`; numbers of calls that are looked at
FLUSH_FORCED = 1
POLL_S, QUIET_POLLS, MOST_DRAIN_S = 0.02, 3, 5.0
MULTIPLE_SUBSCRIBERS = 39
_WORDS = {1: "invalid parameter", 15: "not initialised", 26: "the hardware is busy", 35: "insufficient privileges",
          36: "an old profiling interface is in use", MULTIPLE_SUBSCRIBERS: "another profiler owns CUPTI", 999: "unknown"}
_SIZE = ctypes.POINTER(ctypes.c_size_t)
_REQUESTED = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), _SIZE, _SIZE)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_CALLED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(ctypes.c_int))


class CuptiError(Exception):
    """CUPTI refused, or sent what is not understood: collecting ends for good. `busy`: another profiler holds it."""

    def __init__(self, why: str, busy: bool = False) -> None:
        super().__init__(why)
        self.busy = busy


@dataclass(frozen=True)
class Seen:
    """What a window saw. `kernels`: by number of the device. Times are ns since 1970."""

    first_ns: int = 0
    last_ns: int = 0
    records: int = 0
    in_graphs: int = 0
    kernels: dict[int, KernelSums] = field(default_factory=dict)


class Collector:
    """One for a process. Methods are called from one thread at a time; CUPTI calls back from any."""

    def __init__(self, path: str | None = None, buffer_bytes: int = BUFFER_BYTES) -> None:
        path = path or find_cupti()
        if path is None:
            raise CuptiError("no libcupti: it comes with torch's CUDA wheels and with the CUDA toolkit")
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise CuptiError(f"libcupti cannot be loaded: {error}") from error
        self.path, self.buffer_bytes, self.kind = path, buffer_bytes, CONCURRENT_KERNEL
        version = ctypes.c_uint32()
        self._library.cuptiGetVersion(ctypes.byref(version))
        self.version = version.value
        self.attached = self.is_open = False
        self.saw_graphs = False
        self.broken = ""                    # why it is off for good
        self.records = self.buffers = self.dropped = self.detaches = 0
        self._came_bytes = self._closed_ns = 0
        self.from_ns = 0                    # launches before are not summed
        self.sum_ns = 0                     # of CPU time spent on records
        self._free: list[npt.NDArray[np.uint64]] = []
        self._live: dict[int, npt.NDArray[np.uint64]] = {}
        self._full: list[tuple[npt.NDArray[np.uint64], int]] = []
        self._dtype: np.dtype[np.void] | None = None
        self._parts: list[npt.NDArray[np.void]] = []
        self._names: dict[int, str] = {}
        self._gpus: dict[int, tuple[str, str]] = {}
        self._lock = threading.Lock()
        self._leaving = 0                   # the thread whose next call takes CUPTI out
        self._own_call = 0                  # the number of OWN_CALL
        self._kept_back: list[npt.NDArray[np.uint64]] = []
        self._subscriber = ctypes.c_void_p()
        self._demangle = Demangler()
        # callbacks live as long as the process: CUPTI may hold their addresses
        self._requested, self._completed = _REQUESTED(self._give), _COMPLETED(self._take)
        self._called = _CALLED(self._exit)

    # ---- what CUPTI calls, from threads of its own and of the job: nothing is raised there

    def _give(self, buffer: Any, size: Any, most_records: Any) -> None:
        try:
            own = self._free.pop() if self._free else np.empty(self.buffer_bytes // 8, np.uint64)
            self._live[own.ctypes.data] = own
            buffer[0], size[0], most_records[0] = own.ctypes.data, self.buffer_bytes, 0
        except BaseException as error:
            self.broken = self.broken or f"no buffer for records: {error!r}"
            buffer[0], size[0], most_records[0] = None, 0, 0        # records are dropped

    def _take(self, _context: Any, _stream: int, address: int, _size: int, valid_bytes: int) -> None:
        try:
            own = self._live.pop(address)
            self.buffers += 1
            self._came_bytes += valid_bytes
            if self.broken or not valid_bytes:
                self._free.append(own)
                return
            if self._dtype is None:
                self._dtype = self._measure(address, valid_bytes)
            with self._lock:
                self._full.append((own, valid_bytes))
            if len(self._full) > MOST_WAITING:
                self._shrink()
        except BaseException as error:
            self.broken = self.broken or f"records cannot be read: {error}"

    def _exit(self, _data: Any, _domain: int, _call: int, info: Any) -> None:
        if info[0] != API_EXIT or self._leaving != threading.get_ident():
            return
        self._leaving = 0
        self._library.cuptiUnsubscribe(self._subscriber)
        error = self._library.cuptiFinalize()
        if error:
            self.broken = self.broken or f"cuptiFinalize: {_say(error)}"

    # ---- what the agent's thread calls

    def attach(self) -> None:
        """Take CUPTI.

        Raises:
            CuptiError: another profiler owns it, or it refused.
        """
        self._may()
        if self.attached:
            return
        self._probe()
        self.attached = True
        self._ask("cuptiActivityRegisterCallbacks", self._requested, self._completed)

    def open(self) -> None:
        """Begin a window: records flow from about now on."""
        self._may()
        if self.attached:
            self._probe()
        self.attach()
        with self._lock:
            self._free += [own for own, _ in self._full]
            self._full.clear()
            self._parts.clear()
        self._ask("cuptiActivityEnable", self.kind)
        self.is_open = True

    def close(self) -> None:
        """End the window: launches from now on have no records."""
        self._closed_ns = time.time_ns()
        self.is_open = False
        self._ask("cuptiActivityDisable", self.kind)

    def drain(self, most_s: float = MOST_DRAIN_S) -> bool:
        """Wait until no more records come: what was launched in the window has ended. Return whether it did."""
        end_s, quiet = time.monotonic() + most_s, 0
        while quiet < QUIET_POLLS:
            if time.monotonic() > end_s:
                return False
            before = self._came_bytes
            time.sleep(POLL_S)
            self._ask("cuptiActivityFlushAll", 0)
            quiet = quiet + 1 if self._came_bytes == before else 0
        return True

    def sums(self) -> Seen:
        """Return the sums of launches that began in the window that was closed last."""
        self._ask("cuptiActivityFlushAll", FLUSH_FORCED)
        began = time.perf_counter_ns()
        try:
            self._shrink()
            with self._lock:
                parts, self._parts = self._parts, []
            records = np.concatenate(parts) if parts else np.empty(0, layout(216))
            begun, ended = records["start_ns"], records["end_ns"]
            timed = (begun > 0) & (ended >= begun)          # CUPTI could not time the others
            self.dropped += int(records.size - np.count_nonzero(timed))
            sums = self._sum(records[timed & (begun < self._closed_ns) & (begun >= self.from_ns)])
        except (RecordsRefused, MemoryError) as error:
            self.broken = self.broken or str(error)
            raise CuptiError(self.broken) from error
        finally:
            self.sum_ns += time.perf_counter_ns() - began
        self._may()
        dropped = ctypes.c_size_t()
        if not self._library.cuptiActivityGetNumDroppedRecords(None, ctypes.c_uint32(0), ctypes.byref(dropped)):
            self.dropped += dropped.value
        return sums

    def take_out(self) -> bool:
        """Take CUPTI out of the process, in a CUDA call of the calling thread; return whether it is out.

        The calling thread is in no CUDA call, and no other one of the job makes one meanwhile: both are the caller's to know.
        """
        if not self.attached or self.broken:
            return not self.attached
        self._ask("cuptiActivityFlushAll", FLUSH_FORCED)
        self._ask("cuptiSubscribe", ctypes.byref(self._subscriber), self._called, None)
        self._own_call = self._own_call or self._find_call()
        self._ask("cuptiEnableCallback", 1, self._subscriber, DRIVER_API, self._own_call)
        self._names.clear()                     # their addresses end with CUPTI
        self._leaving = threading.get_ident()
        call_driver()
        if self._leaving:                       # no callback came
            self._leaving = 0
            self._library.cuptiUnsubscribe(self._subscriber)
            self.broken = self.broken or f"{OWN_CALL} was not called back: CUPTI stays attached"
            return False
        self.attached, self._subscriber = False, ctypes.c_void_p()
        self._dtype = None
        self.detaches += 1
        # CUPTI keeps a buffer that it asked for and did not give back. A thread of its own may write into it for a moment longer,
        # so it is used again after the next time only
        self._free += self._kept_back
        self._kept_back = list(self._live.values())
        self._live.clear()
        return True

    def gpu(self, device: int) -> tuple[str, str]:
        """Return (UUID, model) of a device."""
        if device not in self._gpus:
            self._gpus[device] = gpu_of(device)
        return self._gpus[device]

    def _find_call(self) -> int:
        """Return the number of OWN_CALL: numbers differ between versions."""
        name = ctypes.c_char_p()
        for number in range(1, MOST_CALLS):
            if not self._library.cuptiGetCallbackName(DRIVER_API, number, ctypes.byref(name)) and name.value == OWN_CALL.encode():
                return number
        self.broken = self.broken or f"this CUPTI names no {OWN_CALL}"
        raise CuptiError(self.broken)

    def _probe(self) -> None:
        """Look whether another profiler has subscribed: only one may. The place is given back, so that one can come later."""
        error = self._library.cuptiSubscribe(ctypes.byref(self._subscriber), self._called, None)
        if error:
            raise CuptiError(f"cuptiSubscribe: {_say(error)}", busy=error == MULTIPLE_SUBSCRIBERS)
        self._ask("cuptiUnsubscribe", self._subscriber)

    def _may(self) -> None:
        if self.broken:
            raise CuptiError(self.broken)

    def _ask(self, name: str, *arguments: Any) -> None:
        error = getattr(self._library, name)(*arguments)
        if error:
            self.broken = self.broken or f"{name}: {_say(error)}"
            raise CuptiError(self.broken, busy=error == MULTIPLE_SUBSCRIBERS)

    def _measure(self, address: int, valid_bytes: int) -> np.dtype[np.void] | None:
        """Return the layout by the distance of two neighbouring records; of a single one by its size."""
        ask = self._library.cuptiActivityGetNextRecord
        ask.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]
        record = ctypes.c_void_p()
        if ask(address, valid_bytes, ctypes.byref(record)) or not record.value:
            raise RecordsRefused("a buffer without a first record")
        first = record.value
        if ask(address, valid_bytes, ctypes.byref(record)) or not record.value:
            return layout(valid_bytes)
        return layout(int(record.value or 0) - first)

    def _shrink(self) -> None:
        """Copy the records out of full buffers, which are free then."""
        with self._lock:
            full, self._full = self._full, []
        for own, valid_bytes in full:
            if self._dtype is not None:
                records = decode(own, valid_bytes, self._dtype)
                self.records += records.size
                self._parts.append(records.copy())
        self._free += [own for own, _ in full]

    def _sum(self, records: npt.NDArray[np.void]) -> Seen:
        if not records.size:
            return Seen()
        key, first = group(records)
        dur_ns = (records["end_ns"] - records["start_ns"]).astype(np.int64)
        signatures = [self._signature(records[index]) for index in first.tolist()]
        device = records["device"].astype(np.int64)
        kernels = {}
        for number in np.unique(device).tolist():
            own = device == number
            kernels[number] = sum_durations(key[own], dur_ns[own], signatures)
        self.saw_graphs = self.saw_graphs or bool(records["graph"].any())
        return Seen(int(records["start_ns"].min()), int(records["end_ns"].max()), records.size,
                    int(np.count_nonzero(records["graph"])), kernels)

    def _signature(self, record: Any) -> Signature:
        pointer, launch = int(record["name"]), record["launch"].tolist()
        name = self._names.get(pointer)
        if name is None:
            name = self._names[pointer] = self._demangle(ctypes.string_at(pointer))[:MOST_NAME]
        return Signature(name, (launch[0], launch[1], launch[2]), (launch[3], launch[4], launch[5]), launch[6] + launch[7])


def cupti_version() -> int:
    """Return the version of the libcupti that would be used, 0 where there is none. CUPTI is not attached for it."""
    path, version = find_cupti(), ctypes.c_uint32()
    try:
        if path is not None:
            ctypes.CDLL(path).cuptiGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return version.value


def _say(error: int) -> str:
    return _WORDS.get(error, f"error {error}")
