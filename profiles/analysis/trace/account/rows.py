"""The lines of an account: time of one GPU at one place, and a cause over all GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """Time of one GPU under one cause at one place."""

    gpu: int
    cause: str
    where: str                      # kernel, range, operator or call that has it; "" where nothing is named
    rank: str                       # on which the cause starts: another one's where this GPU waited for it; "" of a single trace
    wall_ns: int
    recoverable_ns: int | None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """One cause over all GPUs and places. `wall_ns` and `recoverable_ns` are means over the GPUs."""

    cause: str
    where: str
    rank: str                       # "" where it is no one rank's
    wall_ns: int
    recoverable_ns: int | None
    rows: tuple[Row, ...]
