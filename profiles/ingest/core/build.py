"""Rows of any reader to a `Trace`: clock, order, depths and overflow lanes are decided here, once for all formats.

A reader hands columns over in batches, in any order and on the file's own clock, and says of each row which track it
lies on; tracks are numbered in order of first sight until `finish` puts them in the order in which they are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiles.ingest.arrays import Array, Bools, Bytes, Floats, Int32, Ints, stable_order
from profiles.ingest.core import clock
from profiles.ingest.core.clock import Clock, Times
from profiles.ingest.core.columns import (
    MAX_DETAIL_CHARS,
    MAX_DETAILS,
    MAX_NAME_CHARS,
    MAX_NAMES,
    NAME_CHARS,
    Colours,
    DetailIds,
    Ids,
    NameIds,
)
from profiles.ingest.core.source import Source
from profiles.ingest.core.spool import Columns, Numbers, Runs, Spill, SpooledSlices, narrow
from profiles.ingest.scratch import Records
from profiles.ingest.trace import FLOWS, MAX_GPUS, SAMPLES, Category, Device, Integrity, Trace, TraceError, Track
from profiles.ingest.windows import MISSING, MISSING32, table_of

# Counter samples and flow ends of a builder: records on disk until the trace's clock and tracks are known.

SAMPLE = [("track", np.int32), ("time_ns", np.int64), ("value", np.float64)]
FLOW = [("flow", np.int64), ("kind", np.int32), ("track", np.int32), ("time_ns", np.int64), ("is_end", np.bool_),
        ("launch", np.bool_)]
_PART_ROWS = 262_144
_SAMPLED = 256


class Batches:
    """Records of SAMPLE or FLOW, in any order; each part on disk is ordered by time."""

    def __init__(self, kind: Any) -> None:
        self._records = Records(kind)
        self._waiting: list[Array] = []
        self._count = 0
        self._known: list[Ints] = []       # of each part some times, its least and its greatest among them

    @property
    def rows(self) -> int:
        return self._records.rows + self._count

    def add(self, **columns: Array) -> None:
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
            part = part[stable_order(part["time_ns"])]
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
        weight = np.concatenate([np.full(part_times.size, max(1, rows // part_times.size))
                                 for part_times, (_, rows) in zip(self._known, self._records.parts, strict=True)])
        return Times(int(sample.min()), int(sample.max()), sample, weight)

    def least(self, low: int, high: int) -> int | None:
        """The least time within both."""
        firsts = [times[np.searchsorted(times, low)] for times in self._each_times(low, high)]
        return min((int(time) for time in firsts if time <= high), default=None)

    def outside(self, low: int, high: int) -> int:
        return sum(int(np.count_nonzero((times < low) | (times > high))) for times in self._each_times(low, high, beyond=True))

    def _each_times(self, low: int, high: int, beyond: bool = False) -> list[Ints]:
        """Times of the parts that have some at or after `low`, or some outside both."""
        numbers = [number for number, part_times in enumerate(self._known)
                   if (part_times[0] < low or part_times[-1] > high if beyond else part_times[-1] >= low)]
        return [self._records.read(number)["time_ns"] for number in numbers]


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
        flow_rows = np.empty(rows.size, records.kind)
        flow_rows[:] = rows
        flow_rows["track"], flow_rows["time_ns"] = track, np.clip(rows["time_ns"] - clock.zero, 0, None)
        parts.append(flow_rows)
    if not parts:
        return FLOWS.empty_table()
    ends = np.concatenate(parts)
    ends = ends[stable_order(ends["time_ns"])]
    used, code = np.unique(ends["kind"], return_inverse=True)
    texts = pa.array([str(kinds[number]) for number in used.tolist()], pa.string())
    return pa.table([
        pa.array(ends["flow"]), pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), texts), pa.array(ends["track"]),
        pa.array(ends["time_ns"]), pa.array(ends["is_end"])], schema=FLOWS)


def _all(records: Records) -> Array:
    parts = [records.read(number) for number in range(len(records.parts))]
    return np.concatenate(parts) if parts else np.empty(0, records.kind)


MAX_LANES = 65_536
_YEAR_2001_NS = 10**18
_RANK = {"thread": 0, "stream": 1, "other": 2, "counter": 3}
_DIGITS = re.compile(r"(\d+)")
LEFT_OUT = f"arguments beyond the first {MAX_DETAILS:,} different ones (or {MAX_DETAIL_CHARS >> 20} MB of them): left out"
IN_MEMORY_ROWS = 131_072         # a trace of no more is one table
Order = tuple[Any, ...]         # how tracks are sorted; starts with a tuple of numbers, the kind's rank first
_LAST: Order = ((9,),)


class TraceBuilder:
    """What a reader hands rows to, in any order; what becomes of them is decided once, here."""

    def __init__(self, source: Source, format: str, integrity: Integrity, names: NameIds | None = None,
                 details: Ids | None = None) -> None:
        self.source, self.format, self.integrity = source, format, integrity
        self.names = NameIds() if names is None else names          # text -> id; `column` takes a list of texts
        self.details = DetailIds() if details is None else details  # JSON text of further arguments -> id, -1: no room
        self.colours = Colours(integrity)                           # of names, where the program chose one
        self.rows = 0                                               # slices and instants so far
        self._numbers: dict[Hashable, int] = {}
        self._tracks: list[Track] = []
        self._order: list[Order | None] = []
        self._aliases: dict[int, int | None] = {}
        self.call_ids: dict[int, tuple[int, int]] = {}      # once finished: the least and the greatest of each track
        self.shared: int | None = None                              # the track of all that are beyond the limit
        self._used: set[int] = set()
        self._devices: set[int] = set()
        self._call_ids: dict[int, tuple[int, int]] = {}
        self._further = self._beyond_gpus = 0
        self._spill = Spill()
        self._samples = Batches(SAMPLE)
        self._flows = Batches(FLOW)
        self._kinds = Ids()

    def track(self, key: Hashable, make: Callable[[], Track], order: Order | None = None) -> int:
        """Provisional number of the track `key`; `make` is called once, at first sight.

        Drawn by kind (threads, streams, others, counters), groups by their least `Track.sort` and name, within a group
        by sort and name; `order` replaces that key where a reader knows better. A track that gets neither slices nor
        samples is left out. Beyond MAX_LANES further keys share one track.
        """
        number = self._numbers.get(key)
        if number is not None:
            return number
        if len(self._numbers) >= MAX_LANES:
            return self.further()
        number = self._numbers[key] = self._new(make(), order)
        return number

    def further(self) -> int:
        """The one track of all that are too many to be kept apart; rows on it are counted."""
        if self.shared is None:
            self.shared = self._new(Track(kind="other", name="further lanes", group="further lanes"), _LAST)
        return self.shared

    def _new(self, track: Track, order: Order | None) -> int:
        self._tracks.append(track)
        self._order.append(order)
        return len(self._tracks) - 1

    def stand_in(self, _: int | None = None) -> int:
        """Return a number for rows whose track is known only at the end: `alias` it then."""
        return self._new(Track(kind="other", name="", group=""), None)

    def describe(self, number: int, track: Track, order: Order | None = None) -> None:
        """Replace what `make` said: many files name their threads last."""
        self._tracks[number], self._order[number] = track, order

    def alias(self, number: int, other: int | None) -> None:
        """Make rows of track `number` those of `other`; with None drop its flow ends."""
        self._aliases[number] = other

    def add(self, *, start_ns: Ints, dur_ns: Ints, name: Int32, category: Bytes, track: Int32,
            instant: Bools | None = None, correlation: Ints | None = None, external_id: Ints | None = None,
            device: Ints | None = None, stream: Ints | None = None, grid: Ints | None = None, block: Ints | None = None,
            registers_per_thread: Ints | None = None, smem_bytes: Ints | None = None,
            occupancy_pct: npt.NDArray[np.floating[Any]] | None = None, bytes: Ints | None = None,
            detail: Int32 | None = None) -> None:
        """Slices and instants as columns of one length, in any order, times on the file's own clock.

        MISSING (-2**63) where an id or number is unknown, NaN for occupancy, -1 for no detail; grid and block (n, 3).
        A negative duration is an instant of time, and counted.
        """
        n = start_ns.size
        if not n:
            return
        columns: Columns = {
            "start_ns": start_ns.astype(np.int64, copy=False), "dur_ns": self._durations(dur_ns), "name": name,
            "category": category.astype(np.uint8, copy=False), "track": track, "instant": _or_default(instant, n, np.bool_, False),
            "correlation": _or_default(correlation, n, np.int64, MISSING),
            "external_id": _or_default(external_id, n, np.int64, MISSING),
            "detail": _or_default(detail, n, np.int32, -1), "occupancy_pct": _or_default(occupancy_pct, n, np.float32, np.nan),
            "stream": _or_default(stream, n, np.int64, MISSING), "smem_bytes": _or_default(smem_bytes, n, np.int64, MISSING),
            "bytes": _or_default(bytes, n, np.int64, MISSING), "device": _narrow(device, n),
            "registers_per_thread": _narrow(registers_per_thread, n)}
        for key, triple in (("grid", grid), ("block", block)):
            columns |= {f"{key}_{axis}": _narrow(None if triple is None else triple[:, i], n) for i, axis in enumerate("xyz")}
        # CUPTI and rocprofiler count from 1: 0 is no id
        columns["correlation"] = np.where(columns["correlation"] == 0, MISSING, columns["correlation"])
        self._note_calls(columns)
        if self.shared is not None:
            self._further += int(np.count_nonzero(track == self.shared))
        self._used.update(np.unique(track).tolist())
        columns["device"] = self._keep_gpus(columns["device"])
        self._spill.add(columns)
        self.rows += n

    def _keep_gpus(self, device: Int32) -> Int32:
        """Return the GPUs of some rows, those beyond the first MAX_GPUS as unknown ones, which are counted."""
        new = [index for index in np.unique(device).tolist() if index != MISSING32 and index not in self._devices]
        room = MAX_GPUS - len(self._devices)
        self._devices.update(new[:room])
        if len(new) <= room:
            return device
        beyond = (device != MISSING32) & ~np.isin(device, sorted(self._devices))
        self._beyond_gpus += int(np.count_nonzero(beyond))
        return np.where(beyond, np.int32(MISSING32), device)

    def _note_calls(self, columns: Columns) -> None:
        called = (columns["category"] == Category.RUNTIME) & (columns["correlation"] != MISSING)
        if not called.any():
            return
        tracks, place = np.unique(columns["track"][called], return_inverse=True)
        ids = columns["correlation"][called][stable_order(place)]
        first = np.concatenate(([0], np.cumsum(np.bincount(place))[:-1]))
        least, most = (extreme.reduceat(ids, first).tolist() for extreme in (np.minimum, np.maximum))
        for track, low, high in zip(tracks.tolist(), least, most, strict=True):
            id_range = self._call_ids.get(track, (low, high))
            self._call_ids[track] = min(id_range[0], low), max(id_range[1], high)

    def _durations(self, dur_ns: Ints) -> Ints:
        """Without those that are not believable: they become instants of time, and are counted."""
        negative, endless = dur_ns < 0, dur_ns > clock.LONGEST_NS
        if negative.any() or endless.any():
            self.integrity.repair("negative duration: drawn as an instant of time", int(np.count_nonzero(negative)))
            self.integrity.repair(clock.ENDLESS, int(np.count_nonzero(endless)))
            dur_ns = np.where(negative | endless, 0, dur_ns)
        return dur_ns.astype(np.int64, copy=False)

    def add_samples(self, track: Int32, time_ns: Ints, value: Floats) -> None:
        """Counter samples: track numbers, times, values."""
        self._used.update(np.unique(track).tolist())
        self._samples.add(track=track, time_ns=time_ns, value=value)

    def add_flows(self, flow: Ints, kind: Sequence[str] | str, track: Int32, time_ns: Ints, is_end: Bools,
                  launch: Bools | None = None) -> None:
        """Take flow ends.

        Those marked `launch` are left out where a slice carries their id as its correlation.
        """
        kinds = np.full(time_ns.size, self._kinds[kind], np.int32) if isinstance(kind, str) else self._kinds.column(kind)
        self._flows.add(flow=flow, kind=kinds, track=track, time_ns=time_ns, is_end=is_end,
                        launch=np.zeros(time_ns.size, np.bool_) if launch is None else launch)

    def finish(self, *, devices: list[Device], base_ns: int | None = None, rank: int | None = None,
               metadata: dict[str, Any] | None = None) -> Trace:
        """Return the trace.

        `base_ns`: epoch ns of the file clock's 0; None is unknown, unless the times are epoch times.

        Raises TraceError when nothing at all was kept.
        """
        if not self.rows and not self._samples.rows:
            raise TraceError(f"byte {self.source.position}", "nothing in the file is a slice, an instant or a counter sample",
                             "Check that the profiled steps ran while the profiler was recording, and export it again.")
        self.source.progress("columns", self.integrity.records_read)
        runs = self._spill.finish()
        axis = self._clock(runs)
        place, tracks = self._place_tracks()
        slices = SpooledSlices(runs, axis, place, self.names.values_in_order, self.details.values_in_order,
                               sorted(self._devices), self.integrity)
        self._count(axis, runs, slices)
        self.call_ids = {int(place[number]): ids for number, ids in self._call_ids.items() if place[number] >= 0}
        zero = axis.zero
        self.integrity.move_doubts(-zero)
        trace = Trace(
            format=self.format, slices=table_of(slices) if self.rows <= IN_MEMORY_ROWS else slices, tracks=tracks, devices=devices,
            integrity=self.integrity, samples=sample_table(self._samples.records(), axis, place),
            flows=flow_table(self._flows.records(), axis, place, self._kinds.values_in_order, self._spill.correlations),
            base_ns=zero + base_ns if base_ns is not None else zero if zero > _YEAR_2001_NS else None, rank=rank,
            metadata=metadata)
        trace.colours = self.colours.by_name
        return trace

    def _clock(self, runs: Runs) -> clock.Clock:
        samples, flows = self._samples.times(), self._flows.times()

        def least_near(low: int, high: int) -> int:
            firsts = [runs.least(run, low, high) for run in runs.runs] + [self._samples.least(low, high)]
            return min((first for first in firsts if first is not None), default=low)

        return clock.decide(runs.times(), samples, flows, least_near)

    def _count(self, axis: clock.Clock, runs: Runs, slices: SpooledSlices) -> None:
        zeros = sum(run.zeros for run in runs.runs) if axis.unread is not None else 0
        far = slices.misplaced - zeros + self._samples.outside(axis.low, axis.high)
        clock.count(self.integrity, axis, zeros, max(far, 0))
        self.integrity.repair(f"records of lanes beyond the first {MAX_LANES:,}: drawn on one track", self._further)
        self.integrity.repair(f"records of GPUs beyond the first {MAX_GPUS:,}: of an unknown GPU", self._beyond_gpus)
        self.integrity.repair(f"names longer than {NAME_CHARS} characters were clipped", self.names.clipped)
        self.integrity.repair(f"names beyond the first {MAX_NAMES:,} (or {MAX_NAME_CHARS >> 20} MB of them): shown as one",
                              self.names.beyond)
        self.integrity.repair(LEFT_OUT, getattr(self.details, "beyond", 0))

    def _place_tracks(self) -> tuple[Int32, list[Track]]:
        """Final number of every provisional one (-1: left out), and the tracks in the order they are drawn."""
        count = len(self._tracks)
        real = np.arange(count + 1, dtype=np.int32)
        for number, other in self._aliases.items():
            real[number] = -1 if other is None else other
        used = np.zeros(count + 1, np.bool_)
        used[real[[number for number in self._used if number < count]]] = True
        least: dict[tuple[int, str], int] = {}
        for track in self._tracks:
            group = (_RANK.get(track.kind, 2), track.group)
            least[group] = min(track.sort, least.get(group, track.sort))
        numbers = [i for i in range(count) if used[i]]
        numbers.sort(key=lambda i: self._order[i] or _drawing_order(self._tracks[i], least))
        place = np.full(count + 1, -1, np.int32)
        place[numbers] = np.arange(len(numbers), dtype=np.int32)
        return place[real], [replace(self._tracks[i], sort=new) for new, i in enumerate(numbers)]


def _or_default(values: Any, n: int, kind: Any, missing: Any) -> Any:
    return np.full(n, missing, kind) if values is None else values.astype(kind, copy=False)


def _narrow(values: Ints | None, n: int) -> Int32:
    return np.full(n, MISSING32, np.int32) if values is None else narrow(values)


def _drawing_order(track: Track, least: dict[tuple[int, str], int]) -> Order:
    rank = _RANK.get(track.kind, 2)
    return (rank, least[rank, track.group]), _natural(track.group), track.sort, _natural(track.name)


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """"GPU 2" before "GPU 10"."""
    return tuple((0, int(part), "") if part.isdigit() and len(part) < 19 else (1, 0, part) for part in _DIGITS.split(text))
