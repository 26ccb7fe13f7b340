"""Who launched what, found by ids in the stored columns: only row groups whose statistics admit an id are decoded."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from profiles.ingest.trace import Category
from profiles.store.timeline import Timeline

Int64 = npt.NDArray[np.int64]
NULL = -(2**63)
_GROUPS = 32                    # row groups decoded at a time


def givers(timeline: Timeline, column: str, wanted: Int64, kinds: Iterable[Category], every: bool = False) -> tuple[Int64, Int64]:
    """Return slices of some categories that carry one of the ids, or all of them; 0 is no id.

    (ids ascending, row of each id's last slice).
    """
    ids = np.unique(wanted[(wanted != NULL) & (wanted != 0)])
    kinds_of = [int(kind) for kind in kinds]
    carried, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    arguments = timeline.arguments
    groups = arguments.groups_between(column, int(ids[0]), int(ids[-1])) if ids.size else []
    for at in range(0, len(groups), _GROUPS):
        for first, last in _runs(groups[at:at + _GROUPS]):
            lo, hi = int(arguments.bounds[first]), int(arguments.bounds[last + 1])
            values = arguments.read_uncached(lo, hi, (column,))[column]
            near = np.flatnonzero((values >= ids[0]) & (values <= ids[-1]))
            if not near.size:
                continue
            place = np.minimum(np.searchsorted(ids, values[near]), ids.size - 1)
            near = near[ids[place] == values[near]]
            if near.size:
                category = timeline.slices.read_uncached(lo, hi, ("category",))["category"]
                near = near[np.isin(category[near], kinds_of)]
                carried.append(values[near])
                rows.append(near + lo)
    all_ids, all_rows = np.concatenate(carried), np.concatenate(rows)
    order = np.lexsort((all_rows, all_ids))
    all_ids, all_rows = all_ids[order], all_rows[order]
    if every:
        return all_ids, all_rows
    last_of = np.append(all_ids[1:] != all_ids[:-1], True) if all_ids.size else np.empty(0, np.bool_)
    return all_ids[last_of], all_rows[last_of]


def match(wanted: Int64, ids: Int64, rows: Int64) -> Int64:
    """Return the row of every wanted id, -1 where there is none.

    `ids` ascending and unique.
    """
    if not ids.size:
        return np.full(wanted.size, -1, np.int64)
    place = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
    return np.where(ids[place] == wanted, rows[place], -1)


def _runs(groups: list[int]) -> list[tuple[int, int]]:
    """Neighbouring numbers as (first, last)."""
    out: list[tuple[int, int]] = []
    for number in groups:
        if out and number == out[-1][1] + 1:
            out[-1] = (out[-1][0], number)
        else:
            out.append((number, number))
    return out
