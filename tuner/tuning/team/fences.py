"""Poisoned memory around each tensor of a problem: what a kernel writes there is seen, what it reads there changes its result.

While a problem is made, each tensor that comes to be is moved into a buffer with a fence on either side. The poison is a finite
number in every type, so that a kernel which reads beyond an end and multiplies that by zero, as products with a masked operand do,
stays right. What is read and thrown away is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

BYTES = 1 << 20             # of a fence: a tile of 128 rows of 4096 two-byte elements
POISON, OTHER = 0x5A, 0x00  # 0x5A5A: 203.25 (fp16), 1.5e16 (bf16, fp32); what is read beyond an end is one of both
MOST_BYTES = 8 << 30        # of a tensor that is moved
MOST_DEPTH = 3
Made = TypeVar("Made")


class Fences:
    """The fences of one problem on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._buffers: dict[int, tuple[torch.Tensor, int]] = {}        # by its address a buffer, and the bytes between its fences
        self.names: dict[int, str] = {}

    def made(self, make: Callable[[], Made]) -> Made:
        """Return what `make` makes, its tensors between fences."""
        with _Moving(self):
            problem = make()
        names_by_address: dict[int, str] = {}
        for name, tensor in _tensors(problem, "", 0):
            names_by_address.setdefault(tensor.untyped_storage().data_ptr(), name)
        self._buffers = {address: buffer for address, buffer in self._buffers.items() if address in names_by_address}
        self.names = {address: names_by_address[address] for address in self._buffers}
        return problem

    def poison(self, value: int = POISON) -> None:
        """Write the poison anew, or another value."""
        for buffer, size in self._buffers.values():
            buffer[:BYTES].fill_(value)
            buffer[BYTES + size:].fill_(value)

    def why_broken(self) -> str:
        """Return where a fence does not hold what `poison` wrote, which is then written again; "" where each does."""
        broken = []
        for address, (buffer, size) in self._buffers.items():
            for side, fence in (("before the first element", buffer[:BYTES]), ("after the last element", buffer[BYTES + size:])):
                changed = torch.nonzero(fence != POISON)
                if len(changed):
                    far = BYTES - int(changed[0]) if side.startswith("before") else int(changed[-1]) + 1
                    broken.append(f"up to {far:,} bytes {side} of {self.names[address]}")
        if broken:
            self.poison()
        return f"it writes out of bounds: {', '.join(broken[:4])}" if broken else ""

    def why_read(self, launch: Callable[[], Any], out: torch.Tensor, refill: Callable[[], Any]) -> str:
        """Return that a result depends on what lies beyond its tensors; "" where it does not, or differs from launch to launch."""
        results = []
        for value in (POISON, POISON, OTHER):
            refill()
            self.poison(value)
            out.fill_(0)
            launch()
            results.append(out.contiguous().view(-1).view(torch.uint8).clone())
        self.poison()
        once, again, other = results
        if not torch.equal(once, again) or torch.equal(once, other):
            return ""
        return "it reads out of bounds: its result depends on what lies beyond its tensors"

    def move(self, tensor: torch.Tensor, known: set[int]) -> torch.Tensor:
        """Return a tensor between fences, where it has memory of its own that has none yet."""
        if tensor.device.type != self.device.type or tensor.layout is not torch.strided:
            return tensor
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if not size or size > MOST_BYTES or address in self._buffers or address in known or BYTES % tensor.element_size():
            return tensor
        buffer = torch.empty(size + 2 * BYTES, dtype=torch.uint8, device=tensor.device)
        buffer[:BYTES].fill_(POISON)
        buffer[BYTES + size:].fill_(POISON)
        buffer[BYTES:BYTES + size].copy_(torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage))
        self._buffers[buffer.untyped_storage().data_ptr()] = buffer, size
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            buffer.untyped_storage(), BYTES // tensor.element_size() + tensor.storage_offset(), tensor.size(), tensor.stride())


class _Moving(TorchDispatchMode):       # type: ignore[misc]
    """Moves what each operation makes; what it was given stays where it is."""

    def __init__(self, fences: Fences) -> None:
        super().__init__()
        self.fences = fences

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves, _ = tree_flatten((args, kwargs or {}))
        addresses = {leaf.untyped_storage().data_ptr() for leaf in leaves
                     if isinstance(leaf, torch.Tensor) and leaf.device.type == self.fences.device.type}
        return tree_map_only(torch.Tensor, lambda each: self.fences.move(each, addresses), func(*args, **(kwargs or {})))


def _tensors(value: Any, name: str, depth: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a problem by their names: of its attributes, and of what these hold."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "meta":
            yield name, value
        return
    if depth > MOST_DEPTH:
        return
    parts: Mapping[Any, Any] = {}
    if isinstance(value, Mapping):
        parts = value
    elif isinstance(value, list | tuple):
        parts = dict(enumerate(value))
    elif depth == 0:
        parts = getattr(value, "__dict__", {})
    elif type(value).__name__ == "TensorDescriptor":
        parts = {"base": value.base}
    for key, part in parts.items():
        yield from _tensors(part, str(key) if depth == 0 or name in ("args", "_kept") else f"{name}.{key}", depth + 1)
