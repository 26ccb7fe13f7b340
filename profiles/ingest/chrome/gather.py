"""Records of a Chrome trace, piece by piece, to rows of the builder: what every phase (`ph`) of the trace event format means.

Format: "Trace Event Format" of the Chromium project. Slices (X) go to the builder as they come; begins and ends wait for
one another; flows and samples wait for the whole file, which may name their ids and stacks last.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

from profiles.ingest.arrays import Array, Bools, Bytes, Int32, Ints, stable_order
from profiles.ingest.chrome.batches import LaneIds
from profiles.ingest.chrome.flows import Flows
from profiles.ingest.chrome.kinds import (
    CUDA,
    NAMED_CALL,
    NAMED_COLLECTIVE,
    NAMED_MEMCPY,
    NAMED_MEMSET,
    NAMED_PYTHON,
    NAMED_SCOPE,
    STRANGE,
    UNKNOWN,
    Lane,
    category_code,
    lane_of,
    name_code,
)
from profiles.ingest.chrome.lanes import ChromeLanes, Names
from profiles.ingest.chrome.records import (
    BEGINS,
    CHAINS,
    FLOWS,
    INSTANTS,
    KNOWN,
    NOT_READ,
    SPANS,
    UNNAMED,
    Index,
    Piece,
    count_kinds,
    drop_stranger,
    extras_of,
    read_colours,
    read_pieces,
)
from profiles.ingest.chrome.samples import Counters, Samples
from profiles.ingest.chrome.work import Arguments, blank
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import Ids, Table, decode_args, nanoseconds
from profiles.ingest.core.events import MISSING, Event, MetaArgs
from profiles.ingest.core.pairs import BEGIN, END, MARK, NAMELESS, ROW, PairedSlices, Pairs
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.trace import GPU_WORK, Category, Integrity

# ---- begins and ends ----
# Begins and ends (B, E) of threads and asynchronous chains (b, n, e; before 2014 S, T, p, F) of a Chrome trace to slices.

_STEPS = {"B": BEGIN, "E": END, "b": BEGIN, "S": BEGIN, "e": END, "F": END, "n": MARK, "T": MARK, "p": MARK}


class Stacks:
    """Gathers records; `threads` and `chains` are paired by the reader at the end."""

    def __init__(self, builder: TraceBuilder, lanes: ChromeLanes, arguments: Arguments) -> None:
        self._builder, self._lanes, self._arguments = builder, lanes, arguments
        self.threads, self.chains = Pairs(), Pairs()
        self._processes = Table(lanes.ids, lambda value: self._process(value[0]), np.int32)
        self._pids: dict[str, int] = {}
        self._pid_of: list[Any] = []

    def _process(self, pid: Any) -> int:
        number = self._pids.setdefault(str(pid), len(self._pid_of))
        if number == len(self._pid_of):
            self._pid_of.append(pid)
        return number

    def of_threads(self, here: Piece, rows: Index) -> None:
        """B and E: a stack per thread."""
        out = self._rows(here, rows, here.events(rows))
        out["stack"] = self._lanes.same(here.lane[rows])
        self.threads.add(out)

    def of_chains(self, here: Piece, rows: Index) -> None:
        """Add rows of chains: a stack per category and id.

        Ids hold for all processes unless `id2` calls them local. S, T, p, F: also per name.
        """
        chosen = here.events(rows)
        out = self._rows(here, rows, chosen)
        keys = []
        for event, extra in zip(chosen, here.extra(rows), strict=True):
            own: Any = event.id
            if own is None and isinstance(extra.id2, dict):
                local = "local" in extra.id2
                own = (str(event.pid), str(extra.id2["local"])) if local else extra.id2.get("global")
            legacy = event.name if event.ph in ("S", "F", "T", "p") else None
            keys.append(hash((str(event.cat), str(extra.scope), str(own), str(legacy))))
        out["stack"] = keys
        self.chains.add(out)

    def _rows(self, here: Piece, rows: Index, chosen: list[Event]) -> Array:
        out = np.zeros(rows.size, ROW)
        out["time"], out["sequence"] = here.start[rows], here.number[rows]
        out["category"], out["track"] = here.category[rows], here.lane[rows]
        out["step"] = [_STEPS[e.ph] for e in chosen]
        out["name"] = self._builder.names.column([e.name or UNNAMED for e in chosen])
        out["name"][np.array([not e.name for e in chosen], np.bool_) & (out["step"] == END)] = NAMELESS
        out["detail"] = self._arguments.details([e.args for e in chosen])
        return out

    def tracks_of_chains(self, paired: PairedSlices) -> Int32:
        """The track of every slice of a chain: one per process and name of the chain's first slice."""
        pid = self._processes(paired.root["track"])
        both = pid.astype(np.int64) << 32 | paired.root["name"].astype(np.int64)
        kinds, inverse = np.unique(both, return_inverse=True)
        numbers = np.empty(kinds.size, np.int32)
        for place, key in enumerate(kinds.tolist()):
            name = str(self._builder.names.values_in_order[key & 0xFFFFFFFF])
            track, order = self._lanes.chain(self._pid_of[key >> 32], name)
            numbers[place] = self._builder.track(("chain", key), lambda track=track: track, order)  # type: ignore[misc]
        return numbers[inverse]

    def report(self, integrity: Integrity) -> None:
        """Count what did not pair."""
        for pairs, what in ((self.threads, "slice"), (self.chains, "asynchronous slice")):
            integrity.drop(f"end without the begin of its {what}", pairs.counts.without_begin)
            integrity.repair(f"{what} that never ended: drawn to the end of what surrounds it, or of the trace",
                             pairs.counts.never_ended)
            integrity.repair(f"{what} whose end has another name", pairs.counts.renamed)


