"""Traces of Huawei's Ascend NPUs: `trace_view.json` of torch_npu and MindSpore, `msprof_*.json` of msprof.

A Chrome trace in which process and thread names say what lies where: tasks of the device on `Ascend Hardware` / `Stream n`, calls
on `CANN`, operators on `Python`. The other device processes (Overlap Analysis, Communication, HCCL …) show the same time again, or
sums of it, and are no work of their own. What a task is, its argument `Task Type` says: the names of TASKS are those of msprof
(analysis/profiling_bean/prof_enum/stars_sqe_type of Ascend/msprof, and the documentation of task_time.csv).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.arrays import Bools, Bytes
from profiles.ingest.chrome.gather import Gather
from profiles.ingest.chrome.generic import assemble, is_of_tool
from profiles.ingest.chrome.kinds import Lane, lane_of, number_of
from profiles.ingest.chrome.work import Arguments, Columns
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import decode_args, integers
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.core.source import Source
from profiles.ingest.trace import GPU_WORK, Category, Integrity, Trace

FORMAT = "ascend"
_MARK = re.compile(rb'"Ascend Hardware"|"Physic Stream Id"|"AscendCL@|"Node@launch"|"async_npu"|"name"\s*:\s*"HostToDevice\d')
HARDWARE, NPU = "Ascend Hardware", "Ascend NPU"
# processes of the device that repeat what the streams show, or sum it up
DERIVED = frozenset({"Overlap Analysis", "Communication", "HCCL", "Step Trace", "Block Detail", "Biu Perf", "Acc PMU",
                     "Stars Soc Info", "AI Core Freq", "HBM", "DDR", "LLC", "NPU MEM", "HCCS", "PCIe", "RoCE", "NIC", "QoS", "SIO"})
# task type (upper case, "_SQE" and "KERNEL_" taken off) -> what it is
TASKS: dict[str, Category] = {
    **dict.fromkeys(("AI_CORE", "AI_VECTOR_CORE", "AICORE", "AIVEC", "AIC", "AIV", "MIX_AIC", "MIX_AIV", "AI_CPU", "AICPU",
                     "FFTS_PLUS", "FFTS+", "DSA", "VPC", "JPEGE", "JPEGD", "DVPP", "C_CORE", "HOST_CPU", "FUSION"),
                    Category.COMPUTE),
    **dict.fromkeys(("MEMCPY_ASYNC", "MEMCPY", "SDMA", "PCIE_DMA", "PCIE_DMA_SQE"), Category.MEMCPY),
    **dict.fromkeys(("RDMA", "ROCCE", "HCCL", "COMMUNICATION", "CCU"), Category.COMMUNICATION),
    **dict.fromkeys(("EVENT_RECORD", "EVENT_WAIT", "EVENT_RESET", "NOTIFY_RECORD", "NOTIFY_WAIT", "NOTIFY_RESET", "NOTIFY",
                     "WRITE_VALUE", "WAIT_VALUE", "PLACE_HOLDER", "CONDITION", "END", "CDQM", "STREAM_SWITCH", "STREAM_ACTIVE",
                     "LABEL_SET", "LABEL_SWITCH", "MODEL_EXECUTE", "MODEL_MAINTENANCE", "PROFILER_TRACE",
                     "PROFILER_TRACE_EX", "PROFILING_ENABLE", "MAINTENANCE",
                     "TASK_TYPE_RESERVED", "CMO", "BARRIER"), Category.SYNC),
}
UNKNOWN_TASK = "tasks of an NPU of a type that is not known here: shown, counted as no work"


def sniff(head: bytes) -> bool:
    return is_of_tool(head) and bool(_MARK.search(head))


def read(source: Source) -> Trace:
    """Raises TraceError where no record can be read."""
    integrity = Integrity()
    pieces = Pieces(source, integrity)
    builder = TraceBuilder(source, FORMAT, integrity)
    trace = assemble(Gather(pieces, builder, _Arguments(builder), rule=lane), source, FORMAT)
    trace.devices = [replace(device, name=NPU) for device in trace.devices]
    return trace


def lane(pid: Any, tid: Any, process: str, thread: str) -> Lane:
    """Return what a lane says of its slices. A device is told apart by its number where the process bears one."""
    name = process or str(pid)
    if name == HARDWARE or re.match(rf"{HARDWARE}\W+\d+$", name):
        return Lane(True, _device(name), number_of(thread) if thread else number_of(tid), False, name)
    if name in DERIVED or name.split("(")[0].strip() in DERIVED:
        return Lane(True, _device(name), MISSING, True, name)
    return lane_of(pid, tid, process, thread)


def _device(name: str) -> int:
    number = number_of(name)
    return number if 0 <= number < 4096 else 0


class TaskArgs(msgspec.Struct, gc=False):
    task_type: Any = msgspec.field(default=None, name="Task Type")
    connection: Any = msgspec.field(default=None, name="connection_id")


class _Arguments(Arguments):
    """Knows a task by its type, and the number that it shares with the call that launched it."""

    def columns(self, raws: Any, kind: Bytes, on_gpu: Bools) -> Columns:
        out = super().columns(raws, kind, on_gpu)
        is_task = [b'"Task Type"' in bytes(raw) or b'"connection_id"' in bytes(raw) for raw in raws]
        rows = np.flatnonzero(np.array(is_task, np.bool_))
        if not rows.size:
            return out
        args, bad = decode_args(TaskArgs, [raws[i] for i in rows.tolist()])
        self.misread += bad
        ids = integers([_connection(arg.connection) for arg in args])
        out["correlation"][rows] = np.where((ids >= 0) & (ids < 2**32 - 1), ids, MISSING)
        calls = rows[~on_gpu[rows] & (ids != MISSING)]
        kind[calls] = Category.RUNTIME
        for row, arg in zip(rows.tolist(), args, strict=True):
            if on_gpu[row] and kind[row] in GPU_WORK and arg.task_type is not None:
                kind[row] = self._task(str(arg.task_type))
        return out

    def _task(self, text: str) -> int:
        category = TASKS.get(text.upper().replace(" ", "_").removesuffix("_SQE").removeprefix("KERNEL_"))
        if category is None:
            self.builder.integrity.remark(f"{UNKNOWN_TASK} ({text[:40]})")
            return int(Category.GPU_ANNOTATION)
        return int(category)


def _connection(value: Any) -> Any:
    if isinstance(value, str):
        return int(value) if value.isdecimal() and len(value) < 19 else MISSING
    return value if isinstance(value, int) else MISSING
