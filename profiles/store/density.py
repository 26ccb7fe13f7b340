"""How busy every track of a stored trace is along its whole length: what the overview is drawn from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from profiles.ingest.arrays import Array, Bytes, stable_order
from profiles.ingest.trace import GPU_WORK, Category
from profiles.store.timeline import Timeline

MAGIC = 0x31445052                  # "RPD1"
OUTER_DEPTHS = 6                    # of a thread: annotations often stand around its operators
KEPT = 64
_ANNOTATIONS = [int(Category.ANNOTATION), int(Category.GPU_ANNOTATION)]
_COLUMNS = ("track", "depth", "start_ns", "dur_ns", "category")


@dataclass(frozen=True)
class Density:
    """Per track and bin the share of time that is covered, 0-255, and the category that covers most."""

    bin_ns: int
    share: Bytes          # tracks × bins
    category: Bytes

    def pack(self) -> bytes:
        """Return the bytes that the overview reads, little endian.

        u32 magic, tracks, bins, 0; f64 ns of a bin; tracks × bins bytes of shares, then of categories.
        """
        head = np.array([MAGIC, *self.share.shape, 0], "<u4").tobytes() + np.array([self.bin_ns], "<f8").tobytes()
        return head + self.share.tobytes() + self.category.tobytes()


_known: OrderedDict[str, Density] = OrderedDict()
_lock = threading.Lock()


def density(timeline: Timeline) -> Density:
    """Return how busy each track is.

    Of streams what GPU work covers, of threads what their outer slices other than annotations cover.
    """
    with _lock:
        grid = _known.get(timeline.etag)
    if grid is None:
        grid = _make_density(timeline)
        with _lock:
            _known[timeline.etag] = grid
            while len(_known) > KEPT:
                _known.popitem(last=False)
    return grid


def _make_density(timeline: Timeline) -> Density:
    bin_ns = 1 << (2 * timeline.top)
    bins, tracks = int(timeline.document["end_ns"]) // bin_ns + 1, len(timeline.tracks)
    stream = np.array([track["kind"] == "stream" for track in timeline.tracks] or [False], np.bool_)
    cover = np.zeros(OUTER_DEPTHS * tracks * bins, np.float64)
    most, category = np.zeros(tracks * bins), np.zeros(tracks * bins, np.uint8)
    for rows, busy_ns in _rows(timeline):
        gpu = stream[rows["track"]]
        keep = np.where(gpu, np.isin(rows["category"], [int(kind) for kind in GPU_WORK]),
                        (rows["depth"] < OUTER_DEPTHS) & ~np.isin(rows["category"], _ANNOTATIONS)) & (busy_ns > 0)
        layer = np.where(gpu, 0, rows["depth"])[keep].astype(np.int64) * tracks + rows["track"][keep]
        row, place, part_ns = _spread(rows["start_ns"][keep], rows["dur_ns"][keep], busy_ns[keep], bin_ns, bins)
        cell = layer[row] * bins + place
        cover += np.bincount(cell, part_ns, minlength=cover.size)
        flat = cell % (tracks * bins)
        order = stable_order(part_ns)
        order = order[part_ns[order] >= most[flat[order]]]
        most[flat[order]] = part_ns[order]
        category[flat[order]] = rows["category"][keep][row][order]
    share = cover.reshape(OUTER_DEPTHS, tracks, bins).max(axis=0) / bin_ns
    return Density(bin_ns, np.clip(np.ceil(share * 255), 0, 255).astype(np.uint8), category.reshape(tracks, bins))


def _rows(timeline: Timeline) -> list[tuple[dict[str, Array], Array]]:
    """Slices as long as a bin, and merged entries of the others, each with the time that it covers."""
    out = []
    for lo, hi in timeline.ranges(0, int(timeline.document["end_ns"]) + 1, timeline.top):
        rows = timeline.slices.read_uncached(lo, hi, _COLUMNS)
        out.append((rows, rows["dur_ns"]))
    lo, hi = timeline.places.rows(1, timeline.top, (0, 0))
    busy = ("busy_ns",) if "busy_ns" in timeline.bins.names else ()
    rows = timeline.bins.read_uncached(lo, hi, (*_COLUMNS, *busy))
    out.append((rows, rows["busy_ns" if busy else "dur_ns"]))
    return out


def _spread(start_ns: Array, dur_ns: Array, busy_ns: Array, bin_ns: int,
            bins: int) -> tuple[Array, Array, Array]:
    """Every bin that a slice touches: its row, the bin, and the ns of it that the slice covers there."""
    first = start_ns // bin_ns
    count = np.minimum((start_ns + np.maximum(dur_ns, 1) - 1) // bin_ns, bins - 1) - first + 1
    row = np.repeat(np.arange(first.size), count)
    place = first[row] + np.arange(row.size) - np.repeat(np.cumsum(count) - count, count)
    part = np.minimum(start_ns[row] + dur_ns[row], (place + 1) * bin_ns) - np.maximum(start_ns[row], place * bin_ns)
    return row, place, part * (busy_ns[row] / np.maximum(dur_ns[row], 1))
