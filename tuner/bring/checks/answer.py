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


def read_operators(told: Any) -> list[dict[str, Any]]:
    """Return the operators of an answer, as `operators check --json` has them. Raises Refused."""
    try:
        return [_operator(cleaned(operator)) for operator in _list(told["operators"], MAX_OPERATORS)]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Refused(f"the process that compiles answered what is no result ({error})"[:300]) from error


def _operator(told: Mapping[str, Any]) -> dict[str, Any]:
    if told["kind"] not in KINDS:
        raise ValueError("a kind that is none")
    return {
        "name": _text(told["name"]), "kind": told["kind"], "line": _whole(told["line"]),
        "parameters": [{"name": _text(param["name"]), "values": [_value(choice) for choice in _list(param["values"], MAX_VALUES)]}
                       for param in _list(told["parameters"], MAX_ITEMS)],
        "arguments": [{name: _value(value) for name, value in _pairs(arg)} for arg in _list(told["arguments"], MAX_ITEMS * 4)],
        "size": _or_none(_whole, told["size"]), "valid": _or_none(_whole, told["valid"]),
        "pruned": {_text(reason): _whole(count) for reason, count in _pairs(told["pruned"])},
        "default": _config(told["default"]), "assumed": _config(told["assumed"]),
        "problems": [{"what": _text(problem["what"]), "do": _text(problem["do"]), "missing": bool(problem["missing"])}
                     for problem in _list(told["problems"], MAX_ITEMS)],
        "notes": [_text(note) for note in _list(told.get("notes", []), MAX_ITEMS)],
        "recorded": _or_none(_recorded, told.get("recorded")),
        "compiled": [_sample(sample) for sample in _list(told["compiled"], MAX_COMPILED)], "measured": None}


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


def _list(told: Any, most: int) -> list[Any]:
    if not isinstance(told, list) or len(told) > most:
        raise ValueError(f"no list of at most {most}")
    return told


def _pairs(told: Any) -> list[tuple[Any, Any]]:
    if not isinstance(told, dict) or len(told) > MAX_ITEMS:
        raise ValueError(f"nothing with at most {MAX_ITEMS} names")
    return list(told.items())


def _or_none(read: Callable[[Any], Any], told: Any) -> Any:
    return None if told is None else read(told)


def _whole(told: Any) -> int:
    if not isinstance(told, int) or isinstance(told, bool) or not 0 <= told < 1 << 53:
        raise ValueError("no whole number")
    return told


def _number(told: Any) -> int | float:
    if not isinstance(told, int | float) or isinstance(told, bool) or not math.isfinite(told) or not 0 <= told < 1 << 53:
        raise ValueError("no number")
    return told


def _value(told: Any) -> Any:
    if told is None or isinstance(told, bool):
        return told
    if isinstance(told, int | float) and math.isfinite(told) and abs(told) < 1 << 63:
        return told
    return _text(told if isinstance(told, str) else str(told)[:MAX_TEXT])


def _text(told: Any) -> str:
    if not isinstance(told, str):
        raise ValueError("no text")
    return told[:MAX_TEXT]
