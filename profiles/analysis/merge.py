"""The traces of one job's ranks as one trace: tracks side by side, on one clock where every file states its clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from profiles.trace import FLOWS, SAMPLES, SLICES, Device, Integrity, Trace, Track

_PER_RANK = 1 << 40        # correlation, external and flow ids of the i-th trace begin at i * _PER_RANK


def merge(traces: Sequence[tuple[str, Trace]]) -> Trace:
    """One trace of several, given (file name, trace). GPUs are numbered anew: rank 0 and 1 may both call theirs 0.

    Times are shifted by each file's base time; where one states none, every trace starts at 0 and a note says so.
    """
    labels = _labels(traces)
    bases = [trace.base_ns for _, trace in traces]
    known = [base for base in bases if base is not None]
    aligned = len(known) == len(bases)
    first_ns = min(known) if aligned else None
    parts = [_Part(index, label, trace, (base or 0) - first_ns if first_ns is not None else 0)
             for index, (label, (_, trace), base) in enumerate(zip(labels, traces, bases, strict=True))]
    tracks: list[Track] = []
    devices: list[Device] = []
    slices, samples, flows = [], [], []
    for part in parts:
        slices.append(part.slices(len(tracks), len(devices)))
        samples.append(part.shifted(part.trace.samples, SAMPLES, len(tracks)))
        flows.append(part.shifted(part.trace.flows, FLOWS, len(tracks)))
        tracks += part.tracks(len(devices))
        devices += part.devices(len(devices))
    integrity = _integrity([trace.integrity for _, trace in traces])
    if not aligned:
        integrity.notes.append("Not every file states when it began: all of them start at 0, their clocks are not aligned.")
    return Trace(
        format=traces[0][1].format, slices=_table(slices, SLICES).sort_by("start_ns"), tracks=tracks, devices=devices,
        integrity=integrity, samples=_table(samples, SAMPLES), flows=_table(flows, FLOWS), base_ns=first_ns,
        metadata={"ranks": {label: {"file": name, **trace.metadata}
                            for label, (name, trace) in zip(labels, traces, strict=True)}})


class _Part:
    """One rank's trace and how its numbers move."""

    def __init__(self, index: int, label: str, trace: Trace, shift_ns: int) -> None:
        self.index, self.label, self.trace, self.shift_ns = index, label, trace, shift_ns
        present = pc.unique(trace.slices["device"].combine_chunks()).drop_null().to_pylist()
        named = {device.index for device in trace.devices}
        worked = sorted(present) or sorted(named)
        self.number = {device: position for position, device in enumerate(worked)}      # of GPUs that did something

    def devices(self, first: int) -> list[Device]:
        by_index = {device.index: device for device in self.trace.devices}
        return [replace(by_index.get(index) or Device(index, ""), index=first + position)
                for index, position in self.number.items()]

    def tracks(self, first_device: int) -> list[Track]:
        return [replace(
            track, group=f"{self.label}: {track.group}", sort=self.index * 1_000_000 + track.sort,
            device=None if track.device is None else first_device + self.number.get(track.device, 0))
            for track in self.trace.tracks]

    def slices(self, first_track: int, first_device: int) -> pa.Table:
        table = self.trace.slices
        moved: dict[str, Any] = {
            "start_ns": pc.add(table["start_ns"], self.shift_ns), "track": pc.add(table["track"], first_track),
            "correlation": pc.add(table["correlation"], self.index * _PER_RANK),
            "external_id": pc.add(table["external_id"], self.index * _PER_RANK),
            "device": self._devices(table["device"], first_device)}
        return _replaced(table, moved)

    def _devices(self, column: pa.ChunkedArray, first: int) -> pa.ChunkedArray:
        indexes = pa.array(list(self.number), pa.int32())
        return pc.add(pc.index_in(column, value_set=indexes), first) if len(indexes) else column

    def shifted(self, table: pa.Table, schema: pa.Schema, first_track: int) -> pa.Table:
        """Samples or flows on the common clock and track numbers."""
        moved: dict[str, Any] = {"track": pc.add(table["track"], first_track),
                                 "time_ns": pc.add(table["time_ns"], self.shift_ns)}
        if "flow" in schema.names:
            moved["flow"] = pc.add(table["flow"], self.index * _PER_RANK)
        return _replaced(table, moved)


def _replaced(table: pa.Table, moved: dict[str, Any]) -> pa.Table:
    for name, column in moved.items():
        position = table.schema.get_field_index(name)
        table = table.set_column(position, name, column.cast(table.schema.field(name).type))
    return table


def _table(parts: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([part.cast(schema) for part in parts]).unify_dictionaries().combine_chunks()


def _labels(traces: Sequence[tuple[str, Trace]]) -> list[str]:
    """"rank 3" where every file states a rank of its own, else the file's name."""
    ranks = [trace.rank for _, trace in traces]
    if None not in ranks and len(set(ranks)) == len(ranks):
        return [f"rank {rank}" for rank in ranks]
    return [f"{position}: {name}" for position, (name, _) in enumerate(traces)]


def _integrity(reports: Sequence[Integrity]) -> Integrity:
    total = Integrity()
    for report in reports:
        total.records_read += report.records_read
        total.records_kept += report.records_kept
        for mine, theirs in ((total.kinds, report.kinds), (total.not_kept, report.not_kept), (total.repaired, report.repaired),
                             (total.remarks, report.remarks)):
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count
        total.notes += report.notes
        total.truncated_at = total.truncated_at or report.truncated_at
    return total
