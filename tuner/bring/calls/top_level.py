"""What a file runs of its own while it is imported: its tests are left out, and what fails otherwise without a GPU ends no import.

Many files end with `result = test_softmax()` or `benchmark.run(…)`, outside of `if __name__ == "__main__"`. Neither is needed to
make a call of the file's functions, and where there is no GPU a test of values has none.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

FAILED = "__ridgepoint_run_failed__"        # of a module: called with the line and the error
TEST = re.compile(r"_*(run_?|do_?)?(test|bench|benchmark|unit_?test|main|demo|profile|perf|verify|correctness)(s|ing)?(_|$)", re.I)
_RUNS = ast.Expr | ast.Assign | ast.AnnAssign | ast.For | ast.With


def leave_out_runs(tree: ast.Module) -> dict[str, str]:
    """Change the tree of a module; return {"line 90, test_softmax": why} of what is left out.

    Left out: a statement that calls a function of the file named like a test, whose result nothing else of the file reads. Other
    statements that call something may fail, imports of names that a module has not, and what stands above a function or a class:
    their error goes to the module's FAILED, and what that returns is what they would have named.
    """
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    reads = _reads(tree)
    left_out: dict[str, str] = {}
    for number, statement in enumerate(tree.body):
        may_fail = isinstance(statement, ast.Assert) or bool(getattr(statement, "decorator_list", ()))
        if may_fail or (isinstance(statement, ast.ImportFrom) and statement.module != "__future__"
                        and statement.names[0].name != "*"):
            tree.body[number] = _tolerated(statement)
            continue
        if not isinstance(statement, _RUNS) or not _calls(statement):
            continue
        called = _calls(statement) & own
        if called and all(map(TEST.match, called)) and not any((reads - _reads(statement))[name] for name in _stores(statement)):
            left_out[f"line {statement.lineno}, {', '.join(sorted(called))}"] = "a test of the file's own, not run"
            tree.body[number] = ast.copy_location(ast.Pass(), statement)
        else:
            tree.body[number] = _tolerated(statement)
    ast.fix_missing_locations(tree)
    return left_out


def _calls(statement: ast.stmt) -> set[str]:
    """Return the names that are called, or whose attribute is: `test()`, `benchmark.run(…)`; none of functions defined within."""
    names: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            function = node.func
            while isinstance(function, ast.Attribute | ast.Subscript):
                function = function.value
            if isinstance(function, ast.Name):
                names.add(function.id)
    return names


def _reads(tree: ast.AST) -> Counter[str]:
    return Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))


def _stores(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _tolerated(statement: ast.stmt) -> ast.stmt:
    error = "__ridgepoint_error__"
    names: list[str] = []
    if isinstance(statement, ast.ImportFrom):
        names = [alias.asname or alias.name for alias in statement.names]
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        names = sorted(_stores(statement))
    elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        names = [statement.name]
    call = ast.Call(ast.Name(FAILED, ast.Load()), [ast.Constant(statement.lineno), ast.Name(error, ast.Load())], [])
    named = ast.Assign([ast.Name(name, ast.Store()) for name in names], call) if names else ast.Expr(call)
    handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), error, [named])
    return ast.copy_location(ast.Try([statement], [handler], [], []), statement)
