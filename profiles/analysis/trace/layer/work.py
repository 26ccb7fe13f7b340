"""What a call has to do at least: operations and bytes, of which kind, in which type.

An operator's call as torch.profiler records it (`record_shapes=True`): tensors, their types and layout, and its settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from profiles.analysis.core.tunable import as_list
from profiles.analysis.trace.operators.matmuls import BYTES, DIMENSIONS, MOST, type_named
from profiles.base.words import dims_text

Shape = tuple[int, ...]
MOST_TENSORS = 20_000               # of one call: optimizers pass thousands
NOT_TENSORS = frozenset(("", "Scalar", "ScalarList", "GenericList", "TensorList", "None", "Tuple"))


@dataclass(frozen=True)
class Tensor:
    """One input. `numel` counts elements that lie apart in memory: a dimension of stride 0 (expanded) counts once."""

    shape: Shape
    dtype: str                      # "fp16", …; "" where the file does not say
    numel: int

    @property
    def size(self) -> int | None:
        """Return the bytes of one element."""
        return BYTES.get(self.dtype)

    @property
    def bytes(self) -> int | None:
        return None if self.size is None else self.numel * self.size

    @property
    def elements(self) -> int:
        """Return the elements by its shape, expanded ones each time."""
        return prod(self.shape)


class Call:
    """A call with its arguments by position; what the file does not say, or says in nonsense, is None or empty."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.name = name
        self.namespace, _, op = name.rpartition("::")
        self.op = op
        self.dims, self.types = as_list(arguments.get("Input Dims")), as_list(arguments.get("Input type"))
        self.strides = as_list(arguments.get("Input Strides"))
        self.concrete = as_list(arguments.get("Concrete Inputs"))

    @property
    def is_inplace(self) -> bool:
        """Return whether the call writes into its first argument, as a name with "_" at its end says."""
        return self.op.endswith("_") and not self.op.endswith("__")

    @property
    def base(self) -> str:
        """Return the name without namespace and the "_" of in-place forms."""
        return self.op.rstrip("_") if self.is_inplace else self.op

    @property
    def has_shapes(self) -> bool:
        """Return whether any argument is a tensor, or a list of them, with sizes."""
        return any(isinstance(shape, list) and shape for shape in self.dims)

    def type(self, index: int) -> str:
        name = self.types[index] if index < len(self.types) else ""
        return name if isinstance(name, str) else ""

    def tensor(self, position: int) -> Tensor | None:
        """Return the tensor at one position; None where another thing, or nothing, stands there."""
        if position >= len(self.dims) or self.type(position) in NOT_TENSORS:
            return None
        return _tensor(self.dims[position], self.type(position), self.strides[position] if position < len(self.strides) else None)

    def tensor_list(self, position: int) -> list[Tensor]:
        """Return the tensors of a list at one position; the file names one type for all, or none ("TensorList")."""
        sizes = self.dims[position] if position < len(self.dims) else None
        if self.type(position) != "TensorList" or not isinstance(sizes, list) or not sizes or len(sizes) > MOST_TENSORS:
            return []
        tensors = [_tensor(size, "", None) for size in sizes]
        return [tensor for tensor in tensors if tensor is not None] if all(tensor is not None for tensor in tensors) else []

    def tensors(self) -> list[Tensor]:
        """Return every tensor among the arguments, lists aside."""
        return [tensor for position in range(min(len(self.dims), MOST_TENSORS)) if (tensor := self.tensor(position)) is not None]

    def text(self, index: int) -> str:
        value = self.concrete[index] if index < len(self.concrete) else ""
        return value if isinstance(value, str) else str(value) if isinstance(value, bool | int | float) else ""

    def flag(self, index: int) -> bool | None:
        """Return a boolean setting, None where it is not recorded."""
        return {"true": True, "false": False, "1": True, "0": False}.get(self.text(index).lower())

    def whole(self, index: int) -> int | None:
        text = self.text(index)
        return int(text) if text.lstrip("-").isdecimal() and len(text) < 16 else None

    def values(self, index: int) -> list[Any]:
        """Return a list setting: "[0, 1]" -> [0, 1]; "[True, False]" -> [True, False]."""
        text = self.text(index).replace("True", "true").replace("False", "false")
        return as_list(text) if text else as_list(self.concrete[index]) if index < len(self.concrete) else []


def _tensor(sizes: Any, kind: str, strides: Any) -> Tensor | None:
    if not isinstance(sizes, list) or len(sizes) > DIMENSIONS:
        return None
    if not all(type(size) is int and 0 <= size < 1 << 40 for size in sizes):
        return None
    shape = tuple(sizes)
    apart = prod(size for size, stride in zip(shape, strides, strict=True) if stride != 0) if (
        isinstance(strides, list) and len(strides) == len(shape)) else prod(shape)
    return Tensor(shape, type_named(kind), apart) if apart < MOST and prod(shape) < MOST else None


def broadcast(*shapes: Shape) -> Shape | None:
    """Return the shape that operands are broadcast to (PyTorch, "Broadcasting semantics"); None where they do not fit."""
    rank = max((len(shape) for shape in shapes), default=0)
    out = []
    for axis in range(1, rank + 1):
        sizes = {shape[-axis] for shape in shapes if len(shape) >= axis} - {1}
        if len(sizes) > 1:
            return None
        out.append(sizes.pop() if sizes else 1)
    return tuple(reversed(out))


def times_text(shape: Shape) -> str:
    """(2048, 4096) -> "2048×4096"."""
    return dims_text(shape)


def type_text(kind: str) -> str:
    """Return an element type as pages say it: "c10::BFloat16" -> "bf16"; what has no short name stays."""
    return type_named(kind) or kind.removeprefix("c10::")


# Kinds of work. What multiplies matrices may run on tensor cores; all other arithmetic runs on CUDA cores.
PRODUCTS = ("product", "attention", "convolution")
KINDS = (*PRODUCTS, "norm", "softmax", "elementwise", "reduction", "movement", "optimizer", "fused", "collective")


@dataclass(frozen=True)
class Work:
    """`flop`: operations, a multiply-add is two. `bytes`: each input read once and each output written once, as if caches
    were perfect (Williams et al., Roofline, CACM 52(4), 2009: compulsory traffic). None is unknown."""

    kind: str                       # of KINDS
    flop: int | None
    bytes: int | None
    dtype: str = ""                 # of the operands: "fp16", …; "" where the file does not say
    text: str = ""                  # the sizes as people read them: "2048 × 12288 × 4096"
    sizes: tuple[int, ...] = ()     # product: batch, m, n, k · attention: batch, heads, KV heads, queries, keys, head size
    note: str = ""                  # what was taken for granted
    elements: int | None = None     # moved, where the file does not say their type: the kernel's name may

    def bounded(self) -> Work:
        """Return the same, with numbers that no machine can mean left out."""
        flop = self.flop if self.flop is not None and 0 <= self.flop < MOST else None
        size = self.bytes if self.bytes is not None and 0 <= self.bytes < MOST else None
        return replace(self, flop=flop, bytes=size, text=self.text[:120])


def sum_bytes(parts: Iterable[Tensor | int | None]) -> int | None:
    """Return the bytes of tensors and counts together; None where one is unknown."""
    total = 0
    for part in parts:
        size = part.bytes if isinstance(part, Tensor) else part
        if size is None:
            return None
        total += size
    return total
