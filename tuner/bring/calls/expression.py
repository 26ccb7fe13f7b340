"""A call as people write it, `softmax(randn(8192, 4096), dim=-1)`, read as a restricted expression that Python itself never runs.

Allowed are the file's own names and attributes of them, makers of tensors (with or without `torch.`), torch's other functions of
tensors and `torch.nn`, dtypes, numbers, texts, None, lists, tuples, dictionaries by text, keyword arguments, arithmetic,
methods and parts of tensors, and `SimpleNamespace(…)` for an object of which a function reads attributes.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

from profiles.base.refused import Refused

MAX_CHARS, MAX_NODES, MAX_DEPTH, MAX_NUMBER, MAX_RANK = 2000, 300, 24, 1 << 40, 8
MAX_ELEMENTS = 1 << 40
MAKERS = ("randn", "rand", "empty", "zeros", "ones", "randint", "arange", "full", "tensor", "randperm")
MOST_POWER = 64
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn", "fp64": "float64",
          **{name: name for name in ("bfloat16", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "int8", "uint8",
                                     "int16", "int32", "int64", "half", "float", "long", "complex64", "complex128", "bool",
                                     "double", "short", "int", "uint16", "uint32", "uint64", "float8_e8m0fnu")}}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow}


@dataclass(frozen=True)
class CallExpression:
    """A call that was read: its text, its tree, the whole numbers in it of at least 2 in their order, the function's name."""

    text: str
    tree: ast.expr = field(repr=False, compare=False)
    sizes: tuple[int, ...] = ()
    function: str = ""


def read_call(text: str) -> CallExpression:
    """Return the call. Raises Refused with what is wrong."""
    text = text.strip()
    if not text or len(text) > MAX_CHARS:
        raise Refused(f"a call has 1 to {MAX_CHARS:,} characters, like softmax(randn(8192, 4096))")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"no call: {getattr(error, 'msg', error)}: write one like softmax(randn(8192, 4096))") from error
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise Refused(f"more than {MAX_NODES} parts")
    _check(tree, 0)
    if not isinstance(tree, ast.Call | ast.Subscript) or _root(tree) in MAKERS:
        raise Refused("a call of a function of the file is needed, like softmax(randn(8192, 4096))")
    return CallExpression(text, tree, tuple(dict.fromkeys(_numbers(tree))), _root(tree))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _numbers(tree: ast.expr) -> list[int]:
    """Return the whole numbers of a call that may be others: no powers, and none within brackets."""
    fixed = [part.slice for part in ast.walk(tree) if isinstance(part, ast.Subscript)]
    fixed += [part.right for part in ast.walk(tree) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow)]
    stay = {id(node) for expression in fixed for node in ast.walk(expression)}
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 2
            and id(node) not in stay]


def _check(node: ast.AST, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Refused(f"nested deeper than {MAX_DEPTH}")
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bytes | complex) or node.value is Ellipsis or (
                isinstance(node.value, int) and abs(node.value) > MAX_NUMBER):
            raise Refused(f"{str(node.value)[:40]}: numbers up to {MAX_NUMBER:,}, texts, True, False and None are allowed")
        return
    if isinstance(node, ast.Name):
        if node.id.startswith("__"):
            raise Refused(f"{node.id[:40]}: no name of the file")
        return
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("_"):
            raise Refused(f".{node.attr[:40]}: names that begin with _ are not reached")
        _check(node.value, depth + 1)
        return
    if isinstance(node, ast.Subscript):         # one of several results, a part of a tensor
        _check(node.value, depth + 1)
        for element in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            for bound in (element.lower, element.upper, element.step) if isinstance(element, ast.Slice) else (element,):
                if bound is not None and not _is_place(bound):
                    raise Refused(f"{ast.unparse(node)[-40:]}: parts are told by numbers, like [0] and [:, :64]")
        return
    if isinstance(node, ast.Call):
        if any(pair.arg is None for pair in node.keywords) or any(isinstance(argument, ast.Starred) for argument in node.args):
            raise Refused("* and ** are not allowed: write the arguments out")
        for child in (node.func, *node.args, *(keyword.value for keyword in node.keywords)):
            _check(child, depth + 1)
        return
    if isinstance(node, ast.List | ast.Tuple):
        for child in node.elts:
            _check(child, depth + 1)
        return
    if isinstance(node, ast.Dict):              # a struct of C++
        for key, child in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or not key.value.isidentifier():
                raise Refused("a struct is given by its fields: {\"rows\": 4096, \"x\": randn(4096, 64)}")
            _check(child, depth + 1)
        return
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        _check(node.operand, depth + 1)
        return
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        if isinstance(node.op, ast.Pow) and not _is_power(node.right):
            raise Refused(f"{ast.unparse(node)[:60]}: powers are numbers up to {MOST_POWER}")
        _check(node.left, depth + 1)
        _check(node.right, depth + 1)
        return
    raise Refused(f"{ast.unparse(node)[:60] if isinstance(node, ast.expr) else type(node).__name__}: only calls, tensors "
                  f"({', '.join(MAKERS)}), dtypes, numbers, texts, lists, tuples, dictionaries and keyword arguments are allowed")


