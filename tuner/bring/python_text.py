"""Python that is written into an adapter: numbers, tuples, mappings, whole numbers of tensors."""

from __future__ import annotations

import array
import base64
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def write_between(bounds: Sequence[int], shape: str) -> str:
    """Return the expression of whole numbers of a shape from bounds[0] on, below bounds[1]."""
    return f"(torch.arange(torch.Size({shape}).numel(), device=device) * 7919 % {bounds[1] - bounds[0]} + {bounds[0]})"


def write_packed(values: Any) -> str:
    """Return the expression of a long list of whole numbers."""
    numbers = array.array("q", _flat(values)).tobytes()
    text = base64.b85encode(zlib.compress(numbers, 9)).decode()
    return f'array.array("q", zlib.decompress(base64.b85decode("{text}")))'


def _flat(values: Any) -> Iterator[int]:
    if isinstance(values, list):
        for each in values:
            yield from _flat(each)
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
