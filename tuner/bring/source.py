"""Kernels of a Python file, read from its text: nothing is imported and nothing runs.

Found are functions under `@triton.jit`, `@triton.autotune` and `@helion.kernel`, and calls of
`TritonOperator` and `CudaOperator`. What an argument is
follows from its use: what `tl.load` and `tl.store` are given as an address is a pointer, what is read from one and then used in an
address is an index.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from profiles.base.refused import Refused
from tuner.bring.branches import take_branches
from tuner.bring.literals import UNKNOWN, configs_of, literal, names_of
from tuner.bring.tiles import NO_STEPS, Steps, steps_of
from tuner.bring.uses import Argument, Uses, dotted

MAX_FILE_BYTES = 2 << 20
MAX_NODES = 200_000
MOST_DEPTH = 4              # as deep as kernels call each other
FLOATS = ("eps", "epsilon", "scale", "alpha", "beta", "dropout", "prob", "momentum", "lr", "rate", "slope", "softcap", "threshold")
JITS = ("jit", "triton.jit", "tl.jit", "gluon.jit")
OPERATORS = ("TritonOperator", "CudaOperator")         # records of what has all pieces: tuner.team.adapter
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


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
    heuristics  constexprs that @triton.heuristics computes
    steps     which constexprs a program's number or a loop steps by, and which are extents of its tiles
    launched  whether the file itself launches it
    used      names in its body
    dots      whether it has a matrix product
    function  the name of its function, where `name = triton.jit(function)` gives it another
    squares   whether it has tiles of two dimensions: `range[:, None]`
    waits     whether its programs wait for each other, so that all must run at once: `while tl.load(count) < n: pass`
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
    heuristics: frozenset[str] = frozenset()
    steps: Steps = NO_STEPS
    launched: bool = False
    used: frozenset[str] = frozenset()
    squares: bool = False
    waits: bool = False
    dots: bool = False
    function: str = ""

    @property
    def blocks(self) -> frozenset[str]:
        """Constexprs that are extents of a tile which a program's number or a loop moves."""
        return self.steps.moves & self.steps.ranges

    @property
    def constexprs(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.kind == "constexpr")


def kernels_of(text: str) -> list[Kernel]:
    """Return what the file holds, in its order, without functions that only other kernels call. Raises Refused."""
    tree = _parse(text)
    kernels = _all_kernels(tree)
    called = frozenset[str]().union(*(kernel.calls for kernel in kernels if kernel.kind != "helion.kernel"))
    kernels = [kernel for kernel in kernels if kernel.kind != "triton.jit" or kernel.launched
               or (kernel.name not in called and not _is_helper(kernel))]
    return sorted([*kernels, *_operators(tree)], key=lambda each: each.line)


def all_kernels_of(text: str, given: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Kernel]:
    """Return every function for Triton by its name, those that others call too. Raises Refused.

    `given`: function → values of its constexprs, for the branches that a launch with them takes.
    """
    tree = _parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in (given or {}):
            take_branches(node, (given or {})[node.name])
    return {kernel.name: kernel for kernel in _all_kernels(tree)}


def _is_helper(kernel: Kernel) -> bool:
    """Return whether it is for other functions to call: it takes no pointer and no descriptor, so it can leave no result."""
    return not any(arg.kind in ("pointer", "index", "descriptor") for arg in kernel.arguments) and bool(kernel.arguments)


def _parse(text: str) -> ast.Module:
    if len(text) > MAX_FILE_BYTES:
        raise Refused(f"{len(text):,} characters; at most {MAX_FILE_BYTES:,}")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise Refused(f"no Python: {getattr(error, 'msg', error)}" + (f" in line {line}" if line else "")) from error
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise Refused(f"more than {MAX_NODES:,} parts")
    return tree


def _all_kernels(tree: ast.Module) -> list[Kernel]:
    by_call = _jit_calls(tree)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
                 and (_kind(node) or node.name in by_call)}
    names = names_of(tree)
    steps = steps_of(functions)
    aliases = _aliases(tree, functions) | {variable: function for function, variable in by_call.items()}
    all_launches = list(_launches(tree, functions, aliases))
    launches = {name: (values, grid) for name, values, grid in reversed(all_launches)}      # the first holds
    arguments = _all_arguments(functions, _given_floats(tree, functions, aliases))
    dtypes = _given_dtypes(tree, functions, aliases)
    kernels = []
    for name, function in functions.items():
        typed = tuple(replace(argument, dtype=dtypes.get(name, {}).get(argument.name, "")) for argument in arguments[name])
        kernel = _kernel(function, typed, *launches.get(name, ({}, "")), names=names)
        kernels.append(replace(kernel, name=by_call.get(name, name), function=name, steps=steps[name], launched=name in launches))
    for _ in range(MOST_DEPTH):                     # a function that it calls may loop, or wait, for it
        looping = {code.function for code in kernels if code.loops}
        waiting = {code.function for code in kernels if code.waits}
        kernels = [replace(code, loops=code.loops or bool(code.calls & looping), waits=code.waits or bool(code.calls & waiting))
                   for code in kernels]
    return kernels


