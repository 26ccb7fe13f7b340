"""The branches of a kernel that a launch takes, as far as the values of its constexprs tell."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}


def take_branches(function: ast.FunctionDef, given: Mapping[str, Any]) -> None:
    """Leave in a function's tree only what runs with these values: `pointer = a if TO_B else b` is `pointer = a`."""
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    visitor = _Taken({name: value for name, value in given.items() if name not in stored})
    function.body = visitor.statements(function.body)
    ast.fix_missing_locations(function)


class _Untold(Exception):
    """A condition on what is not known before the kernel runs."""


class _Taken(ast.NodeTransformer):
    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        output: list[ast.stmt] = []
        for statement in body:
            branch = self.visit(statement)
            output += branch if isinstance(branch, list) else [branch]
        return output or [ast.copy_location(ast.Pass(), body[0])]

    def visit_If(self, node: ast.If) -> Any:
        try:
            body = node.body if self._value(node.test) else node.orelse
        except _Untold:
            return self.generic_visit(node)
        return self.statements(body) if body else ast.copy_location(ast.Pass(), node)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        try:
            return self.visit(node.body if self._value(node.test) else node.orelse)
        except _Untold:
            return self.generic_visit(node)

    def _value(self, node: ast.expr) -> Any:
        """Return what a condition is. Raises _Untold."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.given:
            return self.given[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self._value(node.operand)
        if isinstance(node, ast.BoolOp):
            return self._both(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
            try:
                return _COMPARED[type(node.ops[0])](self._value(node.left), self._value(node.comparators[0]))
            except TypeError as error:
                raise _Untold from error
        raise _Untold

    def _both(self, node: ast.BoolOp) -> bool:
        """Return what `and` and `or` are, which one part may decide though others are not known."""
        decides, untold = isinstance(node.op, ast.Or), False
        for operand in node.values:
            try:
                if bool(self._value(operand)) == decides:
                    return decides
            except _Untold:
                untold = True
        if untold:
            raise _Untold
        return not decides
