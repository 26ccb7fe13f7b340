"""What a process that ran somebody's file says of it, read like an upload: every part has its type and its bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from profiles.base.refused import Refused
from tuner.tuning.trial import cleaned

MAX_OPERATORS, MAX_ITEMS, MAX_COMPILED, MAX_TEXT, MAX_VALUES = 200, 64, 400, 600, 4096
KINDS = ("triton.jit", "triton.autotune", "helion.kernel", "TritonOperator", "CudaOperator", "cuda", "kernel_tuner")
FACTS = ("registers", "spills", "smem_bytes", "occupancy_pct", "seconds")


def read_operators(reply: Any) -> list[dict[str, Any]]:
    """Return the operators of an answer, as `operators check --json` has them. Raises Refused."""
    try:
        return [_operator(cleaned(operator)) for operator in _list(reply["operators"], MAX_OPERATORS)]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Refused(f"the process that compiles answered what is no result ({error})"[:300]) from error


def _operator(operator: Mapping[str, Any]) -> dict[str, Any]:
    if operator["kind"] not in KINDS:
        raise ValueError("a kind that is none")
    return {
        "name": _text(operator["name"]), "kind": operator["kind"], "line": _whole(operator["line"]),
        "parameters": [{"name": _text(param["name"]), "values": [_value(choice) for choice in _list(param["values"], MAX_VALUES)]}
                       for param in _list(operator["parameters"], MAX_ITEMS)],
        "arguments": [{name: _value(value) for name, value in _pairs(arg)} for arg in _list(operator["arguments"], MAX_ITEMS * 4)],
        "size": _or_none(_whole, operator["size"]), "valid": _or_none(_whole, operator["valid"]),
        "pruned": {_text(reason): _whole(count) for reason, count in _pairs(operator["pruned"])},
        "default": _config(operator["default"]), "assumed": _config(operator["assumed"]),
        "problems": [{"what": _text(problem["what"]), "do": _text(problem["do"]), "missing": bool(problem["missing"])}
                     for problem in _list(operator["problems"], MAX_ITEMS)],
        "notes": [_text(note) for note in _list(operator.get("notes", []), MAX_ITEMS)],
        "recorded": _or_none(_recorded, operator.get("recorded")),
        "compiled": [_sample(sample) for sample in _list(operator["compiled"], MAX_COMPILED)], "measured": None}


def _recorded(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call was seen to launch: grid, constexprs and who chose them, options."""
    return {"call": _text(told["call"]), "grid": [_whole(extent) for extent in _list(told["grid"], 3)],
            "grid_formula": _text(told["grid_formula"]), "options": _config(told["options"]), "dims": _config(told["dims"]),
            "constexprs": {_text(name): {"value": _value(constexpr["value"]), "chosen": _text(constexpr["chosen"])}
                           for name, constexpr in _pairs(told["constexprs"])},
            "heuristics": [_text(heuristic) for heuristic in _list(told["heuristics"], MAX_ITEMS)],
            "key": [_text(key) for key in _list(told["key"], MAX_ITEMS)], "gluon": bool(told["gluon"]),
            "restores": [_text(argument) for argument in _list(told["restores"], MAX_ITEMS)]}


def _sample(told: Mapping[str, Any]) -> dict[str, Any]:
    sample = {"gpu": _text(told["gpu"])[:12], "config": _config(told["config"])}
    if "error" in told:
        return {**sample, "error": _text(told["error"])}
    return {**sample, **{name: _or_none(_number, told.get(name)) for name in FACTS}}


def _config(told: Any) -> dict[str, Any]:
    return {_text(name): _value(value) for name, value in _pairs(told)}


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"no list of at most {most}")
    return value


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict) or len(value) > MAX_ITEMS:
        raise ValueError(f"nothing with at most {MAX_ITEMS} names")
    return list(value.items())


def _or_none(read: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else read(value)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise ValueError("no whole number")
    return value


def _number(value: Any) -> int | float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or not 0 <= value < 1 << 53:
        raise ValueError("no number")
    return value


def _value(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) < 1 << 63:
        return value
    return _text(value if isinstance(value, str) else str(value)[:MAX_TEXT])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value[:MAX_TEXT]
