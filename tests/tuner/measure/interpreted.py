"""What Triton's interpreter gets wrong, put right, so that a kernel's own mistakes are seen."""

from __future__ import annotations

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
