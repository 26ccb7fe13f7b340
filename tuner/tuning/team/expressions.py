"""Arithmetic that a team writes as text (FLOP, bytes, constraints), parsed and walked.

"2 * M * N * K" · "(BM + BN) * BK * size * num_stages <= smem_bytes" · "cdiv(N, BLOCK) * 4"
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

MAX_CHARACTERS, MAX_NODES, MAX_POWER, MAX_BITS = 500, 200, 64, 256

Number = int | float | bool
_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow}
_COMPARE: dict[type[ast.AST], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min, "max": max, "cdiv": lambda a, b: -(-a // b), "next_power_of_2": lambda n: 1 << max(0, int(n) - 1).bit_length()}


class Expression:
    """Arithmetic over `names`, of which it reads `self.names`. Raises ValueError at once where the text is none."""

    def __init__(self, text: str, names: Collection[str]) -> None:
        if not isinstance(text, str) or not 0 < len(text) <= MAX_CHARACTERS:
            raise ValueError(f"an expression is a text of 1 to {MAX_CHARACTERS} characters")
        self.text = text
        try:
            self._root = ast.parse(text, mode="eval").body
        except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
            raise ValueError(f"{text!r} is no expression") from error
        nodes = list(ast.walk(self._root))
        if len(nodes) > MAX_NODES:
            raise ValueError(f"{text[:40]!r}… has {len(nodes)} parts; at most {MAX_NODES}")
        _check(self._root, text, frozenset(names))
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        self.names = frozenset(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called)

    def value(self, values: Mapping[str, Any]) -> Number:
        """Return the value at `values`. Raises ValueError."""
        try:
            number: Number = _evaluate(self._root, values)
        except (ArithmeticError, TypeError) as error:
            raise ValueError(f"{self.text!r}: {error}") from error
        return number


def _check(node: ast.AST, text: str, names: frozenset[str]) -> None:
    """Raise ValueError unless every part is known to `_evaluate` and every name is given."""
    is_known = False
    if isinstance(node, ast.Constant):
        is_known = isinstance(node.value, int | float)
    elif isinstance(node, ast.Name):
        if node.id not in names:
            raise ValueError(f"{text!r}: {node.id} is none of {', '.join(sorted(names))}")
        is_known = True
    elif isinstance(node, ast.BinOp):
        is_known = type(node.op) in _BINARY
    elif isinstance(node, ast.UnaryOp):
        is_known = isinstance(node.op, ast.USub | ast.Not)
    elif isinstance(node, ast.Compare):
        is_known = all(type(op) in _COMPARE for op in node.ops)
    elif isinstance(node, ast.BoolOp | ast.IfExp):
        is_known = True
    elif isinstance(node, ast.Call):
        is_known = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords and bool(node.args)
    if not is_known:
        raise ValueError(f"{text!r}: only numbers, names, + - * / // % **, comparisons, and or not, if else, "
                         f"{', '.join(FUNCTIONS)}")
    children = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    for child in children:
        if isinstance(child, ast.expr):
            _check(child, text, names)


def _evaluate(node: ast.AST, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, values), _evaluate(node.right, values)
        if isinstance(left, str) or isinstance(right, str):           # "a" * 10**9 and "%999999999d" % 1 take all memory
            raise TypeError("a text (str) has no arithmetic")
        if isinstance(node.op, ast.Pow) and abs(right) > MAX_POWER:
            raise OverflowError(f"a power of more than {MAX_POWER}")
        return _check_bounds(_BINARY[type(node.op)](left, right))
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand, values)
        return not value if isinstance(node.op, ast.Not) else -value
    if isinstance(node, ast.BoolOp):
        every = isinstance(node.op, ast.And)
        holds = (_evaluate(part, values) for part in node.values)
        return all(holds) if every else any(holds)
    if isinstance(node, ast.IfExp):
        return _evaluate(node.body if _evaluate(node.test, values) else node.orelse, values)
    if isinstance(node, ast.Compare):
        sides = [_evaluate(part, values) for part in (node.left, *node.comparators)]
        return all(_COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, sides, sides[1:], strict=False))
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return _check_bounds(FUNCTIONS[node.func.id](*(_evaluate(part, values) for part in node.args)))


def _check_bounds(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise OverflowError(f"a number of more than {MAX_BITS} bits")
    return value
