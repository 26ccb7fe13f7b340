"""Counters of a kernel on both sides of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.base.numbers import median


@dataclass(frozen=True)
class CounterChange:
    """One counter of a kernel on both sides: medians over its launches."""

    name: str
    unit: str
    old: float | None
    new: float | None


def counter_changes(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]],
                    wanted: Sequence[tuple[str, str, str]]) -> list[CounterChange]:
    """Return the medians of `wanted` over the launches of each side.

    `wanted` names "part.key" in the facts' JSON, the name for people and the unit.
    """
    changes = [CounterChange(name, unit, _median(old, path), _median(new, path)) for path, name, unit in wanted]
    return [change for change in changes if change.old is not None or change.new is not None]


def _median(facts: Sequence[Mapping[str, Any]], path: str) -> float | None:
    return median(value for each in facts if isinstance(value := _at(each, path), (int, float)))


def _at(facts: Mapping[str, Any], path: str) -> Any:
    value: Any = facts
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
