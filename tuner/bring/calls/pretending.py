"""Tensors without memory that say they lie on a GPU, where torch was built without one or finds none.

torch asks its CUDA driver in places that no mode reaches (indexing, `.to("cuda")`). So tensors are made on the CPU, every "cuda"
that torch is given becomes "cpu", and to the file's own code a tensor says "cuda:0".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from tuner.bring.calls.values import Values

GPU = torch.device("cuda", 0)


class _OnCpu(TorchFunctionMode):        # type: ignore[misc]
    """Gives torch the CPU wherever the file says cuda."""

    active: ClassVar[_OnCpu | None] = None          # of the call that is made

    def __init__(self, values: Values) -> None:
        super().__init__()
        self.values = values

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.numpy and (tensor := self.values.of(args[0])) is not None:
            with _disable_current_modes():
                return tensor.numpy()
        keywords = {key: _on_cpu(value) if key == "device" else value for key, value in (kwargs or {}).items()
                    if key not in ("pin_memory", "non_blocking")}
        if name in ("to", "type", "new_tensor", "set_default_device"):
            args = tuple(_on_cpu(argument) if isinstance(argument, str | torch.device) else argument for argument in args)
        return func(*args, **keywords)


def _on_cpu(device: Any) -> Any:
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    if isinstance(device, str):
        return "cpu" if device.partition(":")[0] == "cuda" else device
    return "cpu" if isinstance(device, int) and not isinstance(device, bool) else device


def stand_in_tensors() -> None:
    """Let tensors without memory say that they lie on a GPU, but to torch itself while it computes."""
    own = FakeTensor.device

    def device(self: Any) -> torch.device:
        is_own = Values.computes or self.fake_mode.in_kernel_invocation
        place: torch.device = own.__get__(self)
        return place if is_own or place.type != "cpu" else GPU

    FakeTensor.device = property(device)
    FakeTensor.is_cuda = property(lambda self: not Values.computes)
    FakeTensor.get_device = lambda self: 0
    torch.nn.Module.cuda = lambda self, device=None: self
    FakeTensor.data_ptr = lambda self: 0

    def swap_tensors(one: torch.Tensor, other: torch.Tensor) -> None:
        """Swap two tensors, as a module that is converted does. torch's own refuses those that modes refer to weakly."""
        for tensor in (one, other):
            for values in Values.all:
                values.forget(tensor)
        for name in ("__class__", "__dict__"):
            its = getattr(one, name)
            setattr(one, name, getattr(other, name))
            setattr(other, name, its)
        torch._C._swap_tensor_impl(one, other)

    torch.utils.swap_tensors = swap_tensors
    BackwardCFunction.apply = _in_mode(BackwardCFunction.apply)


def _in_mode(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function's backward pass within the mode: autograd's engine calls it outside."""
    def run(self: Any, *given: Any) -> Any:
        with _OnCpu.active or nullcontext():
            return apply(self, *given)

    return run


@contextmanager
def pretended(mode: FakeTensorMode, values: Values) -> Iterator[None]:
    """Make and compute tensors without memory, on a GPU as it seems."""
    with mode, values, _OnCpu(values) as on_cpu:
        _OnCpu.active = on_cpu
        try:
            yield
        finally:
            _OnCpu.active = None
