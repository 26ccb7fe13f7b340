"""What the compiler cannot see of an extent that is an argument: which power of two it is a multiple of.

Triton looks at whole multiples of 16 alone. Of rows of 3,000 numbers it takes each by itself, though eight of them fill 16 bytes.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

MOST = 16                # multiples of it Triton sees by itself


def unit_of(*extents: int) -> int:
    """Return the largest power of two, at most 16, that divides all of them."""
    return math.gcd(MOST, *extents)


@triton.jit
def in_units(extent, UNIT: tl.constexpr):
    """Return the extent, a multiple of UNIT, so that the compiler sees that it is one."""
    return extent // UNIT * UNIT