def _jit_calls(tree: ast.Module) -> dict[str, str]:
    """Return function → variable of `variable = triton.jit(function)`."""
    calls = [(node.value, node.targets) for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
             and dotted(node.value.func) in JITS and node.value.args]
    return {call.args[0].id: target.id for call, targets in calls if isinstance(call.args[0], ast.Name)
            for target in targets if isinstance(target, ast.Name)}


def _aliases(tree: ast.Module, functions: Mapping[str, ast.FunctionDef]) -> dict[str, str]:
    """Return variable → kernel of `f = kernel`, also under a condition: what is launched by another name."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.IfExp):
            kernels = [part.id for part in ast.walk(node.value) if isinstance(part, ast.Name) and part.id in functions]
            if len(set(kernels)) == 1:
                aliases |= {target.id: kernels[0] for target in node.targets if isinstance(target, ast.Name)}
    return aliases


def _kind(function: ast.FunctionDef) -> str:
    """Return what its decorators make of a function; "" where it is no kernel."""
    names = {dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) for decorator in function.decorator_list}
    last = {name.rpartition(".")[2]: name for name in names}
    if "jit" in last and last["jit"] in JITS:
        return "triton.autotune" if "autotune" in last or _own_autotuner(function) is not None else "triton.jit"
    return "helion.kernel" if {"helion.kernel", "kernel"} & names and any("kernel" in name for name in names) else ""


def _own_autotuner(function: ast.FunctionDef) -> ast.Call | None:
    """Return a decorator that is given `configs`, whatever its name: a team's own around triton.autotune."""
    return next((decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call)
                 and any(keyword.arg == "configs" for keyword in decorator.keywords)), None)


def _is_waiting(loop: ast.While) -> bool:
    """Return whether a loop does nothing until others have written; not one that takes a lock, which some program always holds."""
    def reads(call: ast.Call) -> bool:
        name = dotted(call.func).rpartition(".")[2]
        return name in ("load", "atomic_add", "atomic_or", "atomic_max") or (
            name == "atomic_cas" and len(call.args) > 2 and ast.unparse(call.args[1]) == ast.unparse(call.args[2]))

    calls = [node for node in ast.walk(loop.test) if isinstance(node, ast.Call)]
    return all(isinstance(statement, ast.Pass) for statement in loop.body) and any(map(reads, calls))


def _kernel(function: ast.FunctionDef, arguments: tuple[Argument, ...], launched: dict[str, Any], grid: str, *,
            names: Mapping[str, Any]) -> Kernel:
    kind = _kind(function) or "triton.jit"
    constexprs = {argument.name for argument in arguments if argument.kind == "constexpr"}
    names_used = frozenset(_called(function))
    kernel = Kernel(function.name, kind, function.lineno, arguments, grid=grid, calls=names_used, used=names_used,
                    dots=any(isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in ("dot", "dot_scaled")
                             for node in ast.walk(function)),
                    squares=any(isinstance(node, ast.Subscript) and "None" in ast.unparse(node.slice)
                                for node in ast.walk(function)),
                    waits=any(isinstance(node, ast.While) and _is_waiting(node) for node in ast.walk(function)),
                    tiles=tuple(_tiles(function)), loops=any(isinstance(node, ast.For | ast.While) for node in ast.walk(function)),
                    fixed={name: value for name, value in launched.items() if name in LAUNCH_OPTIONS or name in constexprs})
    for call in function.decorator_list:
        if not isinstance(call, ast.Call):
            continue
        name = dotted(call.func).rpartition(".")[2]
        if name == "heuristics":
            rules = call.args[0] if call.args else next((pair.value for pair in call.keywords if pair.arg == "values"), None)
            kernel = replace(kernel, heuristics=frozenset(_keys(rules, names)))
        elif name in ("autotune", "kernel") or call is _own_autotuner(function):
            expressions = {keyword.arg: keyword.value for keyword in call.keywords}
            expressions |= dict(zip(("configs", "key") if name != "kernel" else (), call.args, strict=False))
            listed = expressions.get("configs", expressions.get("config"))
            keys = literal(expressions["key"], names) if "key" in expressions else ()
            kernel = replace(kernel, configs=configs_of(listed, names) if listed is not None else kernel.configs,
                             key=tuple(map(str, keys)) if isinstance(keys, list | tuple) else (),
                             pruned="prune_configs_by" in expressions)
    return kernel


