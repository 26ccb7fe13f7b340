"""A team's operator at one shape, as tuner.tuning.kernels.problem.Problem."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tuner.tuning.cuda import nvrtc
from tuner.tuning.cuda.defines import as_macro, without_defines
from tuner.tuning.cuda.functions import BLOCK, C_TYPES, CudaArgument, CudaFunction, CudaText
from tuner.tuning.cuda.text import read_file
from tuner.tuning.kernels import device as target
from tuner.tuning.kernels.problem import Calls, Problem, check_elements, full_precision, generator_on, normal, torch_dtype
from tuner.tuning.team import packages
from tuner.tuning.team.adapter import CudaKernel, CudaOperator, Struct, TritonOperator
from tuner.tuning.trial import Config, config_key


class TeamInputs:
    """`args` by name, `out` what a launch writes; `restored` names arguments that a launch changes and must find as they were:
    those of the kernel's autotuner, beside the adapter's own.
    """

    def __init__(self, adapter: TritonOperator, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int,
                 restored: Sequence[str] = ()) -> None:
        self.adapter, self.device = adapter, device
        self._put_back = [name for name in getattr(adapter, "restored", ()) if name not in restored]
        self._restored = [*restored, *self._put_back]
        self._holds: dict[str, float] = dict(getattr(adapter, "holds", {}))
        self.args = dict(adapter.arguments(shape, torch_dtype(dtype), device))
        out = self.args.get(adapter.out)
        if not isinstance(out, torch.Tensor):
            raise ValueError(f"{adapter.name}: `arguments` gives no tensor {adapter.out!r}, which `out` names")
        check_elements(**{name: value.numel() for name, value in self.args.items() if isinstance(value, torch.Tensor)})
        self.out = out
        self._kept: dict[str, torch.Tensor] = {}
        if device.type != "meta":
            self.refill(seed)

    def refill(self, seed: int) -> None:
        generator = generator_on(self.device, seed)
        if self.adapter.fill is not None:
            self.adapter.fill(self.args, generator)
        else:
            for name, value in self.args.items():
                is_read = name != self.adapter.out or name in self._restored
                if is_read and isinstance(value, torch.Tensor) and value.is_floating_point():
                    normal(generator, value)
        for name, number in self._holds.items():
            self.args[name].fill_(number)
        self._kept = {name: self.args[name].clone() for name in self._restored}

    def put_back(self) -> None:
        """Give the adapter's arguments that a launch changes what they held when inputs were drawn."""
        for name in self._put_back:
            self.args[name].copy_(self._kept[name])
        for name, number in self._holds.items():
            self.args[name].fill_(number)

    def reference(self) -> torch.Tensor:
        full_precision()
        exact = {name: value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                 for name, value in self.args.items()}
        tensors = {name: value.float() if value.is_floating_point() else value for name, value in self._kept.items()}
        right: torch.Tensor = self.adapter.reference({**exact, **{name: value.clone() for name, value in tensors.items()}})
        return right.float()

    def library(self) -> torch.Tensor:
        """Return the team's own comparison; without one its reference."""
        result: torch.Tensor = (self.adapter.library or self.adapter.reference)(self.args)
        return result


# A team's CUDA C++ operator at one shape: compiled by NVRTC, launched through cuda-core on torch's stream.

STATIC_LIMIT_BYTES = 48 << 10       # of shared memory, above which a launch must ask (CUDA C++ Programming Guide, shared memory)


def _function(holds: CudaText, name: str) -> CudaFunction | None:
    return next((each for each in holds.functions if name in (each.name, each.qualified)), None)


