"""Structs that kernels take by value, as a record tells them: words of four bytes, and tensors whose addresses they hold.

A tensor within a struct becomes an argument of its own, and its name stands in the struct in its place.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from tuner.bring.cuda.host_edits import fields_used
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.text import read_text


def lift_tensors(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in which tensors of structs are arguments."""
    again = {key: [{**trial, "launches": [_lifted(launch) for launch in trial["launches"]]} for trial in record.get(key, ())]
             for key in ("with_sizes", "with_choices")}
    return {**record, **again, "launches": [_lifted(launch) for launch in record["launches"]]}


def _lifted(launch: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, argument in launch["arguments"].items():
        if argument["kind"] != "tuple":
            arguments[name] = argument
            continue
        words = []
        for index, word in enumerate(argument["value"]):
            if word["kind"] == "tensor":
                key = f"{name}_{word.get('field', index)}"
                arguments[key] = word
                word = {"kind": "str", "value": key}
            words.append(word)
        arguments[name] = {"kind": "tuple", "value": words}
    return {**launch, "arguments": arguments}


def fields_written(text: str, kernel: str, argument: str) -> dict[str, bool]:
    """Return whether a kernel writes to each field of a struct, through whatever names: they are read as arguments of their own.

    "" stands for the struct itself, where it is indexed as an address is (`x[n][c] = 1`); what the text does not tell is left out.
    """
    source = Source(text)
    item = next((entry for entry in source.of_name.get(kernel, ()) if entry.kind == "kernel" and entry.body >= 0), None)
    if item is None or item.closing < 0:
        return {}
    out, own = list(text), f"{argument}__"
    fields = [name for _, name in fields_used(source, item, [argument])]
    for index in range(item.body, item.last - 2):
        if source.words[index] != argument or source.words[index - 1] in (".", "->"):
            continue
        is_field = source.words[index + 1] == "." and source.words[index + 2] in fields
        if is_field or source.words[index + 1] == "[":
            begin, end = source.tokens.places[index], source.tokens.end_of(index + 2 * is_field)
            out[begin:end] = [f"{own}{source.words[index + 2] if is_field else ''}", *[""] * (end - begin - 1)]
            fields += [""] if not is_field and "" not in fields else []
    place = source.tokens.places[item.closing]
    out[place] = "".join(f", float *{own}{name}" for name in fields) + ")"
    again = next((function for function in read_text("".join(out)).functions if function.name == kernel), None)
    arguments = again.arguments if again else ()
    return {field.name.removeprefix(own): field.written for field in arguments if field.name.startswith(own) and not field.unsure}


def fields_of(tree: ast.expr) -> list[str]:
    """Return the names by which a call gives fields of structs: {"rows": 4096, "x": randn(4096, 64)}."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    keys = [key.value for node in nodes for key in node.keys if isinstance(key, ast.Constant)]
    return list(dict.fromkeys(key for key in keys if isinstance(key, str) and key.isascii() and key.isidentifier()))


def held_names(argument: Mapping[str, Any]) -> list[str]:
    """Return the arguments that stand for the tensors of a struct; [] of what is none, or holds none."""
    if argument.get("kind") != "tuple":
        return []
    return [word["value"] for word in argument["value"] if word["kind"] == "str"]
