"""All-reduce of X[R, C] over G GPUs of a host, fused with the residual addition and RMS norm that follow it in tensor parallelism.

Every GPU holds a partial X and the same residual and weight; each ends with the norm of their sum, and with the sum. One process
launches on all GPUs, and the kernels read and write each other's memory over NVLink or PCIe:

SHOTS 1  each GPU reads the partial rows of all and computes every row
SHOTS 2  each GPU computes every G-th row and writes it to all

Programs of one number have a barrier before the first read and after the last write, by flags in each GPU's memory (as in vLLM's
custom all-reduce and PyTorch's symmetric memory). All programs of a launch must be resident for that: at most one a multiprocessor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl

from tuner.tuning.kernels.extents import in_units, unit_of
from tuner.tuning.kernels.problem import Calls, Launch, Unavailable, check_elements, normal_tensors, sizes, torch_dtype
from tuner.tuning.trial import Config

EPSILON = 1e-5


@triton.jit
def barrier(flags, own_flags, own, G: tl.constexpr):
    """Wait until this program is here on every GPU: raise a flag at each, then take down those that were raised here."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    tl.debug_barrier()                       # what the other threads read and wrote is done
    for g in tl.static_range(G):
        while tl.atomic_cas(flags[g] + own * programs + program, 0, 1, sem="release", scope="sys") != 0:
            pass
    for g in tl.static_range(G):
        while tl.atomic_cas(own_flags + g * programs + program, 1, 0, sem="acquire", scope="sys") != 1:
            pass
    tl.debug_barrier()


@triton.jit(do_not_specialize=["own"])
def allreduce_rmsnorm(xs, residual, w, y, total, ys, totals, flags, own_flags, own, rows, cols, eps, G: tl.constexpr,
                      SHOTS: tl.constexpr, BLOCK: tl.constexpr, BARRIER: tl.constexpr, UNIT: tl.constexpr):
    """xs, ys, totals, flags: of each GPU; the others are this GPU's. Sums in the order of the GPUs: all come to the same bits."""
    cols = in_units(cols, UNIT)
    i = tl.arange(0, BLOCK)
    m = i < cols
    weight = tl.load(w + i, mask=m, other=0.0).to(tl.float32)
    if SHOTS == 1:
        first, step = tl.program_id(0), tl.num_programs(0)
    else:
        first, step = tl.program_id(0) * G + own, tl.num_programs(0) * G
    if BARRIER:
        barrier(flags, own_flags, own, G)
    for r in range(first, rows, step):
        at = r * cols + i
        v = tl.load(residual + at, mask=m, other=0.0).to(tl.float32)
        for g in tl.static_range(G):
            v += tl.load(xs[g] + at, mask=m, other=0.0).to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(v * v, 0) / cols + eps)
        normed, summed = (v * scale * weight).to(y.dtype.element_ty), v.to(y.dtype.element_ty)
        if SHOTS == 1:
            tl.store(y + at, normed, mask=m)
            tl.store(total + at, summed, mask=m)
        else:
            for g in tl.static_range(G):
                tl.store(ys[g] + at, normed, mask=m)
                tl.store(totals[g] + at, summed, mask=m)
    if BARRIER:
        barrier(flags, own_flags, own, G)


