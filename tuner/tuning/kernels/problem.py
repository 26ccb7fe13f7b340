"""What the GPU child asks of a kernel module: one operator at one shape, with inputs that can be drawn afresh."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import triton

from tuner.tuning.kernels.device import target_sms
from tuner.tuning.offer import Offer
from tuner.tuning.trial import Config

DTYPES = {"fp8": torch.float8_e4m3fn, "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
MAX_ELEMENTS = 2**31 - 1      # the kernels index with int32
Launch = tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]      # kernel, grid, arguments, constants and options
CALLS_KEPT = 16               # more than there are finalists, which are launched in turn
INTERPRETED_PROGRAMS = 3      # of persistent kernels where there is no GPU: enough to share tiles


class Unavailable(Exception):
    """What an operator runs on is not on this machine; `hint` says what to do."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class Problem(Protocol):
    """`out` is what a launch writes; `launch` and `compile` return Triton's compiled kernel (registers, spills …)."""

    out: torch.Tensor

    def refill(self, seed: int) -> None:
        """Draw fresh random inputs, the same ones for the same seed on the same device."""
        ...

    def reference(self) -> torch.Tensor:
        """The right answer for the present inputs, computed in float32 from upcast inputs (no tf32)."""
        ...

    def library(self) -> torch.Tensor:
        """The vendor library's own call on the same inputs and dtype: what `library_ms` times."""
        ...

    def compile(self, config: Config) -> Any:
        """Compile without launching."""
        ...

    def launch(self, config: Config) -> Any: ...


@runtime_checkable
class PutsBack(Protocol):
    """A problem whose launches change their inputs: `launch` is `put_back`, then `start`, and `start` alone is timed."""

    def put_back(self) -> None:
        """Give the arguments that a launch changes what they held when inputs were drawn."""
        ...

    def start(self, config: Config) -> Any: ...


@runtime_checkable
class OffersSpace(Protocol):
    """A problem whose space only the machine with the GPU knows: a vendor's library or program lists it."""

    def offer(self) -> Offer:
        """Return what can be run here, in the library's own order of preference."""
        ...

    def environment(self) -> dict[str, Any]:
        """Return versions that a number depends on, beside torch's."""
        ...


@runtime_checkable
class OnSeveralGpus(Protocol):
    """A problem whose launch writes results on several GPUs; each of them is checked."""

    def poison(self) -> None:
        """Overwrite all results with NaN."""
        ...

    def gathered(self) -> torch.Tensor:
        """Return all results on the first GPU, as `reference` shapes them."""
        ...


@dataclass(frozen=True)
class ProgramTime:
    """What a launch returns that was a run of a program, which timed itself: ms of one launch of its kernel."""

    ms: float


@runtime_checkable
class ChecksItself(Protocol):
    """A problem whose configurations run in a program of their own, which checks and times them."""

    def check(self, config: Config, seed: int) -> tuple[str, dict[str, Any]]:
        """Run a configuration; return what is wrong with its result, "" where nothing is, and facts."""
        ...


def torch_dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r}: one of {', '.join(DTYPES)}")
    return DTYPES[name]


def sizes(shape: Mapping[str, Any], *names: str) -> tuple[int, ...]:
    """The named extents of a shape; ValueError names the one that is missing or not a positive whole number."""
    for name in names:
        value = shape.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"shape: {name} must be a whole number of at least 1, not {value!r}")
    return tuple(shape[name] for name in names)


def check_elements(**tensors: int) -> None:
    """The kernels compute offsets in int32: a larger tensor would wrap around in silence."""
    for name, elements in tensors.items():
        if elements > MAX_ELEMENTS:
            raise ValueError(f"shape: {name} has {elements:,} elements, the kernels index at most {MAX_ELEMENTS:,}")


def normal(generator: torch.Generator, out: torch.Tensor) -> None:
    """Overwrite `out` with standard normal numbers."""
    out.normal_(generator=generator)


def generator_on(device: torch.device, seed: int) -> torch.Generator:
    """A compile process has tensors without memory, on "meta": any generator fills them."""
    return torch.Generator(device="cpu" if device.type == "meta" else device).manual_seed(seed)


def full_precision() -> None:
    """Keep float32 products of the references in float32: tf32 would be no better than what is checked."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def normal_tensors(seed: int, *tensors: torch.Tensor) -> None:
    """Overwrite the tensors with standard normal numbers, the same ones for the same seed on the same device."""
    if tensors[0].device.type == "meta":
        return                                     # only compiled for: there is nothing to fill
    generator = generator_on(tensors[0].device, seed)
    for tensor in tensors:
        if tensor.dtype == torch.float8_e4m3fn:    # torch draws no fp8
            tensor.copy_(torch.randn(tensor.shape, generator=generator, device=tensor.device, dtype=torch.bfloat16))
        else:
            normal(generator, tensor)


def multiprocessors(device: torch.device) -> int:
    """Programs of a persistent kernel: one per multiprocessor of the GPU."""
    if device.type != "cuda":
        return target_sms() or INTERPRETED_PROGRAMS
    return torch.cuda.get_device_properties(device).multi_processor_count


def scratch_from_torch(device: torch.device) -> None:
    """Kernels that make TMA descriptors themselves keep them in memory that Triton asks its host for."""
    if device.type == "cuda":
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))


class Workspace:
    """Memory in which programs meet: float32 partial sums, and counts that every launch leaves at zero."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._values = torch.empty(0, device=device)
        self._counts = torch.zeros(0, dtype=torch.int32, device=device)

    def of(self, values: int, counts: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self._values.numel() < values:
            self._values = torch.empty(values, device=self.device)
        if self._counts.numel() < counts:
            self._counts = torch.zeros(counts, dtype=torch.int32, device=self.device)
        return self._values, self._counts


class Calls:
    """Launches that were put together: a timed one must not wait for Python to describe tensors again."""

    def __init__(self, make: Callable[[dict[str, Any]], tuple[Any, ...]]) -> None:
        self._make = make
        self._made: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def of(self, config: Config) -> tuple[Any, ...]:
        key = tuple(config.items())
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= CALLS_KEPT:
                self._made.clear()
            made = self._made[key] = self._make(dict(config))
        return made


class OneKernel(ABC):
    """What problems share whose configuration is one launch."""

    def __init__(self) -> None:
        self._calls = Calls(self._call)

    @abstractmethod
    def _call(self, config: Config) -> Launch:
        """Return kernel, grid, arguments, constants and options of a configuration."""

    def compile(self, config: Config) -> Any:
        kernel, grid, args, options = self._call(config)
        return kernel.warmup(*args, grid=grid, **options)

    def launch(self, config: Config) -> Any:
        kernel, grid, args, options = self._calls.of(config)
        return kernel[grid](*args, **options)
