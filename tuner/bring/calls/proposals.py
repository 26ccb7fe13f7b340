"""Calls that a file itself shows: in its tests and benchmarks, under `__main__`, else from the signatures of its host functions.

Read from the text; a proposal is shown and made only when somebody takes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from profiles.base.refused import Refused
from tuner.bring.calls.expression import MAKERS, read_call
from tuner.bring.uses import dotted

MOST, MOST_DEPTH = 12, 6
# sizes by what a dimension is called; the others are told apart by these in turn
_KNOWN = {**dict.fromkeys(("b", "z", "batch", "batch_size", "bs"), 4),
          **dict.fromkeys(("h", "heads", "n_heads", "hq", "hk", "e"), 8),
          **dict.fromkeys(("t", "s", "l", "seq", "seq_len", "seqlen"), 2048), **dict.fromkeys(("d", "dk", "dv", "head_dim"), 64),
          "rows": 4096, "cols": 1024, "outer": 8, "outermost": 4}
_FROM_THE_RIGHT = ("cols", "rows", "outer", "outermost")
_NUMBERS = {"eps": "1e-6", "epsilon": "1e-6", "dim": "-1", "axis": "-1", "scale": "1.0", "sm_scale": "0.125", "offset": "0.0"}
_IN_TURN = (4096, 1024, 2048, 512, 256, 128)
_ONE_ROW = ("weight", "bias", "gamma", "beta", "rstd", "mean")
_SHOWING = ("test", "bench", "main", "example", "demo", "run", "check")


def propose_calls(text: str) -> list[str]:
    """Return calls of the file's own functions that can be read, those that the file makes itself first; [] where none is seen."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    hosts = {statement.name: statement for statement in tree.body if isinstance(statement, ast.FunctionDef | ast.ClassDef)
             and not statement.name.lower().startswith(("test", "bench", "main")) and _launches(statement, tree)}
    calls: list[str] = []
    for call in [*_made(tree, hosts), *(_signature(host) for host in hosts.values() if isinstance(host, ast.FunctionDef))]:
        if len(calls) < MOST and call and call not in calls and _is_call(call):
            calls.append(call)
    return calls


def _is_call(text: str) -> bool:
    try:
        return bool(read_call(text))
    except Refused:
        return False


def _launches(host: ast.AST, tree: ast.Module) -> bool:
    """Return whether it launches a kernel, itself or through a function or class of the file that it names."""
    by_name = {statement.name: statement for statement in tree.body if isinstance(statement, ast.FunctionDef | ast.ClassDef)}
    names: set[str] = set()

    def reaches(node: ast.AST, depth: int) -> bool:
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(decorator) for decorator in node.decorator_list):
            return False
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Subscript) and isinstance(part.func.value, ast.Name):
                return True
            if isinstance(part, ast.Name) and part.id in by_name and part.id not in names and depth < MOST_DEPTH:
                names.add(part.id)
                if reaches(by_name[part.id], depth + 1):
                    return True
        return False

    return reaches(host, 0)


# ---- calls that the file makes ----

def _made(tree: ast.Module, hosts: Mapping[str, ast.AST]) -> Iterator[str]:
    """Yield calls of host functions in tests, benchmarks and under `__main__`, their variables put in."""
    scopes: list[tuple[list[ast.stmt], dict[str, ast.expr]]] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(node.name.lower().startswith(prefix) for prefix in _SHOWING):
            defaults = dict(zip([argument.arg for argument in node.args.args][len(node.args.args) - len(node.args.defaults):],
                                node.args.defaults, strict=False))
            scopes.append((node.body, {**defaults, **_parametrized(node)}))
        elif isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            scopes.append((node.body, {}))
    scopes.append(([part for part in tree.body if not isinstance(part, ast.FunctionDef | ast.ClassDef)], {}))
    for body, names in scopes:
        bindings = {**_constants(tree), **names}
        for statement in (inner for part in body for inner in ast.walk(part)):
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                _bind(statement.targets[0], statement.value, bindings)
            if isinstance(statement, ast.Call) and _host_of(statement) in hosts:
                yield ast.unparse(_put_in(statement, bindings, 0))


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    return {target.id: node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets if isinstance(target, ast.Name)}


def _bind(target: ast.expr, value: ast.expr, known: dict[str, ast.expr]) -> None:
    if isinstance(target, ast.Name):
        known[target.id] = value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for element, its in zip(target.elts, value.elts, strict=True):
            _bind(element, its, known)


