"""What of a launch follows the numbers of its call: their names, and formulas of the extents, strides and scalars."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuner.bring.calls.again import Again
from tuner.bring.calls.fitting import fit, fit_flag, fit_fraction


def name_dims(record: Mapping[str, Any], launch: Mapping[str, Any], points: Sequence[Again]) -> dict[str, int]:
    """Return a name for each number of the call that the launch follows: of an argument that has it, else a letter."""
    dims: dict[str, int] = {}
    for size in record["sizes"]:
        changed = [run for run in points if run.size == size]
        if not any(_numbers(run.launch) != _numbers(launch) for run in changed):
            continue
        names = [name for name, argument in (*launch["arguments"].items(), *launch["constexprs"].items())
                 if argument.get("value") == size and argument["kind"] == "int" and name not in launch["heuristics"]
                 and all((run.launch["arguments"].get(name) or run.launch["constexprs"].get(name) or {}).get("value") == run.other
                         for run in changed)]
        plain = [name for name in names if not re.search(r"stride|block|tile", name, re.IGNORECASE)] or [
            letter for letter in "MNKRSTUVW" if letter not in dims and letter not in launch["arguments"]
            and letter not in launch["constexprs"]] or [f"D{len(dims)}"]
        dims[plain[0]] = size
    return dims


def _numbers(launch: Mapping[str, Any]) -> list[Any]:
    return [launch["grid"], *[(argument.get("value"), argument.get("shape"), argument.get("strides")) for argument in
                              (*launch["arguments"].values(), *launch["constexprs"].values())]]


def fit_numbers(dims: Mapping[str, int], launch: Mapping[str, Any], points: Sequence[Again]) -> dict[str, str | None]:
    """Return a formula for each number and flag of the arguments: extents, strides, scalars, constexprs that are not tuned."""
    of_sizes = [point for point in points if not point.choice]
    formulas: dict[str, str | None] = {}
    for path, kind in _paths(launch):
        samples = [(point.env(dims), value) for point in of_sizes if (value := value_at(point.launch, path)) is not None]
        if samples and kind == "int":
            formulas[".".join(map(str, path))] = fit(samples, list(dims))
        elif len({value for _, value in samples}) > 1:
            find = fit_fraction if kind == "float" else fit_flag
            formulas[".".join(map(str, path))] = find(samples, list(dims)) if kind in ("float", "bool") else None
    _fit_strides(formulas, launch, of_sizes)
    return formulas


def _fit_strides(found: dict[str, str | None], launch: Mapping[str, Any], points: Sequence[Again]) -> None:
    """Find strides as the products of extents that they are, and numbers that are such products, where nothing simpler held."""
    products: list[tuple[list[Any], str]] = []
    for name, argument in launch["arguments"].items():
        for axis in range(-1, len(argument["shape"]) if argument["kind"] == "tensor" else -1):      # -1: all elements
            extents = [found.get(f"arguments.{name}.shape.{later}") for later in range(axis + 1, len(argument["shape"]))]
            whole = [math.prod(point.launch["arguments"][name].get("shape", ())[axis + 1:]) for point in points]
            path = f"arguments.{name}.strides.{axis}"
            if not all(extents):
                continue
            product = " * ".join(f"({text})" if " " in str(text) else str(text) for text in extents if text != "1") or "1"
            products.append((whole, product))
            if path in found and found[path] is None and whole == [
                    value_at(point.launch, ("arguments", name, "strides", axis)) for point in points]:
                found[path] = product
    for path in [path for path, formula in found.items() if formula is None and path.endswith(".value")]:
        own = [value_at(point.launch, path.split(".")) for point in points]
        found[path] = next((formula for values, formula in products if values == own), None)


def _paths(launch: Mapping[str, Any]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield the place of each number, flag and text of a launch, and its kind."""
    for part in ("arguments", "constexprs"):
        for name, argument in launch[part].items():
            if argument["kind"] == "tuple":
                yield from (((part, name, "value", index, "value"), word["kind"]) for index, word in enumerate(argument["value"])
                            if word["kind"] == "int")
            if argument["kind"] in ("int", "float", "bool", "str", "none"):
                yield (part, name, "value"), argument["kind"]
            for extents in ("shape", "strides") if argument["kind"] in ("tensor", "descriptor") else ():
                yield from (((part, name, extents, axis), "int") for axis in range(len(argument[extents])))


def value_at(launch: Mapping[str, Any], path: Sequence[Any]) -> Any:
    node: Any = launch
    for part in path:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return None
    return node
