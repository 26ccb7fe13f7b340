"""The traces of one job's ranks as one trace: tracks side by side, on one clock where every file states its clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.trace.align import RankClock, align, collectives
from profiles.analysis.trace.merged import MergedSlices, MovedSlices
from profiles.ingest.trace import FLOWS, SAMPLES, Category, Device, Integrity, Trace, Track
from profiles.ingest.windows import MISSING, table_of

_IN_MEMORY_ROWS = 131_072
_PER_RANK = 1 << 40        # correlation, external and flow ids of the i-th trace begin at i * _PER_RANK


def merge(traces: Sequence[tuple[str, Trace]]) -> Trace:
    """Return one trace of several, given (file name, trace).

    GPUs are numbered anew: rank 0 and 1 may both call theirs 0.

    Clocks are aligned as `analysis.align` says; the rule and what is left of the differences stand in
    `metadata["alignment"]` and in the integrity report.
    """
    labels = _labels(traces)
    alignment = align([RankClock(label, trace.base_ns, collectives(_common(trace)))
                       for label, (_, trace) in zip(labels, traces, strict=True)])
    parts = [_Part(index, label, trace, rank.shift_ns)
             for index, (label, (_, trace), rank) in enumerate(zip(labels, traces, alignment.ranks, strict=True))]
    tracks: list[Track] = []
    devices: list[Device] = []
    samples, flows, ranks = [], [], []
    for part in parts:
        ranks.append(MovedSlices(part.trace.parts, part.shift_ns, len(tracks), part.index * _PER_RANK,
                                 {number: len(devices) + position for number, position in part.number.items()}))
        samples.append(part.shift_table(part.trace.samples, SAMPLES, len(tracks)))
        flows.append(part.shift_table(part.trace.flows, FLOWS, len(tracks)))
        tracks += part.tracks(len(devices))
        devices += part.devices(len(devices))
    integrity = _integrity([trace.integrity for _, trace in traces])
    integrity.notes.append(alignment.sentence)
    slices = MergedSlices(ranks)
    trace = Trace(
        format=traces[0][1].format, slices=table_of(slices) if slices.rows <= _IN_MEMORY_ROWS else slices, tracks=tracks,
        devices=devices, integrity=integrity, samples=_table(samples, SAMPLES), flows=_table(flows, FLOWS),
        base_ns=alignment.base_ns,
        metadata={"ranks": {label: {"file": name, **trace.metadata}
                            for label, (name, trace) in zip(labels, traces, strict=True)}, "alignment": alignment.as_json(),
                  "devices": [f"{part.label} · GPU {index} of its host" for part in parts for index in part.number]})
    trace.colours = {name: colour for _, each in reversed(traces) for name, colour in each.colours.items()}
    return trace


def _common(trace: Trace) -> pa.Table:
    """What ranks have in common: kernels of collectives, and steps."""
    names = ("name", "category", "start_ns", "dur_ns", "bytes", "instant")
    kept = []
    for window in trace.windows():
        rows = np.isin(window.columns["category"], (Category.COMMUNICATION, Category.ANNOTATION))
        kept.append({name: window.columns[name][rows] for name in names})
    columns = {name: np.concatenate([part[name] for part in kept] or [np.empty(0, np.int64)]) for name in names}
    used, code = np.unique(columns.pop("name"), return_inverse=True)
    texts = pa.array([trace.parts.names[each] for each in used.tolist()], pa.string())
    moved = columns.pop("bytes")
    return pa.table({"name": pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), texts),
                     "bytes": pa.array(moved, pa.int64(), mask=moved == MISSING), **columns})


class _Part:
    """One rank's trace and how its numbers move."""

    def __init__(self, index: int, label: str, trace: Trace, shift_ns: int) -> None:
        self.index, self.label, self.trace, self.shift_ns = index, label, trace, shift_ns
        worked = trace.parts.devices or sorted({device.index for device in trace.devices})
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

    def shift_table(self, table: pa.Table, schema: pa.Schema, first_track: int) -> pa.Table:
        """Samples or flows on the common clock and track numbers."""
        moved: dict[str, Any] = {"track": pc.add(table["track"], first_track),
                                 "time_ns": pc.add(table["time_ns"], self.shift_ns)}
        if "flow" in schema.names:
            moved["flow"] = pc.add(table["flow"], self.index * _PER_RANK)
        return _replace_columns(table, moved)


def _replace_columns(table: pa.Table, moved: dict[str, Any]) -> pa.Table:
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
