"""Collect kernel records of this process through CUPTI's activity buffers, by ctypes.

attach → open → close → drain → sums → detach. Between open and close the library writes records; whole buffers come back and are
summed by numpy. `detach` takes CUPTI out of the process: `cuptiFinalize` in the exit callback of a CUDA call, as NVIDIA's manual
asks (CUPTI, "Dynamic attach and detach"). Of a job that replayed CUDA graphs while CUPTI was attached that is not possible: on an
H200 (CUDA 13.0) the next replay ends it with "unspecified launch failure" (docs/fleet-loss.md)."""

from __future__ import annotations

import ctypes
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.agent.launches import MOST_NAME, KernelSums, Signature, sum_durations
from workers.agent.libraries import Demangler, find_cupti, gpu_of
from workers.agent.records import CONCURRENT_KERNEL, RecordsRefused, decode, group, layout

BUFFER_BYTES = 1 << 20
MOST_WAITING = 32                   # full buffers that are held until the window closes; further ones are summed where they come
DRIVER_API, RUNTIME_API, API_EXIT, UNSEEN = 1, 2, 1, 8
# Calls that CUPTI is taken out in. The callback waits for Python's lock, so no call that is made under a lock of the job's which a
# thread that holds Python's may wait for, as cudaMalloc and cudaEventQuery are under the lock of torch's allocator.
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchCooperativeKernel")
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
    busy_ns: int = 0                # sum of durations: of launches that overlap twice
    kernels: dict[int, KernelSums] = field(default_factory=dict)


class Collector:
    """One for a process. Methods are called from one thread; CUPTI calls back from any."""

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
        self._finalize = False              # the next exit of a CUDA call takes CUPTI out
        self._finalized = threading.Event()
        self._depths: dict[int, int] = {}   # thread -> CUDA calls that it is in; none: not known yet
        self._calls: list[tuple[int, int]] = []         # (domain, number) of LAUNCHES and OWN_CALL
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

    def _exit(self, _data: Any, domain: int, _call: int, info: Any) -> None:
        """Take CUPTI out at the end of an outermost CUDA call: the runtime calls the driver, and is in CUPTI's hands until it ends.

        A call that was under way when callbacks came began unseen: a thread is believed once it left the runtime, or after
        UNSEEN calls of the driver alone.
        """
        thread = threading.get_ident()
        depth = self._depths.get(thread, -UNSEEN)
        if info[0] != API_EXIT:
            self._depths[thread] = depth + (1 if depth >= 0 else 0)
            return
        if depth <= 0:
            self._depths[thread] = 0 if domain == RUNTIME_API else min(0, depth + 1)
            return
        self._depths[thread] = depth - 1
        if depth > 1 or not self._finalize:
            return
        with self._lock:
            mine, self._finalize = self._finalize, False
        if mine:
            self._library.cuptiUnsubscribe(self._subscriber)
            error = self._library.cuptiFinalize()
            if error:
                self.broken = self.broken or f"cuptiFinalize: {_say(error)}"
            self._finalized.set()

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
            seen = self._sum(records[timed & (begun < self._closed_ns) & (begun >= self.from_ns)])
        except (RecordsRefused, MemoryError) as error:
            self.broken = self.broken or str(error)
            raise CuptiError(self.broken) from error
        finally:
            self.sum_ns += time.perf_counter_ns() - began
        self._may()
        dropped = ctypes.c_size_t()
        if not self._library.cuptiActivityGetNumDroppedRecords(None, ctypes.c_uint32(0), ctypes.byref(dropped)):
            self.dropped += dropped.value
        return seen

    def detach(self, wait_s: float = 2.0) -> bool:
        """Take CUPTI out of the process at the end of one of the job's next launches; return whether that came within `wait_s`.

        A job that launches nothing calls `libraries.call_driver`. The callbacks are there before the first call may take CUPTI out:
        a call of ours at that moment would race with it.
        """
        if not self.attached or self.broken:
            return not self.attached
        self._depths = {}
        self._ask("cuptiSubscribe", ctypes.byref(self._subscriber), self._called, None)
        self._calls = self._calls or self._find_calls()
        for domain, number in self._calls:
            self._ask("cuptiEnableCallback", 1, self._subscriber, domain, number)
        self._ask("cuptiActivityFlushAll", FLUSH_FORCED)
        self._names.clear()                     # their addresses end with CUPTI
        self._finalized.clear()
        self._finalize = True
        if not self._finalized.wait(wait_s):
            with self._lock:
                pending, self._finalize = self._finalize, False
            if pending:                         # no call came: stay attached, without callbacks
                self._library.cuptiUnsubscribe(self._subscriber)
                return False
            self._finalized.wait(wait_s)
        self.attached, self._subscriber = False, ctypes.c_void_p()
        self._dtype = None
        self.detaches += 1
        self._kept_back += list(self._live.values())     # a late buffer of CUPTI's may still come back
        self._live.clear()
        return True

    def gpu(self, device: int) -> tuple[str, str]:
        """Return (UUID, model) of a device."""
        if device not in self._gpus:
            self._gpus[device] = gpu_of(device)
        return self._gpus[device]

    def _find_calls(self) -> list[tuple[int, int]]:
        """Return (domain, number) of the calls that CUPTI may be taken out in, by their names: numbers differ between versions."""
        name, found = ctypes.c_char_p(), []
        for domain in (RUNTIME_API, DRIVER_API):
            for number in range(1, MOST_CALLS):
                if self._library.cuptiGetCallbackName(domain, number, ctypes.byref(name)) or not name.value:
                    continue
                said = name.value.decode(errors="replace")
                if (said.startswith(LAUNCHES) and "MultiDevice" not in said) or said == OWN_CALL:
                    found.append((domain, number))
        return found

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
        signatures = [self._signature(records[at]) for at in first.tolist()]
        device = records["device"].astype(np.int64)
        kernels = {}
        for number in np.unique(device).tolist():
            own = device == number
            kernels[number] = sum_durations(key[own], dur_ns[own], signatures)
        self.saw_graphs = self.saw_graphs or bool(records["graph"].any())
        return Seen(int(records["start_ns"].min()), int(records["end_ns"].max()), records.size,
                    int(np.count_nonzero(records["graph"])), int(dur_ns.sum()), kernels)

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
