"""Kernels that Inductor made (Triton): what their recorded arguments say of bytes; operations stay unknown."""

from __future__ import annotations

import re

from profiles.analysis.trace.layer.arguments import Call, times_text
from profiles.analysis.trace.layer.work import Work, sum_bytes

# Pointwise, reduction and persistent reduction kernels read and write their arguments whole; what looks up, slices, pads or
# concatenates touches parts of them, and a template (`triton_tem_`) is a product whose sizes are not among its arguments.
_WHOLE = re.compile(r"triton_(?:poi|red|per)_fused_")
_PARTS = re.compile(r"embedding|index|gather|scatter|slice|select|cat(?:_|$)|pad|split|unfold|roll|view_as|convolution|pool"
                    r"|upsample")
MOST_NAME = 400


def fused(call: Call) -> Work | None:
    """Return the least bytes of one generated kernel: each tensor among its arguments once.

    One that is updated in place is read and written; which are is not recorded. None where the name says that it touches parts.
    """
    name = call.name[:MOST_NAME]
    tensors = call.tensors()
    if not _WHOLE.match(name) or _PARTS.search(name) or len(tensors) < 2:
        return None
    largest = max(tensors, key=lambda each: each.elements)
    return Work("fused", None, sum_bytes(tensors), largest.dtype, times_text(largest.shape),
                note="every argument once; operations are not recorded")
