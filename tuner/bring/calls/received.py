"""A record of a call as the process that ran somebody's file tells it, read like an upload before an adapter is written of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_NODES, MAX_DEPTH, MAX_TEXT, MAX_WHOLE, MAX_LAUNCHES = 400_000, 12, 2000, 1 << 62, 64
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,24}\Z")
_NAMED = ("arguments", "constexprs", "options", "tuned")


class RecordRefused(ValueError):
    """A record that is none."""


def read_record(told: Any) -> dict[str, Any]:
    """Return the record, its names identifiers, its numbers and texts bounded. Raises RecordRefused."""
    left = [MAX_NODES]
    record: dict[str, Any] = _plain(told, 0, left)
    try:
        launches = [*record["launches"], *(one for part in ("with_sizes", "with_choices") for again in record.get(part, ())
                                           for one in again["launches"])]
        if not record["launches"] or len(record["launches"]) > MAX_LAUNCHES:
            raise RecordRefused("no launch")
        for name in (name for launch in launches for name in _names_in(launch)):
            if not isinstance(name, str) or not name.isidentifier():
                raise RecordRefused(f"{str(name)[:40]!r} is no name")
        for one in [*record.get("inputs", ()), *(each for launch in launches for each in launch["arguments"].values())]:
            if "dtype" in one.get("base", one) and not _DTYPE.match(one.get("base", one)["dtype"]):
                raise RecordRefused("a dtype that is none")
            if any(type(each) is not int for part in ("shape", "strides") for each in one.get(part, ())):
                raise RecordRefused("an extent that is no whole number")
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordRefused(f"no record of a call ({type(error).__name__}: {error})"[:200]) from error
    return record


def _names_in(launch: Mapping[str, Any]) -> Iterator[Any]:
    yield launch["kernel"]
    for part in _NAMED:
        yield from launch.get(part, {})
    yield from launch.get("heuristics", ())
    autotune = launch.get("autotune")
    for config in (*autotune["configs"], *autotune["kept"]) if autotune else ():
        yield from config


def _plain(told: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        raise RecordRefused("a record that is nested or long beyond use")
    if isinstance(told, dict):
        return {str(key)[:MAX_TEXT]: _plain(value, depth + 1, left) for key, value in told.items()}
    if isinstance(told, list):
        return [_plain(each, depth + 1, left) for each in told]
    if isinstance(told, str):
        return told[:MAX_TEXT]
    if told is None or isinstance(told, bool):
        return told
    if isinstance(told, int) and abs(told) <= MAX_WHOLE:
        return told
    if isinstance(told, float) and math.isfinite(told):
        return told
    raise RecordRefused("a value that is no number and no text")
