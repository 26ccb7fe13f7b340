"""The traces of one job's ranks as one trace: tracks side by side, on one clock where every file states its clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.core.kernels import dictionary, numbers
from profiles.analysis.core.sentences import time_text
from profiles.analysis.trace.breakdown import STEP
from profiles.ingest.arrays import Array, Int32, Ints, stable_order
from profiles.ingest.trace import FLOWS, SAMPLES, Category, Device, Integrity, Trace, Track
from profiles.ingest.windows import MISSING, MISSING32, Slices, Window, table_of

# One clock for the ranks of a job: by the base time that every file states, or by the collectives that all took part in.
#
# A collective ends on every rank when its last participant has delivered: the ends of the same all-reduce on two ranks lie
# within microseconds of each other, whoever came late to its begin. So the median difference of matched ends is the
# difference of two clocks, and what is left of the differences after the shift is the residual that goes with the numbers.

MAX_COLLECTIVES = 4096       # of a rank, the first; more do not sharpen a median
MAX_OFFSET = 512             # collectives by which one recording may begin before the other
LEAST_MATCHED = 4
AGREEMENT = 0.9              # of the best agreement of names and sizes: offsets that are considered
TOLERANCE_NS = 50_000        # base times stand while the collectives contradict them by less
SPREADS = 4                  # … or by less than this many of their own spreads


@dataclass(frozen=True)
class Collectives:
    """GPU kernels of collectives in the order of their begin, and the starts of the numbered steps. Times in ns from the
    first record of the rank's own file."""

    signature: tuple[tuple[str, int], ...]       # (kernel name without its arguments, bytes or -1)
    end_ns: Ints
    step: dict[int, int]                         # step number -> its start


@dataclass(frozen=True)
class RankClock:
    label: str
    base_ns: int | None                          # epoch ns of time 0, where the file states it
    collectives: Collectives


@dataclass(frozen=True)
class RankShift:
    label: str
    shift_ns: int                                # to be added to the rank's times
    matched: int                                 # collectives found on it and on the first rank
    residual_ns: float | None                    # median |difference of their ends| after the shift; None: none matched
    residual_p95_ns: float | None


@dataclass(frozen=True)
class Alignment:
    """`rule`: "base time" | "collectives" | "none"."""

    rule: str
    ranks: tuple[RankShift, ...]
    base_ns: int | None                          # epoch ns of the common time 0, where base times are stated
    sentence: str                                # for people

    def as_json(self) -> dict[str, Any]:
        worst = max((rank.residual_ns for rank in self.ranks if rank.residual_ns is not None), default=None)
        return {"rule": self.rule, "residual_ns": worst, "sentence": self.sentence,
                "ranks": [{"label": rank.label, "shift_ns": rank.shift_ns, "matched_collectives": rank.matched,
                           "residual_ns": rank.residual_ns, "residual_p95_ns": rank.residual_p95_ns} for rank in self.ranks]}


def collectives(slices: pa.Table) -> Collectives:
    """Return the collectives and steps of one rank's slices.

    `slices` has the columns name, category, start_ns, dur_ns, bytes and instant of SLICES.
    """
    category, start, dur = (numbers(slices, name) for name in ("category", "start_ns", "dur_ns"))
    codes, names = dictionary(slices, "name")
    real = ~numbers(slices, "instant").astype(np.bool_)
    rows = np.flatnonzero((category == Category.COMMUNICATION) & real)
    rows = rows[stable_order(start[rows])][:MAX_COLLECTIVES]
    moved = numbers(slices, "bytes")[rows].tolist()
    number_of = {code: int(step_match[1]) for code, name in enumerate(names) if (step_match := STEP.search(name))}
    steps = np.flatnonzero((category == Category.ANNOTATION) & np.isin(codes, list(number_of)))
    return Collectives(tuple((names[code].split("(")[0], size) for code, size in zip(codes[rows].tolist(), moved, strict=True)),
                       start[rows] + dur[rows], {number_of[int(codes[row])]: int(start[row]) for row in steps.tolist()})


