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

from profiles.ingest import clock
from profiles.ingest.columns import NAME_CHARS, Ids, Int32, Int64, NameIds
from profiles.ingest.events import MISSING
from profiles.ingest.lanes import depths
from profiles.ingest.source import Source
from profiles.trace import FLOWS, SAMPLES, SLICES, Device, Integrity, Trace, TraceError, Track

MAX_LANES = 65_536
_YEAR_2001_NS = 10**18
_RANK = {"thread": 0, "stream": 1, "other": 2, "counter": 3}
_DIGITS = re.compile(r"(\d+)")
_OPTIONAL = ("correlation", "external_id", "device", "stream", "registers_per_thread", "smem_bytes", "bytes")
Column = npt.NDArray[Any]
Order = tuple[Any, ...]         # how tracks are sorted; starts with a tuple of numbers, the kind's rank first
_LAST: Order = ((9,),)


class TraceBuilder:
    """What a reader hands rows to, in any order; what becomes of them is decided once, here."""

    def __init__(self, source: Source, format: str, integrity: Integrity, names: NameIds | None = None,
                 details: Ids | None = None) -> None:
        self.source, self.format, self.integrity = source, format, integrity
        self.names = NameIds() if names is None else names          # text -> id; `column` takes a list of texts
        self.details = Ids() if details is None else details        # JSON text of further arguments -> id
        self.rows = 0                                               # slices and instants so far
        self._numbers: dict[Hashable, int] = {}
        self._tracks: list[Track] = []
        self._order: list[Order | None] = []
        self._aliases: dict[int, int | None] = {}
        self.shared: int | None = None                              # the track of all that are beyond the limit
        self._slices: list[dict[str, Column]] = []
        self._samples: list[tuple[Int32, Int64, npt.NDArray[np.float64]]] = []
        self._flows: list[dict[str, Column]] = []
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

    def stand_in(self) -> int:
        """A number for rows whose track is known only at the end: `alias` it then."""
        return self._new(Track(kind="other", name="", group=""), None)

    def describe(self, number: int, track: Track, order: Order | None = None) -> None:
        """Replace what `make` said: many files name their threads last."""
        self._tracks[number], self._order[number] = track, order

    def alias(self, number: int, other: int | None) -> None:
        """Rows of track `number` are `other`'s; with None its flow ends are left out."""
        self._aliases[number] = other

    def add(self, *, start_ns: Int64, dur_ns: Int64, name: Int32, category: npt.NDArray[np.uint8], track: Int32,
            instant: npt.NDArray[np.bool_] | None = None, correlation: Int64 | None = None, external_id: Int64 | None = None,
            device: Int64 | None = None, stream: Int64 | None = None, grid: Int64 | None = None, block: Int64 | None = None,
            registers_per_thread: Int64 | None = None, smem_bytes: Int64 | None = None,
            occupancy_pct: npt.NDArray[np.floating[Any]] | None = None, bytes: Int64 | None = None,
            detail: Int32 | None = None) -> None:
        """Slices and instants as columns of one length, in any order, times on the file's own clock.

        MISSING (-2**63) where an id or number is unknown, NaN for occupancy, -1 for no detail; grid and block (n, 3).
        A negative duration is an instant of time, and counted.
        """
        n = start_ns.size
        if not n:
            return
        negative = int(np.count_nonzero(dur_ns < 0))
        if negative:
            self.integrity.repair("negative duration: drawn as an instant of time", negative)
            dur_ns = np.maximum(dur_ns, 0)
        columns: dict[str, Column] = {
            "start": start_ns.astype(np.int64), "dur": dur_ns.astype(np.int64), "name": name, "category": category.astype(np.uint8),
            "track": track, "instant": np.zeros(n, np.bool_) if instant is None else instant}
        given = {"correlation": correlation, "external_id": external_id, "device": device, "stream": stream,
                 "registers_per_thread": registers_per_thread, "smem_bytes": smem_bytes, "bytes": bytes}
        columns |= {key: np.full(n, MISSING, np.int64) if values is None else values for key, values in given.items()}
        for key, triple in (("grid", grid), ("block", block)):
            columns[key] = np.full((n, 3), MISSING, np.int64) if triple is None else triple
        columns["occupancy_pct"] = np.full(n, np.nan, np.float32) if occupancy_pct is None else occupancy_pct.astype(np.float32)
        columns["detail"] = np.full(n, -1, np.int32) if detail is None else detail
        self._slices.append(columns)
        self.rows += n

    def add_samples(self, track: Int32, time_ns: Int64, value: npt.NDArray[np.float64]) -> None:
        """Counter samples: track numbers, times, values."""
        if time_ns.size:
            self._samples.append((track.astype(np.int32), time_ns.astype(np.int64), value.astype(np.float64)))

    def add_flows(self, flow: Int64, kind: Sequence[str] | str, track: Int32, time_ns: Int64, is_end: npt.NDArray[np.bool_],
                  launch: npt.NDArray[np.bool_] | None = None) -> None:
        """Flow ends. Those marked `launch` are left out where a slice carries their id as its correlation."""
        if not time_ns.size:
            return
        kinds = np.full(time_ns.size, self._kinds[kind], np.int32) if isinstance(kind, str) else self._kinds.column(kind)
        self._flows.append({"flow": flow, "kind": kinds, "track": track, "time": time_ns.astype(np.int64), "is_end": is_end,
                            "launch": np.zeros(time_ns.size, np.bool_) if launch is None else launch})

    def finish(self, *, devices: list[Device], base_ns: int | None = None, rank: int | None = None,
               metadata: dict[str, Any] | None = None) -> Trace:
        """The trace. `base_ns`: epoch ns of the file clock's 0; None is unknown, unless the times are epoch times.

        Raises TraceError when nothing at all was kept.
        """
        if not self.rows and not self._samples:
            raise TraceError(f"byte {self.source.position}", "nothing in the file is a slice, an instant or a counter sample",
                             "Check that the profiled steps ran while the profiler was recording, and export it again.")
        self.source.progress("columns", self.integrity.records_read)
        columns = {key: np.concatenate([part[key] for part in self._slices]) for key in self._slices[0]} if self.rows else _empty()
        samples: list[Any] = [np.concatenate(part) for part in zip(*self._samples, strict=True)] if self._samples else [
            np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.float64)]
        flows = {key: np.concatenate([part[key] for part in self._flows]) for key in self._flows[0]} if self._flows else {}
        zero = clock.from_zero(columns, samples[1], flows.get("time", np.empty(0, np.int64)), self.integrity)
        self._count(columns["track"])
        place, tracks = self._placed(columns["track"], samples[0])
        columns["track"] = place[columns["track"]]
        depth, overlapping = depths(columns["track"], columns["start"], columns["dur"], columns["instant"])
        self.integrity.repair("overlapping slices were moved to overflow lanes", overlapping)
        return Trace(
            format=self.format, slices=self._table(columns, depth), tracks=tracks, devices=devices, integrity=self.integrity,
            samples=_samples(place[samples[0]], samples[1], samples[2]),
            flows=self._flow_table(flows, place, columns["correlation"]),
            base_ns=zero + base_ns if base_ns is not None else zero if zero > _YEAR_2001_NS else None, rank=rank,
            metadata=metadata or {})

    def _count(self, track: Int32) -> None:
        beyond = 0 if self.shared is None else int(np.count_nonzero(track == self.shared))
        self.integrity.repair(f"records of lanes beyond the first {MAX_LANES:,}: drawn on one track", beyond)
        self.integrity.repair(f"names longer than {NAME_CHARS} characters were clipped", self.names.clipped)

    def _placed(self, of_slices: Int32, of_samples: Int32) -> tuple[Int32, list[Track]]:
        """Final number of every provisional one (-1: left out), and the tracks in the order they are drawn."""
        count = len(self._tracks)
        real = np.arange(count + 1, dtype=np.int32)
        for number, other in self._aliases.items():
            real[number] = -1 if other is None else other
        used = np.zeros(count + 1, np.bool_)
        used[real[of_slices]] = used[real[of_samples]] = True
        least: dict[tuple[int, str], int] = {}
        for track in self._tracks:
            group = (_RANK.get(track.kind, 2), track.group)
            least[group] = min(track.sort, least.get(group, track.sort))
        wanted = [i for i in range(count) if used[i]]
        wanted.sort(key=lambda i: self._order[i] or _drawn(self._tracks[i], least))
        place = np.full(count + 1, -1, np.int32)
        place[wanted] = np.arange(len(wanted), dtype=np.int32)
        return place[real], [replace(self._tracks[i], sort=new) for new, i in enumerate(wanted)]

    def _table(self, columns: dict[str, Column], depth: npt.NDArray[np.int16]) -> pa.Table:
        order = np.argsort(columns["start"], kind="stable")
        taken = {key: values[order] for key, values in columns.items()}
        names, name_ids = _used(taken["name"], [str(value) for value in self.names.values_in_order])
        details, detail_ids = _used(taken["detail"], [str(value) for value in self.details.values_in_order])
        arrays = {
            "start_ns": pa.array(taken["start"]), "dur_ns": pa.array(taken["dur"]),
            "name": pa.DictionaryArray.from_arrays(pa.array(name_ids), pa.array(names, pa.string())),
            "category": pa.array(taken["category"]), "track": pa.array(taken["track"]), "depth": pa.array(depth[order]),
            "instant": pa.array(taken["instant"]),
            "occupancy_pct": pa.array(taken["occupancy_pct"], mask=np.isnan(taken["occupancy_pct"])),
            "detail": pa.DictionaryArray.from_arrays(pa.array(detail_ids, mask=detail_ids < 0), pa.array(details, pa.string())),
        }
        arrays |= {key: nullable(taken[key], SLICES.field(key).type) for key in _OPTIONAL}
        arrays |= {f"{key}_{axis}": nullable(taken[key][:, i], pa.int32())
                   for key in ("grid", "block") for i, axis in enumerate("xyz")}
        return pa.Table.from_arrays([arrays[key] for key in SLICES.names], schema=SLICES)

    def _flow_table(self, flows: dict[str, Column], place: Int32, correlation: Int64) -> pa.Table:
        if not flows:
            return FLOWS.empty_table()
        track = place[flows["track"]]
        keep = ~(flows["launch"] & np.isin(flows["flow"], correlation)) & (track >= 0)
        kinds, kind_ids = _used(flows["kind"][keep], [str(value) for value in self._kinds.values_in_order])
        return pa.table([
            pa.array(flows["flow"][keep]), pa.DictionaryArray.from_arrays(pa.array(kind_ids), pa.array(kinds, pa.string())),
            pa.array(track[keep]), pa.array(flows["time"][keep]), pa.array(flows["is_end"][keep])], schema=FLOWS)


