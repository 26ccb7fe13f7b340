"""How busy each GPU is along a trace, in as many columns as a picture has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.ingest.arrays import Bytes
from profiles.ingest.trace import Category

COLOURS = {Category.COMPUTE: "compute", Category.COMMUNICATION: "communication", Category.MEMCPY: "memory",
           Category.MEMSET: "memory"}


@dataclass(frozen=True)
class BusyLane:
    """One GPU; a column is the same length of time in every lane."""

    label: str
    shares: list[int]           # 0-255 of the column's time in which it worked
    categories: list[str]       # what it mostly did: "compute", "communication", "memory", "other"


def busy_lane(label: str, share: Bytes, category: Bytes, columns: int) -> BusyLane:
    """Return the lane of a GPU's streams, at most `columns` wide.

    `share` and `category` are streams × bins. Streams that overlap count at most as a whole column; a column takes the mean of its
    bins and the category of the busiest of them.
    """
    bins = share.shape[1]
    width = max(1, min(columns, bins))
    edges = np.linspace(0, bins, width + 1).astype(np.int64)[:-1]
    busiest = share.argmax(axis=0)
    summed = np.minimum(share.sum(axis=0, dtype=np.int64), 255)
    counts = np.diff(np.append(edges, bins))
    means = -(-np.add.reduceat(summed, edges) // counts)
    top = category[busiest, np.arange(bins)]
    firsts = [int(begin + summed[begin:begin + count].argmax()) for begin, count in zip(edges, counts, strict=True)]
    return BusyLane(label, [int(each) for each in means], [COLOURS.get(Category(int(top[each])), "other") for each in firsts])
