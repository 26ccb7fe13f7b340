"""What Triton's interpreter gets wrong is put right, so that a kernel's own mistakes are seen; what it repeats is done once."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter


def round_to_fp8() -> None:
    """Let the interpreter round float32 to e4m3 as GPUs do.

    Its own rounding (3.6, 3.7) adds one to the mantissa and loses the carry into an odd exponent: 127 becomes 64 for 128.
    """
    convert = interpreter._convert_float

    def rounded(values: Any, given: Any, wanted: Any, mode: Any) -> Any:
        if (given, wanted) != (tl.float32, tl.float8e4nv):
            return convert(values, given, wanted, mode)
        numbers = torch.from_numpy(np.ascontiguousarray(values).view(np.float32))
        return numbers.to(torch.float8_e4m3fn).view(torch.uint8).numpy().reshape(values.shape)

    interpreter._convert_float = rounded


def patch_language_once() -> None:
    """Let the interpreter take over each module of the language once in this process, which then compiles no kernel.

    It does so at each call of a device function, sorting and sums included, and makes its table of dtypes anew for each value:
    together nearly half of the time.
    """
    patch, patched, seen = interpreter._patch_lang, set[str](), set[int]()
    dtype_of, dtypes = interpreter._get_np_dtype, dict[str, Any]()

    def patch_new(function: Any) -> Any:
        if id(function.__globals__) not in seen:
            modules = {each.__name__ for each in function.__globals__.values() if inspect.ismodule(each) and each in (tl, tl.core)}
            if not modules <= patched:
                patch(function)
                patched.update(modules)
            seen.add(id(function.__globals__))
        return interpreter._LangPatchScope()            # with nothing in it to put back

    def known_dtype(given: Any) -> Any:
        element = given.scalar
        if isinstance(element, tl.pointer_type):
            return dtype_of(given)
        if element.name not in dtypes:
            dtypes[element.name] = dtype_of(element)
        return dtypes[element.name]

    interpreter._patch_lang, interpreter._get_np_dtype = patch_new, known_dtype
