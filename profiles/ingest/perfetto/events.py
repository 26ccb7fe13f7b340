"""Track events to rows: begins and ends are paired at the end, in order of time; flows, counters and instants go along."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from profiles.ingest.arrays import Array, Bytes, Int32, Ints
from profiles.ingest.chrome.kinds import UNKNOWN
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import NAME_CHARS, Ids
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.pairs import BEGIN, END, MARK, NAMELESS, ROW, PairedSlices, Pairs
from profiles.ingest.core.protobuf_messages import text
from profiles.ingest.naming.names import clip_bytes, is_collective
from profiles.ingest.perfetto.arguments import (
    AGENT,
    BYTES,
    COPY_AGENT,
    CORRELATION,
    GRID,
    LDS,
    REGISTERS,
    STREAM,
    WORKGROUP,
    Arguments,
)
from profiles.ingest.perfetto.packets import TrackEvent
from profiles.ingest.perfetto.sequence import Clocks, Sequence, code_of, location
from profiles.ingest.perfetto.tracks import Tracks
from profiles.ingest.trace import GPU_WORK, Category, Integrity, Track

_FLUSH_ROWS = 1 << 17
_END, _COUNTER = 2, 4                    # TrackEvent.type
_STEPS = {1: BEGIN, 2: END, 3: MARK}
_NO_CATEGORY = (-1, UNKNOWN)
# Descriptors are the keys of an event's fields: `dict(event.ListFields())` is the fastest look at all of them.
(_TRACK, _NAME_IID, _NAME, _CATEGORY_IIDS, _CATEGORIES, _VALUE, _DOUBLE, _EXTRA_TRACKS, _EXTRA_VALUES, _EXTRA_DOUBLE_TRACKS,
 _EXTRA_DOUBLES, _FLOWS_OLD, _FLOWS, _TERMINATING_OLD, _TERMINATING, _CORRELATION_ID, _ANNOTATIONS, _LOCATION, _LOCATION_IID,
 _LEGACY) = (TrackEvent.DESCRIPTOR.fields_by_name[name] for name in (
    "track_uuid", "name_iid", "name", "category_iids", "categories", "counter_value", "double_counter_value",
    "extra_counter_track_uuids", "extra_counter_values", "extra_double_counter_track_uuids", "extra_double_counter_values",
    "flow_ids_old", "flow_ids", "terminating_flow_ids_old", "terminating_flow_ids", "correlation_id", "debug_annotations",
    "source_location", "source_location_iid", "legacy_event"))
_FURTHER_FLOWS = frozenset((_FLOWS_OLD, _TERMINATING, _TERMINATING_OLD))
_RARE = frozenset((_LOCATION, _LOCATION_IID, _CORRELATION_ID))
_DATA_COLUMNS = frozenset(int(c) for c in (*GPU_WORK, Category.RUNTIME))
_ASYNC = {"b": BEGIN, "S": BEGIN, "e": END, "F": END, "n": MARK, "T": MARK, "p": MARK}
_STACK = 1 << 40                         # stacks of chains are numbered apart from those of tracks
_MAX_CHAINS = 1 << 20
_IN, _OUT = (1, 3), (2, 3)               # LegacyEvent.flow_direction: in, out, both
_COLUMNS = ("stack", "time", "clock", "sequence", "name", "category", "detail", "track", "step")


@dataclass
class _Waiting:
    """Columns not yet handed on."""

    rows: list[tuple[int, ...]] = field(default_factory=list)              # of _COLUMNS
    samples: list[tuple[int, int, int, float]] = field(default_factory=list)       # track, time, clock, value
    flows: list[tuple[int, int, int, int, bool, int]] = field(default_factory=list)  # flow, track, time, clock, ends, correlation


class Events:
    """Takes the track events of all sequences."""

    def __init__(self, builder: TraceBuilder, tracks: Tracks, clocks: Clocks, integrity: Integrity) -> None:
        self.builder, self.tracks, self.clocks, self.integrity = builder, tracks, clocks, integrity
        self.categories = Ids()
        self.arguments = Arguments(builder.details, integrity)
        self.pairs = Pairs()
        self.unnamed = builder.names["(no name)"]
        self.latest = 0
        self._waiting = _Waiting()
        self._flows: list[Array] = []
        self._sums: dict[int, float] = {}
        self._legacy = _Legacy(self)

    def take(self, event: Any, kind: int, sequence: Sequence, now: int, clock: int) -> None:
        """Take one event of the type `kind` at `now` on the clock numbered `clock`."""
        if kind == _END and not event.debug_annotations:
            uuid = event.track_uuid or sequence.track
            track = self.tracks.numbers.get(uuid) or self.track(uuid, sequence)
            self._waiting.rows.append((track, now, clock, -1, NAMELESS, -1, -1, track, END))
            return
        fields: dict[Any, Any] = dict(event.ListFields())
        if _LEGACY in fields:
            self._legacy.take(event, fields, sequence, now, clock)
            return
        uuid = fields.get(_TRACK, 0) or sequence.track
        track = self.tracks.numbers.get(uuid) or self.track(uuid, sequence)
        if kind == _COUNTER:
            self._sample(track, uuid, now, clock, fields.get(_VALUE) or fields.get(_DOUBLE) or 0)
        elif kind in _STEPS:
            self.row(fields, sequence, now, clock, track, track, _STEPS[kind])
        else:
            self.integrity.drop(f"track event of a type that is not known ({kind})")
        if _EXTRA_VALUES in fields or _EXTRA_DOUBLES in fields:
            self._extra(fields, sequence, now, clock)

    def end(self, stack: int, track: int, now: int, clock: int) -> None:
        """Append the end of whatever is innermost on a stack."""
        self._waiting.rows.append((stack, now, clock, -1, NAMELESS, -1, -1, track, END))

    def flow(self, flow: int, track: int, now: int, clock: int, terminates: bool) -> None:
        """Append a point of a flow."""
        self._waiting.flows.append((flow, track, now, clock, terminates, MISSING))

    def track(self, uuid: int, sequence: Sequence) -> int:
        """The number of a track; 0 is the thread that the sequence's old-style descriptor names."""
        if not uuid and sequence.thread:
            return self.tracks.lane(*sequence.thread)
        return self.tracks.number(uuid)

    def row(self, fields: dict[Any, Any], sequence: Sequence, now: int, clock: int, stack: int, track: int, step: int) -> None:
        """Append a begin, end or mark with its name, category, arguments and flows."""
        iids = fields.get(_CATEGORY_IIDS, ())
        if len(iids) == 1 and _CATEGORIES not in fields:
            category, code = sequence.categories.get(iids[0], _NO_CATEGORY)
        else:
            category, code = self.category(fields, sequence)
        further = self._further(fields, sequence) if not _RARE.isdisjoint(fields) else None
        shown = str(self.categories.values_in_order[category])[:200] if code == UNKNOWN and category >= 0 else None
        detail, row = self.arguments.take(fields.get(_ANNOTATIONS, ()), sequence, shown, code in _DATA_COLUMNS, further)
        name = NAMELESS if step == END else self.name(fields, sequence)
        self._waiting.rows.append((stack, now, clock, row, name, category, detail, track, step))
        correlation = self.arguments.correlation
        for flow in fields.get(_FLOWS, ()):
            self._waiting.flows.append((flow, track, now, clock, False, correlation))
        if not _FURTHER_FLOWS.isdisjoint(fields):
            for field_, terminates in ((_FLOWS_OLD, False), (_TERMINATING, True), (_TERMINATING_OLD, True)):
                for flow in fields.get(field_, ()):
                    self._waiting.flows.append((flow, track, now, clock, terminates, correlation))

    def _further(self, fields: dict[Any, Any], sequence: Sequence) -> dict[str, Any]:
        """What else is shown with the arguments."""
        out: dict[str, Any] = {}
        if _LOCATION in fields:
            out["source"] = location(fields[_LOCATION])
        elif _LOCATION_IID in fields:
            out["source"] = sequence.locations.get(fields[_LOCATION_IID], "")
        if _CORRELATION_ID in fields:
            out["correlation_id"] = fields[_CORRELATION_ID]
        return out

    def name(self, fields: dict[Any, Any], sequence: Sequence) -> int:
        iid = fields.get(_NAME_IID)
        if iid is not None:
            number = sequence.names.get(iid)
            if number is None:
                self.integrity.repair("names whose text the file does not hold any more")
                return self.unnamed
            return number
        return self.builder.names[text(clip_bytes(fields[_NAME], 4 * NAME_CHARS))] if _NAME in fields else self.unnamed

    def category(self, fields: dict[Any, Any], sequence: Sequence) -> tuple[int, int]:
        """Return the number of the event's category and its code.

        Of several the first that is known.
        """
        iids, texts = fields.get(_CATEGORY_IIDS, ()), fields.get(_CATEGORIES, ())
        best = _NO_CATEGORY
        for number, code in [*(sequence.categories.get(iid, best) for iid in iids[:64]),
                             *(sequence.category(text(raw_text[:1000])) for raw_text in texts[:64])]:
            if code != UNKNOWN:
                return number, code
            best = best if best[0] >= 0 else (number, code)
        return best

    def _sample(self, track: int, uuid: int, now: int, clock: int, value: float) -> None:
        node = self.tracks.nodes.get(uuid)
        if node is not None:
            value *= node.factor
            if node.incremental:
                value = self._sums[track] = self._sums.get(track, 0) + value
        self._waiting.samples.append((track, now, clock, value))

    def _extra(self, fields: dict[Any, Any], sequence: Sequence, now: int, clock: int) -> None:
        """Further counters of the event (thread time, instructions): on the tracks it names, or its sequence does."""
        for uuids, values, default in ((_EXTRA_TRACKS, _EXTRA_VALUES, sequence.counters[0]),
                                        (_EXTRA_DOUBLE_TRACKS, _EXTRA_DOUBLES, sequence.counters[1])):
            for uuid, value in zip(fields.get(uuids) or default, fields.get(values, ()), strict=False):
                self._sample(self.tracks.number(uuid), uuid, now, clock, value)

    def full(self) -> bool:
        """Tell whether it is time to flush."""
        waiting = self._waiting
        return len(waiting.rows) + len(waiting.samples) + len(waiting.flows) > _FLUSH_ROWS

    def flush(self) -> None:
        """Hand on what waits, its times converted to the trace's clock."""
        waiting, self._waiting = self._waiting, _Waiting()
        if waiting.rows:
            table = np.array(waiting.rows, np.int64)
            rows = np.zeros(len(table), ROW)
            for place, column in enumerate(_COLUMNS):
                if column != "clock":
                    rows[column] = table[:, place]
            rows["time"] = self.clocks.on_trace_clock(table[:, 1].copy(), table[:, 2].astype(np.int32))
            self.latest = max(self.latest, int(rows["time"].max()))
            self.pairs.add(rows)
        if waiting.samples:
            tracks, times, clocks, values = zip(*waiting.samples, strict=True)
            self.builder.add_samples(np.array(tracks, np.int32), self.clocks.on_trace_clock(
                np.array(times, np.int64), np.array(clocks, np.int32)), np.array(values, np.float64))
        if waiting.flows:
            self._flows.append(self._flow_rows(waiting.flows))

    def _flow_rows(self, flows: list[tuple[int, int, int, int, bool, int]]) -> Array:
        ids, tracks, times, clocks, ends, correlations = zip(*flows, strict=True)
        out = np.empty(len(flows), [("flow", np.uint64), ("track", np.int32), ("time", np.int64), ("ends", np.bool_),
                                    ("correlation", np.int64)])
        out["flow"], out["track"], out["ends"], out["correlation"] = ids, tracks, ends, correlations
        out["time"] = self.clocks.on_trace_clock(np.array(times, np.int64), np.array(clocks, np.int32))
        return out

    def finish(self) -> dict[int, tuple[int | None, int | None]]:
        """Pair what begins and ends.

        Returns (device, stream) of the tracks with GPU work, None where unknown or several.
        """
        self.flush()
        codes = np.array([code_of(str(value)) for value in self.categories.values_in_order] + [UNKNOWN], np.uint8)
        numbers = self.arguments.table()
        gpu: dict[int, tuple[int | None, int | None]] = {}
        for paired in self.pairs.finish(self.latest):
            self._slices(paired, codes, numbers, gpu)
        self._join_flows()
        counts = self.pairs.counts
        self.integrity.drop("end of a slice without its begin", counts.without_begin)
        self.integrity.repair("slice that never ended: drawn to the end of what surrounds it, or of the trace", counts.never_ended)
        return gpu

    def _slices(self, paired: PairedSlices, codes: Bytes, numbers: Ints,
                gpu: dict[int, tuple[int | None, int | None]]) -> None:
        begin = paired.begin
        if not begin.size:
            return
        values = np.where((begin["sequence"] >= 0)[:, None], numbers[np.maximum(begin["sequence"], 0)], MISSING)
        category = self._kinds(codes[begin["category"]], begin["name"])
        device = np.where(values[:, AGENT] == MISSING, values[:, COPY_AGENT], values[:, AGENT])
        work = np.isin(category, [int(c) for c in GPU_WORK])
        for track in np.unique(begin["track"][work]).tolist():
            here = work & (begin["track"] == track)
            gpu[track] = (_only(device[here]), _only(values[here, STREAM]))
        blocks = np.where(values[:, WORKGROUP] > 0, -(-values[:, GRID] // np.maximum(values[:, WORKGROUP], 1)), MISSING)
        blocks[values[:, GRID] == MISSING] = MISSING
        self.integrity.remark("grids and blocks that the file states as one number each: shown along x",
                              int(np.count_nonzero(blocks != MISSING)))
        detail = np.where(begin["detail"] >= 0, begin["detail"], paired.end_detail)
        self.builder.add(
            start_ns=begin["time"], dur_ns=paired.end_ns - begin["time"], name=begin["name"].copy(), category=category,
            track=begin["track"].copy(), instant=begin["step"] == MARK, correlation=values[:, CORRELATION],
            device=np.where(work, device, MISSING), stream=np.where(work, values[:, STREAM], MISSING), grid=_along_x(blocks),
            block=_along_x(values[:, WORKGROUP]), registers_per_thread=values[:, REGISTERS], smem_bytes=values[:, LDS],
            bytes=values[:, BYTES], detail=detail)

    def _kinds(self, category: Bytes, name: Int32) -> Bytes:
        """Kernels of collectives by their names; what nothing is known of is a program's own slice."""
        out = np.where(category == UNKNOWN, int(Category.CPU_OP), category).astype(np.uint8)
        kernel = np.flatnonzero(out == Category.COMPUTE)
        names = self.builder.names.values_in_order
        collective = {number for number in np.unique(name[kernel]).tolist() if is_collective(str(names[number]))}
        out[kernel[np.isin(name[kernel], list(collective))]] = Category.COMMUNICATION
        return out

    def _join_flows(self) -> None:
        """Each flow is a chain of points in time; a hop that two equal correlations already say is left out."""
        if not self._flows:
            return
        points = np.concatenate(self._flows)
        points = points[np.lexsort((points["time"], points["flow"]))]
        here, there = points[:-1], points[1:]
        hop = (here["flow"] == there["flow"]) & ~here["ends"]
        hop &= (here["correlation"] != there["correlation"]) | (here["correlation"] == MISSING)
        number = np.arange(int(np.count_nonzero(hop)), dtype=np.int64)
        for side, is_end in ((here[hop], False), (there[hop], True)):
            self.builder.add_flows(number, "flow", side["track"].copy(), side["time"].copy(), np.full(number.size, is_end))


def _only(values: Ints) -> int | None:
    """The one value that occurs, None where there is none or several."""
    distinct = np.unique(values[values != MISSING])
    return int(distinct[0]) if distinct.size == 1 else None


def _along_x(total: Ints) -> Ints:
    out = np.full((total.size, 3), MISSING, np.int64)
    is_known = (total != MISSING) & (total > 0)
    out[is_known] = 1
    out[is_known, 0] = total[is_known]
    return out


class _Legacy:
    """Rows of events that carry Chrome's older phases (TrackEvent.legacy_event): complete, asynchronous, flows, begin and end."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._chains: dict[Any, int] = {}                  # scope and id -> number of the stack
        self._drawn: dict[int, int] = {}                   # that -> track
        self._completes = 0

    def take(self, event: Any, fields: dict[Any, Any], sequence: Sequence, now: int, clock: int) -> None:
        legacy = event.legacy_event
        phase = chr(legacy.phase) if 0 < legacy.phase < 128 else ""
        if legacy.name_iid and not {_NAME, _NAME_IID} & set(fields):
            fields = {**fields, _NAME_IID: legacy.name_iid}
        track = self._track(event, legacy, sequence)
        if not phase:
            phase = {1: "B", 2: "E", 3: "I"}.get(event.type, "")
        if phase == "X":
            self._complete(fields, sequence, now, clock, track, max(0, min(legacy.duration_us, 2**52)) * 1000)
        elif phase in "BE" and phase:
            self._events.row(fields, sequence, now, clock, track, track, BEGIN if phase == "B" else END)
        elif phase in "iIR" and phase:
            self._events.row(fields, sequence, now, clock, track, track, MARK)
        elif phase in _ASYNC:
            self._async(fields, legacy, sequence, now, clock, phase)
        elif phase in "stf" and phase:
            self._events.flow(self._id(legacy, sequence), track, now, clock, phase == "f")
        else:
            self._events.integrity.drop(f"legacy event of phase {phase or legacy.phase}")
        if legacy.flow_direction in (*_IN, *_OUT) and legacy.bind_id:
            self._events.flow(legacy.bind_id, track, now, clock, False)

    def _complete(self, fields: dict[Any, Any], sequence: Sequence, now: int, clock: int, track: int, duration_ns: int) -> None:
        """A begin and an end on a stack of their own: no neighbour pairs with them."""
        self._completes += 1
        self._events.row(fields, sequence, now, clock, 2 * _STACK + self._completes, track, BEGIN)
        self._events.end(2 * _STACK + self._completes, track, now + duration_ns, clock)

    def _track(self, event: Any, legacy: Any, sequence: Sequence) -> int:
        if legacy.pid_override or legacy.tid_override:
            pid, tid = sequence.thread or (0, 0)
            return self._events.tracks.lane(legacy.pid_override or pid, legacy.tid_override or tid)
        return self._events.track(event.track_uuid or sequence.track, sequence)

    def _id(self, legacy: Any, sequence: Sequence) -> int:
        return int(legacy.unscoped_id or legacy.local_id or legacy.global_id)

    def _async(self, fields: dict[Any, Any], legacy: Any, sequence: Sequence, now: int, clock: int, phase: str) -> None:
        """A stack per scope and id; local ids hold within one process. Drawn on one track per process and name of the first."""
        events = self._events
        pid = (sequence.thread or (0, 0))[0] if legacy.HasField("local_id") else -1
        scope = legacy.id_scope or b""
        category, _ = events.category(fields, sequence)
        key = (pid, scope, category if not scope else -1, self._id(legacy, sequence))
        stack = self._chains.setdefault(key, len(self._chains)) if len(self._chains) < _MAX_CHAINS else _MAX_CHAINS
        name = events.name(fields, sequence)
        shown = str(events.builder.names.values_in_order[name])[:200]
        group = f"process {pid}" if pid > 0 else "trace"
        track = self._drawn.get(stack)
        if track is None:
            track = self._drawn[stack] = events.builder.track(
                ("chain", pid, name), lambda: Track(kind="other", name=f"{shown} (async)", group=group))
        events.row(fields, sequence, now, clock, _STACK + stack, track, _ASYNC[phase])

