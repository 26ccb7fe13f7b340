"""What importers share: reading fields of a stranger's JSON, and the error that names what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused

MOST_BYTES = 256 << 20
UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


@dataclass(frozen=True)
class Results:
    """A file of results: its `path`, what it holds (a JSON document, or the rows of a CSV), and a `unit` that a person gave."""

    path: Path
    content: Any
    unit: str = ""


def field(record: Any, name: str, kind: type[Any], where: str) -> Any:
    """Return a field of the given type. Raises Refused."""
    value = record.get(name) if isinstance(record, Mapping) else None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise Refused(f"{where}: {name} is no {kind.__name__}")
    return value
