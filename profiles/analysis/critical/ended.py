"""Which work on a stream, or on any of some streams, had ended last by a moment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiles.analysis.frame import Ints

TRIES = 16                          # pieces of work that are looked at, from the last to end backwards


def last_ended(end_ns: Ints, by_ns: Ints, fits: Ints, before: Ints, members: npt.NDArray[np.intp]) -> Ints:
    """For each moment `by_ns` the member with the latest end ≤ it whose `fits` (a time) is < `before`; -1 where there is none.

    `end_ns` and `fits` are columns of all work, `members` the positions asked about. Of the members that ended last, TRIES are
    looked at.
    """
    found = np.full(by_ns.size, -1, np.int64)
    if not members.size or not by_ns.size:
        return found
    order = members[np.argsort(end_ns[members], kind="stable")]
    at = np.searchsorted(end_ns[order], by_ns, side="right") - 1
    left = np.arange(by_ns.size)
    for _ in range(TRIES):
        left = left[at[left] >= 0]
        if not left.size:
            break
        candidate = order[at[left]]
        good = fits[candidate] < before[left]
        found[left[good]] = candidate[good]
        left = left[~good]
        at[left] -= 1
    return found