def _empty() -> dict[str, Column]:
    wide = {key: np.empty(0, np.int64) for key in ("start", "dur", *_OPTIONAL)}
    return {**wide, "name": np.empty(0, np.int32), "category": np.empty(0, np.uint8), "track": np.empty(0, np.int32),
            "instant": np.empty(0, np.bool_), "grid": np.empty((0, 3), np.int64), "block": np.empty((0, 3), np.int64),
            "occupancy_pct": np.empty(0, np.float32), "detail": np.empty(0, np.int32)}


def _drawn(track: Track, least: dict[tuple[int, str], int]) -> Order:
    rank = _RANK.get(track.kind, 2)
    return (rank, least[rank, track.group]), _natural(track.group), track.sort, _natural(track.name)


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """"GPU 2" before "GPU 10"."""
    return tuple((0, int(part), "") if part.isdigit() and len(part) < 19 else (1, 0, part) for part in _DIGITS.split(text))


def _used(ids: npt.NDArray[np.int32], values: list[str]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Only the values that occur, equal ones as one, and the ids renumbered to match. -1 stays."""
    first: dict[str, int] = {}
    renumber = np.full(len(values) + 1, -1, np.int32)
    seen = np.zeros(len(values) + 1, np.bool_)
    seen[ids] = True                                        # -1 marks the extra place at the end
    for old in np.flatnonzero(seen[:-1]).tolist():
        renumber[old] = first.setdefault(values[old], len(first))
    return list(first), renumber[ids]


def nullable(values: Int64, kind: pa.DataType) -> pa.Array:
    """MISSING, and what an int32 column cannot hold, as null."""
    absent = values == MISSING
    if kind == pa.int32():
        absent |= np.abs(values) >= 2**31
        values = np.where(absent, 0, values).astype(np.int32)
    return pa.array(values, kind, mask=absent)


def _samples(track: Int32, time_ns: Int64, value: npt.NDArray[np.float64]) -> pa.Table:
    order = np.lexsort((time_ns, track))
    return pa.table([pa.array(track[order]), pa.array(time_ns[order]), pa.array(value[order])], schema=SAMPLES)
