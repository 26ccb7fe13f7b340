"""Counter samples and flow ends of a builder: records on disk until the trace's clock and tracks are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiles.ingest.core.clock import Clock, Times
from profiles.ingest.core.columns import Int32
from profiles.ingest.core.spill import Numbers
from profiles.ingest.spool import Records
from profiles.ingest.trace import FLOWS, SAMPLES

SAMPLE = [("track", np.int32), ("time_ns", np.int64), ("value", np.float64)]
FLOW = [("flow", np.int64), ("kind", np.int32), ("track", np.int32), ("time_ns", np.int64), ("is_end", np.bool_),
        ("launch", np.bool_)]
_PART_ROWS = 262_144
_SAMPLED = 256


class Batches:
    """Records of SAMPLE or FLOW, in any order; each part on disk is ordered by time."""

    def __init__(self, kind: Any) -> None:
        self._records = Records(kind)
        self._waiting: list[npt.NDArray[Any]] = []
        self._count = 0
        self._known: list[npt.NDArray[np.int64]] = []       # of each part some times, its least and its greatest among them

    @property
    def rows(self) -> int:
        return self._records.rows + self._count

    def add(self, **columns: npt.NDArray[Any]) -> None:
        batch = np.empty(columns["time_ns"].size, self._records.kind)
        for name, values in columns.items():
            batch[name] = values
        self._waiting.append(batch)
        self._count += batch.size
        if self._count >= _PART_ROWS:
            self._write()

    def _write(self) -> None:
        part = np.concatenate(self._waiting) if self._waiting else np.empty(0, self._records.kind)
        self._waiting, self._count = [], 0
        if part.size:
            part = part[np.argsort(part["time_ns"], kind="stable")]
            self._records.write(part)
            self._known.append(part["time_ns"][np.unique(np.linspace(0, part.size - 1, _SAMPLED).astype(np.int64))])

    def records(self) -> Records:
        self._write()
        return self._records

    def times(self) -> Times | None:
        self._write()
        if not self._known:
            return None
        sample = np.concatenate(self._known)
        weight = np.concatenate([np.full(known.size, max(1, rows // known.size))
                                 for known, (_, rows) in zip(self._known, self._records.parts, strict=True)])
        return Times(int(sample.min()), int(sample.max()), sample, weight)

    def least(self, low: int, high: int) -> int | None:
        """The least time within both."""
        firsts = [times[np.searchsorted(times, low)] for times in self._each_times(low, high)]
        return min((int(time) for time in firsts if time <= high), default=None)

    def outside(self, low: int, high: int) -> int:
        return sum(int(np.count_nonzero((times < low) | (times > high))) for times in self._each_times(low, high, beyond=True))

    def _each_times(self, low: int, high: int, beyond: bool = False) -> list[npt.NDArray[np.int64]]:
        """Times of the parts that have some at or after `low`, or some outside both."""
        wanted = [number for number, known in enumerate(self._known)
                  if (known[0] < low or known[-1] > high if beyond else known[-1] >= low)]
        return [self._records.read(number)["time_ns"] for number in wanted]


def sample_table(records: Records, clock: Clock, place: Int32) -> pa.Table:
    """SAMPLES by track and time."""
    rows = _all(records)
    track, time_ns = place[rows["track"]], clock.move(rows["time_ns"])
    order = np.lexsort((time_ns, track))
    return pa.table([pa.array(track[order]), pa.array(time_ns[order]), pa.array(rows["value"][order])], schema=SAMPLES)


def flow_table(records: Records, clock: Clock, place: Int32, kinds: list[Any], correlations: Numbers) -> pa.Table:
    """FLOWS by time, of tracks that exist, without those that the correlation ids say already."""
    parts = []
    for number in range(len(records.parts)):
        rows = records.read(number)
        track = place[rows["track"]]
        keep = track >= 0
        if rows["launch"].any():
            keep &= ~(rows["launch"] & ((rows["flow"] == 0) | correlations.hold(rows["flow"])))       # 0 is no id
        rows, track = rows[keep], track[keep]
        kept = np.empty(rows.size, records.kind)
        kept[:] = rows
        kept["track"], kept["time_ns"] = track, np.clip(rows["time_ns"] - clock.zero, 0, None)
        parts.append(kept)
    if not parts:
        return FLOWS.empty_table()
    ends = np.concatenate(parts)
    ends = ends[np.argsort(ends["time_ns"], kind="stable")]
    used, code = np.unique(ends["kind"], return_inverse=True)
    texts = pa.array([str(kinds[number]) for number in used.tolist()], pa.string())
    return pa.table([
        pa.array(ends["flow"]), pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), texts), pa.array(ends["track"]),
        pa.array(ends["time_ns"]), pa.array(ends["is_end"])], schema=FLOWS)


def _all(records: Records) -> npt.NDArray[Any]:
    parts = [records.read(number) for number in range(len(records.parts))]
    return np.concatenate(parts) if parts else np.empty(0, records.kind)