class AllReduceRmsNorm:
    """`out`: norm and sum of the first GPU; `gathered` those of all."""

    def __init__(self, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        self.R, self.C, self.G = sizes(shape, "R", "C", "G")
        check_elements(X=self.R * self.C)
        self.devices = devices_for(device, self.G)
        kind = torch_dtype(dtype)

        def empty(*extents: int) -> list[torch.Tensor]:
            return [torch.empty(extents, device=each, dtype=kind) for each in self.devices]

        self.xs, self.residuals, self.sums = empty(self.R, self.C), empty(self.R, self.C), empty(self.R, self.C)
        self.weights, self.outs = empty(self.C), empty(2, self.R, self.C)
        self.out = self.outs[0]
        self.flags = [torch.zeros(self.G * programs_at_most(each), dtype=torch.int32, device=each) for each in self.devices]
        self.streams = [torch.cuda.Stream(each) for each in self.devices] if device.type == "cuda" else []
        self._calls = Calls(self._call)
        self.refill(seed)

    def refill(self, seed: int) -> None:
        for number, x in enumerate(self.xs):
            normal_tensors(seed * self.G + number, x)
        normal_tensors(seed * self.G + self.G, self.residuals[0], self.weights[0])
        for residual, weight in zip(self.residuals[1:], self.weights[1:], strict=True):
            residual.copy_(self.residuals[0])
            weight.copy_(self.weights[0])
        self._wait()

    def poison(self) -> None:
        """Overwrite all results, so that what is not written is seen."""
        for out in self.outs:
            out.fill_(torch.nan)
        self._wait()

    def gathered(self) -> torch.Tensor:
        """Return the results of all GPUs on the first, shape (G, 2, R, C)."""
        return torch.stack([out.to(self.devices[0]) for out in self.outs])

    def reference(self) -> torch.Tensor:
        total = self.residuals[0].float()
        for x in self.xs:
            total = total + x.to(self.devices[0]).float()
        normed = torch.nn.functional.rms_norm(total, (self.C,), self.weights[0].float(), EPSILON)
        return torch.stack((normed, total)).expand(self.G, 2, self.R, self.C)

    def library(self) -> torch.Tensor:
        """NCCL, then PyTorch's addition and RMS norm on each GPU."""
        normed = []
        with self._all_streams():
            if self.streams:
                torch.cuda.nccl.all_reduce(self.xs, self.sums, streams=self.streams)
            else:
                for each in self.sums:
                    each.copy_(sum(self.xs[1:], self.xs[0]))
            for number, (each, residual, weight) in enumerate(zip(self.sums, self.residuals, self.weights, strict=True)):
                with self._on(number):
                    normed.append(torch.nn.functional.rms_norm(each.add_(residual), (self.C,), weight, EPSILON))
        return normed[0]

    def _call(self, config: Config) -> list[Launch]:
        programs, block = int(config["PROGRAMS"]), max(16, triton.next_power_of_2(self.C))
        if programs > min(map(programs_at_most, self.devices)):
            raise ValueError(f"{programs} programs that wait for each other are more than the GPU has multiprocessors")
        ys, totals = tuple(out[0] for out in self.outs), tuple(out[1] for out in self.outs)
        options = {"G": self.G, "SHOTS": config["SHOTS"], "BLOCK": block,
                   "BARRIER": self.devices[0].type != "cpu", "UNIT": unit_of(self.C), "num_warps": config["num_warps"]}
        return [(allreduce_rmsnorm, (programs,), (
            tuple(self.xs), self.residuals[own], self.weights[own], ys[own], totals[own], ys, totals, tuple(self.flags),
            self.flags[own], own, self.R, self.C, EPSILON), options) for own in range(self.G)]

    def compile(self, config: Config) -> Any:
        kernel, grid, args, options = self._call(config)[0]         # the same for all
        return kernel.warmup(*args, grid=grid, **options)

    def launch(self, config: Config) -> Any:
        compiled = []
        with self._all_streams():
            for number, (kernel, grid, args, options) in enumerate(self._calls.of(config)):
                with self._on(number):
                    compiled.append(kernel[grid](*args, **options))
        return compiled

    @contextmanager
    def _all_streams(self) -> Iterator[None]:
        """Let all GPUs begin after what the first one's stream holds, and that stream go on after all of them."""
        if not self.streams:
            yield
            return
        current = torch.cuda.current_stream(self.devices[0])
        for stream in self.streams:
            stream.wait_stream(current)
        yield
        for stream in self.streams:
            current.wait_stream(stream)

    @contextmanager
    def _on(self, number: int) -> Iterator[None]:
        if not self.streams:
            yield
            return
        with torch.cuda.device(self.devices[number]), torch.cuda.stream(self.streams[number]):
            yield

    def _wait(self) -> None:
        for device in self.devices if self.streams else ():
            torch.cuda.synchronize(device)


def programs_at_most(device: torch.device) -> int:
    """Return programs that are resident for sure: one a multiprocessor."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1024


def devices_for(device: torch.device, count: int) -> list[torch.device]:
    """Return `count` GPUs that reach each other's memory, or as often the device that is none. Raises Unavailable."""
    if device.type != "cuda":
        return [device] * count
    there = torch.cuda.device_count()
    if there < count:
        raise Unavailable(f"the shape asks for {count} GPUs, this process has {there}",
                          "Start it on a worker whose host has so many GPUs of one model.")
    found = [torch.device("cuda", number) for number in range(count)]
    for one in found:
        for other in found:
            if one == other:
                continue
            if not torch.cuda.can_device_access_peer(one, other):
                raise Unavailable(f"GPU {one.index} cannot reach the memory of GPU {other.index}",
                                  "NVLink, or PCIe without isolation (ACS), lets GPUs read each other.")
            torch.empty(1, device=one).copy_(torch.zeros(1, device=other))      # with the first copy torch opens the way
    return found


PROBLEMS = {"all_reduce_rmsnorm": AllReduceRmsNorm}