def _parametrized(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the first value of each parameter of pytest.mark.parametrize."""
    by_name: dict[str, ast.expr] = {}
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and dotted(mark.func).endswith("parametrize") and len(mark.args) >= 2 and isinstance(
                mark.args[0], ast.Constant) and isinstance(mark.args[1], ast.List | ast.Tuple) and mark.args[1].elts:
            names, first = [name.strip() for name in str(mark.args[0].value).split(",")], mark.args[1].elts[0]
            values = first.elts if len(names) > 1 and isinstance(first, ast.Tuple | ast.List) else [first]
            by_name |= dict(zip(names, values, strict=False))
    return by_name


def _host_of(call: ast.Call) -> str:
    function = call.func
    while isinstance(function, ast.Attribute | ast.Call):
        function = function.value if isinstance(function, ast.Attribute) else function.func
    return function.id if isinstance(function, ast.Name) else ""


def _put_in(node: ast.expr, known: Mapping[str, ast.expr], depth: int) -> ast.expr:
    """Return the expression with what its names were assigned, `device=` of makers left out."""

    class Names(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            if name.id in known and depth < MOST_DEPTH and isinstance(name.ctx, ast.Load):
                return _put_in(known[name.id], {key: value for key, value in known.items() if key != name.id}, depth + 1)
            return name

        def visit_Call(self, call: ast.Call) -> ast.expr:
            self.generic_visit(call)
            last = dotted(call.func).rpartition(".")[2] or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
            call.keywords = [pair for pair in call.keywords if last not in MAKERS or pair.arg in ("dtype", "low", "high", "size")]
            is_place = last == "to" and not call.keywords and len(call.args) == 1 and isinstance(call.args[0], ast.Constant)
            if isinstance(call.func, ast.Attribute) and (is_place or last in ("cuda", "requires_grad_", "contiguous")):
                return call.func.value
            return call

    return Names().visit(ast.parse(ast.unparse(node), mode="eval").body)     # type: ignore[no-any-return]


# ---- calls from signatures ----

def _signature(function: ast.FunctionDef) -> str:
    """Return a call with a tensor for each parameter that is one, by the shape that the function takes apart; "" where none is."""
    ranks, names = _shapes(function)
    sizes: dict[str, int] = {}
    parts, tensors = [], 0
    required = function.args.args[:len(function.args.args) - len(function.args.defaults)]
    for argument in required:
        name, annotation = argument.arg, ast.unparse(argument.annotation) if argument.annotation else ""
        if name in ("self", "cls", "ctx"):
            return ""
        if any(kind in annotation for kind in ("int", "float", "bool", "str", "dtype")) and "Tensor" not in annotation:
            parts.append({"int": "128", "float": "1.0", "bool": "False", "str": '""'}.get(annotation, "None"))
        elif name.lower() in _NUMBERS and "Tensor" not in annotation:
            parts.append(_NUMBERS[name.lower()])
        elif name in ranks or "Tensor" in annotation or not annotation:
            tensors += 1
            rank = min(4, max(ranks.get(name, 1), 1 if name.lower() in _ONE_ROW else 2))
            dims = names.get(name) or list(reversed(_FROM_THE_RIGHT[:rank]))
            parts.append(f"randn({', '.join(str(_size(dim, sizes)) for dim in dims)})")
        else:
            parts.append("None")
    return f"{function.name}({', '.join(parts)})" if tensors else ""


def _shapes(function: ast.FunctionDef) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return name → rank, and name → names of its extents: from `M, K = a.shape` and `a.shape[1]`."""
    ranks: dict[str, int] = {}
    names: dict[str, list[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for value in values:
                shape = value.value if isinstance(value, ast.Starred) else value
                tensor = dotted(shape.func if isinstance(shape, ast.Call) else shape)
                if tensor.endswith((".shape", ".size")) and len(values) == 1:
                    right = list(reversed(_FROM_THE_RIGHT[:4]))[-len(node.targets[0].elts):]
                    extents = [element.id if isinstance(element, ast.Name) and element.id != "_" else place
                               for element, place in zip(node.targets[0].elts, right, strict=False)]
                    names.setdefault(tensor.rpartition(".")[0], extents)
        if isinstance(node, ast.Subscript) and dotted(node.value).endswith(".shape") and isinstance(node.slice, ast.Constant) \
                and isinstance(node.slice.value, int):
            tensor = dotted(node.value).rpartition(".")[0]
            ranks[tensor] = max(ranks.get(tensor, 1), node.slice.value + 1)
    for node in ast.walk(function):                 # N = b.shape[1] beside M, K = a.shape: b is K × N
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Subscript):
            tensor, axis = dotted(node.value.value), ast.unparse(node.value.slice)
            pair = next((axes for axes in names.values() if len(axes) == 2), None)
            if tensor.endswith(".shape") and axis == "1" and pair and pair[1] in ("K", "k"):
                names.setdefault(tensor.rpartition(".")[0], [pair[1], node.targets[0].id])
    return ranks, names


def _size(dim: str, sizes: dict[str, int]) -> int:
    key = dim.lower()
    if key not in sizes:
        free = [size for size in _IN_TURN if size not in sizes.values()]
        sizes[key] = _KNOWN.get(key) or (free or list(_IN_TURN))[0]
    return sizes[key]
