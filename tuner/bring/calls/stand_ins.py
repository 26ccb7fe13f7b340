"""A GPU that is not there, answered for: name, multiprocessors, shared memory, compute capability. Nothing is computed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial, wraps
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
import triton
import triton.testing
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

WARP = 32
# name, multiprocessors, shared memory that one block may take, memory (NVIDIA, CUDA C++ Programming Guide, compute capabilities)
TARGETS = {"9.0": ("NVIDIA H100 80GB HBM3", 132, 232_448, 80 << 30), "8.0": ("NVIDIA A100-SXM4-80GB", 108, 166_912, 80 << 30),
           "10.0": ("NVIDIA B200", 148, 232_448, 180 << 30)}


class StandInDriver:
    """Answers what Triton and kernel files ask a driver, as the target would."""

    def __init__(self, capability: str) -> None:
        self.name, self.sms, self.shared_bytes, self.memory_bytes = TARGETS[capability]
        major, minor = (int(part) for part in capability.split("."))
        self.capability = (major, minor)
        self.utils = SimpleNamespace(get_device_properties=lambda device: {
            "max_shared_mem": self.shared_bytes, "multiprocessor_count": self.sms, "warpSize": WARP, "max_num_regs": 65536,
            "sm_clock_rate": 1_755_000, "mem_clock_rate": 2_619_000, "mem_bus_width": 5120}, set_printf_fifo_size=lambda size: None)

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 10 * self.capability[0] + self.capability[1], WARP)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self.capability

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return lambda *given, **more: [1.0, 1.0, 1.0]

    def get_empty_cache_for_benchmark(self) -> Any:
        return torch.empty(1, device="meta")

    def clear_cache(self, cache: Any) -> None:
        """Nothing is cached."""

    def set_current_device(self, device: int) -> None:
        """There is one."""

    def is_active(self) -> bool:
        return True

    def map_python_to_cpp_type(self, name: str) -> str:
        return name


class _Nothing:
    """A stream, an event, a graph: every question is answered by nothing, as no work is queued."""

    cuda_stream = 0

    def __init__(self, *given: Any, **more: Any) -> None: ...
    def __enter__(self) -> _Nothing: return self
    def __exit__(self, *_: Any) -> None: ...
    def elapsed_time(self, end: Any) -> float: return 1.0
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *given, **more: None


class _Operation:
    """`torch.library.custom_op` and `triton_op`: the function itself, under torch's names for what may be registered with it.

    It is `torch.ops.acme.softmax` too, by the name "acme::softmax".
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.function = self.default = function
        self.__name__ = getattr(function, "__name__", "operation")
        of, _, own = str(name).partition("::")
        if of and own:
            setattr(getattr(torch.ops, of), own, self)

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self.function(*args, **more)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _register


class _Place(contextlib.ContextDecorator):
    """`torch.cuda.device`: there is one."""

    idx = 0

    def __init__(self, *given: Any, **more: Any) -> None: ...
    def __enter__(self) -> _Place: return self
    def __exit__(self, *_: Any) -> None: ...


def _bench(function: Callable[[], Any], *given: Any, quantiles: Any = None, **more: Any) -> Any:
    """Run what is to be timed once; every time is the same."""
    function()
    return [1.0] * len(quantiles) if quantiles else 1.0


def _register(*args: Any, **more: Any) -> Any:
    return args[0] if len(args) == 1 and callable(args[0]) and not more else (lambda function: function)


