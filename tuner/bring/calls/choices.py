"""Values that a host function chooses for its kernels, found by calling it again with others in their place.

`mark_choices` adds to every assignment of a name that a launch (or its grid) uses `name = __choose__("function.name", name)`,
likewise to parameters, to what a launch reads of an object (`self.block`, `config["BLOCK"]`) and to whole numbers that stand in the
launch itself; equal numbers of a launch and of what makes its grid are one choice. Numbers that may be blocks are marked in all
functions (`tried.literals`). Lines stay where they are, so that Triton finds a kernel's text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tuner.bring.calls.tried.literals import PLACE, MarkLiterals

CHOOSE = "__ridgepoint_choose__"
LEAST = 2
_READ = ast.Load()
_OF_TENSORS = ("shape", "strides", "size", "stride", "ndim", "itemsize", "nbytes", "T", "mT")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Choices:
    """What was chosen in a call: key → value, and numbers by their places; `instead` holds values to choose in their place."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self.placed: dict[str, Any] = {}
        self.instead: dict[str, Any] = {}

    def choose(self, key: str, value: Any) -> Any:
        if type(value).__name__ == "constexpr":         # of the module, which the host unpacks
            return type(value)(self.choose(key, value.value))
        if type(value) is not int or value < 1:
            return value
        (self.placed if key.startswith(PLACE) else self.made).setdefault(key, value)
        return self.instead.get(key, value)


def mark_choices(tree: ast.Module) -> ast.Module:
    """Return the module's tree with its choices marked."""
    for function in [node for node in ast.walk(tree) if isinstance(node, _Function) and not _is_kernel(node)]:
        function.decorator_list = [decorator for decorator in function.decorator_list if not _keeps_results(decorator)]
        launches = list(_launches(function))
        if not launches:
            continue
        grids = _makers_of_grids(function, launches)
        names = {name.id for node in (*launches, *grids) for name in ast.walk(node) if isinstance(name, ast.Name)}
        of_module = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
        local = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        local |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
        marker = _Same({text: f"{function.name}.{text}" for launch in launches for text in _read_of_objects(launch)})
        function.body = [marker.visit(statement) for statement in function.body]
        for launch in launches:
            _mark_numbers(launch, function, grids)
        function.body = [_Globals(local - of_module).visit(statement) for statement in function.body]
        function.body = _mark_names(function.body, names - of_module, function.name)
        parameters = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs) if argument.arg in names]
        index = 1 if ast.get_docstring(function) is not None else 0
        where = function.body[index] if index < len(function.body) else function.body[-1]
        function.body[index:index] = [_marked(name, function.name, where) for name in parameters]
    marked: ast.Module = MarkLiterals(CHOOSE).visit(tree)
    return ast.fix_missing_locations(marked)


def _is_kernel(function: _Function) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _keeps_results(decorator: ast.expr) -> bool:
    """Return whether a decorator gives again what was computed with other choices."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] in ("cache", "lru_cache")


def _launches(function: _Function) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            yield node


def _makers_of_grids(function: _Function, launches: list[ast.Call]) -> list[Any]:
    """Return the assignments and functions that make what launches take as their grids, and those that make what these read."""
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.FunctionDef) and node is not function]
    reads = {name.id for launch in launches if isinstance(launch.func, ast.Subscript)
             for name in ast.walk(launch.func.slice) if isinstance(name, ast.Name)}
    makers: list[Any] = []
    while more := [node for node in nodes if node not in makers and reads & _names_made(node)]:
        makers += more
        reads |= {name.id for node in more for name in ast.walk(node) if isinstance(name, ast.Name)}
    return makers


def _names_made(node: ast.Assign | ast.FunctionDef) -> set[str]:
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    return {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def _read_of_objects(launch: ast.Call) -> Iterator[str]:
    """Yield what a launch is given of objects and tables, as written: `self.block`, `config["BLOCK"]`. No tensor's extents."""
    for value in (*launch.args, *(keyword.value for keyword in launch.keywords)):
        is_extent = any(isinstance(node, ast.Attribute) and node.attr in _OF_TENSORS for node in ast.walk(value))
        if isinstance(value, ast.Attribute | ast.Subscript) and not is_extent and not any(
                isinstance(node, ast.Call) for node in ast.walk(value)):
            yield ast.unparse(value)


def _mark_numbers(launch: ast.Call, function: _Function, grids: list[Any]) -> None:
    """Mark whole numbers and computed values given in a launch, and the same in its grid, wherever that is made."""
    keys: dict[str, str] = {}

    def mark(value: ast.expr, name: str) -> ast.expr:
        is_number = isinstance(value, ast.Constant) and type(value.value) is int and value.value >= LEAST
        is_computed = bool(name) and isinstance(value, ast.Call | ast.BinOp | ast.IfExp) and not _is_marked(value)
        if not is_number and not is_computed:
            return value
        return _call(keys.setdefault(ast.unparse(value), f"{function.name}.{name or ast.unparse(value)}"), value)

    for keyword in launch.keywords:
        keyword.value = mark(keyword.value, keyword.arg or "")
    launch.args = [mark(value, "") for value in launch.args]
    assert isinstance(launch.func, ast.Subscript)
    launch.func.slice = _Same(keys).visit(launch.func.slice)
    for grid in grids:
        _Same(keys).visit(grid)


class _Same(ast.NodeTransformer):
    """Marks what reads as something that is marked already."""

    def __init__(self, keys: dict[str, str]) -> None:
        self.keys = keys

    def visit(self, node: ast.AST) -> Any:
        if _is_marked(node) or not self.keys:
            return node
        is_read = isinstance(getattr(node, "ctx", _READ), ast.Load) and not isinstance(node, ast.Name)
        if isinstance(node, ast.expr) and is_read and (text := ast.unparse(node)) in self.keys:
            return _call(self.keys[text], node)
        return self.generic_visit(node)


def _is_marked(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == CHOOSE


class _Globals(ast.NodeTransformer):
    """Marks constants of the module, by their names in capitals: not what the function itself assigns or is given."""

    def __init__(self, local: set[str]) -> None:
        self.local = local

    def visit_Name(self, node: ast.Name) -> ast.expr:
        is_read = isinstance(node.ctx, ast.Load) and node.id.isupper() and node.id not in self.local
        return _call(f"constant.{node.id}", node) if is_read else node


def _call(key: str, value: ast.expr) -> ast.Call:
    call = ast.Call(ast.Name(CHOOSE, ast.Load()), [ast.Constant(key), value], [])
    return ast.copy_location(call, value)


def _marked(name: str, function: str, where: ast.AST) -> ast.stmt:
    statement = ast.parse(f"{name} = {CHOOSE}({f'{function}.{name}'!r}, {name})").body[0]
    for node in ast.walk(statement):
        ast.copy_location(node, where)
    return statement


def _mark_names(body: list[ast.stmt], names: set[str], function: str) -> list[ast.stmt]:
    marked: list[ast.stmt] = []
    for statement in body:
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(statement, field, None)
            if isinstance(inner, list) and not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                setattr(statement, field, _mark_names(inner, names, function))
        marked.append(statement)
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            assigned = [node.id for target in targets for node in ast.walk(target)
                        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
            marked += [_marked(name, function, statement) for name in dict.fromkeys(assigned) if name in names]
    return marked
