"""Which records of a Chrome trace are GPU work, and what the others are: the rules that are followed, as tables.

Nothing in the trace event format says where a slice ran. Exporters do, each in its own words; a rule that is not here
is a program's own slice on a CPU thread. Category rules go before lane rules: a runtime call recorded under "Device 0"
stays a call.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from profiles.ingest.core.events import MISSING
from profiles.ingest.naming.names import is_collective
from profiles.ingest.trace import Category

# What libkineto's categories mean, from PyTorch 1.8 to today (ActivityType.h, output_json.cpp of pytorch/kineto).

# lower case; PyTorch 1.8-1.10 wrote the first line
KINETO_CATEGORIES = {
    "operator": Category.CPU_OP, "runtime": Category.RUNTIME, "memcpy": Category.MEMCPY, "memset": Category.MEMSET,
    "kernel": Category.COMPUTE, "gpu_memcpy": Category.MEMCPY, "gpu_memset": Category.MEMSET,
    "cpu_op": Category.CPU_OP, "python_function": Category.PYTHON,
    "user_annotation": Category.ANNOTATION, "gpu_user_annotation": Category.GPU_ANNOTATION,
    "cuda_runtime": Category.RUNTIME, "cuda_driver": Category.RUNTIME, "mtia_runtime": Category.RUNTIME,
    "glow_runtime": Category.RUNTIME, "xpu_runtime": Category.RUNTIME, "xpu_driver": Category.RUNTIME,
    "privateuse1_runtime": Category.RUNTIME, "privateuse1_driver": Category.RUNTIME,
    "mtia_ccp_events": Category.COMPUTE, "gcu_runtime": Category.RUNTIME, "gcu_driver": Category.RUNTIME,
    "cuda_sync": Category.SYNC, "cuda_event": Category.SYNC, "xpu_sync": Category.SYNC, "overhead": Category.OVERHEAD,
}
# work of accelerators that are no GPUs: what it is, its name says
OTHER_DEVICES = frozenset({"mtia_ccp_events"})
# names of the device's own records, whole: kernels are called after operators ("index_copy-dtype_Double", "aten::copy_")
_NO_WORK = re.compile(r"(?:\w+_)?(?:wait\w*|record|barrier|fence|sync\w*|idle)", re.IGNORECASE | re.ASCII)
_COPY = re.compile(r"(?:\w+_)?(?:memcpy|dma)(?:_\w+)?|copy(?:_\w+)?", re.IGNORECASE | re.ASCII)
GPU_LANE = OTHER_DEVICES | frozenset({"kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset", "cuda_sync", "cuda_event",
                      "gpu_user_annotation", "cuda_profiler_range"})
LAUNCH_FLOWS = frozenset({"ac2g", "async", "async_gpu"})      # from launch call to GPU work: correlation ids say the same
OPERATORS = frozenset({"cpu_op", "operator"})
GPU_ARGUMENTS = GPU_LANE - {"gpu_user_annotation", "cuda_profiler_range"}
# shown as they stand: hardware counters of a range under their CUPTI names, and what other devices' plugins write
WHOLE_ARGUMENTS = frozenset({"cuda_profiler_range", "collective_comm", "hpu_op", "mtia_ccp_events", "mtia_insight",
                             "xpu_scope_profiler"})
NO_ARGUMENTS = frozenset({"python_function", "trace"})        # none that is read


def device_kind(name: str) -> Category:
    """Return what a record of OTHER_DEVICES is: an event that is recorded or waited for is no work of the device."""
    return Category.SYNC if _NO_WORK.fullmatch(name) else Category.MEMCPY if _COPY.fullmatch(name) else Category.COMPUTE


STRANGE = "records on lanes of a device that is not known here: shown, counted as no work"
UNKNOWN, CUDA = 255, 254            # of category codes: nothing said; GPU work or a call to the API, as the name says

# category of the file (lower case; of a list `a,b` the first that is known) -> what it is
CATEGORIES: dict[str, int] = {
    **{key: int(value) for key, value in KINETO_CATEGORIES.items()},
    "cuda_kernel": Category.COMPUTE, "gpu_kernel": Category.COMPUTE, "hip_kernel": Category.COMPUTE,
    "kernel_dispatch": Category.COMPUTE, "gpu": Category.COMPUTE, "cuda": CUDA, "hip": CUDA,
    "cuda_memcpy": Category.MEMCPY, "memory_copy": Category.MEMCPY, "cuda_memset": Category.MEMSET,
    "cuda_api": Category.RUNTIME, "cuda_runtime_api": Category.RUNTIME, "cuda_driver_api": Category.RUNTIME,
    "hip_api": Category.RUNTIME, "hip_runtime": Category.RUNTIME, "hsa_api": Category.RUNTIME,
    "nvtx": Category.ANNOTATION, "nvtx-kernel": Category.GPU_ANNOTATION, "roctx": Category.ANNOTATION,
    "annotation": Category.ANNOTATION,
    "python": Category.PYTHON, "fee": Category.PYTHON,              # fee: VizTracer's function entry and exit
}

# text of a pid or its process_name -> GPU or another accelerator; the regular expression's group is its number
GPU_PROCESSES: list[tuple[re.Pattern[str], str]] = [
    (re.compile(r"(?:^|[\s/])device:(?:GPU|TPU|CUSTOM):(\d+)", re.IGNORECASE), "XProf, TensorFlow: /device:GPU:0"),
    (re.compile(r"(?:^|\s)Device (\d+)$"), "nsys2json: Device 0, after a file's name where several were converted"),
    (re.compile(r"^GPU[ :#]?(\d+)$"), "GPU 0"),
    (re.compile(r"^(?:MTIA|NPU|XPU|HPU|MLU|DCU|GCU|IPU)[ :#]?(\d+)$"), "accelerators that are no GPUs, by their own name"),
    (re.compile(r"^CUDA functions$", re.IGNORECASE), "PyTorch up to 1.7: the tid is the GPU"),
]
# text of a tid or its thread_name -> stream; the group is its number
STREAMS = re.compile(r"(?:^|[\s/])(?:(?:CUDA )?stream|CUDA API|HIP stream|queue)\s*[:#]?\s*(-?\d+)", re.IGNORECASE)
# lanes of a GPU process that show the same time again, or ranges around it: not work
DERIVED = re.compile(r"^(?:Steps|XLA Modules|XLA Ops|XLA TraceMe|TensorFlow Ops|TensorFlow Name Scope|Framework Ops"
                     r"|Framework Name Scope|Source code|Launch Stats|SparseCore Steps|Async XLA Ops)\b|NVTX|annotation"
                     r"|user_annotation", re.IGNORECASE)
# a process that is called after a device and stands in no row above: shown, and counted neither as its work nor as the CPU's
STRANGE_DEVICE = re.compile(r"\b(?:accelerator|[NXHTMIA]PUs?|AIU|MLU|DCU|GCU|MTIA|Gaudi\d?|Neuron ?Cores?)\b"
                            r"(?!\s*(?:API|driver|runtime))|\b(?:hardware|device)[ :#]*\d*$", re.IGNORECASE)
_NOT_STRANGE = re.compile(r"\bCPUs?\b|\bhost\b|python|/|\.", re.IGNORECASE)
_CALL = re.compile(r"^(?:cuda[A-Z]|cu[A-Z][a-z]|hip[A-Z]|hsa_)\w+$")
_MEMCPY = re.compile(r"^(?:\[CUDA |gpu_)?mem(?:ory)?\s?cpy|^CopyHostToDevice|^CopyDeviceToHost", re.IGNORECASE)
_MEMSET = re.compile(r"^(?:\[CUDA |gpu_)?memset", re.IGNORECASE)
_STREAM_LABEL = re.compile(r"^Stream #(\d+)\([^()]*\)$")
_NUMBER = re.compile(r"(-?\d+)\s*$")
# operations of XLA that move data between devices, and those that only hold others
_XLA_COLLECTIVE = re.compile(r"^(?:async-)?(?:all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-\w+)\b")
_XLA_SCOPE = re.compile(r"^(?:while|conditional|call)(?:\.\d+)?$")
_PYTHON = re.compile(r"^\$(?:<|\S+:\d+ )")                          # $profiler.py:101 start_trace
PLAIN, NAMED_MEMCPY, NAMED_MEMSET, NAMED_COLLECTIVE, NAMED_CALL, NAMED_SCOPE, NAMED_PYTHON = range(7)


class Lane(NamedTuple):
    """What a lane says of the slices on it."""

    gpu: bool
    device: int             # MISSING where unknown; of other lanes what they stand for where a category puts GPU work on them
    stream: int
    derived: bool           # of a GPU, and not work
    group: str = ""         # under which it is drawn; "" where it is "GPU 0" or the process
    strange: bool = False   # of a device that is not known


def category_code(value: Any) -> int:
    """Return a Category, UNKNOWN or CUDA."""
    text = str(value).lower() if value is not None else ""
    category = CATEGORIES.get(text)
    if category is not None or "," not in text:
        return UNKNOWN if category is None else int(category)
    return next((int(CATEGORIES[part]) for part in text.split(",") if part in CATEGORIES and part != "gpu"), UNKNOWN)


def name_code(value: Any) -> int:
    """Return what a name tells of the slice that bears it.

    Asked where the slice's category does not tell.
    """
    name = str(value)
    if _MEMCPY.match(name):
        return NAMED_MEMCPY
    if _MEMSET.match(name):
        return NAMED_MEMSET
    if _CALL.match(name):
        return NAMED_CALL
    if _PYTHON.match(name):
        return NAMED_PYTHON
    if _XLA_SCOPE.match(name):
        return NAMED_SCOPE
    return NAMED_COLLECTIVE if is_collective(name) or _XLA_COLLECTIVE.match(name) else PLAIN


def lane_of(pid: Any, tid: Any, process: str, thread: str) -> Lane:
    """Return what a lane says of its slices.

    By its ids and the names its metadata gives it ("" where none).
    """
    texts = (process, str(pid)) if process else (str(pid),)
    match = next((named for pattern, _ in GPU_PROCESSES for text in texts if (named := pattern.search(text))), None)
    if match is None:
        return Lane(False, number_of(pid), number_of(tid), False, strange=is_strange_device(process))
    label = thread or str(tid)
    stream = STREAMS.search(label) or STREAMS.search(str(tid))
    if not match.groups():                                  # the tid is the GPU
        return Lane(True, number_of(tid), MISSING, False)
    work = "TPU" in match[0].upper() and label.startswith("XLA Ops")         # of a GPU they repeat the streams' time
    return Lane(True, int(match[1][:9]), int(stream[1][:18]) if stream else MISSING, bool(DERIVED.search(label)) and not work,
                own_name(match[0]))


def own_name(process: str) -> str:
    """Return "MTIA 17" of a process that bears the name of an accelerator that is no GPU, else ""."""
    return process.strip() if re.match(r"\s*(?!GPU)[A-Z]{3,4}[ :#]?\d+\s*$", process) else ""


def is_strange_device(process: str) -> bool:
    """Tell whether a process is called after a device that no row of GPU_PROCESSES knows."""
    return bool(STRANGE_DEVICE.search(process)) and not _NOT_STRANGE.search(process)


def stream_name(label: str) -> str:
    """XProf's "Stream #16(Kernel)" as other traces call it; everything else as it is."""
    return _STREAM_LABEL.sub(r"stream \1", label)


def number_of(value: Any) -> int:
    """7, "7" and "stream 7" are 7; MISSING where there is no number."""
    if isinstance(value, (int, float)) and value == value and abs(value) < 2**63:
        return int(value)
    match = _NUMBER.search(value) if isinstance(value, str) else None
    return int(match[1]) if match and len(match[1]) < 19 else MISSING
