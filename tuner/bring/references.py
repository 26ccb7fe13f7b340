"""References that can be proposed from a kernel's name, with the FLOP of one element of the result."""

from __future__ import annotations

import re
from collections.abc import Sequence

# name of a kernel → its result in terms of its inputs x, y, z; flops of one element of the result
_REFERENCES: tuple[tuple[str, int, str, str], ...] = (
    (r"softmax", 1, "torch.softmax({0}, -1)", "5 * {out}"),
    (r"rms_?norm", 2, "torch.nn.functional.rms_norm({0}, {0}.shape[-1:], {1})", "4 * {out}"),
    (r"layer_?norm", 3, "torch.nn.functional.layer_norm({0}, {0}.shape[-1:], {1}, {2})", "7 * {out}"),
    (r"silu_?(?:and_?)?mul|swiglu", 2, "torch.nn.functional.silu({0}) * {1}", "6 * {out}"),
    (r"gelu", 1, "torch.nn.functional.gelu({0})", "8 * {out}"),
    (r"silu|swish", 1, "torch.nn.functional.silu({0})", "5 * {out}"),
    (r"relu", 1, "torch.relu({0})", "{out}"),
    (r"transpose", 1, "{0}.T", "{out}"),
    (r"add|sum_two", 2, "{0} + {1}", "{out}"),
    (r"mul", 2, "{0} * {1}", "{out}"),
    (r"copy|clone", 1, "{0}", "{out}"),
)
NOT_INDEPENDENT = "not independent"                    # of a reference that is the default's own result
PROPOSED = "Proposed from the kernel's name"           # while the docstring says so, `check` says it too
UNWRITTEN = 'raise NotImplementedError("write the reference: what the kernel computes, in torch")'


def write(name: str, inputs: Sequence[str], is_matmul: bool) -> tuple[list[str], str]:
    """Return the lines of `reference(args)` and what its author has to do; `inputs` are texts like args["x"]."""
    if is_matmul:
        return (["def reference(args):", f'    """{PROPOSED}."""', f"    return {inputs[0]} @ {inputs[1]}"],
                "reference: a @ b is proposed; check it")
    for pattern, count, expression, _ in _REFERENCES:
        if re.search(pattern, name, re.IGNORECASE) and len(inputs) >= count:
            return (["def reference(args):", f'    """{PROPOSED}."""', f"    return {expression.format(*inputs)}"],
                    "reference: proposed from the kernel's name; check it")
    return (["def reference(args):", '    """Return what the kernel computes, in torch, from its arguments by name."""',
             f"    {UNWRITTEN}"], "reference: what the kernel computes, in torch")


def flops(name: str, inputs: int, elements: str) -> str:
    """Return the FLOP of a kernel with such a name, over the `elements` of its result; "" for none that is known."""
    for pattern, count, _, formula in _REFERENCES:
        if re.search(pattern, name, re.IGNORECASE) and inputs >= count:
            return formula.format(out=elements)
    return ""