def _answered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a question to CUDA whose answer is 0 where there is none to ask."""
    @wraps(function)
    def answer(*args: Any, **more: Any) -> Any:
        try:
            return function(*args, **more)
        except (AssertionError, AttributeError, RuntimeError):
            return 0
    return answer


def stand_in_gpu(capability: str) -> StandInDriver:
    """Let this process, which sees no GPU, answer for one of `capability` ("9.0")."""
    stands = StandInDriver(capability)
    driver.set_active(stands)
    major, minor = stands.capability
    properties = SimpleNamespace(
        name=stands.name, multi_processor_count=stands.sms, major=major, minor=minor, total_memory=stands.memory_bytes,
        warp_size=WARP, max_threads_per_multi_processor=2048, shared_memory_per_multiprocessor=stands.shared_bytes + 1024,
        shared_memory_per_block_optin=stands.shared_bytes, shared_memory_per_block=49_152, regs_per_multiprocessor=65_536,
        L2_cache_size=50 << 20, gcnArchName="", is_integrated=0, is_multi_gpu_board=0)
    for name, function in list(vars(torch.cuda).items()):
        if isinstance(function, FunctionType) and not name.startswith("_"):
            setattr(torch.cuda, name, _answered(function))
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(torch.cuda.nvtx, name, lambda *given, **more: 0)
    answers: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0, "init": lambda: None,
        "_lazy_init": lambda: None, "is_initialized": lambda: False, "set_device": lambda *given: None,
        "get_device_properties": lambda *given, **more: properties, "get_device_capability": lambda *given, **more: (major, minor),
        "get_device_name": lambda *given, **more: stands.name, "device": _Place, "device_of": _Place, "stream": _Place,
        "synchronize": lambda *given, **more: None, "empty_cache": lambda: None, "is_bf16_supported": lambda *given, **more: True,
        "current_stream": lambda *given: _Nothing(), "default_stream": lambda *given: _Nothing(), "Stream": _Nothing,
        "Event": _Nothing, "CUDAGraph": _Nothing, "graph": _Place, "is_current_stream_capturing": lambda: False,
        "mem_get_info": lambda *given: (stands.memory_bytes, stands.memory_bytes), "get_arch_list": lambda: [f"sm_{major}{minor}"],
        "memory_allocated": lambda *given: 0, "max_memory_allocated": lambda *given: 0, "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None}
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    torch.cuda.nvtx.range = _Place
    if hasattr(torch, "accelerator"):
        for name, answer in {"is_available": lambda: True, "device_count": lambda: 1, "current_device_index": lambda: 0,
                             "current_accelerator": lambda *given, **more: torch.device("cuda"),
                             "synchronize": lambda *given: None}.items():
            setattr(torch.accelerator, name, answer)
    if torch.version.cuda is None:
        torch.version.cuda = "12.8"
    _stand_in_parts()
    _plain_torch()
    return stands


def _stand_in_parts() -> None:
    """Stand in for parts of torch that Inductor's own code calls, and that a torch without CUDA has not."""
    def empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(tuple(size), tuple(stride), dtype=dtype, device="cuda")

    torch._C._cuda_getCurrentRawStream = lambda device=0: 0
    torch.cuda._DeviceGuard = _Nothing
    with contextlib.suppress(AttributeError):
        torch._C._dynamo.guards._empty_strided_cuda = empty_strided


def _plain_torch() -> None:
    """Let functions that torch would trace, compile or register be the plain functions that they are."""
    def plain(*args: Any, **more: Any) -> Any:
        return args[0] if args and callable(args[0]) else (lambda function: function)

    def operation(name: Any = "", function: Any = None, /, **more: Any) -> Any:
        return _Operation(name, function) if callable(function) else partial(_Operation, name)

    torch.compile = torch.jit.script = plain
    torch.compiler.disable = plain
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].disable = plain            # type: ignore[attr-defined]
    torch.compiler.is_compiling = lambda: False
    torch.library.custom_op = operation
    torch.library.triton_op = operation
    torch.library.wrap_triton = lambda kernel: kernel
    for name in ("register_fake", "register_kernel", "register_autograd", "register_vmap", "impl_abstract"):
        if hasattr(torch.library, name):
            setattr(torch.library, name, lambda *given, **more: lambda function: function)
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = _bench
    with contextlib.suppress(AttributeError):
        triton.set_allocator = lambda *given, **more: None
