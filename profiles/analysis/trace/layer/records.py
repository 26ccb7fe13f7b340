"""Work by kernel and shape: what other analyses ask for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.layer.ceilings import Ceilings, Judged, judge
from profiles.analysis.trace.layer.launches import LaunchWork, gpu_of_rows, precision_of
from profiles.ingest.arrays import Ints, stable_order

SHAPES, TYPED = "from shapes", "typed"
MOST_RECORDS = 4_000


@dataclass(frozen=True)
class KernelWork:
    """All launches of one kernel with one operator's shapes on one model of GPU.

    `flop`, `bytes` are of all launches together; None is unknown. `part_of`: it helps the operator, whose work another kernel does.
    """

    kernel: str                         # full name
    operator: str
    dims: str                           # shapes as the operator was given them: "2048×4096, 4096×12288"
    text: str                           # the same as sizes of the problem: "2048 × 12288 × 4096"
    kind: str                           # of work.KINDS, "" unknown
    dtype: str
    precision: str                      # of gpus.PRECISIONS, whose ceiling holds; "" unknown
    gpu: str
    launches: int
    total_ns: int
    min_ns: int
    max_ns: int
    flop: int | None
    bytes: int | None
    basis: str                          # "from shapes" | "typed" | "" (no shapes)
    part_of: bool
    note: str
    longest: int                        # slice id

    def judged(self, ceilings: Ceilings) -> Judged:
        return judge(self.flop, self.bytes, self.total_ns, self.launches, self.precision, ceilings)

    def floor_ns(self, ceilings: Ceilings) -> float | None:
        """Return the least time of all launches together: the longer of FLOP at the peak and bytes at DRAM bandwidth."""
        return self.judged(ceilings).floor_ns


def records_of(frame: Frame, every: LaunchWork) -> list[KernelWork]:
    """Return the work of every compute kernel by kernel and shape, most time first; without shapes `flop` and `bytes` are None.

    The records hold every launch of every compute kernel exactly once (up to MOST_RECORDS of them).
    """
    if not every.rows.size:
        return []
    names = frame["name"][every.rows].astype(np.int64)
    has_call = every.call >= 0
    operator = np.where(has_call, frame["name"][np.maximum(every.call, 0)], -1).astype(np.int64)
    detail = np.where(has_call, frame["detail"][np.maximum(every.call, 0)], -1).astype(np.int64)
    gpu, models = gpu_of_rows(frame, every.rows)
    index = _numbers(names, operator, detail, every.work, every.is_part.astype(np.int64), gpu)
    total = np.bincount(index, every.ns)
    order = np.lexsort((every.ns, index))
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    ends = np.append(starts[1:], order.size)
    flop, moved = np.bincount(index, every.flop), np.bincount(index, every.bytes)
    out = []
    for at in stable_order(-total)[:MOST_RECORDS].tolist():
        longest, shortest = int(order[ends[at] - 1]), int(order[starts[at]])
        number, row = int(every.work[longest]), int(every.call[longest])
        work = every.works[number] if number >= 0 else None
        kernel = frame.names[int(names[longest])]
        part = bool(every.is_part[longest])
        known = work is not None and not part
        out.append(KernelWork(
            kernel, frame.text(row) if row >= 0 else "", dims_text(frame, row), work.text if work else "",
            work.kind if work else "", work.dtype if work else "",
            precision_of(work, kernel) if work and known else "", models[int(gpu[longest])],
            int(ends[at] - starts[at]), int(total[at]), int(every.ns[shortest]), int(every.ns[longest]),
            _whole(flop[at]) if known else None, _whole(moved[at]) if known else None,
            "" if work is None else TYPED if every.is_typed[longest] else SHAPES, part, work.note if work else "",
            int(frame["id"][every.rows[longest]])))
    return out


def _numbers(*keys: Ints) -> Ints:
    """Number each row's combination of keys from 0."""
    index = np.zeros(keys[0].size, np.int64)
    for key in keys:
        _, dense = np.unique(key, return_inverse=True)
        _, index = np.unique(index * (int(dense.max(initial=0)) + 1) + dense.reshape(-1), return_inverse=True)
        index = index.reshape(-1)
    return index


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else round(float(value))


def dims_text(frame: Frame, row: int, most: int = 200) -> str:
    """Return the shapes of a call's tensors: "2048×4096, 4096×12288"; of a list how many."""
    dims = frame.arguments(row).get("Input Dims") if row >= 0 else None
    if not isinstance(dims, list):
        return ""
    shown = [f"{len(each)} tensors" if isinstance(each[0], list) else "×".join(map(str, each))
             for each in dims[:64] if isinstance(each, list) and each]
    return ", ".join(shown)[:most]
