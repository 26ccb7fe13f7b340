"""One recorded launch run by Triton's interpreter: on the CPU, in memory of its own, between fences of poison."""

from __future__ import annotations

import copy
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import GridExecutor, InterpretedFunction, _implicit_cvt, _patch_lang, interpreter_builder

from tuner.bring.calls.recorder import Launch

FENCE = 1 << 16             # bytes on either side of a tensor
POISON = 0x5A
LOOK_S = 0.5                # after which how long a launch takes is estimated
MOST_BYTES = 256 << 20      # of all tensors of a launch
# what a kernel finds in tensors of fractions: a function of normal numbers; the second where the first has no finite result
FILLS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (lambda drawn: drawn, lambda drawn: drawn.abs() * 0.1 + 0.1)


class CannotTry(Exception):
    """The launch cannot be run here: what of it."""


class Memory:
    """The tensors of one launch, by argument. Those that share memory on the GPU share it here.

    The same argument of another launch begins with the same numbers, however long it is.
    """

    def __init__(self, launch: Launch, fill: Callable[[torch.Tensor], torch.Tensor], widens: bool) -> None:
        self.launch, self.fill, self.widens = launch, fill, widens
        self.tensors: dict[str, torch.Tensor] = {}
        self._unknown: dict[int, tuple[int, int, str]] = {}         # whole numbers that are 0 here: where they begin, end
        self._buffers: dict[int, torch.Tensor] = {}
        self._names: dict[int, str] = {}
        self._bytes = 0
        self.given = {name: self._real(name, value) for name, value in launch.given.items()}

    def _real(self, name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            self.tensors[name] = self._tensor(name, value)
            return self.tensors[name]
        if isinstance(value, tuple):
            elements = [self._real(f"{name}[{index}]", element) for index, element in enumerate(value)]
            return type(value)(*elements) if hasattr(value, "_fields") else tuple(elements)
        if hasattr(value, "base") and hasattr(value, "block_shape"):
            descriptor = copy.copy(value)
            descriptor.base = self._real(name, value.base)
            return descriptor
        return tl.float32 if self.widens and isinstance(value, tl.dtype) and value == tl.bfloat16 else value

    def _tensor(self, name: str, fake: torch.Tensor) -> torch.Tensor:
        storage = fake.untyped_storage()
        dtype = torch.float32 if fake.dtype is torch.bfloat16 and self.widens else fake.dtype
        if storage._cdata not in self._buffers:
            count = storage.nbytes() // fake.element_size()
            self._bytes += count * dtype.itemsize
            if self._bytes > MOST_BYTES:
                raise CannotTry(f"its tensors have more than {MOST_BYTES >> 20} MiB")
            buffer = torch.full((2 * FENCE + count * dtype.itemsize,), POISON, dtype=torch.uint8, device="cpu")
            self._buffers[storage._cdata], self._names[storage._cdata] = buffer, name
            inner = buffer[FENCE:FENCE + count * dtype.itemsize].view(dtype)
            inner.copy_(self._values(name, fake, count))
            if not fake.is_floating_point() and not self.launch.held.get(name):
                self._unknown[storage._cdata] = (inner.data_ptr(), inner.data_ptr() + count * dtype.itemsize, name)
        real = torch.empty(0, dtype=dtype, device="cpu")
        offset = FENCE // dtype.itemsize + fake.storage_offset()
        real.set_(self._buffers[storage._cdata].untyped_storage(), offset, tuple(fake.shape), fake.stride())
        held = self.launch.held.get(name, {})
        if "tensor" in held and "filled" not in held and 0 not in fake.stride():
            real.copy_(held["tensor"])          # a part of memory of which all is not known
        return real

    def _values(self, name: str, fake: torch.Tensor, count: int) -> torch.Tensor:
        """Return what the tensor's memory holds: what the host is known to have put there, else numbers drawn by its name."""
        content = self.launch.held.get(name, {})
        if "filled" in content:
            return torch.full((count,), float(content["filled"]), device="cpu")
        if "tensor" in content and content["tensor"].numel() == count:
            return content["tensor"].reshape(-1)
        if not fake.is_floating_point():
            return torch.zeros(count, device="cpu")
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return self.fill(torch.randn(count, generator=generator, device="cpu"))

    def find_unknown(self, address: int) -> str:
        """Return the tensor of whole numbers that nothing is known of at an address; "" where none is."""
        return next((name for begin, end, name in self._unknown.values() if begin <= address < end), "")

    def whole(self) -> dict[str, torch.Tensor]:
        """Return the whole memory of each tensor, by the first argument in it: a kernel may write beside its view."""
        return {name: self._buffers[at][FENCE:-FENCE].view(self.tensors[name].dtype) for at, name in self._names.items()}

    def sums(self) -> list[int]:
        """Return a sum of what each tensor's memory holds."""
        return [zlib.crc32(buffer.numpy()) for buffer in self._buffers.values()]

    def why_broken(self) -> str:
        """Return which tensor a launch wrote beyond; "" where none."""
        for key, buffer in self._buffers.items():
            if not (bool((buffer[:FENCE] == POISON).all()) and bool((buffer[-FENCE:] == POISON).all())):
                return f"it writes beyond {self._names[key]}"
        return ""


@dataclass(frozen=True)
class Left:
    """What a launch left: its tensors by argument, and the shapes of what a program loaded and stored at once.

    memory   the whole memory of these tensors, by the first argument in each
    unknown  a tensor that it read of which nothing is known, "" where there is none
    """

    tensors: dict[str, torch.Tensor]
    memory: dict[str, torch.Tensor]
    shapes: frozenset[tuple[int, ...]]
    unknown: str = ""


def interpret(launch: Launch, fill: Callable[[torch.Tensor], torch.Tensor], limit_s: float, whole: Sequence[bool],
              widens: bool, may_rest: bool = False) -> Left:
    """Return what a launch leaves. Of an axis of the grid that is not `whole` the first and the last programs alone are run.

    widens    tensors in bf16, and arguments that name it, are float32: the interpreter knows little of bf16
    may_rest  whether a launch may leave all as it was
    Raises CannotTry for what cannot be made or would take longer than `limit_s` of CPU, ArithmeticError for a write beyond a
    tensor, and whatever the interpreter raises.
    """
    memory = Memory(launch, fill, widens)
    before = memory.sums()
    function = InterpretedFunction(launch.kernel.fn).rewrite()
    constexprs = GridExecutor(function, list(launch.kernel.arg_names), launch.programs).constexprs
    programs = (*launch.programs, 1, 1)[:3]
    chosen = list(product(*(range(count) if its_whole else sorted({0, count - 1})
                            for count, its_whole in zip(programs, (*whole, True, True), strict=False))))
    shapes: set[tuple[int, ...]] = set()
    addresses: set[int] = set()
    scope = _patch_lang(function)
    try:
        arguments = {name: value if name in constexprs else _implicit_cvt(value) for name, value in memory.given.items()}
        interpreter_builder.set_grid_dim(*programs)
        with _seen(shapes, addresses):
            began_s = time.process_time()
            for number, program in enumerate(chosen):
                took_s = time.process_time() - began_s
                if number and took_s > LOOK_S and took_s / number * len(chosen) > limit_s:
                    raise CannotTry(f"the interpreter would take {took_s / number * len(chosen):.0f} s for one launch")
                interpreter_builder.set_grid_idx(*program)
                function(**arguments)
    finally:
        scope.restore()
    if why := memory.why_broken():
        raise ArithmeticError(why)
    if not may_rest and memory.sums() == before:
        raise CannotTry("with inputs like these it leaves all as it was")
    return Left(memory.tensors, memory.whole(), frozenset(shapes), next(filter(None, map(memory.find_unknown, addresses)), ""))


@contextmanager
def _seen(shapes: set[tuple[int, ...]], read: set[int]) -> Iterator[None]:
    """Note the shapes of loads and stores of the interpreter, and the first address of each load."""
    builder = interpreter_builder
    load, store = builder.create_masked_load, builder.create_masked_store

    def create_masked_load(pointers: Any, *args: Any) -> Any:
        shapes.add(tuple(pointers.data.shape))
        read.add(int(pointers.data.flat[0]))
        return load(pointers, *args)

    def create_masked_store(pointers: Any, *args: Any) -> Any:
        shapes.add(tuple(pointers.data.shape))
        return store(pointers, *args)

    builder.create_masked_load, builder.create_masked_store = create_masked_load, create_masked_store
    try:
        yield
    finally:
        builder.create_masked_load, builder.create_masked_store = load, store
