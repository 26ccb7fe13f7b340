"""How a kernel uses its arguments, read from its text."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from tuner.bring.literals import UNKNOWN

ADDRESSED = {"load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas", "atomic_or", "atomic_and",
             "atomic_xor", "make_block_ptr", "make_tensor_descriptor"}
SAME_ADDRESS = {"multiple_of", "max_contiguous", "advance", "cast", "make_block_ptr", "broadcast_to"}     # as their first argument
_TMA = re.compile(r"^async_(?:copy|gather|scatter|load|store|atomic)\w*|^async_tma_|^copy_global_to_shared|^copy_shared_to_global")
WRITING = ADDRESSED - {"load", "make_block_ptr", "make_tensor_descriptor"}


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel.

    kind     "pointer", "index" (a pointer to whole numbers), "descriptor" (of TMA, made by the host), "integer", "number" (floating
             point), "constexpr"
    written  whether the kernel stores through it
    locates  whether addresses are computed from it
    dtype    torch's name of the type that the host gives it, where the file tells
    loaded   whether it reads through it, an atomic operation included
    """

    name: str
    kind: str
    default: Any = UNKNOWN
    written: bool = False
    locates: bool = False
    dtype: str = ""
    loaded: bool = False


def dotted(node: ast.AST) -> str:
    """Return "a.b.c" of an attribute of names; "" of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


class Uses:
    """How a kernel uses its arguments: `pointers`, `written` ones, `indices`, `descriptors` and `locating` ones, by name."""

    def __init__(self, function: ast.FunctionDef, known: dict[str, tuple[Argument, ...]]) -> None:
        self.names = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        self.pointers: set[str] = set()
        self.written: set[str] = set()
        self.loaded: set[str] = set()
        self.indices: set[str] = set()
        self.descriptors: set[str] = set()
        self.locating: set[str] = set()
        self._assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    value = node.value
                    if isinstance(node, ast.AugAssign) and isinstance(target, ast.Name):        # p += step is p = p + step
                        value = ast.BinOp(ast.Name(target.id, ast.Load()), node.op, node.value)
                    self._assign(target, value)
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        for call in calls:
            self._read_call(call, known)
        self._find_indices(function, calls, known)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._assigned.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for element, its in zip(target.elts, value.elts, strict=True):
                self._assign(element, its)

    def _read_call(self, call: ast.Call, known: dict[str, tuple[Argument, ...]]) -> None:
        name = dotted(call.func)
        last = name.rpartition(".")[2]
        if last in ADDRESSED and name.partition(".")[0] in ("tl", "triton", "language", "ttl", "gl", "ttgl", "gluon", last):
            bases = set[str]().union(*(self._bases(address, 0) for address in _address(call)))
            self.pointers |= bases
            self.written |= bases if last in WRITING else set()
            self.loaded |= bases if last == "load" or last.startswith("atomic") else set()
        elif last in ("load", "store", "gather", "scatter") and name.count(".") == 1 and name.partition(".")[0] in self.names:
            self.descriptors.add(name.partition(".")[0])
            self.written |= {name.partition(".")[0]} if last in ("store", "scatter") else set()
        elif _TMA.search(last) and call.args:
            described = {node.id for node in call.args[:1] if isinstance(node, ast.Name) and node.id in self.names}
            self.descriptors |= described
            self.written |= described if last.endswith("to_global") or "reduce" in last else set()
        elif name in known:
            for argument, value in _given(known[name], call):
                if argument.kind == "descriptor" and isinstance(value, ast.Name) and value.id in self.names:
                    self.descriptors.add(value.id)
                    self.written |= {value.id} if argument.written else set()
                elif argument.kind in ("pointer", "index"):
                    bases = self._bases(value, 0)
                    self.pointers |= bases
                    self.written |= bases if argument.written else set()
                    self.loaded |= bases if argument.loaded else set()
                    self.indices |= bases if argument.kind == "index" else set()

    def _bases(self, node: ast.expr, depth: int) -> set[str]:
        """Return the arguments that an address starts from: of a sum its first part that is one."""
        if depth > 12:
            return set()
        if isinstance(node, ast.Name):
            if node.id in self.names and node.id not in self._assigned:
                return {node.id}
            bases = {node.id} if node.id in self.names else set()
            return bases.union(*(self._bases(expression, depth + 1) for expression in self._assigned.get(node.id, ())
                                 if not (isinstance(expression, ast.BinOp) and node.id in _names(expression))))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            left, right = self._bases(node.left, depth + 1), self._bases(node.right, depth + 1)
            for side in (left, right):
                if any(name.lower().endswith("ptr") for name in side):
                    return side
            return left or right
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cast"):
            return self._bases(node.func.value, depth + 1)
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in SAME_ADDRESS:
            return set[str]().union(*(self._bases(expression, depth + 1) for expression in _address(node)))
        if isinstance(node, ast.IfExp):
            return self._bases(node.body, depth + 1) | self._bases(node.orelse, depth + 1)
        if isinstance(node, ast.Subscript):
            return self._bases(node.value, depth + 1)
        return set()

    def _find_indices(self, function: ast.FunctionDef, calls: list[ast.Call], known: dict[str, tuple[Argument, ...]]) -> None:
        """What is loaded and then used in an address, in a range or by its bits is a whole number."""
        loaded: dict[str, set[str]] = {}
        for name, values in self._assigned.items():
            for value in values:
                for call in (node for node in ast.walk(value) if isinstance(node, ast.Call)):
                    if dotted(call.func).rpartition(".")[2] == "load" and call.args:
                        loaded.setdefault(name, set()).update(self._bases(call.args[0], 0))
        used: set[str] = set()
        for call in calls:
            last = dotted(call.func).rpartition(".")[2]
            if last in ADDRESSED and call.args:
                used |= self._reached(call.args[0])
            elif last in known:
                used |= set[str]().union(*(self._reached(value) for argument, value in _given(known[last], call)
                                           if argument.kind == "integer" and argument.locates))
            elif last in ("range", "static_range", "cdiv"):
                used |= set[str]().union(*(self._reached(expression) for expression in call.args))
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift | ast.LShift | ast.BitXor):
                used |= _names(node)
        self.locating = used & self.names
        for name in used & loaded.keys():
            self.indices |= loaded[name]

    def _reached(self, node: ast.expr) -> set[str]:
        """Return all names that a value is computed from, those inside of loads left out."""
        names, left = set[str](), [node]
        while left:
            for name in _values(left.pop()) - names:
                names.add(name)
                left += self._assigned.get(name, ())
        return names


def _address(call: ast.Call) -> list[ast.expr]:
    """Return the address that a call of Triton's is given: first, or as pointer, base, input."""
    return call.args[:1] or [keyword.value for keyword in call.keywords if keyword.arg in ("pointer", "base", "input")]


def _values(node: ast.AST) -> set[str]:
    """Return the names that a value is made of: neither those inside of loads nor what `where` and comparisons only look at."""
    if isinstance(node, ast.Compare):
        return set()
    if isinstance(node, ast.Call):
        last = dotted(node.func).rpartition(".")[2]
        if last == "load":
            return set()
        if last == "where" and len(node.args) == 3:
            return _values(node.args[1]) | _values(node.args[2])
    if isinstance(node, ast.Name):
        return {node.id}
    return set[str]().union(*(_values(child) for child in ast.iter_child_nodes(node)))


def _given(arguments: tuple[Argument, ...], call: ast.Call) -> list[tuple[Argument, ast.expr]]:
    """Return each argument of a kernel with what the call gives for it."""
    return [*zip(arguments, call.args, strict=False),
            *((argument, keyword.value) for keyword in call.keywords for argument in arguments if argument.name == keyword.arg)]


def _names(node: ast.AST, inside_loads: bool = True) -> set[str]:
    if not inside_loads and isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == "load":
        return set()
    if isinstance(node, ast.Name):
        return {node.id}
    return set[str]().union(*(_names(child, inside_loads) for child in ast.iter_child_nodes(node)))
