"""Values that stand in a source text: numbers, texts, lists of them, and lists of `triton.Config`, comprehensions included."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product
from typing import Any

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "UNKNOWN", "__bool__": lambda self: False})()
MAX_CONFIGS = 4096
MAX_ITEMS = 4096
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_MAKING_LISTS = ("list", "tuple", "sorted", "np.arange", "numpy.arange")
_PRODUCTS = ("itertools.product", "product")
_DEFAULTS = {"num_warps": 4, "num_stages": 3}       # triton.Config's own


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne}


class Computed(ValueError):
    """A value that only running the file would tell."""


def literal(node: ast.AST, names: Mapping[str, Any] | None = None) -> Any:
    """Return the value of an expression of literals, and of `names` that are known; UNKNOWN of any other."""
    try:
        return _value(node, names or {})
    except (Computed, ArithmeticError, TypeError, ValueError, KeyError, RecursionError):
        return UNKNOWN


def names_of(tree: ast.Module) -> dict[str, Any]:
    """Return the module's names that have one value: literals by name, what else is written as `=name`, functions as `name()`.

    A function is one that returns a list at once: what stands before its `return` are literals too.
    """
    names: dict[str, Any] = {}
    twice: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    twice |= {target.id} if f"={target.id}" in names else set()
                    names[f"={target.id}"] = node.value
                    value = literal(node.value, names)
                    if value is not UNKNOWN:
                        names[target.id] = value
        elif isinstance(node, ast.FunctionDef):
            twice |= {node.name} if f"{node.name}()" in names else set()
            names[f"{node.name}()"] = node
    return {name: value for name, value in names.items() if name.strip("=()") not in twice}


def configs_of(node: ast.AST, names: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], ...] | None:
    """Return the parameters of listed configurations; None where they are computed, or more than MAX_CONFIGS."""
    try:
        configs = list(islice(_configs(node, names or {}), MAX_CONFIGS + 1))
    except (Computed, ArithmeticError, TypeError, ValueError, KeyError, RecursionError):
        return None
    return tuple(configs) if len(configs) <= MAX_CONFIGS else None


def _configs(node: ast.AST, names: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if isinstance(node, ast.List | ast.Tuple):
        for element in node.elts:
            yield from _configs(element, names)
    elif isinstance(node, ast.ListComp):
        for bindings in _rounds(node.generators, names):
            yield from _configs(node.elt, bindings)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _configs(node.left, names)
        yield from _configs(node.right, names)
    elif isinstance(node, ast.Name) and f"={node.id}" in names:
        yield from _configs(names[f"={node.id}"], {name: value for name, value in names.items() if name != f"={node.id}"})
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and f"{node.func.id}()" in names:
        yield from _returned(names[f"{node.func.id}()"], node, names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Config":
        arguments = {pair.arg: _value(pair.value, names) for pair in node.keywords if pair.arg and pair.arg != "pre_hook"}
        if helion := ast.unparse(node.func).startswith("helion"):
            yield arguments
        for index, argument in enumerate(() if helion else node.args[:3]):
            arguments[("kwargs", "num_warps", "num_stages")[index]] = _value(argument, names)
        if not helion:
            options = {name: arguments[name] for name in _OPTIONS if arguments.get(name) not in (None, UNKNOWN)}
            yield {**arguments.get("kwargs", {}), **_DEFAULTS, **options}
    else:
        raise Computed


def _returned(function: ast.FunctionDef, call: ast.Call, names: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a function of literals and one `return` of a list returns, called without arguments."""
    if call.args or call.keywords or (function.args.args and len(function.args.defaults) != len(function.args.args)):
        raise Computed
    bindings = {name: value for name, value in names.items() if name != f"{function.name}()"}
    for statement in function.body:
        if isinstance(statement, ast.Return) and statement.value is not None:
            yield from _configs(statement.value, bindings)
            return
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            bindings[statement.targets[0].id] = _value(statement.value, bindings)
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            raise Computed
    raise Computed


def _rounds(generators: list[ast.comprehension], names: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if not generators:
        yield names
        return
    first, *rest = generators
    for value in islice(_value(first.iter, names), MAX_ITEMS):
        bindings = {**names, **_bound(first.target, value)}
        if all(_value(condition, bindings) for condition in first.ifs):
            yield from _rounds(rest, bindings)


def _bound(target: ast.expr, value: Any) -> dict[str, Any]:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple) and len(target.elts) == len(value):
        return {name: its for node, part in zip(target.elts, value, strict=True) for name, its in _bound(node, part).items()}
    raise Computed


def _value(node: ast.AST, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(element, names) for element in node.elts]
    if isinstance(node, ast.ListComp):
        return [_value(node.elt, bindings) for bindings in islice(_rounds(node.generators, names), MAX_ITEMS)]
    if isinstance(node, ast.Dict):
        return {_value(key, names): _value(value, names) for key, value in zip(node.keys, node.values, strict=True)
                if key is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compare(node.ops[0], _value(node.left, names), _value(node.comparators[0], names))
    if isinstance(node, ast.BoolOp):
        parts = [bool(_value(operand, names)) for operand in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.BinOp):
        return _arithmetic(node.op, _value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and not node.keywords:
        return range(*(int(_value(argument, names)) for argument in node.args))
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _PRODUCTS and not node.keywords:
        return list(islice(product(*(list(islice(_value(argument, names), MAX_ITEMS)) for argument in node.args)), MAX_ITEMS))
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _MAKING_LISTS:
        numbers = range(*(int(_value(argument, names)) for argument in node.args)) if "arange" in ast.unparse(node.func) \
            else _value(node.args[0], names)
        return list(islice(numbers, MAX_ITEMS))
    raise Computed


def _arithmetic(kind: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(kind, ast.Add) and isinstance(left, list) and isinstance(right, list) and len(left) + len(right) <= MAX_ITEMS:
        return left + right
    if not (isinstance(left, int | float) and isinstance(right, int | float)):
        raise Computed
    if isinstance(kind, ast.Add):
        return left + right
    if isinstance(kind, ast.Sub):
        return left - right
    if isinstance(kind, ast.Mult):
        return left * right
    if isinstance(kind, ast.Mod):
        return left % right
    if isinstance(kind, ast.FloorDiv):
        return left // right
    if isinstance(kind, ast.Pow | ast.LShift) and 0 <= right <= 64 and abs(left) <= 64:
        return left ** right if isinstance(kind, ast.Pow) else int(left) << int(right)
    raise Computed


def _compare(kind: ast.cmpop, left: Any, right: Any) -> bool:
    holds = _COMPARE.get(type(kind))
    if holds is None:
        raise Computed
    return bool(holds(left, right))
