"""A record of a call as the process that ran somebody's file tells it, read like an upload before an adapter is written of it.

What is written as it is into an adapter (numbers, dtypes, names) is one here: every part is read by its type and its bound, and
what is no part of a record is left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

from profiles.base.refused import Refused
from tuner.bring.python_text import MOST_PACKED, count_packed

MAX_NODES, MAX_DEPTH, MAX_TEXT, MAX_WHOLE, MAX_LAUNCHES, MAX_RANK = 400_000, 12, 2000, 1 << 62, 64, 16
NOT_FINITE = ("inf", "-inf", "nan")             # of a number that JSON has not, as `recorder` tells it
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,24}\Z")
_Kind = TypeVar("_Kind")


def read_record(told: Any) -> dict[str, Any]:
    """Return the record, its names identifiers, its numbers and texts bounded. Raises Refused."""
    record = _plain(told, 0, [MAX_NODES])
    try:
        launches = [_launch(launch) for launch in record["launches"]]
        if not launches or len(launches) > MAX_LAUNCHES:
            raise Refused("no launch")
        return {
            "call": _text(record["call"]), "sms": _whole(record.get("sms", 0)), "sizes": _list(record["sizes"], _whole),
            "launches": launches, "inputs": _list(record.get("inputs", []), _made),
            "result": _list(record.get("result", []), _value),
            "grids": _list(record.get("grids", []), lambda grids: _list(grids, _other_grid)),
            "with_sizes": _list(record.get("with_sizes", []), lambda again: {
                "size": _whole(again["size"]), "is": _whole(again["is"]), "launches": _list(again["launches"], _short)}),
            "with_choices": _list(record.get("with_choices", []), lambda again: {
                "choice": _text(again["choice"]), "is": _whole(again["is"]), "launches": _list(again["launches"], _short)}),
            "tries": _list(record.get("tries", []), _trial),
            "used": _list(record.get("used", []), _text), "drawn": bool(record.get("drawn")),
            "ran": _list(record.get("ran", []), _name), "lost": _list(record.get("lost", []), _text),
            "passed_over": _list(record.get("passed_over", []), _text),
            **({"failed_at": _text(record["failed_at"])} if "failed_at" in record else {})}
    except Refused:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refused(f"no record of a call ({type(error).__name__}: {error})"[:200]) from error


def _trial(told: Any) -> dict[str, Any]:
    """Return one of `tried.trials` as `session` tells it."""
    sizes = {_whole(size): _whole(other) for size, other in told["sizes"]}
    return {"at": _whole(told["at"]), "sizes": [list(pair) for pair in sizes.items()], "names": _list(told["names"], _name),
            "was": _named(told["was"], _whole),
            "changes": _whole(told["changes"]), "choice": _text(told["choice"]), "is": _whole(told["is"]),
            "verdict": _text(told["verdict"]), "tiles": bool(told["tiles"]),
            "launch": _short(told["launch"])}


def _launch(told: Any) -> dict[str, Any]:
    return {**_short(told), "line": _whole(told["line"]), "file": _text(told["file"]) if "file" in told else "",
            "grid_is_function": bool(told["grid_is_function"]), "gluon": bool(told["gluon"]),
            "left_out": _list(told.get("left_out", []), _name),
            "heuristics": _list(told["heuristics"], _name), "heuristics_above": bool(told["heuristics_above"]),
            "autotune": None if told["autotune"] is None else _autotune(told["autotune"])}


def _short(told: Any) -> dict[str, Any]:
    """Return what is known of a launch of a call that was made again."""
    return {"kernel": _name(told["kernel"]), "grid": _list(told["grid"], _whole),
            "arguments": _named(told["arguments"], _value), "constexprs": _named(told["constexprs"], _value),
            "options": _named(told["options"], _scalar)}


def _autotune(told: Any) -> dict[str, Any]:
    def configs(listed: Any) -> list[dict[str, Any]]:
        return _list(listed, lambda config: _named(config, _scalar))

    if not told["configs"]:
        raise Refused("an autotuner without a configuration")
    return {"configs": configs(told["configs"]), "kept": configs(told["kept"]), "key": _list(told["key"], _text),
            "names": _list(told["names"], _name), "pruned": bool(told["pruned"]), "prune_failed": _text(told["prune_failed"]),
            "blocks": _list(told.get("blocks", []), lambda each: {
                "config": _named(each["config"], _scalar), "blocks": _named(each["blocks"], lambda sizes: _list(sizes, _whole))}),
            "pre_hook": bool(told.get("pre_hook")), "own": bool(told.get("own")),
            "reset_to_zero": _list(told["reset_to_zero"], _name), "restore_value": _list(told["restore_value"], _name)}


def _value(told: Any) -> dict[str, Any]:
    """Return an argument as `recorder.describe` tells it: by its kind."""
    kind = _text(told["kind"])
    if kind == "tensor":
        return {**_tensor(told), **({"field": _name(told["field"])} if "field" in told else {})}
    if kind == "descriptor":
        return {"kind": kind, "block": _list(told["block"], _whole), "base": _tensor(told["base"]), **_extents(told)}
    if kind == "tuple":
        return {"kind": kind, "value": _list(told["value"], _value)}
    if kind == "dtype":
        return {"kind": kind, "value": _dtype(told["value"])}
    if kind == "function":
        return {"kind": kind, "value": _name(told["value"]), "module": ".".join(map(_name, _text(told["module"]).split(".")))}
    return {"kind": kind, "value": _READERS.get(kind, _scalar)(told["value"])}


def _tensor(told: Any) -> dict[str, Any]:
    contents = {name: _numbers(told[name]) for name in ("filled", "values") if name in told and told[name] not in NOT_FINITE}
    contents |= {"filled": told["filled"]} if told.get("filled") in NOT_FINITE else {}
    extents = _extents(told)
    if "packed" in told:
        if count_packed(_text(told["packed"])) != math.prod(extents["shape"]):
            raise Refused("numbers that are not one for each element")
        contents["packed"] = told["packed"]
    return {"kind": "tensor", "dtype": _dtype(told["dtype"]), **extents, "storage": _whole(told["storage"]),
            "offset": _whole(told.get("offset", 0)), **contents,
            **{name: True for name in ("counts", "permutes", "anything") if told.get(name)},
            **({"bounds": [_whole(bound) for bound in told["bounds"]][:2], "sorted": bool(told.get("sorted"))}
               if "maker" not in told and len(told.get("bounds", ())) == 2 else {})}


def _made(told: Any) -> dict[str, Any]:
    """Return a tensor that the call itself makes."""
    return {**_tensor(told), "maker": _name(told["maker"]), "bounds": _list(told["bounds"], _numbers)}


def _extents(told: Any) -> dict[str, Any]:
    shape, strides = _list(told["shape"], _whole), _list(told["strides"], _whole)
    if len(shape) != len(strides) or len(shape) > MAX_RANK:
        raise Refused("a tensor whose extents are none")
    return {"shape": shape, "strides": strides}


def _other_grid(told: Any) -> dict[str, Any]:
    return {"instead": _named(told["instead"], lambda each: each if isinstance(each, bool) else _whole(each)),
            "grid": _list(told["grid"], _whole)}


def _named(told: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    return {_name(name): read(value) for name, value in told.items()}


def _list(told: Any, read: Callable[[Any], Any]) -> list[Any]:
    if not isinstance(told, list):
        raise Refused("no list where one is expected")
    return [read(element) for element in told]


def _name(told: Any) -> str:
    if not isinstance(told, str) or not told.isidentifier():
        raise Refused(f"{str(told)[:40]!r} is no name")
    return told


def _dtype(told: Any) -> str:
    if not isinstance(told, str) or not _DTYPE.match(told):
        raise Refused("a dtype that is none")
    return told


def _text(told: Any) -> str:
    return _of(told, str)


def _whole(told: Any) -> int:
    return _of(told, int)


def _flag(told: Any) -> bool:
    return _of(told, bool)


def _nothing(told: Any) -> None:
    if told is not None:
        raise Refused("a value where none is expected")


def _fraction(told: Any) -> float | str:
    return told if isinstance(told, str) and told in NOT_FINITE else _of(told, float)


def _of(told: Any, kind: type[_Kind]) -> _Kind:
    """Return what is of this very type: a truth value is no whole number."""
    if type(told) is not kind:
        raise Refused(f"no {kind.__name__} where one is expected")
    return told


def _scalar(told: Any) -> Any:
    if isinstance(told, dict | list):
        raise Refused("more than one value where one is expected")
    return told


def _numbers(told: Any) -> Any:
    """Return a number, a truth value, or lists of them."""
    if isinstance(told, list):
        return [_numbers(element) for element in told]
    if not isinstance(told, int | float):
        raise Refused("values that are no numbers")
    return told


def _plain(told: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        raise Refused("a record that is nested or long beyond use")
    if isinstance(told, dict):
        return {str(key)[:MAX_TEXT]: value if key == "packed" and isinstance(value, str) and len(value) <= MOST_PACKED
                else _plain(value, depth + 1, left) for key, value in told.items()}
    if isinstance(told, list):
        return [_plain(element, depth + 1, left) for element in told]
    if isinstance(told, str):
        return told[:MAX_TEXT]
    if told is None or isinstance(told, bool):
        return told
    if isinstance(told, int) and abs(told) <= MAX_WHOLE:
        return told
    if isinstance(told, float) and math.isfinite(told):
        return told
    raise Refused("a value that is no number and no text")


_READERS: dict[str, Callable[[Any], Any]] = {"int": _whole, "bool": _flag, "float": _fraction, "str": _text, "none": _nothing}
