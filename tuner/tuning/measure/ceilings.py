"""Ceilings of a GPU: the table of kernels that do one thing each, and how each is measured.

A measurement runs its work back to back for some time and takes samples of many launches between CUDA events. Between
two samples the SMs' own cycle counters are read: the clock that a sample really ran at, from the same span as its time.
So a rate comes with its clock, and `per_cycle` tells what the chip does from how fast it was clocked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from profiles.base.numbers import quantile
from tuner.tuning.kernels import ceilings as kernels
from tuner.tuning.measure import nvml

Launch = Callable[[], Any]
SAMPLE_S = 0.020             # of work in a sample: long beside a launch and beside the timer's microsecond
MEASURE_S = 1.6              # of work in all: long enough for a power limit to show
SETTLE_PART = 0.25           # of the samples are warm-up and not counted
PRODUCT_S = 0.004            # of one matrix product at most
CHUNK = 8                    # samples that wait in the queue at a time
MAX_LAUNCHES = 4096          # in a sample
CLOCK_SLOTS = 1024           # SMs that fit


@dataclass(frozen=True)
class Work:
    """A launch: the bytes or operations that it does, and what was chosen for this device."""

    launch: Launch
    amount: float
    how: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class Sample:
    seconds: float               # of one launch
    sm_clock_hz: float | None


class Meter(Protocol):
    """Times launches on one device."""

    device: torch.device

    def samples(self, launch: Launch, launches: int, count: int) -> list[Sample]: ...

    def reading(self) -> dict[str, Any]:
        """Return clocks, temperature, power and throttling as the driver reports them."""
        ...


class CudaMeter:
    """Times groups of launches with CUDA events and reads the SMs' counters between them."""

    def __init__(self, device: torch.device, gpu_index: int) -> None:
        self.device, self.gpu_index = device, gpu_index
        self._last: dict[str, Any] = {}
        self.sms = torch.cuda.get_device_properties(device).multi_processor_count

    def samples(self, launch: Launch, launches: int, count: int) -> list[Sample]:
        counters = torch.zeros((count + 1, CLOCK_SLOTS, 2), dtype=torch.int64, device=self.device)
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        self._read_counters(counters[0])
        for index, (start, end) in enumerate(events):
            start.record()
            for _ in range(launches):
                launch()
            end.record()
            self._read_counters(counters[index + 1])
        self._last = nvml.reading(self.gpu_index)                 # while the work is still in the queue
        torch.cuda.synchronize(self.device)
        clocks = mean_clocks(counters.cpu().numpy())
        return [Sample(start.elapsed_time(end) / 1000 / launches, clock)
                for (start, end), clock in zip(events, clocks, strict=True)]

    def _read_counters(self, out: torch.Tensor) -> None:
        kernels.clocks[(16 * self.sms,)](out, num_warps=1)

    def reading(self) -> dict[str, Any]:
        return self._last


def mean_clocks(counters: Any) -> list[float | None]:
    """Return mean clocks in Hz between readings [reading, SM, 2]: the median over SMs; None where unread."""
    clocks_hz: list[float | None] = []
    for before, after in itertools.pairwise(counters):
        both = (before[:, 1] > 0) & (after[:, 1] > before[:, 1]) & (after[:, 0] > before[:, 0])
        cycles, ns = (after - before)[both].T
        clocks_hz.append(float(quantile(sorted((cycles / ns * 1e9).tolist()), 0.5)) if both.any() else None)
    return clocks_hz


@dataclass(frozen=True)
class Measurement:
    """One line of the table; `precision` is a key of gpus.PRECISIONS, empty for memory."""

    name: str
    kind: str                    # "dram" | "l2" | "l1" | "compute"
    label: str
    make: Callable[[Meter], Work]
    precision: str = ""


def measure_ceiling(meter: Meter, one: Measurement, seconds: float = MEASURE_S) -> dict[str, Any]:
    """Measure one line: return rate (median sample), best rate, clock, spread and conditions."""
    work = one.make(meter)
    launches, count = _plan_launches(meter, work, seconds)
    samples: list[Sample] = []
    readings = []
    while len(samples) < count:
        samples += meter.samples(work.launch, launches, min(CHUNK, count - len(samples)))
        readings.append(meter.reading())
    tail = samples[int(len(samples) * SETTLE_PART):]
    rates = sorted(work.amount / sample.seconds for sample in tail)
    fastest = min(tail, key=lambda sample: sample.seconds)
    clocked = [(work.amount / sample.seconds, sample.sm_clock_hz) for sample in tail if sample.sm_clock_hz]
    return {
        "name": one.name, "kind": one.kind, "label": one.label, "precision": one.precision, "how": work.how, "facts": work.facts,
        "rate": quantile(rates, 0.5), "best": work.amount / fastest.seconds, "best_clock_hz": fastest.sm_clock_hz,
        "sm_clock_hz": quantile(sorted(clock for _, clock in clocked), 0.5) if clocked else None,
        "per_cycle": quantile(sorted(rate / clock for rate, clock in clocked), 0.5) if clocked else None,
        "spread": (quantile(rates, 0.9) - quantile(rates, 0.1)) / 2 / quantile(rates, 0.5), "n": len(tail), "launches": launches,
        "seconds": sum(sample.seconds for sample in samples) * launches, "during": _summarise_readings(readings),
    }