def align(ranks: Sequence[RankClock]) -> Alignment:
    """Decide how to put the ranks on the clock of the first.

    Base times where all state them and the collectives do not contradict them; else matched collectives; else every rank starts at
    0 and nothing is aligned.
    """
    bases = [rank.base_ns for rank in ranks if rank.base_ns is not None]
    stated = len(bases) == len(ranks)
    by_base = [rank.base_ns - min(bases) if stated and rank.base_ns is not None else 0 for rank in ranks]
    differences = [_end_differences(ranks[0].collectives, rank.collectives, by_base[i] - by_base[0] if stated else None)
             for i, rank in enumerate(ranks)]
    measured = all(ends.size >= LEAST_MATCHED for ends in differences)
    by_ends = [by_base[0] - round(float(np.median(ends))) if ends.size else by_base[i] for i, ends in enumerate(differences)]
    contradicted = measured and any(
        abs(by_ends[i] - by_base[i]) > max(TOLERANCE_NS, SPREADS * _spread(ends)) for i, ends in enumerate(differences))
    rule = "base time" if stated and not contradicted else "collectives" if measured else "none"
    shifts = by_base if rule != "collectives" else by_ends
    first = min(shifts)
    shifted = tuple(_shift(rank.label, shifts[i] - first, shifts[i] - shifts[0], differences[i]) for i, rank in enumerate(ranks))
    base_ns = min(bases) + first - min(by_base) if stated else None
    contradiction_ns = max(abs(b - a) for a, b in zip(by_base, by_ends, strict=True)) if stated else None
    return Alignment(rule, shifted, base_ns, _sentence(rule, shifted, contradiction_ns))


def _shift(label: str, shift_ns: int, against_first_ns: int, ends: Ints) -> RankShift:
    left = np.abs(ends + against_first_ns)
    has_ends = left.size > 0
    return RankShift(label, int(shift_ns), int(left.size), float(np.median(left)) if has_ends else None,
                     float(np.quantile(left, 0.95)) if has_ends else None)


def _spread(ends: Ints) -> float:
    """Median absolute deviation from the median."""
    return float(np.median(np.abs(ends - np.median(ends)))) if ends.size else 0.0


def _end_differences(first: Collectives, other: Collectives, shift_ns: int | None) -> Ints:
    """Differences of the ends (other - first, each on its own clock) of the collectives that are the same.

    The recordings may begin some collectives apart: of all offsets at which names and sizes agree best, the one that fits
    the stated clocks (`shift_ns`), else the numbered steps, else the offset nearest to 0.
    """
    ids: dict[tuple[str, int], int] = {}
    mine, theirs = (np.array([ids.setdefault(mark, len(ids)) for mark in part.signature], np.int64) for part in (first, other))
    candidates: list[tuple[float, int, Ints]] = []
    for offset in range(-min(MAX_OFFSET, theirs.size), min(MAX_OFFSET, mine.size) + 1):
        a, b = max(offset, 0), max(-offset, 0)
        n = min(mine.size - a, theirs.size - b)
        if n >= LEAST_MATCHED and n * 3 >= min(mine.size, theirs.size):
            same = mine[a:a + n] == theirs[b:b + n]
            candidates.append((float(same.mean()), offset, (other.end_ns[b:b + n] - first.end_ns[a:a + n])[same]))
    best = max((share for share, _, _ in candidates), default=0.0)
    fitting = [(offset, ends) for share, offset, ends in candidates if share >= AGREEMENT * best and ends.size >= LEAST_MATCHED]
    if not fitting:
        return np.empty(0, np.int64)
    by_steps = _shift_by_steps(first, other)
    for expected, tolerance_ns in ((shift_ns, TOLERANCE_NS), (by_steps, None), (shift_ns, None)):
        if expected is not None:
            _, ends = min(fitting, key=lambda each: abs(float(np.median(each[1])) + expected))
            if tolerance_ns is None or abs(float(np.median(ends)) + expected) <= tolerance_ns:
                return ends
    return min(fitting, key=lambda each: abs(each[0]))[1]


