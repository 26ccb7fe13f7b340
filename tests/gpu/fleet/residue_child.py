"""One process of the measurement of what stays: a workload, CUPTI attached in one way or not at all, steps whenever it is told to.

It is forked from a process that has imported torch and made no CUDA call."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from workers.agent.cupti.collector import Collector, CuptiError, cupti_version
from workers.agent.cupti.records import CONCURRENT_KERNEL, KERNEL
from workers.agent.identity import torch_profiles

WINDOWS, WINDOW_S, SETTLE_S = 3, 0.2, 0.1
OUT_WINDOWS = 8
COLLECT = "collect"
DIES_WITH_PARENT = 1                # PR_SET_PDEATHSIG
# CUpti_ActivityAttribute of cupti_activity.h, CUDA 13.0
DEVICE_BUFFER_SIZE, PRE_ALLOCATE, HOST_PINNED, PER_THREAD = 0, 6, 8, 9


@dataclass(frozen=True)
class Variant:
    """How CUPTI is attached. `windows`: opened and closed before the measurement; 0: nothing was ever asked for."""

    attach: str = "late"            # "never", "early": before the first CUDA context, "late": to steps that run
    windows: int = WINDOWS
    kind: int = CONCURRENT_KERNEL
    probes: bool = True             # subscribes and unsubscribes to see whether another profiler is there, as the agent does
    in_context: bool = False        # cuptiActivityEnableContext instead of cuptiActivityEnable
    hardware: bool = False          # timestamps by the Hardware Event System (Blackwell)
    flush_ms: int = 0
    out: str = ""                   # CUPTI is taken out after each window: OUT says how
    later: bool = False             # windows when COLLECT asks for them
    agent_thread: bool = False      # only a thread of Python that wakes as the agent's does
    flags: dict[int, int] = field(default_factory=dict)        # attributes of one byte
    sizes: dict[int, int] = field(default_factory=dict)         # attributes of size_t


VARIANTS = {
    "none": Variant("never"),
    "late": Variant(),                                                  # what the agent does
    "early": Variant("early"),
    "late, nothing asked": Variant(windows=0),
    "early, nothing asked": Variant("early", windows=0),
    "late, no subscriber": Variant(probes=False),
    "late, by context": Variant(in_context=True, probes=False),
    "early, KIND_KERNEL": Variant("early", kind=KERNEL),
    "early, lean": Variant("early", probes=False, flush_ms=1000, flags={PER_THREAD: 0},
                           sizes={DEVICE_BUFFER_SIZE: 400_000, PRE_ALLOCATE: 1}),
    "early, pinned": Variant("early", flags={HOST_PINNED: 1}),
    "early, hardware": Variant("early", hardware=True),
    "out, at a step": Variant(out="step", windows=OUT_WINDOWS),
    "out, between steps": Variant(out="direct", windows=OUT_WINDOWS),
    "out, later": Variant(out="step", windows=OUT_WINDOWS, later=True),
    "agent's thread": Variant("never", agent_thread=True),
}


class Attached(Collector):
    """The agent's collector, attached as a variant says."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.variant, self.kind = variant, variant.kind

    def attach(self) -> None:
        if self.attached:
            return
        if self.variant.hardware:
            ctypes.CDLL("libcuda.so.1").cuInit(0)
            self._ask("cuptiActivityEnableHWTrace", ctypes.c_uint8(1))
        for attribute, value in self.variant.flags.items():
            self._set(attribute, ctypes.c_uint8(value))
        for attribute, value in self.variant.sizes.items():
            self._set(attribute, ctypes.c_size_t(value))
        super().attach()
        if self.variant.flush_ms:
            self._ask("cuptiActivityFlushPeriod", ctypes.c_uint32(self.variant.flush_ms))

    def finalize(self) -> None:
        """Take CUPTI out in no CUDA call."""
        self._ask("cuptiActivityFlushAll", 1)
        self._names.clear()
        self._ask("cuptiFinalize")
        self.attached, self._dtype = False, None
        self._kept_back += list(self._live.values())
        self._live.clear()

    def _set(self, attribute: int, value: Any) -> None:
        self._ask("cuptiActivitySetAttribute", ctypes.c_int(attribute), ctypes.byref(ctypes.c_size_t(ctypes.sizeof(value))),
                  ctypes.byref(value))

    def _probe(self) -> None:
        if self.variant.probes:
            super()._probe()

    def _ask(self, name: str, *arguments: Any) -> None:
        if self.variant.in_context and name in ("cuptiActivityEnable", "cuptiActivityDisable"):
            context = ctypes.c_void_p()
            ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
            super()._ask(f"{name}Context", context, *arguments)
        else:
            super()._ask(name, *arguments)


def serve(connection: Connection, workload: str, name: str, log: str) -> None:
    """Attach, warm up, say {"ready"}; then a float asks for steps of so many seconds, COLLECT for windows, None ends it. Never
    returns."""
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    with open(log, "ab") as errors:
        os.dup2(errors.fileno(), 2)
    status = 1
    try:
        work(connection, workload, VARIANTS[name])
        status = 0
    except CuptiError as error:
        connection.send({"refused": str(error)})
    except (EOFError, BrokenPipeError):
        status = 0
    except BaseException as error:
        connection.send({"failed": f"{type(error).__name__}: {error}"[:300]})
    finally:
        os._exit(status)


def work(connection: Connection, workload: str, variant: Variant) -> None:
    import torch

    from tests.gpu.fleet import workloads
    from workers.agent.libraries import driver_version

    collector = None if variant.attach == "never" else Attached(variant)
    if collector is not None and variant.attach == "early":
        collector.attach()
    step = workloads.make(workload)
    run(step, 0.5)
    records: list[int] = []
    took_ms: list[float] = []

    def collect() -> None:
        assert collector is not None
        collector.attach()
        for _ in range(variant.windows):
            collector.open()
            run(step, WINDOW_S)
            collector.close()
            collector.drain()
            records.append(collector.sums().records)
            run(step, WINDOW_S / 4 if variant.out else WINDOW_S)
            began_s = time.perf_counter()
            if variant.out:
                take_out(collector, variant.out)
            took_ms.append(round(1e3 * (time.perf_counter() - began_s), 1))
            run(step, WINDOW_S)

    if collector is not None and not variant.later:
        collect()
    if variant.agent_thread:
        threading.Thread(target=wake, daemon=True).start()
    gc.collect()
    gc.freeze()
    connection.send({"ready": True, "gpu": torch.cuda.get_device_name(), "driver": driver_version(), "torch": torch.__version__,
                     "cupti": cupti_version(), "records": records, "out_ms": took_ms})
    while (seconds := connection.recv()) is not None:
        if seconds == COLLECT:
            collect()
            connection.send([records, took_ms])
            continue
        run(step, SETTLE_S)
        connection.send(run(step, seconds))


def take_out(collector: Attached, how: str) -> None:
    """"step": in a call of this thread that does nothing, between two steps, as the agent does. "direct": in no call, the GPU
    idle."""
    if how == "direct":
        ctypes.CDLL("libcuda.so.1").cuCtxSynchronize()
        collector.finalize()
        done = True
    else:
        done = collector.take_out()
    if not done:
        raise RuntimeError(f"CUPTI was not taken out: {collector.broken or 'no call came'}")


def run(step: Any, seconds: float) -> np.ndarray:
    """Run steps for a time; return what each took, in s."""
    times = [time.perf_counter()]
    end = times[0] + seconds
    while times[-1] < end:
        step()
        times.append(time.perf_counter())
    return np.diff(times)


def wake() -> None:
    while not torch_profiles():
        time.sleep(0.05)
