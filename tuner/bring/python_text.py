"""Python that is written into an adapter: numbers, tuples, mappings, whole numbers of tensors."""

from __future__ import annotations

import array
import base64
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

STRIDE = 7919               # from one number to the next, a prime: those of a random draw are the same wherever they are made
MOST_NUMBERS = 1 << 20      # that a text holds
MOST_PACKED = 64 << 10      # characters of one


def write_between(bounds: Sequence[int], shape: str) -> str:
    """Return the expression of whole numbers of a shape from bounds[0] on, below bounds[1]."""
    return f"(torch.arange(torch.Size({shape}).numel(), device=device) * {STRIDE} % {bounds[1] - bounds[0]} + {bounds[0]})"


def write_packed(packed: str) -> str:
    """Return the expression of whole numbers that `pack` made a text of."""
    return f'array.array("q", zlib.decompress(base64.b85decode("{packed}")))'


def pack(values: Any) -> str:
    """Return whole numbers, in lists or lists of lists, as a text."""
    return base64.b85encode(zlib.compress(array.array("q", _flat(values)).tobytes(), 9)).decode()


def count_packed(text: str) -> int:
    """Return how many numbers `pack` made a text of. Raises ValueError for a text that it did not make, or too many."""
    unpacking = zlib.decompressobj()
    try:
        numbers = unpacking.decompress(base64.b85decode(text), MOST_NUMBERS * 8)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof or unpacking.unused_data or len(numbers) % 8:
        raise ValueError("numbers that are cut, or too many")
    return len(numbers) // 8


def _flat(values: Any) -> Iterator[int]:
    if isinstance(values, list):
        for part in values:
            yield from _flat(part)
    else:
        yield int(values)


def write_config(values: Mapping[str, Any], options_of: Sequence[str]) -> str:
    """Return a configuration of Triton's; `options_of` names what is an option of the launch."""
    kwargs = {name: repr(value) for name, value in values.items() if name not in options_of}
    options = (f"{name}={values[name]!r}" for name in options_of if name in values)
    return f"triton.Config({', '.join([write_mapping(kwargs), *options])})"


def write_bracketed(text: str) -> str:
    """Return a formula as a factor of a product."""
    return f"({text})" if " " in text and not text.startswith("cdiv(") else text


def in_docstring(text: str) -> str:
    """Return a text as it may stand within a docstring."""
    return text.replace("\\", "/").replace('"""', "'''").replace('"', "'")


def write_tuple(values: Sequence[Any]) -> str:
    """Return the expression of plain values."""
    return "(" + ", ".join(map(repr, values)) + ("," if len(values) == 1 else "") + ")"


def write_number(number: float) -> str:
    """Return the expression of a number, one that is not finite too."""
    return repr(number) if math.isfinite(number) else f'float("{number}")'


def write_mapping(values: Mapping[str, str]) -> str:
    """Return the expression of name → expression."""
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"
