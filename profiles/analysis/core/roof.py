"""Which roof lies over work: the one classification by a roofline, of counted launches and of dimensions alike."""

from __future__ import annotations

MEMORY, COMPUTE = "memory", "compute"


def roof_side(intensity: float | None, ridge: float | None) -> str:
    """Return the roof that is lower at an intensity (FLOP per byte), "" where one of the two is not known.

    `ridge`: the intensity at which memory and arithmetic take as long (Williams, Waterman, Patterson, CACM 52(4), 2009).
    """
    if intensity is None or ridge is None:
        return ""
    return MEMORY if intensity < ridge else COMPUTE
