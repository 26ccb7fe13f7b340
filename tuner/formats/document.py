"""What a file of another project says, in one shape; and how a file that cannot be used says so.

Files are hostile until read: bounded bytes, records and nesting; JSON and literals only, nothing is evaluated.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.trial import storable

MAX_BYTES = 8 * 2**20          # of a file of configurations; trials of a whole space may be larger (tuner.bench.landscape)
MAX_ROWS = 20_000
MAX_NESTING = 12
MAX_PARAMETERS = 64
MAX_TEXT = 200                 # characters of a parameter's name or text value


class FormatError(ValueError):
    """A file that cannot be used: where in it, what is wrong, what to do."""

    def __init__(self, where: str, what: str, hint: str = "Give the file as that project writes it.") -> None:
        super().__init__(f"{where}: {what}. {hint}")
        self.where, self.what, self.hint = where, what, hint


@dataclass(frozen=True)
class Row:
    """One configuration, and what the file says it is for. Empty means that the file does not say."""

    config: Mapping[str, Any]
    shape: Mapping[str, int] = field(default_factory=dict)
    median_ms: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A file: its rows, what its name or head says of all of them, and what was not understood (why -> how many)."""

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
            object.__setattr__(self, name, plain(getattr(self, name)))
        object.__setattr__(self, "notes", tuple(map(plain, self.notes)))
        object.__setattr__(self, "refused", {plain(why): count for why, count in self.refused.items()})


def plain(text: str) -> str:
    """On one line, and of characters that a row can hold; others are shown as such."""
    return re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", "\ufffd", text)


def text_of(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise FormatError(name, f"holds more than {MAX_BYTES // 2**20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(name, f"is no UTF-8 text (byte {error.start})") from error


def json_of(data: bytes, name: str, infinite: bool = False) -> Any:
    """JSON with bounded nesting. NaN and Infinity are no JSON, but Python writes them: `infinite` lets them pass."""
    text = text_of(data, name)
    if _nesting(text) > MAX_NESTING:
        raise FormatError(name, f"nests deeper than {MAX_NESTING} levels")
    try:
        return json.loads(text, parse_constant=float if infinite else _no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(name, f"is no JSON: {error}") from error


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _nesting(text: str) -> int:
    depth = deepest = 0
    for char in text:
        if char in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]})":
            depth -= 1
    return deepest


def config_of(value: Any, lists: bool = False) -> dict[str, Any] | str:
    """A configuration's parameters, or why it is none. Numbers, texts and flags; lists of them where `lists`."""
    if not isinstance(value, dict) or not value:
        return "no configuration"
    if len(value) > MAX_PARAMETERS:
        return f"more than {MAX_PARAMETERS} parameters"
    for name, one in value.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_TEXT or not storable(name):
            return "a parameter without a name"
        if not (_scalar(one) or (lists and _list(one))):
            return f"{name[:40]} is neither a number, a text nor a flag"
    return dict(value)


def _scalar(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT and storable(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**53)


def _list(value: Any, depth: int = 0) -> bool:
    if value is None:
        return True
    if not isinstance(value, list) or len(value) > MAX_PARAMETERS or depth > 2:
        return False
    return all(one is None or _scalar(one) or _list(one, depth + 1) for one in value)


def positive(value: Any) -> float | None:
    """A time; None when it is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max
    return float(value) if number else None


def counted(refusals: list[str]) -> dict[str, int]:
    return dict(Counter(refusals).most_common(20))