def _keys(rules: ast.expr | None, names: Mapping[str, Any]) -> Iterator[str]:
    """Yield what @triton.heuristics computes: the keys of its mapping, written there or under a name of the module."""
    if isinstance(rules, ast.Name):
        rules = names.get(f"={rules.id}")
    if isinstance(rules, ast.Dict):
        yield from (key.value for key in rules.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


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
            names = [extent.id for extent in extents if isinstance(extent, ast.Name)]
            if len(names) == 2:
                yield tuple(names)


def _operators(tree: ast.Module) -> Iterator[Kernel]:
    for node in ast.walk(tree):
        kind = dotted(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and kind in OPERATORS:
            name = next((literal(keyword.value) for keyword in node.keywords if keyword.arg == "name"), UNKNOWN)
            yield Kernel(name if isinstance(name, str) else "?", kind, node.lineno)


def _launches(tree: ast.Module, functions: Mapping[str, ast.FunctionDef], aliases: Mapping[str, str]
              ) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield (kernel, arguments with their literal values, grid) of `kernel[grid](…)`: what the file itself launches it with."""
    for scope, node in _calls_in(tree):
        kernel = aliases.get(node.func.value.id, node.func.value.id)            # type: ignore[attr-defined]
        if kernel not in functions:
            continue
        grids = {target.id: part.value for part in ast.walk(scope) if isinstance(part, ast.Assign) for target in part.targets
                 if isinstance(target, ast.Name) and isinstance(part.value, ast.Lambda | ast.Tuple)}
        names = _locals_of(scope)
        arguments = _given_in(functions[kernel], node)
        grid = node.func.slice                                                  # type: ignore[attr-defined]
        if isinstance(grid, ast.Name):
            grid = grids.get(grid.id, grid)
        yield kernel, {argument: literal(value, names) for argument, value in arguments}, _grid(grid, arguments)


def _calls_in(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Call]]:
    """Yield each launch with the function that makes it."""
    inside: dict[int, ast.AST] = {}
    for function in ast.walk(tree):                         # outer functions first: the innermost holds
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            inside |= {id(node): function for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name):
            yield inside.get(id(node), tree), node


def _given_in(function: ast.FunctionDef, call: ast.Call) -> list[tuple[str, ast.expr]]:
    return [*zip((argument.arg for argument in function.args.args), call.args, strict=False),
            *((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)]


def _locals_of(scope: ast.AST) -> dict[str, Any]:
    """Return names of a function with the one literal that each is assigned, or has as its default; none that is assigned twice."""
    values: dict[str, list[Any]] = {}

    def note(target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            values.setdefault(target.id, []).append(literal(value) if value is not None else UNKNOWN)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else [
                None] * len(target.elts)
            for element, part in zip(target.elts, parts, strict=True):
                note(element, part)

    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                note(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr):
            note(node.target, node.value if isinstance(node, ast.AnnAssign) else None)
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        positional = [*scope.args.posonlyargs, *scope.args.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(scope.args.defaults)) + list(scope.args.defaults)
        for argument, default in [*zip(positional, defaults, strict=True),
                                  *zip(scope.args.kwonlyargs, scope.args.kw_defaults, strict=True)]:
            note(ast.Name(argument.arg), default)
    return {name: literals[0] for name, literals in values.items()
            if len(literals) == 1 and literals[0] is not UNKNOWN and literals[0] is not None}


def _given_floats(tree: ast.Module, functions: Mapping[str, ast.FunctionDef], aliases: Mapping[str, str]) -> dict[str, set[str]]:
    """Return kernel → arguments for which the host gives a fraction: a literal, float(…), or a parameter that is one."""
    by_kernel: dict[str, set[str]] = {}
    for scope, node in _calls_in(tree):
        kernel = aliases.get(node.func.value.id, node.func.value.id)            # type: ignore[attr-defined]
        if kernel not in functions:
            continue
        values = _locals_of(scope)
        annotated = {parameter.arg for parameter in (*scope.args.args, *scope.args.kwonlyargs) if parameter.annotation is not None
                     and "float" in ast.unparse(parameter.annotation)} if isinstance(scope, ast.FunctionDef) else set()
        for argument, value in _given_in(functions[kernel], node):
            if isinstance(literal(value, values), float) or (isinstance(value, ast.Name) and value.id in annotated) or (
                    isinstance(value, ast.Call) and dotted(value.func) in ("float", "math.sqrt")) or (
                    isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)):
                by_kernel.setdefault(kernel, set()).add(argument)
    return by_kernel


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


def _given_dtypes(tree: ast.Module, functions: Mapping[str, ast.FunctionDef], aliases: Mapping[str, str]
                  ) -> dict[str, dict[str, str]]:
    """Return kernel → argument → dtype that the host gives it: `x.to(torch.int32)`, `torch.zeros(…, dtype=torch.int32)`."""
    by_kernel: dict[str, dict[str, str]] = {}
    for scope, node in _calls_in(tree):
        kernel = aliases.get(node.func.value.id, node.func.value.id)            # type: ignore[attr-defined]
        if kernel not in functions:
            continue
        dtypes_by_name: dict[str, set[str]] = {}
        for part in ast.walk(scope):
            if isinstance(part, ast.Assign) and len(part.targets) == 1 and isinstance(part.targets[0], ast.Name):
                dtypes_by_name.setdefault(part.targets[0].id, set()).add(_dtype_of(part.value))
        for argument, value in _given_in(functions[kernel], node):
            dtypes = dtypes_by_name.get(value.id, {""}) if isinstance(value, ast.Name) else {_dtype_of(value)}
            if len(dtypes) == 1 and (dtype := next(iter(dtypes))):
                by_kernel.setdefault(kernel, {}).setdefault(argument, dtype)
    return by_kernel


def _dtype_of(value: ast.expr) -> str:
    """Return the dtype that an expression makes its tensor of; "" where it says none."""
    if not isinstance(value, ast.Call):
        return ""
    last = dotted(value.func).rpartition(".")[2] or (value.func.attr if isinstance(value.func, ast.Attribute) else "")
    expression = next((keyword.value for keyword in value.keywords if keyword.arg == "dtype"), None)
    if last in ("to", "view", "type") and value.args and expression is None:
        expression = value.args[0]
    name = dotted(expression) if expression is not None else ""
    return name.removeprefix("torch.") if name.startswith("torch.") and name.count(".") == 1 else ""


def _all_arguments(functions: dict[str, ast.FunctionDef], floats: Mapping[str, set[str]]) -> dict[str, tuple[Argument, ...]]:
    """Return the arguments of every kernel; a pointer that is handed on to another is found in that one."""
    by_name: dict[str, tuple[Argument, ...]] = {}
    for _ in range(MOST_DEPTH):
        before, by_name = by_name, {
            name: _arguments(function, by_name, floats.get(name, set())) for name, function in functions.items()}
        if by_name == before:
            break
    return by_name


def _arguments(function: ast.FunctionDef, known: dict[str, tuple[Argument, ...]], floats: set[str]) -> tuple[Argument, ...]:
    uses = Uses(function, known)
    defaults: dict[str, Any] = {}
    positional = [*function.args.posonlyargs, *function.args.args]
    for argument, default in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        defaults[argument.arg] = literal(default)
    for argument, fallback in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if fallback is not None:
            defaults[argument.arg] = literal(fallback)
    return tuple(Argument(argument.arg, _argument_kind(argument, defaults.get(argument.arg, UNKNOWN), uses, floats),
                          defaults.get(argument.arg, UNKNOWN), argument.arg in uses.written, argument.arg in uses.locating,
                          loaded=argument.arg in uses.loaded)
                 for argument in (*positional, *function.args.kwonlyargs))


def _argument_kind(argument: ast.arg, default: Any, uses: Uses, floats: set[str]) -> str:
    name, annotation = argument.arg, ast.unparse(argument.annotation) if argument.annotation else ""
    if "constexpr" in annotation:
        return "constexpr"
    if name in uses.descriptors:
        return "descriptor"
    if name in uses.pointers or name.lower().endswith("ptr"):
        return "index" if name in uses.indices else "pointer"
    sounds_so = any(name.lower().strip("_").endswith(suffix) for suffix in FLOATS)
    if isinstance(default, float) or "float" in annotation or name in floats or sounds_so:
        return "number"
    return "integer"
