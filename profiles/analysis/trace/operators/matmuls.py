"""What a framework operator multiplies: sizes, type and FLOP of matrix products, convolutions and attention, from the input
shapes that torch.profiler records (`record_shapes=True`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from profiles.analysis.core.tunable import as_list

Shape = list[int]
TYPES = {            # as PyTorch names element types -> as `gpus.PRECISIONS` names work, without the unit that does it
    "float": "fp32", "double": "fp64", "c10::Half": "fp16", "Half": "fp16", "c10::BFloat16": "bf16", "BFloat16": "bf16",
    "signed char": "int8", "unsigned char": "int8", "short": "int16", "short int": "int16", "int": "int32", "long int": "int64",
    "long": "int64", "bool": "bool",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
}
MOST, DIMENSIONS = 1 << 100, 12                  # beyond, a file's numbers are no sizes of anything
BYTES = {"fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "bool": 1,
         "complex64": 8, "complex128": 16}
RESULT_BYTES = {"fp8": 2, "int8": 4}            # of a product whose operands are narrower: bf16 (_scaled_mm), int32 (_int_mm)


@dataclass(frozen=True)
class Problem:
    """C[m, n] += A[m, k] · B[k, n], `batch` times. A convolution is the product that it is computed as (implicit GEMM):
    m = images × output pixels, n = output channels, k = input channels × filter taps; sizes that are not known are None."""

    kind: str                       # "matmul" | "conv" | "attention"
    dtype: str                      # "fp16", …; "" where the file does not say
    m: int | None = None
    n: int | None = None
    k: int | None = None
    batch: int = 1
    channels: tuple[int, int] = (0, 0)       # of a convolution: into and out of one group
    depthwise: bool = False
    groups: int = 1                          # of a grouped product: matrices B, among which the rows of A are shared out

    @property
    def flop(self) -> int | None:
        """Return the floating-point operations; a multiply-add is two.

        2·m·n·k per product (NVIDIA, Matrix Multiplication Background User's Guide, section 1).
        """
        if self.m is None or self.n is None or self.k is None:
            return None
        flop = 2 * self.batch * self.m * self.n * self.k
        return flop if flop < MOST else None

    @property
    def bytes(self) -> int | None:
        """Return the least bytes a product can move: each operand and the result once.

        None for convolutions, whose unfolded input is never stored.
        Of a grouped product at most as many matrices B are read as A has rows.
        """
        size = BYTES.get(self.dtype)
        if self.kind != "matmul" or size is None or self.m is None or self.n is None or self.k is None:
            return None
        operands = self.m * self.k + min(self.groups, max(self.m, 1)) * self.k * self.n
        size_bytes = self.batch * (size * operands + RESULT_BYTES.get(self.dtype, size) * self.m * self.n)
        return size_bytes if size_bytes < MOST else None

    @property
    def text(self) -> str:
        """"16 × 512 × 512 × 64" is batch × m × n × k."""
        sizes = [self.m, self.n, self.k] if self.batch == 1 else [self.batch, self.m, self.n, self.k]
        if self.kind == "attention":
            return f"head size {self.k}" if self.k else ""
        if self.kind == "conv" and self.channels[1]:
            return f"{self.channels[0]} to {self.channels[1]} channels" + (f", {_times(sizes)}" if self.flop else "")
        return _times(sizes) if all(size is not None for size in sizes) else ""


def _times(sizes: Sequence[int | None]) -> str:
    return " × ".join(str(size) for size in sizes)


def kind_of(operator: str) -> str:
    """Return "matmul", "conv" or "attention" by an operator's name, "" for all others."""
    name = operator.removeprefix("aten::")
    if name in _PRODUCTS:
        return "matmul"
    if any(word in name for word in ("attention", "flash_attn", "sdpa")):
        return "attention"
    return "conv" if "conv" in name and "convert" not in name else ""


def problem_of(operator: str, arguments: Mapping[str, Any]) -> Problem | None:
    """Return what an operator multiplies, or None where it multiplies no matrices.

    Sizes are None where the trace holds no shapes.
    """
    kind, name = kind_of(operator), operator.removeprefix("aten::")
    if not kind:
        return None
    dims, types = as_list(arguments.get("Input Dims")), as_list(arguments.get("Input type"))
    concrete = as_list(arguments.get("Concrete Inputs"))
    if kind == "matmul":
        first, read = _PRODUCTS[name]
        a, b = _shape(dims, first), _shape(dims, first + 1)
        sizes = read(a, b) if a and b else None
        dtype = _type(types, first)
        groups = b[0] if read is _grouped and len(a) == 2 and len(b) == 3 else 1
        return Problem(kind, dtype, *sizes[1:], batch=sizes[0], groups=groups) if sizes else Problem(kind, dtype)
    if kind == "attention":
        query = _shape(dims, 1 if "backward" in name else 0)
        return Problem(kind, _type(types, 1 if "backward" in name else 0), k=query[-1] if len(query) == 4 else None)
    return _convolution(name, dims, types, concrete)


Sizes = tuple[int, int, int, int]         # batch, m, n, k


def _plain(a: Shape, b: Shape) -> Sizes | None:
    """[…, m, k] · [k, n] with the leading dimensions of A as rows, or batches of both."""
    if len(b) == 1:
        return (1, prod(a[:-1]), 1, a[-1]) if a[-1] == b[0] else None
    if len(a) == 1:
        return (prod(b[:-2]), 1, b[-1], a[0]) if a[0] == b[-2] else None
    if a[-1] != b[-2]:
        return None
    if len(b) == 2:
        return 1, prod(a[:-1]), b[-1], a[-1]
    return max(prod(a[:-2]), prod(b[:-2])), a[-2], b[-1], a[-1]


def _linear(a: Shape, weight: Shape) -> Sizes | None:
    """[…, k] · [n, k]ᵀ."""
    return (1, prod(a[:-1]), weight[0], a[-1]) if len(weight) == 2 and a[-1] == weight[1] else None


def _grouped(a: Shape, b: Shape) -> Sizes | None:
    """torch._grouped_mm: rows of A [m, k] are shared out among matrices B [groups, k, n], each row multiplied once; columns
    of B [k, n] among A [groups, m, k] likewise; of two plain ones k is shared out, and there is a result for each group."""
    if len(a) == len(b) == 3:
        return _plain(a, b)
    if not 2 <= len(a) <= 3 or not 2 <= len(b) <= 3 or a[-1] != b[-2]:
        return None
    return 1, a[-2], b[-1], a[-1]


_PRODUCTS: dict[str, tuple[int, Callable[[Shape, Shape], Sizes | None]]] = {      # first operand, and how the two are read
    **dict.fromkeys(("mm", "bmm", "matmul", "mv", "dot", "_int_mm", "_scaled_mm"), (0, _plain)),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), (0, _grouped)),
    **dict.fromkeys(("addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm", "addmv", "addmv_", "_addmm_activation"), (1, _plain)),
    "linear": (0, _linear),
}
# Which arguments are gradient of the output, input and weight; where stride, padding and dilation stand (native_functions.yaml
# of pytorch/pytorch; the cudnn_… and …_backward_… forms are of PyTorch 1.8 to 1.12).
_CONVOLUTIONS = {
    "cudnn_convolution": (None, 0, 1, (3, 2, 4)), "miopen_convolution": (None, 0, 1, (4, 3, 5)),
    "convolution_backward": (0, 1, 2, None), "cudnn_convolution_backward_input": (1, None, 2, None),
    "cudnn_convolution_backward_weight": (1, 2, None, None), "cudnn_convolution_backward": (1, 0, 2, None),
}
_CONVOLUTION = (None, 0, 1, (3, 4, 5))          # conv2d, convolution, _convolution and their like


