"""Arrays: their types by what they hold, and two ways to group that every table needs. numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]                # numbers of rows


def stable_order(values: Any) -> Rows:
    """Return the rows in the order of their values, ascending; equal ones stay as they came."""
    return np.argsort(values, kind="stable")


def sums_by(place: npt.NDArray[np.integer], values: Any, count: int = 0) -> Ints:
    """Return the whole sums of values by place, `count` of them at least; exact below 2**53."""
    return np.bincount(place, values, count).astype(np.int64)
