"""What of a launch follows the numbers of its call: their names, and formulas of the extents, strides and scalars."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuner.bring.calls.again import Again
from tuner.bring.calls.fitting import fit, fit_flag, fit_fraction


def name_dims(told: Mapping[str, Any], launch: Mapping[str, Any], points: Sequence[Again]) -> dict[str, int]:
    """Return a name for each number of the call that the launch follows: of an argument that has it, else a letter."""
    dims: dict[str, int] = {}
    for size in told["sizes"]:
        changed = [one for one in points if one.size == size]
        if not any(_numbers(one.launch) != _numbers(launch) for one in changed):
            continue
        names = [name for name, each in (*launch["arguments"].items(), *launch["constexprs"].items())
                 if each.get("value") == size and each["kind"] == "int" and name not in launch["heuristics"]
                 and all((one.launch["arguments"].get(name) or one.launch["constexprs"].get(name) or {}).get("value") == one.other
                         for one in changed)]
        plain = [name for name in names if not re.search(r"stride|block|tile", name, re.IGNORECASE)] or [
            letter for letter in "MNKRSTUVW" if letter not in dims and letter not in launch["arguments"]
            and letter not in launch["constexprs"]] or [f"D{len(dims)}"]
        dims[plain[0]] = size
    return dims


def _numbers(launch: Mapping[str, Any]) -> list[Any]:
    return [launch["grid"], *[(each.get("value"), each.get("shape"), each.get("strides")) for each in
                              (*launch["arguments"].values(), *launch["constexprs"].values())]]


def fit_numbers(dims: Mapping[str, int], launch: Mapping[str, Any], points: Sequence[Again]) -> dict[str, str | None]:
    """Return a formula for each number and flag of the arguments: extents, strides, scalars, constexprs that are not tuned."""
    of_sizes = [one for one in points if not one.choice]
    found: dict[str, str | None] = {}
    for path, kind in _paths(launch):
        seen = [(one.env(dims), value) for one in of_sizes if (value := value_at(one.launch, path)) is not None]
        if seen and kind == "int":
            found[".".join(map(str, path))] = fit(seen, list(dims))
        elif len({value for _, value in seen}) > 1:
            find = fit_fraction if kind == "float" else fit_flag
            found[".".join(map(str, path))] = find(seen, list(dims)) if kind in ("float", "bool") else None
    _fit_strides(found, launch, of_sizes)
    return found


def _fit_strides(found: dict[str, str | None], launch: Mapping[str, Any], points: Sequence[Again]) -> None:
    """Find strides as the products of extents that they are, and numbers that are such products, where nothing simpler held."""
    products: list[tuple[list[Any], str]] = []
    for name, each in launch["arguments"].items():
        for axis in range(-1, len(each["shape"]) if each["kind"] == "tensor" else -1):      # -1: all elements
            extents = [found.get(f"arguments.{name}.shape.{later}") for later in range(axis + 1, len(each["shape"]))]
            whole = [math.prod(one.launch["arguments"][name].get("shape", ())[axis + 1:]) for one in points]
            path = f"arguments.{name}.strides.{axis}"
            if not all(extents):
                continue
            product = " * ".join(f"({one})" if " " in str(one) else str(one) for one in extents if one != "1") or "1"
            products.append((whole, product))
            if path in found and found[path] is None and whole == [
                    value_at(one.launch, ("arguments", name, "strides", axis)) for one in points]:
                found[path] = product
    for path in [path for path, formula in found.items() if formula is None and path.endswith(".value")]:
        own = [value_at(one.launch, path.split(".")) for one in points]
        found[path] = next((formula for values, formula in products if values == own), None)


def _paths(launch: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the place of each number, flag and text of a launch, and its kind."""
    for part in ("arguments", "constexprs"):
        for name, each in launch[part].items():
            if each["kind"] == "tuple":
                yield from (((part, name, "value", at, "value"), one["kind"]) for at, one in enumerate(each["value"])
                            if one["kind"] == "int")
            if each["kind"] in ("int", "float", "bool", "str", "none"):
                yield (part, name, "value"), each["kind"]
            for extents in ("shape", "strides") if each["kind"] in ("tensor", "descriptor") else ():
                yield from (((part, name, extents, axis), "int") for axis in range(len(each[extents])))


def value_at(launch: Mapping[str, Any], path: Sequence[Any]) -> Any:
    at: Any = launch
    for part in path:
        try:
            at = at[part]
        except (KeyError, IndexError, TypeError):
            return None
    return at