# ---- records of a Chrome trace ----

_LANE = attrgetter("pid", "tid")
_ON_GPU = [int(kind) for kind in (*GPU_WORK, Category.GPU_ANNOTATION, Category.SYNC)]
_WORK = [int(kind) for kind in GPU_WORK]
_NAMED = ((NAMED_MEMCPY, Category.MEMCPY), (NAMED_MEMSET, Category.MEMSET), (NAMED_COLLECTIVE, Category.COMMUNICATION),
          (NAMED_SCOPE, Category.GPU_ANNOTATION))
IN_FILE_ORDER = 1 << 17               # rows that are held back so that equal slices nest in file order


class Gather:
    """Reads all pieces with `all`; `finish` settles what waited for the end of the file."""

    def __init__(self, pieces: Pieces, builder: TraceBuilder, arguments: Arguments | None = None,
                 rule: Callable[..., Lane] = lane_of) -> None:
        self.pieces, self.builder = pieces, builder
        self.integrity: Integrity = builder.integrity
        self.arguments = arguments or Arguments(builder)
        self.names, self.categories, self.phases = Names(), Ids(), Ids()
        self.ids = LaneIds()
        self.lanes = ChromeLanes(builder, self.ids, self.names, rule)
        self.flows, self.stacks = Flows(), Stacks(builder, self.lanes, self.arguments)
        self.counters, self.samples = Counters(builder, self.lanes), Samples(builder, self.lanes)
        self._code = Table(self.categories, category_code, np.uint8)
        self._named = Table(builder.names, name_code, np.uint8)
        self._last: int | None = None                                # the latest moment met
        self._held: list[dict[str, Array]] | None = []
        self._held_rows = 0

    def all(self) -> None:
        read_pieces(self.pieces, self._add)

    def _add(self, records: list[Event]) -> None:
        phase = self.phases.column([e.ph for e in records])
        category = self.categories.column([e.cat for e in records])
        lane = self.ids.column(list(map(_LANE, records)))
        start, bad = nanoseconds([e.ts for e in records], lambda: self.pieces.exact_times(records))
        number = np.arange(self.integrity.records_read, self.integrity.records_read + len(records))
        self.integrity.records_read += len(records)
        count_kinds(self.phases, self.categories, phase, category, self.integrity)
        self._metadata(records, phase)
        read_colours(self.pieces, records, self.builder.colours)
        drawn = self._timed_records(phase)
        self.integrity.drop("no start time", int(np.count_nonzero(bad & drawn)))
        here = Piece(records, self.phases, phase, category, lane, start, number, drawn & ~bad, extras_of(self.pieces, records))
        if here.timed.any():
            self._note_moment(int(start[here.timed].max()))
        for phases, take in ((SPANS + INSTANTS, self._spans), (BEGINS, self._begins), (CHAINS, self.stacks.of_chains),
                             (FLOWS, self._flows), (("C",), self._counters), (("P",), self.samples.records)):
            rows = here.rows(phases)
            if rows.size:
                take(here, rows)

    def _note_moment(self, moment: int) -> None:
        self._last = moment if self._last is None else max(self._last, moment)

    # -- what records are

    def _timed_records(self, phase: Int32) -> Bools:
        """Which records lie in time; those of kinds that are not read are counted."""
        out = np.ones(phase.size, np.bool_)
        for number, count in zip(*(column.tolist() for column in np.unique(phase, return_counts=True)), strict=True):
            value = self.phases.values_in_order[number]
            if value in KNOWN and value != "M":
                continue
            out[phase == number] = False
            if value != "M" and not self.end_mark(value, count):
                reason = NOT_READ.get(value) or (f"ph {value!s:.20} (no such kind of record is known)" if value is not None
                                                 else "no kind of record (no ph)")
                drop_stranger(self.integrity, reason, count, "other kinds of record that are not known")
        return out

    def end_mark(self, phase: Any, count: int) -> bool:
        """Tell whether these are the records with which an exporter ends its files."""
        return False

    def _metadata(self, records: list[Event], phase: Int32) -> None:
        if "M" not in self.phases:
            return
        chosen = [records[i] for i in np.flatnonzero(phase == self.phases["M"]).tolist()]
        if chosen:
            args, bad = decode_args(MetaArgs, [e.args for e in chosen])
            self.integrity.repair("arguments that could not be understood were left out", bad)
            named = [self.names.add(e.name, e.pid, e.tid, a) for e, a in zip(chosen, args, strict=True)]
            if any(named):
                self.lanes.rename_lanes()

    def _classify(self, category: Int32, name: Int32, lane: Int32) -> tuple[Bytes, Bools]:
        """Our category of every row, and whether it lies on a GPU track."""
        codes, named = self._code(category), self._named(name)
        gpu, _, _, derived = self.lanes.kinds(lane)
        out, call = codes.copy(), named == NAMED_CALL
        out[codes == CUDA] = np.where(call & ~gpu, Category.RUNTIME, Category.COMPUTE)[codes == CUDA]
        out[codes == UNKNOWN] = np.where(gpu, Category.COMPUTE, np.where(call, Category.RUNTIME, Category.CPU_OP))[codes == UNKNOWN]
        for code, kind in _NAMED:
            out[(out == Category.COMPUTE) & (named == code)] = kind
        out[(codes == UNKNOWN) & ~gpu & (named == NAMED_PYTHON)] = Category.PYTHON
        strange = self.lanes.strange(lane) & ~gpu & (codes == UNKNOWN) & ~call
        out[strange] = Category.OTHER
        self.integrity.remark(STRANGE, int(np.count_nonzero(strange)))
        out[gpu & (derived & np.isin(out, _WORK) | (out == Category.ANNOTATION))] = Category.GPU_ANNOTATION
        return out, np.isin(out, _ON_GPU)

    # -- slices

    def _spans(self, here: Piece, rows: Index) -> None:
        chosen = here.events(rows)
        span = here.phase[rows] == self.phases.get("X", -1)
        durations = [extra.tdur if e.dur is None else e.dur for e, extra in zip(chosen, here.extra(rows), strict=True)] \
            if here.extras else [e.dur for e in chosen]
        dur, unknown = nanoseconds(durations, lambda: [str(value) for value in durations])
        self.integrity.repair("no duration: drawn as an instant of time", int(np.count_nonzero(unknown & span)))
        dur[~span] = 0
        self._note_moment(int((here.start[rows] + np.clip(dur, 0, 2**52)).max()))
        name = self.builder.names.column([e.name or UNNAMED for e in chosen])
        kind, on_gpu = self._classify(here.category[rows], name, here.lane[rows])
        self.flows.of_slices(here, rows, self.lanes)
        columns = self.arguments.columns([e.args for e in chosen], kind, on_gpu)
        self._add_rows(here.number[rows], here.lane[rows], on_gpu,
                  {**columns, "start_ns": here.start[rows], "dur_ns": dur, "name": name, "category": kind, "instant": ~span})

    def _add_rows(self, number: Ints, lane: Int32, on_gpu: Bools, columns: dict[str, Array]) -> None:
        """Rows of lanes; their GPU and stream are the lane's where the arguments do not say them."""
        _, device, stream, _ = self.lanes.kinds(lane)
        for key, values in (("device", device), ("stream", stream)):
            columns[key] = np.where(on_gpu & (columns[key] == MISSING), values, columns[key])
        self._hold(number, {**columns, "track": self.lanes.tracks(lane, on_gpu)})

    def _hold(self, number: Ints, columns: dict[str, Array]) -> None:
        if self._held is None:
            self.builder.add(**columns)
            return
        self._held.append({**columns, "number": number})
        self._held_rows += number.size
        if self._held_rows > IN_FILE_ORDER:
            self._release()

    def _release(self) -> None:
        """Rows held back go to the builder, in file order; later ones go there at once."""
        parts, self._held = self._held, None
        if parts:
            whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
            order = stable_order(whole.pop("number"))
            self.builder.add(**{key: values[order] for key, values in whole.items()})

    # -- everything else

    def _begins(self, here: Piece, rows: Index) -> None:
        self.stacks.of_threads(here, rows)
        self.flows.of_slices(here, rows, self.lanes)

    def _flows(self, here: Piece, rows: Index) -> None:
        self.flows.records(here, rows, self.lanes)

    def _counters(self, here: Piece, rows: Index) -> None:
        self.counters.records(here, rows, self.integrity)

    def finish(self, frames: Any, samples: Any = None) -> None:
        """Pair begins and ends, look stacks up, count what is left over.

        `frames`: the file's `stackFrames`; `samples`: its `samples`.
        """
        last = self.samples.of_file(samples, self.ids, self.integrity)
        if last is not None:
            self._note_moment(last)
        end = self._last or 0
        for paired in self.stacks.threads.finish(end):
            self._add_pairs(paired, paired.begin["track"], None)
        for paired in self.stacks.chains.finish(end):
            self._add_pairs(paired, paired.begin["track"], self.stacks.tracks_of_chains(paired))
        self._release()
        self.stacks.report(self.integrity)
        self.samples.finish(frames, self.integrity)
        self.flows.finish(self.builder)
        self.counters.rename()
        self.arguments.report(self.integrity)
        self.integrity.remark("on lanes that were called a GPU's only after them: counted as work of the CPU", self.lanes.late)

    def _add_pairs(self, paired: PairedSlices, lane: Int32, track: Int32 | None) -> None:
        begin = paired.begin
        if not begin.size:
            return
        name = begin["name"].copy()
        kind, on_gpu = self._classify(begin["category"], name, lane)
        columns = {**blank(begin.size), "detail": self.arguments.both(begin["detail"], paired.end_detail),
                   "start_ns": begin["time"].copy(), "dur_ns": paired.end_ns - begin["time"], "name": name, "category": kind,
                   "instant": begin["step"] == MARK}
        if track is None:
            self._add_rows(begin["sequence"], lane, on_gpu, columns)
        else:
            columns["category"] = np.where(on_gpu, Category.CPU_OP, kind).astype(np.uint8)
            self._hold(begin["sequence"], {**columns, "track": track})
