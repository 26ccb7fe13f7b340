"""Which slices of a track stand on an overflow lane: they overlap others in part, so no slice one lane up contains them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def overflowing(lane: npt.NDArray[Any], start_ns: npt.NDArray[Any], end_ns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """For rows ordered by (lane, start), `lane` being track << 16 | depth: which are at a depth > 0 and not contained in a
    slice of the depth above. Slices of one lane do not overlap, so the last that began up there decides."""
    out = np.zeros(lane.size, np.bool_)
    if not lane.size:
        return out
    lanes, first = np.unique(lane, return_index=True)
    last = np.append(first[1:], lane.size)
    place = {int(number): (int(lo), int(hi)) for number, lo, hi in zip(lanes, first, last, strict=True)}
    for number, (lo, hi) in place.items():
        if not number & 0xFFFF:
            continue
        a, b = place.get(number - 1, (0, 0))
        if a == b:
            out[lo:hi] = True
            continue
        above = np.searchsorted(start_ns[a:b], start_ns[lo:hi], side="right") - 1
        out[lo:hi] = (above < 0) | (end_ns[a + np.maximum(above, 0)] < end_ns[lo:hi])
    return out
