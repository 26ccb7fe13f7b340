"""What the GPU child asks of a kernel module: one operator at one shape, with inputs that can be drawn afresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from tuner.trial import Config

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
MAX_ELEMENTS = 2**31 - 1      # the kernels index with int32


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
