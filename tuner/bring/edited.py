"""The space of an adapter, read from its text and put back edited: parameters, default, constraints, and how many can run."""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiles.base.refused import Refused
from tuner.bring.samples import GPU
from tuner.tuning.operators.operator import BYTES
from tuner.tuning.space import MAX_COMBINATIONS, MAX_PRODUCT, Param
from tuner.tuning.team.description import MAX_PARAMS, MAX_VALUES, OF_GPU
from tuner.tuning.team.expressions import Expression

COUNT_S = 2.0               # of evaluating constraints
LOOK_EVERY = 256            # evaluations between two looks at the clock
MAX_REASON = 200
THREADS = "threads per block"
_FIELDS = ("params", "default", "constraints")
_INDENT = "    "


@dataclass(frozen=True)
class EditedSpace:
    """`constraints`: what a person reads → expression over parameters and `names`, which have one value each."""

    params: dict[str, tuple[Any, ...]]
    default: dict[str, Any]
    constraints: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Count:
    """`left_out`: reason → configurations, the first broken one counts; `default_breaks`: what the default does not hold."""

    size: int
    valid: int
    left_out: dict[str, int]
    default_breaks: str


def read_space(adapter: str) -> EditedSpace:
    """Return the space that an adapter of `init` states; one without parameters where its kernel's autotuner has them."""
    fields = {name: value for name in _FIELDS if isinstance(value := _value_of(adapter, name), dict)}
    presets = _value_of(adapter, "presets")
    dims = presets[0] if isinstance(presets, tuple) and presets and isinstance(presets[0], dict) else {}
    dtypes = _value_of(adapter, "dtypes")
    size = BYTES.get(dtypes[0], 1) if isinstance(dtypes, tuple) and dtypes else 1
    names = {**dims, "size": size, **{name: getattr(GPU, name) for name in OF_GPU}}
    return EditedSpace({name: tuple(values) for name, values in fields.get("params", {}).items()}, fields.get("default", {}),
                       fields.get("constraints", {}), names)


def write_space(adapter: str, space: EditedSpace) -> str:
    """Return the adapter with this space in place of its own."""
    values = {"params": space.params, "default": space.default, "constraints": space.constraints}
    lines = adapter.rstrip("\n").split("\n")
    for name, value in values.items():
        if (index := _line_of(lines, name)) is not None:
            tail = ")]" if lines[index].endswith(")]") else ","
            lines[index] = f"{_INDENT}{name}={_text(value)}{tail}"
        elif value and lines[-1].endswith(")]"):
            lines[-1] = lines[-1].removesuffix(")]") + ","
            lines.append(f"{_INDENT}{name}={_text(value)})]")
    return "\n".join([*lines, ""])


def _line_of(lines: Sequence[str], name: str) -> int | None:
    return next((index for index, line in enumerate(lines) if line.startswith(f"{_INDENT}{name}=")), None)


def _value_of(adapter: str, name: str) -> Any:
    lines = adapter.split("\n")
    index = _line_of(lines, name)
    if index is None:
        return None
    text = lines[index].strip().removeprefix(f"{name}=").removesuffix(")]").removesuffix(",")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _text(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{_quoted(name)}: {_quoted(entry) if isinstance(entry, str) else repr(entry)}"
                           for name, entry in value.items()) + "}"


def _quoted(text: str) -> str:
    plain = repr(text)
    return f'"{text}"' if plain == f"'{text}'" and '"' not in text else plain


def read_values(name: str, text: str) -> tuple[Any, ...]:
    """Return the values of a line like "64, 128, 256". Raises Refused."""
    values = tuple(dict.fromkeys(_read_value(part.strip()) for part in text.split(",") if part.strip()))
    return check_values(name, values)


