"""What Triton's interpreter has not, stood in for where two launches of one kernel are compared. Of a process of its own.

A function of each element, in assembly or from a library, is the sum of what it is given: whichever block an element lies in, it is
the same. Numbers that count a loop are tensors, as they are in a compiled kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import (
    ASTTransformer,
    FunctionRewriter,
    InterpretedFunction,
    TensorHandle,
    _get_np_dtype,
    interpreter_builder,
)
from triton.runtime.jit import JITFunction


class _Results:
    """What inline assembly gives: several tensors."""

    def __init__(self, handles: Sequence[TensorHandle]) -> None:
        self.handles = handles

    def get_result(self, number: int) -> TensorHandle:
        return self.handles[number]


class _Loops(ASTTransformer):       # type: ignore[misc]
    """Makes tensors of numbers that count a loop, but those of static_range."""

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and "static_range" not in ast.unparse(node.iter):
            name = node.target.id
            node.body.insert(0, ast.parse(f"{name} = interpreter_semantic.to_tensor({name}, False)").body[0])
        return node


def _sum(values: Sequence[Any], kind: Any) -> TensorHandle:
    scalar = kind.scalar
    data = np.asarray(sum(np.asarray(handle.data, dtype=np.float64) for handle in values))
    return TensorHandle(data.astype(_get_np_dtype(scalar)), scalar)


def _inline_asm(asm: str, constraints: str, values: Sequence[Any], kinds: Sequence[Any], is_pure: bool, pack: int) -> _Results:
    return _Results([_sum(values, kind) for kind in kinds])


def _extern(name: str, path: str, symbol: str, values: Sequence[Any], kind: Any, is_pure: bool) -> TensorHandle:
    return _sum(values, kind)


def _call(kernel: Any, *args: Any, **more: Any) -> Any:
    """Let a compiled function be called by an interpreted one."""
    return InterpretedFunction(kernel.fn)(*args, **more)


def _index_by_item(patch: Callable[..., None]) -> Callable[..., None]:
    """Return Triton's patch of its tensor, with bounds of loops that are arrays of one element: NumPy 2.4 makes no int of them.

    Triton 3.6 asks for that, 3.7 no longer.
    """
    def patched(tensor: Any, *scope: Any) -> None:
        patch(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    return patched


def let_call() -> None:
    """Let this process, a fork of its own, interpret functions that are compiled, and loops; nothing computes another result."""
    interpreter._patch_lang_tensor = _index_by_item(interpreter._patch_lang_tensor)
    JITFunction.__call__ = _call
    FunctionRewriter.ast_transformer = _Loops()


def fill_gaps() -> None:
    """Let this process, a fork of its own, interpret what Triton's interpreter alone does not."""
    let_call()
    interpreter_builder.create_inline_asm = _inline_asm
    interpreter_builder.create_extern_elementwise = _extern
