"""Who offers operators beside the built-in ones. Nothing is imported here: an app names its sources while it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

SOURCES: list[Callable[[], Mapping[str, Any]]] = []        # each returns {name: tuner.tuning.operators.Operator}


def provide(operators: Callable[[], Mapping[str, Any]]) -> None:
    """Add a source of operators: rows that owners enabled, own kernels, or a team's package in a child."""
    if operators not in SOURCES:
        SOURCES.append(operators)