class Launches:
    """Launches of an operator's function on `args`, compiled for a device's GPU.

    Raises ValueError for a function that the file lacks, and for arguments that are not the function's.
    """

    def __init__(self, adapter: CudaOperator, args: Mapping[str, Any], dtype: str, device: torch.device) -> None:
        self.adapter: CudaOperator = adapter
        self.args, self.device = dict(args), device
        kernel: CudaKernel = adapter.kernel
        self._dtype, self._file = dtype, Path(kernel.file)
        self._text, holds = read_file(self._file)
        function = _function(holds, kernel.function)
        if function is None:                            # of a header of its own
            holds = read_file(self._file, others=True)[1]
            function = _function(holds, kernel.function)
        if function is None:
            raise ValueError(f"{self._file.name} holds no __global__ function {kernel.function}; it holds "
                             f"{', '.join(candidate.name for candidate in holds.functions) or 'none'}")
        self._arguments, self._name = function.arguments, function.qualified
        missing = [argument.name for argument in self._arguments if argument.name not in self.args]
        if missing:
            raise ValueError(f"{adapter.name}: `arguments` gives no {', '.join(missing)}, which {kernel.function} takes")
        self._arch = nvrtc.arch_of(target.capability(device))
        self._template = frozenset(param.name for param in function.template)      # given there, never as macros
        self._loose = frozenset(holds.defines) - holds.guarded           # macros that a -D would meet again
        self._calls = Calls(self._make_call)

    def compile(self, config: Config) -> nvrtc.Binary:
        kernel: CudaKernel = self.adapter.kernel
        words = {**{name: as_macro(value) for name, value in config.items()}, "dtype": C_TYPES.get(self._dtype, self._dtype)}
        defines = {**{name: words[name] for name in config if name not in self._template},
                   **{name: text.format_map(words) for name, text in kernel.defines.items()}}
        expression = self._name
        if kernel.template:
            expression += f"<{', '.join(pattern.format_map(words) for pattern in kernel.template)}>"
        binary = nvrtc.compile_function(without_defines(self._text, self._loose & defines.keys()), expression, defines, self._arch,
                                        folder=self._file.parent, options=kernel.options, name=self._file.name)
        meta = {**self.args, **config}
        binary.threads = math.prod(self._block(meta))
        binary.dynamic_smem_bytes = int(self.adapter.smem(meta)) if self.adapter.smem else 0
        return binary

    def start(self, config: Config) -> nvrtc.Binary:
        """Launch on the arguments as they are."""
        from cuda import core as cuda_core

        binary, stream, launch, function, values = self._calls.of(config)
        if any(isinstance(value, Struct) for value in values):
            _launch_packed(stream, launch, function, values, self.args)
        else:
            cuda_core.launch(stream, launch, function, *values)
        result: nvrtc.Binary = binary
        return result

    def _block(self, meta: Mapping[str, Any]) -> tuple[int, ...]:
        if self.adapter.block is not None:
            return tuple(int(extent) for extent in self.adapter.block(meta))
        return tuple(int(meta.get(name, 1)) for name in BLOCK)

    def _make_call(self, config: dict[str, Any]) -> tuple[Any, ...]:
        from cuda import core as cuda_core

        binary, meta = self.compile(config), {**self.args, **config}
        card = cuda_core.Device(self.device.index or 0)
        card.set_current()              # torch's own context, the primary one
        function = cuda_core.ObjectCode.from_cubin(binary.cubin).get_kernel(binary.symbol)
        if binary.dynamic_smem_bytes + binary.static_smem_bytes > STATIC_LIMIT_BYTES:
            _allow_shared(function, binary.dynamic_smem_bytes, self.device.index or 0)
        grid = tuple(int(extent) for extent in self.adapter.grid(meta))
        launch = cuda_core.LaunchConfig(grid=grid, block=self._block(meta), shmem_size=binary.dynamic_smem_bytes)
        stream = cuda_core.Stream.from_handle(torch.cuda.current_stream(self.device).cuda_stream)
        return binary, stream, launch, function, tuple(_value(argument, self.args[argument.name]) for argument in self._arguments)


