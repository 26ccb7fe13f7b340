"""Structs that kernels take by value, as a record tells them: words of four bytes, and tensors whose addresses they hold.

A tensor within a struct becomes an argument of its own, and its name stands in the struct in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def lift_tensors(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in which tensors of structs are arguments."""
    again = {key: [{**one, "launches": [_lifted(each) for each in one["launches"]]} for one in told.get(key, ())]
             for key in ("with_sizes", "with_choices")}
    return {**told, **again, "launches": [_lifted(each) for each in told["launches"]]}


def _lifted(launch: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, one in launch["arguments"].items():
        if one["kind"] != "tuple":
            arguments[name] = one
            continue
        words = []
        for at, word in enumerate(one["value"]):
            if word["kind"] == "tensor":
                arguments[f"{name}_{at}"] = word
                word = {"kind": "str", "value": f"{name}_{at}"}
            words.append(word)
        arguments[name] = {"kind": "tuple", "value": words}
    return {**launch, "arguments": arguments}


def held_names(one: Mapping[str, Any]) -> list[str]:
    """Return the arguments that stand for the tensors of a struct; [] of what is none, or holds none."""
    if one.get("kind") != "tuple":
        return []
    return [word["value"] for word in one["value"] if word["kind"] == "str"]
