"""What the wall time of a GPU can go to: the list that every account draws on.

A cause of `side` "busy" is what a GPU did, "idle" is why it did nothing, "outside" is the recording's own: before the first and
after the last GPU work. Each nanosecond of each GPU belongs to one cause. `docs/causes.md` is made of this table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Findings of other analyses whose time the account has already: said once, by it. Their own pages keep them as details.

COVERED = frozenset({
    "gpu_idle", "host_syncs", "pageable_copies", "data_loading", "exposed_transfers", "host_on_path", "kernel_on_path",
    "waits_on_path", "straggler", "behind", "exposed_communication", "copies_exposed", "allocating_calls", "slow_calls", "graphs",
    "queue_full", "tensor_cores_dtype", "unsteady_kernels"})


# The lines of an account: time of one GPU at one place, and a cause over all GPUs.


@dataclass(frozen=True)
class Row:
    """Time of one GPU under one cause at one place."""

    gpu: int
    cause: str
    where: str                      # kernel, range, operator or call that has it; "" where nothing is named
    rank: str                       # on which the cause starts: another one's where this GPU waited for it; "" of a single trace
    wall_ns: int
    recoverable_ns: int | None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """One cause over all GPUs and places. `wall_ns` and `recoverable_ns` are means over the GPUs."""

    cause: str
    where: str
    rank: str                       # "" where it is no one rank's
    wall_ns: int
    recoverable_ns: int | None
    rows: tuple[Row, ...]

    @property
    def gain_ns(self) -> int:
        return self.recoverable_ns or 0


@dataclass(frozen=True)
class Cause:
    """`label` is read in tables; `means` says when time belongs to it; `advice` what to do, "" where nothing is to be done."""

    label: str
    side: str                       # "busy" | "idle" | "outside"
    means: str
    advice: str = ""


CAUSES: dict[str, Cause] = {
    # what the GPU did
    "compute": Cause("arithmetic", "busy", "a kernel of 10 µs and more that computes: matrix products, convolutions, attention",
                     "The kernels themselves are the limit: tune the one with the most time, or use a narrower type."),
    "no_tensor_cores": Cause("products without tensor cores", "busy",
                             "a matrix product or convolution runs on CUDA cores although the GPU has tensor cores for its type",
                             '`torch.set_float32_matmul_precision("high")` allows TF32; else autocast to BF16 or FP16, and pad '
                             "dimensions to multiples of 16 bytes."),
    "memory_traffic": Cause("memory traffic", "busy", "a kernel of 10 µs and more that moves data: elementwise, norms, reductions",
                            "Fuse neighbouring kernels (torch.compile, Triton) so that fewer bytes pass through DRAM."),
    "unknown_kernels": Cause("kernels of unknown kind", "busy", "a kernel of 10 µs and more whose name says nothing of its limit",
                             "Capture counters of the kernel with the most time to see what bounds it."),
    "small_kernels": Cause("small kernels", "busy",
                           "a kernel under 10 µs runs, or the host prepares its launch and nothing else is queued",
                           "Give each launch more work: larger batches, torch.compile, grouped or fused kernels, CUDA graphs."),
    "serial_streams": Cause("serial kernels", "busy", "a kernel that leaves most of the GPU empty runs while work of another "
                            "stream, or more of its kind, is launched and waits",
                            "Let independent kernels run beside each other: streams without events between them, or one grouped "
                            "kernel."),
    "pageable_copies": Cause("pageable copies", "busy", "a copy from or to pageable host memory, or the host inside such a copy",
                             "Pin the host memory (`pin_memory=True`) and copy with `non_blocking=True`."),
    "copies": Cause("copies", "busy", "a copy runs and no kernel does",
                    "Copy ahead on a stream of its own from pinned memory, copy less, or keep the data on the GPU."),
    "memset": Cause("memory sets", "busy", "memory is set and no kernel runs",
                    "Set less: `torch.empty` for what is overwritten, buffers that are used again, or sets on another stream."),
    "communication": Cause("exposed communication", "busy", "a collective runs and nothing computes; where only one rank is "
                           "recorded the wait for others is in it",
                           "Overlap it with compute, send fewer and larger messages, or shard otherwise."),
    "slow_gpu": Cause("a slower GPU", "busy", "other ranks wait for a GPU that runs the same kernels for longer",
                      "Compare clocks, temperature and power of that GPU (`nvidia-smi -q -d PERFORMANCE`), and who shares it."),
    "more_work": Cause("more work on one rank", "busy", "other ranks wait for a GPU that has more or other kernels to run",
                       "Balance the ranks: sequence lengths, experts, pipeline stages, work that one rank does alone."),
    # why it did nothing
    "data_loading": Cause("data loading", "idle", "nothing is queued, and the host loads data",
                          "Load in other processes while the GPU computes (`DataLoader(num_workers=…, prefetch_factor=…, "
                          "pin_memory=True)`), or move decoding to the GPU."),
    "synchronisation": Cause("synchronisation", "idle", "nothing is queued because the host had waited for the GPU: what would "
                             "not be idle had it gone on launching",
                             "Read values such as `loss.item()` rarely, keep them on the GPU, or copy with `non_blocking=True` and "
                             "read later."),
    "allocation": Cause("memory allocation", "idle", "nothing is queued, and the host allocates or frees memory of the GPU",
                        "Keep the caching allocator's blocks (no `empty_cache()` in the loop, `expandable_segments:True`), "
                        "allocate before the loop."),
    "compilation": Cause("compilation", "idle", "nothing is queued, and the host compiles, tunes or loads code",
                         "Recompiled again and again: `mark_dynamic` or pad the shapes that change; `TORCH_LOGS=recompiles` names "
                         "the guard. Once only: warm up before measuring."),
    "garbage_collection": Cause("Python garbage collection", "idle", "nothing is queued, and Python collects garbage",
                                "`gc.freeze()` after set-up and `gc.disable()`, with `gc.collect()` between steps where the GPU is "
                                "busy anyway."),
    "file_io": Cause("files", "idle", "nothing is queued, and the host writes or reads files",
                     "Write checkpoints from a copy in another thread or process (`torch.distributed.checkpoint.async_save`)."),
    "queue_full": Cause("full launch queue", "idle", "the host is blocked in a launch because a queue is full, and cannot give "
                        "this GPU work", "Launch to this GPU from a thread of its own, or capture the launches in CUDA graphs."),
    "host_launch": Cause("host launches too slowly", "idle", "nothing is queued, and the host is in operators and launch calls",
                         "torch.compile or CUDA graphs launch many kernels at once; larger batches give each launch more work."),
    "host_code": Cause("host code", "idle", "nothing is queued, and the host is in no operator: Python, or code that was "
                       "not recorded",
                       "Move the work off the launching thread; record with `with_stack=True` to see which code it is."),
    "warm_up": Cause("warm-up", "idle", "nothing is queued in a leading step that takes 1.5 times the typical one or more, and "
                     "nothing else says why: first launches, allocations, caches",
                     "Nothing to do for a long run. To measure steady steps record later (`schedule(wait=…, warmup=…)`, "
                     "`nsys profile --delay`)."),
    "rank_sync": Cause("waiting for ranks on the host", "idle", "nothing is queued, and the host waits for other ranks",
                       "Use device-side collectives, and fewer barriers."),
    "stream_wait": Cause("launched, and waiting", "idle", "work is launched and waits longer than a launch takes: for an event, "
                         "another stream, another GPU or the host", "Look at what it waits for: its event or stream in the "
                         "timeline (`enable_cuda_sync_events=True` records them)."),
    "launch_latency": Cause("launch latency", "idle", "the next work is launched and starts within 10 µs: what a launch takes",
                            "CUDA graphs and programmatic dependent launch shorten it."),
    "profiler": Cause("the profiler", "idle", "nothing is queued, and the host is in the profiler's own work"),
    "unknown": Cause("cause unknown", "idle", "idle, and the file does not say what launched the next work",
                     "Record CPU activities too (`ProfilerActivity.CPU`, `nsys profile -t cuda,nvtx`)."),
    "outside": Cause("before and after", "outside", "before the first and after the last GPU work, where no step and no host "
                     "slice says what happened"),
}