class CudaProblem(TeamInputs, Launches):
    """Raises ValueError as `Launches` does."""

    adapter: CudaOperator

    def __init__(self, adapter: CudaOperator, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        TeamInputs.__init__(self, adapter, shape, dtype, device, seed)
        Launches.__init__(self, adapter, self.args, dtype, device)

    def launch(self, config: Config) -> nvrtc.Binary:
        self.put_back()
        return self.start(config)


def _value(argument: CudaArgument, value: Any) -> Any:
    """Return what cuda-core passes: an address as a whole number, a number in the width that the function's text names."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    if value is None and argument.pointer:
        return 0                        # an optional tensor that is not there
    if isinstance(value, Struct):
        return value
    if argument.scalar:
        return np.dtype(argument.scalar).type(value)
    if isinstance(value, bool | int | float):
        return np.float32(value) if isinstance(value, float) else np.int32(value)
    raise ValueError(f"{argument.name}: {type(value).__name__} cannot be passed to a kernel; tensors and numbers can")


def _pack(values: Sequence[Any], args: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Return the array of addresses that the driver takes for a launch with structs, and what must live as long."""
    buffers = []
    for value in values:
        if isinstance(value, Struct):
            content = b"".join(struct.pack("<Q", args[word].data_ptr()) if isinstance(word, str) else
                               struct.pack("<I", int(word) & 0xFFFFFFFF) for word in value.words)
        else:
            content = struct.pack("<Q", value) if isinstance(value, int) else value.tobytes()
        buffers.append(ctypes.create_string_buffer(content, len(content)))
    return (ctypes.c_void_p * len(buffers))(*map(ctypes.addressof, buffers)), buffers


def _launch_packed(stream: Any, launch: Any, function: Any, values: Sequence[Any], args: Mapping[str, Any]) -> None:
    """Launch a function that takes structs, which cuda-core does not pass. Raises RuntimeError."""
    from cuda.bindings import driver

    addresses, buffers = _pack(values, args)
    grid, block = [*launch.grid, 1, 1][:3], [*launch.block, 1, 1][:3]
    (status,) = driver.cuLaunchKernel(driver.CUfunction(int(function.handle)), *grid, *block, int(launch.shmem_size),
                                      driver.CUstream(int(stream.handle)), ctypes.addressof(addresses), 0)
    del buffers
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the launch fails: {status.name}")


def _allow_shared(function: Any, dynamic_bytes: int, device: int) -> None:
    """Let a kernel have more than 48 kB of shared memory. Raises RuntimeError where the GPU has not so much."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(attribute, dynamic_bytes, driver.CUkernel(int(function.handle)),
                                            driver.CUdevice(device))
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"OutOfResources: {dynamic_bytes:,} bytes of dynamic shared memory ({status.name})")


class TeamProblem(TeamInputs):
    """A Triton kernel under its autotuner, with the autotuner's resets and restores."""

    def __init__(self, adapter: TritonOperator, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> None:
        kernel = adapter.kernel
        super().__init__(adapter, shape, dtype, device, seed, tuple(getattr(kernel, "restore_value", ())))
        configs = getattr(kernel, "configs", None)
        self._launcher = kernel.fn if configs is not None else kernel
        self._hooks = {config_key(packages.config_json(config)): config.pre_hook for config in configs or () if config.pre_hook}
        self._zeroed = list(getattr(kernel, "reset_to_zero", ()))

    def compile(self, config: Config) -> Any:
        return self._launcher.warmup(grid=self.adapter.grid, **self.args, **config)

    def launch(self, config: Config) -> Any:
        self.put_back()
        return self.start(config)

    def start(self, config: Config) -> Any:
        """Launch on arguments that were put back: what the kernel's own autotuner resets and restores is part of it."""
        for name in self._zeroed:
            self.args[name].zero_()
        for name, value in self._kept.items():
            if name not in self._put_back:
                self.args[name].copy_(value)
        hook = self._hooks.get(config_key(config)) if self._hooks else None
        if hook is not None:
            hook({**self.args, **config})
        return self._launcher.run(grid=self.adapter.grid, warmup=False, **self.args, **config)


def make_problem(adapter: TritonOperator, shape: Mapping[str, Any], dtype: str, device: torch.device, seed: int) -> Problem:
    """Return the problem of an adapter: in Triton or in CUDA C++."""
    kind = CudaProblem if isinstance(adapter, CudaOperator) else TeamProblem
    return kind(adapter, shape, dtype, device, seed)        # type: ignore[arg-type]


class _Problems(Mapping[str, Callable[..., Problem]]):
    """Operator name → constructor, for whatever the enabled packages offer."""

    def __getitem__(self, name: str) -> Callable[..., Problem]:
        return partial(make_problem, packages.adapter_of(name))

    def __iter__(self) -> Iterator[str]:
        return iter(packages._loaded)

    def __len__(self) -> int:
        return len(packages._loaded)


PROBLEMS = _Problems()


def source_hash(name: str) -> str:
    """Return the hash of the operator's kernel source."""
    return packages.source_hash(packages.adapter_of(name))