def _plan_launches(meter: Meter, work: Work, seconds: float) -> tuple[int, int]:
    """Return launches per sample and samples, from a first timing of one launch."""
    meter.samples(work.launch, 1, 2)                              # compiles, chooses an algorithm, warms up
    once_s = min(sample.seconds for sample in meter.samples(work.launch, 2, 3))
    launches = max(1, min(MAX_LAUNCHES, round(SAMPLE_S / max(once_s, 1e-7))))
    return launches, max(8, min(400, math.ceil(seconds / (launches * once_s))))


def _summarise_readings(readings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return medians of the driver's readings and every throttle reason it named."""
    medians: dict[str, Any] = {}
    for name in ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "power_w"):
        values = sorted(reading[name] for reading in readings if name in reading)
        if values:
            medians[name] = quantile(values, 0.5)
    reasons = sorted({reason for reading in readings for reason in reading.get("throttle", ())})
    return medians | ({"throttle": reasons} if any("throttle" in reading for reading in readings) else {})



# --- memory -------------------------------------------------------------------------------------------------------------

def _memory_bytes(meter: Meter) -> int:
    """Return a buffer's bytes: at least 16 × L2, at most an eighth of free memory and 2 GiB."""
    if meter.device.type != "cuda":
        return 4 * 2**20
    free: int = torch.cuda.mem_get_info(meter.device)[0]
    return max(16 * _l2_bytes(meter), min(free // 8, 2 * 2**30)) // 2**20 * 2**20


def _l2_bytes(meter: Meter) -> int:
    if meter.device.type != "cuda":
        return 2**20
    return int(torch.cuda.get_device_properties(meter.device).L2_cache_size)


def _sm_count(meter: Meter) -> int:
    if meter.device.type != "cuda":
        return 2
    return int(torch.cuda.get_device_properties(meter.device).multi_processor_count)


def _make_buffer(meter: Meter, size: int) -> torch.Tensor:
    return torch.randint(0, 1000, (size // 4,), dtype=torch.int32, device=meter.device)


def copy(meter: Meter) -> Work:
    """Return the work of a copy through device memory."""
    size = _memory_bytes(meter)
    source = _make_buffer(meter, size)
    target = torch.empty_like(source)
    return Work(lambda: target.copy_(source), 2.0 * size, "device-to-device copy; bytes read and bytes written",
                {"buffer_bytes": size})


def write(meter: Meter) -> Work:
    """Return the work of writing device memory."""
    size = _memory_bytes(meter)
    target = torch.empty(size // 4, dtype=torch.int32, device=meter.device)
    return Work(lambda: target.fill_(7), float(size), "a buffer is filled; bytes written", {"buffer_bytes": size})


def read(meter: Meter) -> Work:
    """Return the work of reading device memory."""
    size = _memory_bytes(meter)
    source, out = _make_buffer(meter, size), torch.empty(4096, dtype=torch.int32, device=meter.device)
    grid = (8 * _sm_count(meter),)
    return Work(lambda: kernels.read_memory[grid](source, out, size // 4, BLOCK=4096, num_warps=8), float(size),
                "a Triton kernel sums a buffer; bytes read", {"buffer_bytes": size})


def l2(meter: Meter) -> Work:
    """Return the work of every SM reading a buffer of a sixth of L2, a power of two."""
    block, sms = 4096, _sm_count(meter)
    blocks = 2 ** max(3, int(math.log2(_l2_bytes(meter) / 4 / (4 * block))))
    source, out = _make_buffer(meter, 4 * block * blocks), torch.empty(block, dtype=torch.int32, device=meter.device)
    passes = max(1, 2**32 // (blocks * block * 4 * 2 * sms))
    return Work(lambda: kernels.read_l2[(2 * sms,)](source, out, blocks, passes, BLOCK=block, num_warps=16),
                4.0 * block * blocks * passes * 2 * sms,
                "every SM reads the same buffer, which stays in L2, in an order of its own (ld.global.cg); bytes read",
                {"buffer_bytes": 4 * block * blocks, "passes": passes})


def l1(meter: Meter) -> Work:
    """Return the work of reading what lies in L1."""
    block, sms, steps = 1024, _sm_count(meter), 8192
    source = _make_buffer(meter, 4 * 4 * block * 3 * sms)
    out = torch.empty(block, dtype=torch.int32, device=meter.device)
    return Work(lambda: kernels.read_l1[(3 * sms,)](source, out, steps, BLOCK=block, num_warps=8),
                4.0 * 4 * block * steps * 3 * sms, "every SM reads 48 KiB of its own over and over; bytes read",
                {"bytes_per_sm": 3 * 4 * 4 * block})


# --- arithmetic ---------------------------------------------------------------------------------------------------------

def chains(kind: torch.dtype) -> Callable[[Meter], Work]:
    """Return a maker of multiply-adds in registers on a type's scalar pipe; half precision packed."""
    half = kind == torch.float16
    block = 512 if half else 256
    steps = 256 if kind == torch.float64 else 1024

    def make(meter: Meter) -> Work:
        programs = 8 * _sm_count(meter)
        values = (torch.rand(programs * block, device=meter.device) * 0.5 + 0.5).to(kind)
        out = torch.empty_like(values)
        kernel = kernels.multiply_add_half2 if half else kernels.multiply_add
        return Work(lambda: kernel[(programs,)](values, out, steps, BLOCK=block, num_warps=8), 128.0 * programs * block * steps,
                    "a Triton kernel of independent multiply-adds in registers" + (", packed in pairs" if half else ""), {})
    return make


def gemm(kind: str) -> Callable[[Meter], Work]:
    """Return a maker of a square matrix product by cuBLAS through torch, normal random inputs."""
    def make(meter: Meter) -> Work:
        size = _gemm_size(meter, kind)
        launch = PRODUCTS[kind](meter.device, size)
        return Work(launch, 2.0 * size**3, f"cuBLAS matrix product, {size}³, normal random inputs", {"size": size})
    return make


def _gemm_size(meter: Meter, kind: str) -> int:
    """Return the largest size whose product takes about PRODUCT_S at most."""
    sizes = (1024, 2048, 4096, 8192) if meter.device.type == "cuda" else (64, 128)
    for size in sizes[:-1]:
        launch = PRODUCTS[kind](meter.device, size)
        meter.samples(launch, 1, 2)
        if 8 * min(sample.seconds for sample in meter.samples(launch, 4, 3)) > PRODUCT_S:
            return size
    return sizes[-1]


def _normal_tensor(device: torch.device, size: int, kind: torch.dtype) -> torch.Tensor:
    return torch.randn((size, size), device=device, dtype=torch.float32).to(kind)


def _torch_matmul(kind: torch.dtype, tf32: bool = False) -> Callable[[torch.device, int], Launch]:
    def make(device: torch.device, size: int) -> Launch:
        a, b = _normal_tensor(device, size, kind), _normal_tensor(device, size, kind)
        out = torch.empty_like(a)
        torch.backends.cuda.matmul.allow_tf32 = tf32             # read when the product is launched
        return lambda: torch.mm(a, b, out=out)
    return make


def _fp8(device: torch.device, size: int) -> Launch:
    a, b = (_normal_tensor(device, size, torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones((), device=device, dtype=torch.float32)
    return lambda: torch._scaled_mm(a, b.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=True)


def _int8(device: torch.device, size: int) -> Launch:
    a, b = (torch.randint(-128, 128, (size, size), device=device, dtype=torch.int8) for _ in range(2))
    return lambda: torch._int_mm(a, b.t())


PRODUCTS: dict[str, Callable[[torch.device, int], Launch]] = {
    "fp64": _torch_matmul(torch.float64), "fp32": _torch_matmul(torch.float32), "tf32": _torch_matmul(torch.float32, tf32=True),
    "fp16": _torch_matmul(torch.float16), "bf16": _torch_matmul(torch.bfloat16), "fp8": _fp8, "int8": _int8,
}

MEASUREMENTS: dict[str, Measurement] = {measurement.name: measurement for measurement in (
    Measurement("copy", "dram", "DRAM copy", copy),
    Measurement("read", "dram", "DRAM read", read),
    Measurement("write", "dram", "DRAM write", write),
    Measurement("l2", "l2", "L2 read", l2),
    Measurement("l1", "l1", "L1 read", l1),
    Measurement("fma-fp64", "compute", "FP64 multiply-add", chains(torch.float64), "fp64"),
    Measurement("fma-fp32", "compute", "FP32 multiply-add", chains(torch.float32), "fp32"),
    Measurement("fma-fp16", "compute", "FP16 multiply-add", chains(torch.float16), "fp16"),
    Measurement("gemm-fp64", "compute", "FP64 GEMM", gemm("fp64"), "fp64_tensor"),
    Measurement("gemm-fp32", "compute", "FP32 GEMM", gemm("fp32"), "fp32"),
    Measurement("gemm-tf32", "compute", "TF32 GEMM", gemm("tf32"), "tf32_tensor"),
    Measurement("gemm-fp16", "compute", "FP16 GEMM", gemm("fp16"), "fp16_tensor"),
    Measurement("gemm-bf16", "compute", "BF16 GEMM", gemm("bf16"), "bf16_tensor"),
    Measurement("gemm-fp8", "compute", "FP8 GEMM", gemm("fp8"), "fp8_tensor"),
    Measurement("gemm-int8", "compute", "INT8 GEMM", gemm("int8"), "int8_tensor"),
)}
