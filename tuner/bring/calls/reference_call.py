"""How the function that is named as the reference is called: with what the call gives the host, by name, else by position."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from profiles.base.refused import Refused
from tuner.bring.calls.expression import MAKERS, CallExpression

_IGNORED = ("requires_grad_", "cuda", "detach")         # what changes no value


def write_reference_call(text: str, reference: str, call: CallExpression, tensor: Callable[[int], str]) -> str:
    """Return the call of a function of the file. Raises Refused where its arguments are not those of the call.

    A reference may take fewer arguments than the host: those of the same names. tensor: number of a tensor that the call makes, in
    the order in which it makes them → what stands for it
    """
    tree = ast.parse(call.text, mode="eval").body       # of its own: tensors are put into it
    host = _host_call(tree)
    if host is None or _is_gradient(tree):
        raise Refused(f"{reference} cannot be called as {call.text[:60]} is")
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)} if text else {}
    write = _Tensors(list(_makers(tree)), tensor)
    texts = [ast.unparse(write.visit(argument)) for argument in host.args]
    named = {str(keyword.arg): ast.unparse(write.visit(keyword.value)) for keyword in host.keywords}
    if reference not in functions:
        return _call(reference, texts, named)
    takes, needs = _parameters(functions[reference])
    by_name: dict[str, str] = {}
    if call.function in functions:
        by_name = {**dict(zip(_parameters(functions[call.function])[0], texts, strict=False)), **named}
    if by_name and set(needs) <= by_name.keys():
        return _call(reference, [], {name: by_name[name] for name in takes if name in by_name})
    if len(needs) <= len(texts) + len(named.keys() & set(takes)) and len(texts) <= len(takes) and named.keys() <= set(takes):
        return _call(reference, texts, named)
    raise Refused(f"{reference} takes {', '.join(takes) or 'nothing'}, which are not the arguments of {call.function}")


def _call(name: str, given: Sequence[str], named: Mapping[str, str]) -> str:
    return f"{name}({', '.join([*given, *(f'{key}={value}' for key, value in named.items())])})"


def _host_call(tree: ast.expr) -> ast.Call | None:
    """Return the call of the file's own function, below what is done with its result."""
    node: ast.AST = tree
    call = None
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            call = node
        node = node.func if isinstance(node, ast.Call) else node.value
    return call


def _is_gradient(tree: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(tree))


def _parameters(function: ast.FunctionDef) -> tuple[list[str], list[str]]:
    """Return what it takes, and of that what has no default."""
    positional = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    least = positional[:len(positional) - len(function.args.defaults)]
    only = [argument.arg for argument in function.args.kwonlyargs]
    needed = [name for name, default in zip(only, function.args.kw_defaults, strict=True) if default is None]
    return [*positional, *only], [*least, *needed]


def _makers(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that make tensors, in the order in which Python makes them."""
    if isinstance(node, ast.Call):
        for part in (node.func, *node.args, *(keyword.value for keyword in node.keywords)):
            yield from _makers(part)
        if _is_maker(node):
            yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _makers(child)


def _is_maker(node: ast.Call) -> bool:
    return (isinstance(node.func, ast.Name) and node.func.id in MAKERS) or (
        isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
        and node.func.attr in MAKERS)


class _Tensors(ast.NodeTransformer):
    """Puts what stands for the call's tensors in their places."""

    def __init__(self, made: Sequence[ast.Call], tensor: Callable[[int], str]) -> None:
        self.made, self.tensor = made, tensor

    def visit_Call(self, node: ast.Call) -> ast.expr:
        number = next((index for index, call in enumerate(self.made) if call is node), None)
        if number is not None:
            return ast.parse(self.tensor(number), mode="eval").body
        if isinstance(node.func, ast.Attribute) and node.func.attr in _IGNORED:
            receiver: ast.expr = self.visit(node.func.value)
            return receiver
        self.generic_visit(node)
        return node