def _convolution(name: str, dims: list[Any], types: list[Any], concrete: list[Any]) -> Problem:
    gradient_at, input_at, weight_at, window = _CONVOLUTIONS.get(name, _CONVOLUTION)
    known_at = next(position for position in (weight_at, input_at) if position is not None)
    dtype = _type(types, known_at)
    weight = _shape(dims, weight_at) if weight_at is not None else []
    image = _shape(dims, input_at) if input_at is not None else []
    gradient = _shape(dims, gradient_at) if gradient_at is not None else []
    if len(weight) < 3 or "transpose" in name:
        channels = (image[1], gradient[1]) if len(image) > 2 and len(gradient) > 2 else (0, 0)
        return Problem("conv", dtype, channels=channels)
    channels = weight[1], weight[0]
    depthwise = weight[1] == 1 and weight[0] > 1 and (len(image) < 2 or image[1] > 1)
    pixels = gradient[2:] if gradient else _outputs(image, weight, concrete, window)
    batch = (gradient or image or [0])[0]
    if not pixels or not batch:
        return Problem("conv", dtype, channels=channels, depthwise=depthwise)
    both = name == "convolution_backward"       # of the input, of the weight, or of both: which is not recorded
    return Problem("conv", dtype, None if both else batch * prod(pixels), weight[0], weight[1] * prod(weight[2:]),
                   channels=channels, depthwise=depthwise)


def _outputs(image: Shape, weight: Shape, concrete: list[Any], window: tuple[int, int, int] | None) -> Shape:
    """(in + 2·padding − dilation·(kernel − 1) − 1) / stride + 1 of each axis (torch.nn.Conv2d); [] where not recorded."""
    if window is None or len(image) != len(weight) or len(concrete) <= max(window):
        return []
    axes = len(weight) - 2
    settings = [_whole(as_list(concrete[position]), axes) for position in window]
    if not all(settings):
        return []
    out = [(size + 2 * pad - dilation * (taps - 1) - 1) // stride + 1 for size, taps, stride, pad, dilation
           in zip(image[2:], weight[2:], *settings, strict=True) if stride > 0]
    return out if len(out) == axes and all(size > 0 for size in out) else []


def _whole(values: list[Any], axes: int) -> list[int]:
    """One whole number per axis; a single one serves all."""
    if not values or not all(type(value) is int and 0 <= value < 1 << 20 for value in values):
        return []
    return values * axes if len(values) == 1 else values if len(values) == axes else []


def _shape(dims: list[Any], index: int) -> Shape:
    sizes = dims[index] if index < len(dims) else None
    if not isinstance(sizes, list) or not 0 < len(sizes) <= DIMENSIONS:
        return []
    return sizes if all(type(size) is int and 0 < size < 1 << 40 for size in sizes) else []


def _type(types: list[Any], index: int) -> str:
    name = types[index] if index < len(types) else ""
    return type_named(name) if isinstance(name, str) else ""


def type_named(name: str) -> str:
    """Return the element type that PyTorch calls `name`: "c10::Half" -> "fp16"; "" where it is not known."""
    return "fp8" if "Float8" in name else TYPES.get(name, "")
