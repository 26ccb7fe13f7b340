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


def _trial(entry: Any) -> dict[str, Any]:
    """Return one of `tried.trials` as `session` tells it."""
    sizes = {_whole(size): _whole(other) for size, other in entry["sizes"]}
    return {"at": _whole(entry["at"]), "sizes": [list(pair) for pair in sizes.items()], "names": _list(entry["names"], _name),
            "was": _named(entry["was"], _whole),
            "changes": _whole(entry["changes"]), "choice": _text(entry["choice"]), "is": _whole(entry["is"]),
            "verdict": _text(entry["verdict"]), "tiles": bool(entry["tiles"]),
            "launch": _short(entry["launch"])}


def _launch(entry: Any) -> dict[str, Any]:
    return {**_short(entry), "line": _whole(entry["line"]), "file": _text(entry["file"]) if "file" in entry else "",
            "grid_is_function": bool(entry["grid_is_function"]), "gluon": bool(entry["gluon"]),
            "left_out": _list(entry.get("left_out", []), _name),
            "heuristics": _list(entry["heuristics"], _name), "heuristics_above": bool(entry["heuristics_above"]),
            "autotune": None if entry["autotune"] is None else _autotune(entry["autotune"])}


def _short(entry: Any) -> dict[str, Any]:
    """Return what is known of a launch of a call that was made again."""
    return {"kernel": _name(entry["kernel"]), "grid": _list(entry["grid"], _whole),
            "arguments": _named(entry["arguments"], _value), "constexprs": _named(entry["constexprs"], _value),
            "options": _named(entry["options"], _scalar)}


def _autotune(entry: Any) -> dict[str, Any]:
    def configs(listed: Any) -> list[dict[str, Any]]:
        return _list(listed, lambda config: _named(config, _scalar))

    if not entry["configs"]:
        raise Refused("an autotuner without a configuration")
    return {"configs": configs(entry["configs"]), "kept": configs(entry["kept"]), "key": _list(entry["key"], _text),
            "names": _list(entry["names"], _name), "pruned": bool(entry["pruned"]), "prune_failed": _text(entry["prune_failed"]),
            "blocks": _list(entry.get("blocks", []), lambda each: {
                "config": _named(each["config"], _scalar), "blocks": _named(each["blocks"], lambda sizes: _list(sizes, _whole))}),
            "pre_hook": bool(entry.get("pre_hook")), "own": bool(entry.get("own")),
            "reset_to_zero": _list(entry["reset_to_zero"], _name), "restore_value": _list(entry["restore_value"], _name)}


def _value(value: Any) -> dict[str, Any]:
    """Return an argument as `recorder.describe` tells it: by its kind."""
    kind = _text(value["kind"])
    if kind == "tensor":
        return {**_tensor(value), **({"field": _name(value["field"])} if "field" in value else {})}
    if kind == "descriptor":
        return {"kind": kind, "block": _list(value["block"], _whole), "base": _tensor(value["base"]), **_extents(value)}
    if kind == "tuple":
        return {"kind": kind, "value": _list(value["value"], _value)}
    if kind == "dtype":
        return {"kind": kind, "value": _dtype(value["value"])}
    if kind == "function":
        return {"kind": kind, "value": _name(value["value"]), "module": ".".join(map(_name, _text(value["module"]).split(".")))}
    return {"kind": kind, "value": _READERS.get(kind, _scalar)(value["value"])}


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


def _extents(value: Any) -> dict[str, Any]:
    shape, strides = _list(value["shape"], _whole), _list(value["strides"], _whole)
    if len(shape) != len(strides) or len(shape) > MAX_RANK:
        raise Refused("a tensor whose extents are none")
    return {"shape": shape, "strides": strides}


def _other_grid(value: Any) -> dict[str, Any]:
    return {"instead": _named(value["instead"], lambda each: each if isinstance(each, bool) else _whole(each)),
            "grid": _list(value["grid"], _whole)}


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


def _dtype(value: Any) -> str:
    if not isinstance(value, str) or not _DTYPE.match(value):
        raise Refused("a dtype that is none")
    return value


def _text(value: Any) -> str:
    return _of(value, str)


def _whole(value: Any) -> int:
    return _of(value, int)


def _flag(value: Any) -> bool:
    return _of(value, bool)


def _nothing(value: Any) -> None:
    if value is not None:
        raise Refused("a value where none is expected")


def _fraction(value: Any) -> float | str:
    return value if isinstance(value, str) and value in NOT_FINITE else _of(value, float)


def _of(value: Any, kind: type[_Kind]) -> _Kind:
    """Return what is of this very type: a truth value is no whole number."""
    if type(value) is not kind:
        raise Refused(f"no {kind.__name__} where one is expected")
    return value


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise Refused("more than one value where one is expected")
    return value


def _numbers(value: Any) -> Any:
    """Return a number, a truth value, or lists of them."""
    if isinstance(value, list):
        return [_numbers(element) for element in value]
    if not isinstance(value, int | float):
        raise Refused("values that are no numbers")
    return value


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
