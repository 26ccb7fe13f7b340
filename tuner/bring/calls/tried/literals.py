"""Numbers that stand in a host's functions, by their places: others are tried where no name tells who chose a block.

A table of blocks, a function that returns them, the default of a parameter, an attribute that a constructor sets: the number is
written somewhere. Powers of two from 16 on are marked, of functions that are no kernels.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

LEAST = 16
PLACE = "number:"           # before the key of one


class MarkLiterals(ast.NodeTransformer):
    """Marks them by calls of `choose`; what is marked already, annotations, decorators, subscripts and kernels stay."""

    def __init__(self, choose: str) -> None:
        self.choose, self._inside = choose, 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._function(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if any("jit" in ast.unparse(decorator) for decorator in node.decorator_list):
            return node
        self._inside += 1
        node.body = [self.visit(statement) for statement in node.body]
        self._inside -= 1
        index = 1 if ast.get_docstring(node) is not None else 0
        where = node.body[min(index, len(node.body) - 1)]
        node.body[index:index] = [self._of_parameter(name, default, where) for name, default in _defaults(node.args)
                                  if _is_block(default)]
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == self.choose and isinstance(node.args[1], ast.Constant):
            return node
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> Any:
        return self._marked(node) if self._inside else node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return node

    def visit_Match(self, node: ast.Match) -> Any:
        for case in node.cases:
            case.body = [self.visit(statement) for statement in case.body]
        return node

    def _of_parameter(self, name: str, default: ast.expr, where: ast.stmt) -> ast.stmt:
        """Return the statement that chooses a parameter as the function begins: its default is computed once, when it is made."""
        statement = ast.parse(f"{name} = {self.choose}({f'{PLACE}{default.lineno}:{default.col_offset}'!r}, {name})").body[0]
        for node in ast.walk(statement):
            ast.copy_location(node, where)
        return statement

    def _marked(self, node: ast.expr) -> ast.expr:
        if not _is_block(node):
            return node
        call = ast.Call(ast.Name(self.choose, ast.Load()), [ast.Constant(f"{PLACE}{node.lineno}:{node.col_offset}"), node], [])
        return ast.copy_location(call, node)


def _is_block(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= LEAST and not node.value & (node.value - 1)


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters that have a default, with it."""
    positional = [*arguments.posonlyargs, *arguments.args]
    for argument, default in zip(positional[len(positional) - len(arguments.defaults):], arguments.defaults, strict=True):
        yield argument.arg, default
    for argument, fallback in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if fallback is not None:
            yield argument.arg, fallback
