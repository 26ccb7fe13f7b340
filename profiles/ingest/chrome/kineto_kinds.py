"""What libkineto's categories mean, from PyTorch 1.8 to today (ActivityType.h, output_json.cpp of pytorch/kineto)."""

from __future__ import annotations

import re

from profiles.ingest.trace import Category

# lower case; PyTorch 1.8-1.10 wrote the first line
CATEGORIES = {
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
