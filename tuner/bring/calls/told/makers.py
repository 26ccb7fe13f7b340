"""Tensors that a call makes (`randn(8192, 4096)`): their extents, and what those of whole numbers hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from profiles.base.refused import Refused
from tuner.bring.python_text import STRIDE


def is_whole(given: list[Any]) -> bool:
    """Return whether what `full` or `tensor` is given is a whole number or a truth value."""
    last = given[-1] if given else 0
    while isinstance(last, list | tuple) and last:
        last = last[0]
    return type(last) in (int, bool)


def shape_of(maker: str, given: list[Any]) -> tuple[int, ...]:
    """Return the extents of what a maker makes. Raises Refused for what are none."""
    if maker in ("arange", "randperm", "tensor") and not given:
        raise Refused(f"{maker}: it is given nothing")
    if maker == "arange":
        return (_count(*given),)
    if maker == "tensor":
        extents, at = [], given[0]
        while isinstance(at, list | tuple):
            extents.append(len(at))
            at = at[0] if at else 0
        return tuple(extents)
    if maker == "randint":
        given = next(([each] for each in given if isinstance(each, list | tuple)), [])
    if maker == "full":
        given = given[:1]
    shape = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    if not all(type(each) is int and each >= 0 for each in shape):
        raise Refused(f"{maker}: sizes are whole numbers, like {maker}(8192, 4096)")
    return tuple(shape)


def _count(first: float, end: float | None = None, step: float = 1) -> int:
    """Return how many numbers an arange has, which may be fractions."""
    start, end = (0, first) if end is None else (first, end)
    return max(0, int(-((start - end) // step)))


def values_of(maker: str, given: list[Any], more: Mapping[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return what the call says that a tensor of whole numbers holds; of randint what an adapter draws too."""
    with _disable_current_modes():
        if maker == "arange":
            return torch.arange(*given, dtype=dtype)
        if maker == "tensor":
            return torch.tensor(given[0], dtype=dtype)
        if maker == "randperm":
            return torch.randperm(shape[0], dtype=dtype, generator=torch.Generator().manual_seed(0))
        bounds = bounds_of(maker, given, more)
        if maker == "randint" and len(bounds) == 2:
            numbers = torch.arange(math.prod(shape)) * STRIDE % max(int(bounds[1] - bounds[0]), 1) + int(bounds[0])
            return numbers.reshape(shape).to(dtype)
        return torch.full(shape, bounds[0] if maker == "full" and bounds else int(maker == "ones")).to(dtype)


def bounds_of(maker: str, given: list[Any], more: Mapping[str, Any]) -> list[int | float]:
    """Return what the values are known to be: [low, high) of randint, [value] of full."""
    if maker == "randint":
        numbers: list[int | float] = [int(each) for each in (*given, more.get("low"), more.get("high")) if isinstance(each, int)]
        return numbers[-2:] if len(numbers) > 1 else [0, *numbers] if numbers else []
    if maker == "full" and len(given) > 1 and isinstance(given[1], int | float) and math.isfinite(given[1]):
        return [given[1]]
    return []
