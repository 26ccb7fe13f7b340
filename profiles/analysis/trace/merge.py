"""The traces of one job's ranks as one trace: tracks side by side, on one clock where every file states its clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.trace.align import RankClock, align, collectives
from profiles.ingest.trace import FLOWS, SAMPLES, Category, Device, Integrity, Trace, Track
from profiles.ingest.windows import MISSING, MISSING32, Slices, Window, table_of

# ---- slices of several ranks as those of one trace ----
# Each rank's windows moved, then cut so that all go on in order of time.

_END = 2**62
Columns = dict[str, npt.NDArray[Any]]


class MovedSlices:
    """One rank's slices on the common clock: times, tracks, ids and GPUs moved. Names stay the rank's."""

    def __init__(self, slices: Slices, shift_ns: int, first_track: int, first_id: int, device: Mapping[int, int]) -> None:
        self.slices, self.shift_ns = slices, shift_ns
        self.device = device
        self._first_track, self._first_id = first_track, first_id

    def windows(self) -> Iterator[Window]:
        for window in self.slices.windows():
            columns = dict(window.columns)
            columns["start_ns"] = columns["start_ns"] + self.shift_ns
            columns["track"] = columns["track"] + np.int32(self._first_track)
            for name in ("correlation", "external_id"):
                known = columns[name] != MISSING
                columns[name] = np.where(known, columns[name] + np.where(known, self._first_id, 0), MISSING)
            number = columns["device"]
            for old in np.unique(number[number != MISSING32]).tolist():
                columns["device"] = np.where(number == old, np.int32(self.device.get(old, old)), columns["device"])
            yield Window(columns, window.end_ns + self.shift_ns, window.more)


class MergedSlices:
    """`profiles.ingest.windows.Slices` of several ranks."""

    def __init__(self, ranks: Sequence[MovedSlices]) -> None:
        self._ranks = ranks
        self.rows = sum(rank.slices.rows for rank in ranks)
        self.end_ns = max((rank.slices.end_ns + rank.shift_ns for rank in ranks if rank.slices.rows), default=0)
        self.devices = sorted({number for rank in ranks for number in rank.device.values()})
        self.names, self._name = _together([rank.slices.names for rank in ranks])
        self.details, self._detail = _together([list(rank.slices.details) for rank in ranks])

    def windows(self) -> Iterator[Window]:
        """At each step everything that begins before the first of the ranks' next windows."""
        sources = [self._windows_with_common_names(number) for number in range(len(self._ranks))]
        held: list[Window | None] = [next(source, None) for source in sources]
        while any(held):
            until = min(window.next_ns for window in held if window)
            least = min(int(window.columns["start_ns"][0]) for window in held if window)
            until = max(until, least + 1)                        # a window of one moment, with more of the same to come
            parts: list[Columns] = []
            for number, window in enumerate(held):
                while window and window.columns["start_ns"][0] < until:
                    cut = int(np.searchsorted(window.columns["start_ns"], until))
                    parts.append({name: values[:cut] for name, values in window.columns.items()})
                    if cut < len(window):
                        window = Window({name: values[cut:] for name, values in window.columns.items()}, window.end_ns, window.more)
                    else:
                        window = next(sources[number], None)
                held[number] = window
            columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            order = np.argsort(columns["start_ns"], kind="stable")
            yield Window({name: values[order] for name, values in columns.items()}, until)

    def _windows_with_common_names(self, rank: int) -> Iterator[Window]:
        """A rank's windows with the common names."""
        for window in self._ranks[rank].windows():
            if len(window):
                yield Window({**window.columns, "name": self._name[rank][window.columns["name"]],
                              "detail": self._detail[rank][window.columns["detail"]]}, window.end_ns, window.more)


def _together(lists: Sequence[Sequence[str]]) -> tuple[list[str], list[npt.NDArray[np.int32]]]:
    """Distinct texts of all lists, and for each list its numbers among them (the last entry stands for -1)."""
    first: dict[str, int] = {}
    numbers = [np.array([*(first.setdefault(text, len(first)) for text in texts), -1], np.int32) for texts in lists]
    return list(first), numbers


# ---- the traces of one job's ranks as one trace ----

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
    for part in parts:
        part.trace.integrity.move_doubts(part.shift_ns)
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
        total.plausibility += report.plausibility           # examined again when all are one
        total.truncated_at = total.truncated_at or report.truncated_at
    return total