def _is_power(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value <= MOST_POWER


def _is_place(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(node, ast.Constant) and (node.value is None or node.value is Ellipsis or type(node.value) in (int, str))


class Evaluation:
    """A call's parts turned into values.

    `names` are the file's, `make(maker, args, keywords)` makes a tensor, `is_tensor` knows one, `dtype(name)` makes a dtype,
    `instead` has other numbers for numbers of the call, `is_own` knows modules of the file's own package, `of_torch(path)` returns
    a function or class of torch that may be called, None where it may not.
    """

    def __init__(self, names: Mapping[str, Any], make: Callable[..., Any], dtype: Callable[[str], Any],
                 instead: Mapping[int, int] | None = None, is_tensor: Callable[[Any], bool] = lambda value: False,
                 is_own: Callable[[Any], bool] = lambda module: False,
                 of_torch: Callable[[str], Any] = lambda path: None) -> None:
        self.names, self.make, self.dtype, self.instead, self.is_tensor = names, make, dtype, instead or {}, is_tensor
        self.is_own, self.of_torch = is_own, of_torch

    def value(self, node: ast.expr) -> Any:
        """Return the value of a part. Raises Refused for a name that is not there, and what the function raises."""
        if isinstance(node, ast.Constant):
            return self.instead.get(node.value, node.value) if type(node.value) is int else node.value
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            return self._part(node)
        if isinstance(node, ast.List | ast.Tuple):
            values = [self.value(element) for element in node.elts]
            return values if isinstance(node, ast.List) else tuple(values)
        if isinstance(node, ast.Dict):
            return {key.value: self.value(each) for key, each in zip(node.keys, node.values, strict=True)}    # type: ignore[union-attr]
        if isinstance(node, ast.UnaryOp):
            return -self._number(node.operand)
        assert isinstance(node, ast.BinOp)
        try:
            return _ARITHMETIC[type(node.op)](self._number(node.left), self._number(node.right))
        except ArithmeticError as error:
            raise Refused(f"{ast.unparse(node)}: {error}") from error

    def _part(self, node: ast.Subscript) -> Any:
        """Return one of several results, or a part of a tensor: its numbers are no sizes of the call."""
        whole = self.value(node.value)
        index = _place(node.slice)
        try:
            return whole[index]
        except (TypeError, IndexError, KeyError) as error:
            raise Refused(f"{ast.unparse(node)[-40:]}: the call returns no {index!r} ({error})"[:200]) from error

    def _number(self, node: ast.expr) -> Any:
        value = self.value(node)
        if not isinstance(value, int | float) and not self.is_tensor(value):
            raise Refused(f"{ast.unparse(node)[:60]}: arithmetic is of numbers and tensors")
        return value

    def _name(self, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        if name in DTYPES:
            return self.dtype(DTYPES[name])
        if name == SimpleNamespace.__name__:
            return SimpleNamespace
        raise Refused(f"the file holds no {name}")

    def _attribute(self, node: ast.Attribute) -> Any:
        if _root(node) == "torch" and not _is_called(node):
            return self._of_torch(ast.unparse(node).removeprefix("torch."))
        base = self.value(node.value)
        if isinstance(base, ModuleType) and not self.is_own(base):
            if (member := self.of_torch(f"{base.__name__}.{node.attr}".removeprefix("torch."))) is not None:
                return member
            raise Refused(f"{ast.unparse(node)[:60]}: names of the file itself are called, not of modules that it imports")
        if _root(node) not in self.names and not self.is_tensor(base) and not _is_called(node):
            raise Refused(f"{ast.unparse(node)[:60]}: attributes are of the file's names, tensors and results")
        return getattr(base, node.attr)

    def _of_torch(self, path: str) -> Any:
        if path in DTYPES:
            return self.dtype(DTYPES[path])
        if (member := self.of_torch(path)) is None:
            raise Refused(f"torch.{path} is no dtype and no function of tensors")
        return member

    def _call(self, node: ast.Call) -> Any:
        maker = _maker(node.func, self.names)
        function = None if maker else self.value(node.func)
        if not maker and not callable(function):
            raise Refused(f"{ast.unparse(node.func)[:60]} is {function!r:.40} once the file is imported: it cannot be called")
        arguments = [self.value(argument) for argument in node.args]
        keywords = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        return self.make(maker, arguments, keywords) if function is None else function(*arguments, **keywords)


def _is_called(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _place(node: ast.expr) -> Any:
    """Return what stands within brackets: a number, a text, a range, several."""
    if isinstance(node, ast.Tuple):
        return tuple(_place(element) for element in node.elts)
    if isinstance(node, ast.Slice):
        return slice(*(None if bound is None else _place(bound) for bound in (node.lower, node.upper, node.step)))
    return ast.literal_eval(node)


def _maker(function: ast.expr, names: Mapping[str, Any]) -> str:
    """Return the maker of tensors that is called; a function of the file with that name goes first, `torch.` is always torch's."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "torch":
        return function.attr if function.attr in MAKERS else ""
    return function.id if isinstance(function, ast.Name) and function.id in MAKERS and function.id not in names else ""


def is_expression(text: str) -> bool:
    """Return whether a value of `--call` is meant as a call, not as the name of a recording."""
    return "(" in text and text.rstrip().endswith(")")