def _shift_by_steps(first: Collectives, other: Collectives) -> int | None:
    common = sorted(first.step.keys() & other.step.keys())
    return round(float(np.median([first.step[n] - other.step[n] for n in common]))) if common else None


def _sentence(rule: str, ranks: Sequence[RankShift], contradiction_ns: int | None) -> str:
    matched = min(rank.matched for rank in ranks)
    apart = time_text(max((rank.residual_ns or 0.0 for rank in ranks), default=0.0))
    if rule == "none":
        return ("The clocks of the ranks are not aligned: not every file states when it began, and too few collectives are "
                "common to all ranks. Every rank starts at 0.")
    if rule == "base time":
        checked = (f"the ends of {matched:,} matched collectives then differ by {apart} (median)" if matched
                   else "no collective is common to all ranks, so nothing checks it")
        return f"Clocks aligned by the base time that every file states; {checked}."
    why = ("not every file states when it began" if contradiction_ns is None
           else f"the stated base times contradict them by {time_text(contradiction_ns)}")
    return f"Clocks aligned by the ends of {matched:,} matched collectives, because {why}; they then differ by {apart} (median)."


# ---- slices of several ranks as those of one trace ----
# Each rank's windows moved, then cut so that all go on in order of time.

Columns = dict[str, Array]


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
                has_id = columns[name] != MISSING
                columns[name] = np.where(has_id, columns[name] + np.where(has_id, self._first_id, 0), MISSING)
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
        heads: list[Window | None] = [next(source, None) for source in sources]
        while any(heads):
            until = min(window.next_ns for window in heads if window)
            least = min(int(window.columns["start_ns"][0]) for window in heads if window)
            until = max(until, least + 1)                        # a window of one moment, with more of the same to come
            parts: list[Columns] = []
            for number, window in enumerate(heads):
                while window and window.columns["start_ns"][0] < until:
                    cut = int(np.searchsorted(window.columns["start_ns"], until))
                    parts.append({name: values[:cut] for name, values in window.columns.items()})
                    if cut < len(window):
                        window = Window({name: values[cut:] for name, values in window.columns.items()}, window.end_ns, window.more)
                    else:
                        window = next(sources[number], None)
                heads[number] = window
            columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            order = stable_order(columns["start_ns"])
            yield Window({name: values[order] for name, values in columns.items()}, until)

    def _windows_with_common_names(self, rank: int) -> Iterator[Window]:
        """A rank's windows with the common names."""
        for window in self._ranks[rank].windows():
            if len(window):
                yield Window({**window.columns, "name": self._name[rank][window.columns["name"]],
                              "detail": self._detail[rank][window.columns["detail"]]}, window.end_ns, window.more)


def _together(lists: Sequence[Sequence[str]]) -> tuple[list[str], list[Int32]]:
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
    trace.colours = {name: colour for _, source in reversed(traces) for name, colour in source.colours.items()}
    return trace


def _common(trace: Trace) -> pa.Table:
    """What ranks have in common: kernels of collectives, and steps."""
    names = ("name", "category", "start_ns", "dur_ns", "bytes", "instant")
    parts = []
    for window in trace.windows():
        rows = np.isin(window.columns["category"], (Category.COMMUNICATION, Category.ANNOTATION))
        parts.append({name: window.columns[name][rows] for name in names})
    columns = {name: np.concatenate([part[name] for part in parts] or [np.empty(0, np.int64)]) for name in names}
    used, code = np.unique(columns.pop("name"), return_inverse=True)
    texts = pa.array([trace.parts.names[name_code] for name_code in used.tolist()], pa.string())
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
