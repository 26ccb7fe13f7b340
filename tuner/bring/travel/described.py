"""The description of an operator (tuner.tuning.team.description) from an adapter's text alone: nothing of it runs.

Adapters are written by `tuner.bring`, so what a search must know stands in them as plain values.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from profiles.base.refused import Refused
from tuner.tuning.team.description import make_operator

KINDS = ("TritonOperator", "CudaOperator")
MOST_BITS = 62              # of a number that is written as 1 << 30
UNWRITTEN = "NotImplementedError"           # what a line raises that its author has to write
GIVEN = ("dims", "dtypes", "presets", "flops", "bytes", "params", "default", "constraints", "unit", "tolerance", "kernel_names")


def describe_text(adapter: str, name: str, *, title: str, kernel: str, source_hash: str,
                  configs: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the description; `configs` are those of the kernel's autotuner. Raises Refused where it is not complete."""
    if UNWRITTEN in adapter:
        raise Refused("the adapter has lines that its author must write")
    facts = _fields(adapter)
    params = {str(param): list(values) for param, values in facts["params"].items()} if facts.get("params") else None
    listed = [] if params else [dict(config) for config in configs]
    description = {
        "name": name, "title": title, "dims": facts.get("dims", []), "dtypes": list(facts.get("dtypes", ())),
        "presets": [dict(preset) for preset in facts.get("presets", ())], "configs": listed, "params": params,
        "constraints": dict(facts.get("constraints", {})), "default": dict(facts.get("default") or (listed[0] if listed else {})),
        "flops": facts.get("flops", ""), "bytes": facts.get("bytes", ""), "tolerance": dict(facts.get("tolerance", {})),
        "unit": facts.get("unit", "FLOP/s"), "kernel_names": list(dict.fromkeys([kernel, *facts.get("kernel_names", ())])),
        "kernel": kernel, "key": [], "prunes": {"early": False, "top_k": None}, "source_hash": source_hash}
    make_operator(description)
    return description


def _fields(adapter: str) -> dict[str, Any]:
    """Return what the one operator of an adapter states as plain values. Raises Refused."""
    try:
        tree = ast.parse(adapter)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Refused("the adapter is no Python") from error
    calls = [node for statement in tree.body if isinstance(statement, ast.Assign) for node in ast.walk(statement.value)
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS]
    if len(calls) != 1:
        raise Refused("the adapter holds no operator, or several")
    try:
        return {keyword.arg: _plain(keyword.value) for keyword in calls[0].keywords if keyword.arg in GIVEN}
    except (ValueError, RecursionError) as error:
        raise Refused(f"the adapter: {error}") from error


def _plain(node: ast.AST) -> Any:
    """Return the value of a literal, of 1 << 30, or of a Dim. Raises ValueError for anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        return [_plain(element) for element in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_plain(name): _plain(value) for name, value in zip(node.keys, node.values, strict=True) if name is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(value := _plain(node.operand), int | float):
        return -value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift):
        left, right = _plain(node.left), _plain(node.right)
        if type(left) is int and type(right) is int and 0 <= right <= MOST_BITS:
            return left << right
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Dim":
        return _dim([_plain(argument) for argument in node.args], {str(pair.arg): _plain(pair.value) for pair in node.keywords})
    raise ValueError(f"{ast.unparse(node)[:60]} is no plain value")


def _dim(values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    fields = {**dict(zip(("name", "meaning", "low", "high", "exact", "only"), values, strict=False)), **named}
    return {"name": fields.get("name"), "meaning": fields.get("meaning", ""), "low": fields.get("low", 1),
            "high": fields.get("high", 1 << 20), "exact": bool(fields.get("exact", False)), "only": list(fields.get("only", ()))}
