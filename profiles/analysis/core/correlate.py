"""Who launched what: runtime call ↔ GPU work by correlation id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
NONE = -1
_MISSING = -(2**63)


def match(wanted: Int64, ids: Int64) -> Int64:
    """Return, for each of `wanted`, the position of its last occurrence in `ids`, else -1. 0 is no id: CUPTI and rocprofiler
    count from 1, and write 0 where they know none."""
    if not ids.size:
        return np.full(wanted.size, NONE, np.int64)
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids[order], wanted, side="right") - 1
    rows = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (ids[rows] == wanted) & (wanted != _MISSING) & (wanted != 0), rows, NONE)
