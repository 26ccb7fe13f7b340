"""einops where it is not installed: `rearrange`, `repeat`, `reduce`, `einsum`, `pack`, `unpack`, and the layers of that name.

Patterns as its documentation has them (einops.rocks/api): names, `(a b)`, `...`, `1`, `()`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import count
from string import ascii_letters
from typing import Any

import torch

_Axes = list[list[str]]         # of each axis the names in its brackets


def rearrange(tensor: Any, pattern: str, **sizes: int) -> torch.Tensor:
    """Return the tensor, or the stack of several, with its axes as the pattern orders and joins them."""
    return reduce(tensor, pattern, "", **sizes)


def repeat(tensor: Any, pattern: str, **sizes: int) -> torch.Tensor:
    """Return the tensor repeated along the axes that the pattern adds."""
    return reduce(tensor, pattern, "", **sizes)


def reduce(tensor: Any, pattern: str, reduction: str, **sizes: int) -> torch.Tensor:
    """Return the tensor reduced (sum, mean, max, min, prod) over the axes that the pattern leaves out. Raises ValueError."""
    tensor = torch.stack(tuple(tensor)) if isinstance(tensor, list | tuple) else tensor
    left, right = _read(pattern, tensor.dim())
    lengths = _lengths(left, tensor.shape, sizes)
    names = [name for axis in left for name in axis]
    tensor = tensor.reshape([lengths[name] for name in names])
    kept = {name for axis in right for name in axis}
    if gone := [at for at, name in enumerate(names) if name not in kept and (reduction or lengths[name] > 1)]:
        tensor = getattr(torch, {"max": "amax", "min": "amin"}.get(reduction, reduction))(tensor, dim=tuple(gone))
    names = [name for at, name in enumerate(names) if at not in gone]
    for name in (name for axis in right for name in axis if name not in names):
        tensor, names = tensor.unsqueeze(-1).expand(*tensor.shape, lengths[name]), [*names, name]
    for at in reversed([at for at, name in enumerate(names) if name not in kept]):      # of length 1
        tensor, names = tensor.squeeze(at), names[:at] + names[at + 1:]
    tensor = tensor.permute([names.index(name) for axis in right for name in axis])
    return tensor.reshape([math.prod(lengths[name] for name in axis) for axis in right])


def einsum(*given: Any) -> torch.Tensor:
    """Return the sum of products of tensors: einsum(a, b, "batch i d, batch j d -> batch i j")."""
    *tensors, pattern = given
    letters: dict[str, str] = {}
    free = iter(ascii_letters)
    return torch.einsum(re.sub(r"\.\.\.|\w+", lambda name: name[0] if name[0] == "..." else letters.setdefault(name[0], next(free)),
                               pattern).replace(" ", ""), *tensors)


def pack(tensors: Sequence[torch.Tensor], pattern: str) -> tuple[torch.Tensor, list[torch.Size]]:
    """Return tensors joined along the axis `*`, which stands for any axes of each, and the extents of those axes."""
    names = pattern.split()
    before, after = names.index("*"), len(names) - names.index("*") - 1
    shapes = [each.shape[before:each.dim() - after] for each in tensors]
    flat = [each.reshape(*each.shape[:before], -1, *each.shape[each.dim() - after:]) for each in tensors]
    return torch.cat(flat, dim=before), shapes


def unpack(tensor: torch.Tensor, shapes: Sequence[Sequence[int]], pattern: str) -> list[torch.Tensor]:
    """Return the tensors that were packed."""
    at = pattern.split().index("*")
    parts = tensor.split([math.prod(shape) for shape in shapes], dim=at)
    return [each.reshape(*each.shape[:at], *shape, *each.shape[at + 1:]) for each, shape in zip(parts, shapes, strict=True)]


class Rearrange(torch.nn.Module):       # type: ignore[misc]
    """A layer that rearranges, repeats or reduces."""

    def __init__(self, pattern: str, reduction: str = "", **sizes: int) -> None:
        super().__init__()
        self.pattern, self.reduction, self.sizes = pattern, reduction, sizes

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return reduce(tensor, self.pattern, self.reduction, **self.sizes)


Reduce = Rearrange


def _read(pattern: str, rank: int) -> tuple[_Axes, _Axes]:
    """Return both sides of a pattern, "..." as the axes that it stands for and each 1 as an axis of its own. Raises ValueError."""
    left, right = (re.findall(r"\([^)]*\)|\.\.\.|\w+", side) for side in pattern.split("->"))
    rest = [f"_{at}" for at in range(rank - len(left) + 1)] if "..." in left else []
    ones = (f"1_{at}" for at in count())

    def read(side: list[str]) -> _Axes:
        axes: _Axes = []
        for part in side:
            names = [name for each in re.findall(r"\.\.\.|\w+", part)
                     for name in (rest if each == "..." else [next(ones)] if each == "1" else [each])]
            axes += [names] if part.startswith("(") else [[name] for name in names]
        return axes

    return read(left), read(right)


def _lengths(left: _Axes, shape: Sequence[int], sizes: dict[str, int]) -> dict[str, int]:
    """Return how long each named axis is. Raises ValueError where the shape is none of the pattern's."""
    lengths = _Ones(sizes)
    if len(left) != len(shape):
        raise ValueError(f"a tensor of {len(shape)} axes where the pattern has {len(left)}")
    for axis, extent in zip(left, shape, strict=True):
        known = math.prod(lengths.get(name, 1) for name in axis)
        unknown = [name for name in axis if name not in lengths and not name.startswith("1_")]
        if len(unknown) > 1 or extent % known or (not unknown and extent != known):
            raise ValueError(f"an axis of {extent} is not {' '.join(axis)}")
        lengths.update(dict.fromkeys(unknown, extent // known))
    return lengths


class _Ones(dict[str, int]):
    """Lengths by name; of each 1 of a pattern 1."""

    def __missing__(self, name: str) -> int:
        if name.startswith("1_"):
            return 1
        raise ValueError(f"how long {name} is was not told")
