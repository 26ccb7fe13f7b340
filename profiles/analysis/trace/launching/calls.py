"""Calls into the CUDA (HIP) runtime and driver: which take long, and which far longer than usual.

An outlier is a call longer than OUTLIER_NS (50 µs, the cut-off of Holistic Trace Analysis for launch calls) and than TIMES
(10) times the median of its own name. Calls that wait for the GPU on purpose (synchronisations, blocking copies) are none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.frame import Frame, Ints, Rows
from profiles.analysis.trace.launching.order import Groups, group_values
from profiles.ingest.trace import Category

OUTLIER_NS = 50_000
TIMES = 10
WAIT = re.compile(r"Synchronize|StreamWaitValue|^(?:cuda|hip)Memcpy(?:2D|3D)?(?!.*Async)|^cuMemcpy[DH]to[DH]_v2|"
                  r"^cuCtxSynchronize|^(?:cuda|hip)Free(?:_v\d+)?$|WaitExternal")

_PAGEABLE = re.compile("ageable")


def codes_matching(frame: Frame, pattern: re.Pattern[str], rows: Rows) -> npt.NDArray[np.bool_]:
    """Return whether the pattern occurs in the name of each of `rows`.

    Each distinct name is looked at once.
    """
    used, place = np.unique(frame["name"][rows], return_inverse=True)
    fits = np.array([code >= 0 and bool(pattern.search(frame.names[code])) for code in used.tolist()] or [False], np.bool_)
    return fits[place] if rows.size else np.empty(0, np.bool_)


def is_wait(frame: Frame) -> npt.NDArray[np.bool_]:
    """Return, for each row, whether it is a runtime call that waits for the GPU on purpose."""
    mask: npt.NDArray[np.bool_] | None = frame.__dict__.get("_is_wait")
    if mask is None:
        rows = frame.of(Category.RUNTIME)
        mask = np.zeros(frame.rows, np.bool_)
        mask[rows[codes_matching(frame, WAIT, rows)]] = True
        frame.__dict__["_is_wait"] = mask
    return mask


@dataclass(frozen=True)
class Calls:
    groups: Groups                      # by name of the call
    waits: npt.NDArray[np.bool_]        # of each group: does the call wait on purpose?
    outliers: Rows                      # rows of the frame, the longest first
    excess_ns: Ints                     # of each outlier: beyond the median of its name


def runtime_calls(frame: Frame) -> Calls:
    rows = frame.of(Category.RUNTIME)
    code, dur = frame["name"][rows], frame["dur_ns"][rows]
    groups = group_values(code, dur)
    waits = is_wait(frame)
    median = groups.p50[np.searchsorted(groups.code, code)]
    far = (dur > OUTLIER_NS) & (dur > TIMES * median) & ~waits[rows]
    # a copy from pageable memory is named like any other and waits on purpose: its work ended within the call, or its name says it
    ended = np.zeros(frame.rows, np.bool_)
    copied = frame.of(Category.MEMCPY, Category.MEMSET)
    copied = copied[frame.call[copied] >= 0]
    blocks = (frame.end_ns[copied] <= frame.end_ns[frame.call[copied]]) | codes_matching(frame, _PAGEABLE, copied)
    ended[frame.call[copied[blocks]]] = True
    at = np.flatnonzero(far & ~ended[rows])
    at = at[np.argsort(-dur[at], kind="stable")]
    group_waits = np.zeros(groups.code.size, np.bool_)
    group_waits[np.searchsorted(groups.code, code[waits[rows]])] = True
    return Calls(groups, group_waits, rows[at], (dur[at] - median[at]).astype(np.int64))
