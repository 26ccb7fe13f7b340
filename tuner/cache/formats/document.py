"""The content of another project's file in one shape, and the error where it is unusable.

Files are hostile until read: bounded bytes, records and nesting; JSON and literals only, nothing is evaluated.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.tuning.trial import storable

MAX_BYTES = 8 * 2**20          # of a file of configurations; trials of a whole space may be larger (tuner.tuning.measure.landscape)
MAX_ROWS = 20_000
MAX_NESTING = 12
MAX_PARAMETERS = 64
MAX_TEXT = 200                 # characters of a parameter's name or text value


class FormatError(ValueError):
    """A file that cannot be used: where, what, and what to do."""

    def __init__(self, where: str, what: str, hint: str = "Give the file as that project writes it.") -> None:
        super().__init__(f"{where}: {what}. {hint}")
        self.where, self.what, self.hint = where, what, hint


@dataclass(frozen=True)
class Row:
    """One configuration and what the file says it is for; empty where it does not say."""

    config: Mapping[str, Any]
    shape: Mapping[str, int] = field(default_factory=dict)
    median_ms: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A file: rows, what its name or head says of all, and refusals (why -> how many)."""

    format: str
    name: str
    rows: tuple[Row, ...]
    operator: str = ""
    dtype: str = ""
    gpu: str = ""
    toolkit: str = ""
    refused: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("name", "operator", "dtype", "gpu", "toolkit"):
            object.__setattr__(self, name, one_line(getattr(self, name)))
        object.__setattr__(self, "notes", tuple(map(one_line, self.notes)))
        object.__setattr__(self, "refused", {one_line(why): count for why, count in self.refused.items()})


def one_line(text: str) -> str:
    """Return text on one line, in characters that a row can hold."""
    return re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", "\ufffd", text)


def decode_text(data: bytes, name: str) -> str:
    """Return the text of a file. Raises FormatError."""
    if len(data) > MAX_BYTES:
        raise FormatError(name, f"holds more than {MAX_BYTES // 2**20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(name, f"is no UTF-8 text (byte {error.start})") from error


def decode_json(data: bytes, name: str, infinite: bool = False) -> Any:
    """Return JSON of bounded nesting; `infinite` accepts NaN and Infinity. Raises FormatError."""
    text = decode_text(data, name)
    if _nesting_depth(text) > MAX_NESTING:
        raise FormatError(name, f"nests deeper than {MAX_NESTING} levels")
    try:
        return json.loads(text, parse_constant=float if infinite else _refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(name, f"is no JSON: {error}") from error


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _nesting_depth(text: str) -> int:
    depth = deepest = 0
    for char in text:
        if char in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]})":
            depth -= 1
    return deepest


def check_config(value: Any, lists: bool = False) -> dict[str, Any] | str:
    """Return a configuration's parameters, or why it is none."""
    if not isinstance(value, dict) or not value:
        return "no configuration"
    if len(value) > MAX_PARAMETERS:
        return f"more than {MAX_PARAMETERS} parameters"
    for name, entry in value.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_TEXT or not storable(name):
            return "a parameter without a name"
        if not (_is_scalar(entry) or (lists and _is_plain_list(entry))):
            return f"{name[:40]} is neither a number, a text nor a flag"
    return dict(value)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT and storable(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**53)


def _is_plain_list(value: Any, depth: int = 0) -> bool:
    if value is None:
        return True
    if not isinstance(value, list) or len(value) > MAX_PARAMETERS or depth > 2:
        return False
    return all(element is None or _is_scalar(element) or _is_plain_list(element, depth + 1) for element in value)


def count_refusals(refusals: list[str]) -> dict[str, int]:
    """Return why -> how many."""
    return dict(Counter(refusals).most_common(20))
