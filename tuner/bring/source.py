"""Kernels of a Python file, read from its text: nothing is imported and nothing runs.

Found are functions under `@triton.jit`, `@triton.autotune` and `@helion.kernel`, and calls of
`TritonOperator` and `CudaOperator`. What an argument is
follows from its use: what `tl.load` and `tl.store` are given as an address is a pointer, what is read from one and then used in an
address is an index.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.bring.literals import UNKNOWN, configs_of, literal
from tuner.bring.uses import Argument, Uses, dotted

MAX_FILE_BYTES = 2 << 20
MAX_NODES = 200_000
FLOATS = ("eps", "epsilon", "scale", "alpha", "beta", "dropout", "prob", "momentum", "lr", "rate", "slope", "softcap", "threshold")
OPERATORS = ("TritonOperator", "CudaOperator")         # records of what has all pieces: tuner.team.adapter
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class FileRefused(ValueError):
    """A file that cannot be read as Python; the text says why."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of a file.

    kind      "triton.jit", "triton.autotune", "helion.kernel", "TritonOperator" or "CudaOperator"
    configs   of `@triton.autotune` or `@helion.kernel` where they can be read from the text; None where they are computed
    key       argument names of `@triton.autotune`
    pruned    whether `prune_configs_by` narrows the list
    fixed     constexprs, and options of the launch, that a call in the same file gives: UNKNOWN where it computes them
    calls     names in its body, of other kernels that it calls too
    tiles     names of the constexprs of each accumulator (`tl.zeros((BLOCK_M, BLOCK_N))`)
    loops     whether it has a loop, whose loads can be pipelined
    grid      of the first launch in the file, as a function of `meta`; "" where it is computed from anything but arguments
    """

    name: str
    kind: str
    line: int
    arguments: tuple[Argument, ...] = ()
    configs: tuple[dict[str, Any], ...] | None = ()
    key: tuple[str, ...] = ()
    pruned: bool = False
    fixed: dict[str, Any] = field(default_factory=dict)
    calls: frozenset[str] = frozenset()
    tiles: tuple[tuple[str, ...], ...] = ()
    loops: bool = False
    grid: str = ""

    @property
    def constexprs(self) -> tuple[Argument, ...]:
        return tuple(each for each in self.arguments if each.kind == "constexpr")


def kernels_of(text: str) -> list[Kernel]:
    """Return what the file holds, in its order, without functions that only other kernels of it call. Raises FileRefused."""
    if len(text) > MAX_FILE_BYTES:
        raise FileRefused(f"{len(text):,} characters; at most {MAX_FILE_BYTES:,}")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise FileRefused(f"no Python: {getattr(error, 'msg', error)}" + (f" in line {line}" if line else "")) from error
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise FileRefused(f"more than {MAX_NODES:,} parts")
    functions = {each.name: each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and _kind(each)}
    arguments = _all_arguments(functions)
    launches = {name: (values, grid) for name, values, grid in reversed(list(_launches(tree, functions)))}      # the first holds
    found = [_kernel(each, arguments[name], *launches.get(name, ({}, ""))) for name, each in functions.items()]
    called = frozenset[str]().union(*(each.calls for each in found if each.kind != "helion.kernel")) - set(launches)
    kernels = [each for each in found if each.name not in called or each.kind != "triton.jit"]
    return sorted([*kernels, *_operators(tree)], key=lambda each: each.line)


def _kind(function: ast.FunctionDef) -> str:
    """Return what its decorators make of a function; "" where it is no kernel."""
    names = {dotted(each.func if isinstance(each, ast.Call) else each) for each in function.decorator_list}
    last = {name.rpartition(".")[2]: name for name in names}
    if "autotune" in last and "jit" in last:
        return "triton.autotune"
    if "jit" in last and last["jit"] in ("jit", "triton.jit", "tl.jit", "gluon.jit"):
        return "triton.jit"
    return "helion.kernel" if {"helion.kernel", "kernel"} & names and any("kernel" in name for name in names) else ""


def _kernel(function: ast.FunctionDef, arguments: tuple[Argument, ...], launched: dict[str, Any], grid: str) -> Kernel:
    kind = _kind(function)
    constexprs = {each.name for each in arguments if each.kind == "constexpr"}
    kernel = Kernel(function.name, kind, function.lineno, arguments, grid=grid, calls=frozenset(_called(function)),
                    tiles=tuple(_tiles(function)), loops=any(isinstance(each, ast.For | ast.While) for each in ast.walk(function)),
                    fixed={name: value for name, value in launched.items() if name in LAUNCH_OPTIONS or name in constexprs})
    for call in function.decorator_list:
        name = dotted(call.func if isinstance(call, ast.Call) else call).rpartition(".")[2]
        if isinstance(call, ast.Call) and name in ("autotune", "kernel"):
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            given |= dict(zip(("configs", "key") if name == "autotune" else (), call.args, strict=False))
            listed = given.get("configs", given.get("config"))
            keys = literal(given["key"]) if "key" in given else ()
            kernel = replace(kernel, configs=configs_of(listed) if listed is not None else kernel.configs,
                             key=tuple(map(str, keys)) if isinstance(keys, list | tuple) else (),
                             pruned="prune_configs_by" in given)
    return kernel


def _called(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the names in its body: functions that it calls, or hands to tl.reduce and tl.associative_scan."""
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                yield node.id


