"""Programs with one known fault, played on a model of a host and its GPUs, as PyTorch's profiler would write them.

A made trace, not a recording: a host thread takes time for every operator and launch, streams run what they were given in order,
calls wait as CUDA's do. Names, categories and arguments are those of Kineto. `noise` scales every single duration by a factor
of its own; the order of what a program does stays.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Step = Generator[float, float, None]
GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN"
SGEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(cutlass_80_simt_sgemm_256x128_8x4_nn_align1::Params)"
ADD = ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, "
       "at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)")


class Machine:
    """One process with one GPU; times in µs. `yield from machine.all_reduce(…)` meets the other ranks."""

    def __init__(self, rank: int, noise: Callable[[], float]) -> None:
        self.rank, self.noise, self.now = rank, noise, 1000.0
        self.events: list[dict[str, Any]] = []
        self.free: dict[int, float] = {}
        self.correlation = 0
        self.pending: list[float] = []              # starts of what is queued: a queue holds QUEUE of them

    QUEUE = 1024

    def host(self, name: str, us: float, category: str = "cpu_op") -> None:
        """A slice of the host."""
        with self.slice(name, category):
            self.now += us * self.noise()

    def sleep(self, us: float) -> None:
        """Host time in no slice."""
        self.now += us * self.noise()

    @contextmanager
    def slice(self, name: str, category: str = "cpu_op") -> Iterator[None]:
        start = self.now
        self.now += 0.2                                 # what is within begins later and ends earlier
        yield
        self.now += 0.2
        self._event(name, category, start, self.now, 100)

    def _event(self, name: str, category: str, start: float, end: float, tid: int, **arguments: Any) -> None:
        gpu = category in ("kernel", "gpu_memcpy", "gpu_memset")
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": self.rank if gpu else 4000 + self.rank, "tid": tid,
                            "ts": round(start, 3), "dur": round(end - start, 3), "args": arguments})

    def operator(self, name: str, kernel: str, us: float, host_us: float = 6, stream: int = 7, grid: int = 528) -> float:
        """An operator that launches one kernel; returns when that ends."""
        with self.slice(name):
            self.now += host_us * self.noise() / 2
            end = self.launch(kernel, us, stream=stream, grid=grid)
            self.now += host_us * self.noise() / 2
        return end

    def launch(self, kernel: str, us: float, category: str = "kernel", call: str = "cudaLaunchKernel", call_us: float = 4,
               stream: int = 7, grid: int = 528, not_before: float = 0, **arguments: Any) -> float:
        self.correlation += 1
        began = self.now
        self.pending = [start for start in self.pending if start > self.now]
        if len(self.pending) >= self.QUEUE:             # the call returns when a place is free
            self.now = max(self.now, sorted(self.pending)[len(self.pending) - self.QUEUE])
        self.now += call_us * self.noise()
        start = max(self.now + 1.5 * self.noise(), self.free.get(stream, 0.0), not_before)
        end = start + us * self.noise()
        self.free[stream] = end + 0.3
        self.pending.append(start)
        self._event(call, "cuda_runtime", began, self.now, 100, correlation=self.correlation)
        shape = {"grid": [grid, 1, 1], "block": [256, 1, 1], "registers per thread": 32} if category == "kernel" else {}
        self._event(kernel, category, start, end, stream, device=self.rank, context=1, stream=stream, correlation=self.correlation,
                    **shape, **arguments)
        return end

    def copy(self, us: float, mb: float, pageable: bool, stream: int = 7) -> None:
        kind = "Memcpy HtoD (Pageable -> Device)" if pageable else "Memcpy HtoD (Pinned -> Device)"
        with self.slice("aten::copy_"):
            began = self.now
            if pageable:                                # staged by the driver: the call returns when it is done
                self.now += 20 * self.noise()
                start = max(self.now, self.free.get(stream, 0.0))
                self.now = start + us * self.noise()
                self.correlation += 1
                self._event("cudaMemcpyAsync", "cuda_runtime", began, self.now + 5, 100, correlation=self.correlation)
                self._event(kind, "gpu_memcpy", start, self.now, stream, device=self.rank, context=1, stream=stream,
                            correlation=self.correlation, bytes=int(mb * 1e6))
                self.free[stream] = self.now
                self.now += 5
                self.wait("cudaStreamSynchronize", stream)
            else:
                self.launch(kind, us, "gpu_memcpy", "cudaMemcpyAsync", stream=stream, bytes=int(mb * 1e6))

    def wait(self, call: str = "cudaStreamSynchronize", stream: int | None = None) -> None:
        """The host waits for its GPU."""
        began = self.now
        until = max(self.free.values(), default=0.0) if stream is None else self.free.get(stream, 0.0)
        self.now = max(self.now + 2, until + 3 * self.noise())
        self._event(call, "cuda_runtime", began, self.now, 100)

    def all_reduce(self, us: float, mb: float = 16) -> Step:
        """A collective on a stream of its own that waits for the stream before, and which the stream then waits for."""
        with self.slice("c10d::allreduce_"):
            self.correlation += 1
            began = self.now
            self.now += 8 * self.noise()
            self._event("cudaLaunchKernel", "cuda_runtime", began, self.now, 100, correlation=self.correlation)
        ready = max(self.now + 2, self.free.get(7, 0.0), self.free.get(20, 0.0))
        last = yield ready
        end = last + us
        self._event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", ready, end, 20,
                    device=self.rank, context=1, stream=20, correlation=self.correlation, grid=[24, 1, 1], block=[512, 1, 1],
                    **{"Collective name": "allreduce", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2,
                       "In msg nelems": int(mb * 250_000), "Out msg nelems": int(mb * 250_000), "dtype": "Float"})
        self.free[20] = self.free[7] = end + 1

    def write(self, path: Path, gpu: str = "NVIDIA H200", ranks: int = 1) -> Path:
        devices = [{"id": self.rank, "name": gpu, "totalGlobalMem": 150e9, "computeMajor": 9, "computeMinor": 0, "numSms": 132}]
        document: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000,
                                    "deviceProperties": devices, "traceEvents": self.events}
        if ranks > 1:
            document["distributedInfo"] = {"backend": "nccl", "rank": self.rank, "world_size": ranks}
        path.write_text(json.dumps(document))
        return path


def forward_backward(m: Machine, us: float = 300, layers: int = 6, host_us: float = 8) -> None:
    """A training step whose kernels are long enough for the host to run ahead."""
    with m.slice("forward", "user_annotation"):
        for _ in range(layers):
            m.operator("aten::mm", GEMM, us, host_us)
            m.operator("aten::add", ADD, us / 4, host_us)
    with m.slice("backward", "user_annotation"):
        for _ in range(layers):
            m.operator("aten::mm", GEMM, us, host_us)


def steps(m: Machine, body: Callable[[Machine, int], Step | None], count: int = 6) -> Step:
    for number in range(count):
        with m.slice(f"ProfilerStep#{number}", "user_annotation"):
            made = body(m, number)
            if made is not None:
                yield from made
    m.wait("cudaDeviceSynchronize")


def play(folder: Path, bodies: list[Callable[[Machine, int], Step | None]], seed: int | None = None) -> list[Path]:
    """Run one program per rank to their ends; returns the files. `seed`: of the noise, None: none."""
    machines = []
    for rank in range(len(bodies)):
        chance = random.Random(f"{seed} {rank}")
        machines.append(Machine(rank, (lambda chance=chance: chance.uniform(0.7, 1.3)) if seed is not None else lambda: 1.0))
    running = [steps(m, body) for m, body in zip(machines, bodies, strict=True)]
    told: list[float | None] = [None] * len(running)
    while True:
        asked = []
        for each, value in zip(running, told, strict=True):
            try:
                asked.append(each.send(value))          # type: ignore[arg-type]
            except StopIteration:
                asked.append(None)
        if all(each is None for each in asked):
            break
        last = max(each for each in asked if each is not None)
        told = [last] * len(running)
    return [m.write(folder / f"rank{m.rank}.json", ranks=len(bodies)) for m in machines]


# --- the faults ---------------------------------------------------------------------------------------------------

def data_loading(m: Machine, step: int) -> None:
    with m.slice("## dataload ##", "user_annotation"):
        m.sleep(8000)
    forward_backward(m)


def pageable_copies(m: Machine, step: int) -> None:
    for _ in range(4):
        m.copy(1500, 40, pageable=True)
    forward_backward(m, 150)


def synchronisation(m: Machine, step: int) -> None:
    """The value is read, then the host works for as long as the GPU did: both could have worked at once."""
    for _ in range(10):
        for _ in range(4):
            m.operator("aten::mm", GEMM, 60)
        with m.slice("aten::item"), m.slice("aten::_local_scalar_dense"):
            m.launch("Memcpy DtoH (Device -> Pinned)", 2, "gpu_memcpy", "cudaMemcpyAsync", bytes=4)
            m.wait()
        m.sleep(180)


def small_kernels(m: Machine, step: int) -> None:
    for _ in range(400):
        m.operator("aten::add_", ADD, 1.8, 5, grid=4)


def full_queue(m: Machine, step: int) -> None:
    for _ in range(700):
        m.operator("aten::mm", GEMM, 60, 3)


def allocator_stalls(m: Machine, step: int) -> None:
    for _ in range(5):
        for name in ("cudaMalloc", "cudaMalloc"):
            m.host(name, 700, "cuda_runtime")
        for _ in range(4):
            m.operator("aten::mm", GEMM, 60)
        m.wait("cudaFree")
        m.host("cudaFree", 500, "cuda_runtime")


def blocking_memset(m: Machine, step: int) -> None:
    with m.slice("aten::zeros"):
        m.launch("Memset (Device)", 6000, "gpu_memset", "cudaMemsetAsync", bytes=20_000_000_000)
    forward_backward(m, 200)


def garbage_collection(m: Machine, step: int) -> None:
    forward_backward(m, 100)
    with m.slice("Python GC", "python_function"):
        m.sleep(9000)


def serial_streams(m: Machine, step: int) -> None:
    """Two streams of kernels that fill a tenth of the GPU, each made to wait for the other by events."""
    end = 0.0
    for _ in range(20):
        for stream in (7, 13):
            m.host("cudaStreamWaitEvent", 1, "cuda_runtime")
            with m.slice("aten::mm"):
                end = m.launch(GEMM, 200, stream=stream, grid=16, not_before=end)
            m.host("cudaEventRecord", 1, "cuda_runtime")


def tf32_off(m: Machine, step: int) -> None:
    for _ in range(10):
        m.operator("aten::mm", SGEMM, 900)
        m.operator("aten::add", ADD, 60)


def recompilation(m: Machine, step: int) -> None:
    with m.slice("Torch-Compiled Region: 0/0"):
        with m.slice("_compile.compile_inner (dynamo_timed)"), m.slice("compile_fx_inner (dynamo_timed)"):
            m.sleep(30_000)
        forward_backward(m)


def compute_bound(m: Machine, step: int) -> None:
    forward_backward(m, 500)


def _rank(before: Callable[[Machine], None] | None = None, scale: float = 1.0, extra: int = 0) -> Callable[[Machine, int], Step]:
    def body(m: Machine, step: int) -> Step:
        if before:
            before(m)
        for _ in range(extra):
            m.operator("aten::mm", GEMM.replace("128x256", "256x256"), 900)
        forward_backward(m, 250 * scale)
        for _ in range(2):
            yield from m.all_reduce(400)
        m.operator("aten::_foreach_add_", ADD, 150)
    return body


def _loads(m: Machine) -> None:
    with m.slice("## dataload ##", "user_annotation"):
        m.sleep(8000)
    m.wait()


def _busy_host(m: Machine) -> None:
    for _ in range(60):
        m.host("aten::empty", 150)


# fault -> programs of each rank, cause that must lead, what its place must contain, rank that it must start on
PLANTED: dict[str, tuple[list[Callable[[Machine, int], Step | None]], str, str, int | None]] = {
    "slow data loading": ([data_loading], "data_loading", "## dataload ##", None),
    "pageable copies": ([pageable_copies], "pageable_copies", "Pageable", None),
    "a synchronisation each step": ([synchronisation], "synchronisation", "aten::item", None),
    "small kernels": ([small_kernels], "small_kernels", "vectorized_elementwise_kernel", None),
    "a full queue": ([full_queue], "compute", "nvjet", None),
    "allocator stalls": ([allocator_stalls], "allocation", "cuda", None),
    "a blocking memset": ([blocking_memset], "memset", "Memset", None),
    "Python garbage collection": ([garbage_collection], "garbage_collection", "GC", None),
    "two streams that do not overlap": ([serial_streams], "serial_streams", "nvjet", None),
    "TF32 off": ([tf32_off], "no_tensor_cores", "sgemm", None),
    "recompilation each step": ([recompilation], "compilation", "compile", None),
    "nothing but compute": ([compute_bound], "compute", "nvjet", None),
    "a rank that loads data": ([_rank(), _rank(_loads)], "data_loading", "## dataload ##", 1),
    "a rank with a slower GPU": ([_rank(), _rank(scale=1.6)], "slow_gpu", "nvjet", 1),
    "a rank with more work": ([_rank(extra=6), _rank()], "more_work", "256x256", 0),
    "a rank with a slow host": ([_rank(), _rank(_busy_host)], "host_launch", "aten::empty", 1),
}