def check_values(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values of a parameter. Raises Refused for what no parameter can have."""
    for value in values:
        if not isinstance(value, int | float | str) or (isinstance(value, float) and not math.isfinite(value)) or (
                isinstance(value, str) and len(value) > 60) or (isinstance(value, int) and value.bit_length() > 63):
            raise Refused({name: f"{str(value)[:40]} is no number and no short text"})
    if not 1 <= len(values) <= MAX_VALUES:
        raise Refused({name: f"{len(values)} values; give 1 to {MAX_VALUES}"})
    try:
        return Param(name, tuple(values)).values
    except ValueError as error:
        raise Refused({name: str(error)}) from error


def _read_value(text: str) -> Any:
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text) if len(text) <= 40 else text
        except ValueError:
            continue
    return text.strip("\"'")


def edit(space: EditedSpace, params: Mapping[str, Sequence[Any]], constraints: Mapping[str, str]) -> EditedSpace:
    """Return the space with these values and constraints; a default that is no value any more is the nearest one.

    Raises Refused.
    """
    if not 1 <= len(params) <= MAX_PARAMS:
        raise Refused({"params": f"{len(params)} parameters; at most {MAX_PARAMS}"})
    if len(constraints) > MAX_PARAMS:
        raise Refused({"constraints": f"{len(constraints)} constraints; at most {MAX_PARAMS}"})
    choices = {name: check_values(name, values) for name, values in params.items()}
    default = {name: _nearest(space.default.get(name), values) for name, values in choices.items()}
    return EditedSpace(choices, default, dict(constraints), space.names)


def _nearest(value: Any, values: Sequence[Any]) -> Any:
    if value in values:
        return value
    numbers = [number for number in values if isinstance(number, int | float)]
    if isinstance(value, int | float) and len(numbers) == len(values):
        return min(numbers, key=lambda each: abs(each - value))
    return values[(len(values) - 1) // 2]


def count(space: EditedSpace, limit_s: float = COUNT_S) -> Count:
    """Return how many configurations can run, as `Space.enumerate` would. Raises Refused.

    Each constraint is evaluated over the parameters that it names, and no configuration is built.
    """
    shape = tuple(len(values) for values in space.params.values())
    size = math.prod(shape)
    if size > MAX_COMBINATIONS:
        raise Refused({"params": f"{size:,} combinations; at most {MAX_COMBINATIONS:,}: give fewer values"})
    end_s = time.monotonic() + limit_s
    alive = np.ones(shape, dtype=bool)
    left_out: dict[str, int] = {}
    breaks = ""
    for reason, text in _rules(space):
        holds, of_default = _holds(space, text, end_s)
        left_out[reason] = left_out.get(reason, 0) + int(np.count_nonzero(alive & ~holds))
        alive &= holds
        breaks = breaks or ("" if of_default else reason)
    valid = int(np.count_nonzero(alive))
    if valid > MAX_PRODUCT:
        raise Refused({"params": f"{valid:,} configurations; at most {MAX_PRODUCT:,}: give fewer values or more constraints"})
    return Count(size, valid, left_out, breaks)


def _rules(space: EditedSpace) -> list[tuple[str, str]]:
    """Return reason and expression of what must hold: of every space of a team first that a block's threads fit."""
    of_all = [(THREADS, "32 * num_warps <= threads")] if "num_warps" in space.params else []
    return [*of_all, *space.constraints.items()]


def _holds(space: EditedSpace, text: str, end_s: float) -> tuple[Any, bool]:
    """Return where an expression holds, broadcastable over the space's axes, and whether it does of the default."""
    try:
        rule = Expression(text, [*space.params, *space.names])
        used = {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
        axes = [name in used for name in space.params]
        table = np.ones([len(values) if axis else 1 for axis, values in zip(axes, space.params.values(), strict=True)],
                        dtype=bool)
        names = [name for name, axis in zip(space.params, axes, strict=True) if axis]
        for number, cell in enumerate(np.ndindex(table.shape)):
            if number % LOOK_EVERY == 0 and time.monotonic() > end_s:
                raise Refused({"constraints": f"{text}: counting takes longer than {COUNT_S:.0f} s; give fewer values"})
            chosen = {name: space.params[name][index] for name, index, axis in zip(space.params, cell, axes, strict=True) if axis}
            table[cell] = bool(rule.value({**space.names, **chosen}))
        of_default = bool(rule.value({**space.names, **{name: space.default[name] for name in names}}))
    except Refused:
        raise
    except (ValueError, KeyError) as error:
        raise Refused({"constraints": str(error)}) from error
    return table, of_default