def _tiles(function: ast.FunctionDef) -> Iterator[tuple[str, ...]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in ("zeros", "full") and node.args:
            shape = node.args[0]
            extents = shape.elts if isinstance(shape, ast.List | ast.Tuple) else []
            names = [each.id for each in extents if isinstance(each, ast.Name)]
            if len(names) == 2:
                yield tuple(names)


def _operators(tree: ast.Module) -> Iterator[Kernel]:
    for node in ast.walk(tree):
        kind = dotted(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and kind in OPERATORS:
            name = next((literal(each.value) for each in node.keywords if each.arg == "name"), UNKNOWN)
            yield Kernel(name if isinstance(name, str) else "?", kind, node.lineno)


def _launches(tree: ast.Module, functions: dict[str, ast.FunctionDef]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield (kernel, arguments with their literal values, grid) of `kernel[grid](…)`: what the file itself launches it with."""
    grids = {target.id: node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets
             if isinstance(target, ast.Name) and isinstance(node.value, ast.Lambda | ast.Tuple)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name):
            name = node.func.value.id
            if name in functions:
                names = [each.arg for each in functions[name].args.args]
                given = [*zip(names, node.args, strict=False), *((each.arg, each.value) for each in node.keywords if each.arg)]
                grid = node.func.slice
                if isinstance(grid, ast.Name):
                    grid = grids.get(grid.id, grid)
                yield name, {argument: literal(value) for argument, value in given if argument}, _grid(grid, [
                    (argument, value) for argument, value in given if argument])


def _grid(node: ast.expr, given: list[tuple[str, ast.expr]]) -> str:
    """Return the grid as a lambda of `meta` in terms of the kernel's arguments; "" where that cannot be told."""
    parameter = "meta"
    if isinstance(node, ast.Lambda):
        parameter, node = (node.args.args[0].arg if len(node.args.args) == 1 else ""), node.body
    if not parameter or not isinstance(node, ast.Tuple):
        return ""
    of_local = {value.id: argument for argument, value in reversed(given) if isinstance(value, ast.Name)}
    unknown: set[str] = set()

    class InMeta(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            if name.id in of_local:
                return ast.parse(f"meta[{of_local[name.id]!r}]", mode="eval").body
            if name.id not in (parameter, "triton", "min", "max"):
                unknown.add(name.id)
            return ast.Name("meta") if name.id == parameter else name

    text = ast.unparse(ast.fix_missing_locations(InMeta().visit(ast.parse(ast.unparse(node), mode="eval").body)))
    return "" if unknown else f"lambda meta: {text}".replace("'", '"')


def _all_arguments(functions: dict[str, ast.FunctionDef]) -> dict[str, tuple[Argument, ...]]:
    """Return the arguments of every kernel; a pointer that is handed on to another is found in that one."""
    known: dict[str, tuple[Argument, ...]] = {}
    for _ in range(4):                      # as deep as kernels call each other
        before, known = known, {name: _arguments(each, known) for name, each in functions.items()}
        if known == before:
            break
    return known


def _arguments(function: ast.FunctionDef, known: dict[str, tuple[Argument, ...]]) -> tuple[Argument, ...]:
    uses = Uses(function, known)
    defaults: dict[str, Any] = {}
    positional = [*function.args.posonlyargs, *function.args.args]
    for each, default in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        defaults[each.arg] = literal(default)
    for each, at in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if at is not None:
            defaults[each.arg] = literal(at)
    return tuple(Argument(each.arg, _argument_kind(each, defaults.get(each.arg, UNKNOWN), uses),
                          defaults.get(each.arg, UNKNOWN), each.arg in uses.written, each.arg in uses.locating)
                 for each in (*positional, *function.args.kwonlyargs))


def _argument_kind(argument: ast.arg, default: Any, uses: Uses) -> str:
    name, annotation = argument.arg, ast.unparse(argument.annotation) if argument.annotation else ""
    if "constexpr" in annotation:
        return "constexpr"
    if name in uses.descriptors:
        return "descriptor"
    if name in uses.pointers or name.lower().endswith("ptr"):
        return "index" if name in uses.indices else "pointer"
    if isinstance(default, float) or "float" in annotation or any(name.lower().strip("_").endswith(each) for each in FLOATS):
        return "number"
    return "integer"
