"""Records of PyTorch's traces gathered piece by piece into columns; what they mean is decided once, at the end, in `kineto`.

Chrome's own gatherer (`gather`) reads the same files in 2.2 times the time (158 MB, 429,000 records, one process) and keeps state
between pieces, so that it cannot decode them in several processes: begins and ends, chains of ids, stacks, names that come late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from profiles.ingest.arrays import Array, Bools, Int32, Ints, Rows
from profiles.ingest.chrome.kinds import (
    GPU_ARGUMENTS,
    GPU_LANE,
    LAUNCH_FLOWS,
    NO_ARGUMENTS,
    OPERATORS,
    OTHER_DEVICES,
    WHOLE_ARGUMENTS,
    device_kind,
)
from profiles.ingest.chrome.kinds import KINETO_CATEGORIES as CATEGORIES
from profiles.ingest.chrome.records import count_kinds, drop_stranger, read_pieces
from profiles.ingest.chrome.tracks import FURTHER, Lanes, counter_track
from profiles.ingest.chrome.work import Arguments
from profiles.ingest.core.build import LEFT_OUT, TraceBuilder
from profiles.ingest.core.columns import (
    DetailIds,
    Ids,
    Table,
    decode_args,
    detail_ids,
    detail_text,
    floats,
    integers,
    nanoseconds,
    optional,
    triples,
)
from profiles.ingest.core.events import GPU_DETAILS, MISSING, OP_DETAILS, Event, GpuArgs, IdArgs, MemoryArgs, MetaArgs, OpArgs
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.naming.names import is_collective
from profiles.ingest.trace import Category, Integrity

_LANE = attrgetter("pid", "tid")
_PHASES = ("X", "i", "I", "R", "s", "t", "f", "C", "M")      # that are read
MAX_LANES = 65_536
MAX_METADATA = 200_000
FURTHER_SERIES = ("further counters", "further counters", "", None)


class LaneIds(Ids):
    """(pid, tid) pairs; those beyond MAX_LANES share one, so that a hostile file cannot make a million tracks."""

    def __missing__(self, key: Any) -> int:
        if len(self) < MAX_LANES or key == FURTHER:
            return super().__missing__(key)
        return self[FURTHER]


class SeriesIds(Ids):
    """(pid, counter, series, unit) of samples; those beyond MAX_LANES share one."""

    def __missing__(self, key: Any) -> int:
        if len(self) < MAX_LANES or key == FURTHER_SERIES:
            return super().__missing__(key)
        return self[FURTHER_SERIES]


@dataclass
class SharedIds:
    """What the pieces share: ids of texts, what they stand for, and the records that name processes and threads."""

    builder: TraceBuilder
    categories: Ids = field(default_factory=Ids)             # as the file spells them
    phases: Ids = field(default_factory=Ids)
    lanes: LaneIds = field(default_factory=LaneIds)                  # (pid, tid)
    details: DetailIds = field(default_factory=DetailIds)    # (names in the file, raw texts)
    metadata: list[tuple[Any, Any, Any, MetaArgs]] = field(default_factory=list)   # name, pid, tid, args
    series: SeriesIds = field(default_factory=SeriesIds)     # (pid, counter, series, unit) of samples

    def __post_init__(self) -> None:
        self.tracks = Lanes(self.builder, self.lanes)
        self.kind = Table(self.categories, lambda value: CATEGORIES.get(str(value).lower(), Category.OTHER), np.uint8)
        self.on_gpu = Table(self.categories, lambda value: str(value).lower() in GPU_LANE, np.bool_)
        self.launches = Table(self.categories, lambda value: str(value).lower() in LAUNCH_FLOWS, np.bool_)
        self.whole = Table(self.categories, lambda value: str(value).lower() in WHOLE_ARGUMENTS, np.bool_)
        self.arguments = Arguments(self.builder)
        self.form = Table(self.categories, lambda value: _form_number(str(value).lower()), np.int8)
        self.collective = Table(self.builder.names, lambda value: is_collective(str(value)), np.bool_)
        self.other_device = Table(self.categories, lambda value: str(value).lower() in OTHER_DEVICES, np.bool_)
        self.device_kind = Table(self.builder.names, lambda value: device_kind(str(value)), np.uint8)
        self.shown = Table(self.details, lambda value: self.builder.details[detail_text(value)], np.int32)
        self.counter = Table(self.series, self._counter, np.int32)

    def number(self, kind: str, key: Any) -> int:
        """Return the track number of a lane, of its flow ends, or of a counter.

        A lane is (pid, tid, on the GPU's side); all that are too many share one.
        """
        if kind == "counter":
            return int(self.counter(np.array([self.series[tuple(key)]], np.int32))[0])
        if kind == "further":
            return self.builder.further()
        lane = np.array([self.lanes[key[0], key[1]]], np.int32)
        return int((self.tracks.ends(lane) if kind == "end" else self.tracks.tracks(lane, np.array([key[2]], np.bool_))[0])[0])

    def _counter(self, key: tuple[Any, str, str, str | None]) -> int:
        track, order = counter_track(self.series[key], key)
        return self.builder.track(("counter", key), lambda: track, order)


def gather(pieces: Pieces, integrity: Integrity, out: SharedIds) -> None:
    """Read everything."""
    read_pieces(pieces, lambda piece: add_piece(out, piece, pieces, integrity))
    out.arguments.report_and_forget(integrity)


class Texts(Protocol):
    def exact_times(self, events: list[Event]) -> list[Any]: ...


def add_piece(out: SharedIds, piece: list[Event], pieces: Texts, integrity: Integrity) -> None:
    """Columns of one piece to the builder."""
    phase = out.phases.column([e.ph for e in piece])
    category = out.categories.column([e.cat for e in piece])
    lane = out.lanes.column(list(map(_LANE, piece)))
    start, bad = nanoseconds([e.ts for e in piece], lambda: pieces.exact_times(piece))
    integrity.records_read += len(piece)
    count_kinds(out.phases, out.categories, phase, category, integrity)
    by_phase = {value: phase == out.phases[value] for value in _PHASES if value in out.phases}
    none = np.zeros(len(piece), np.bool_)
    instant = by_phase.get("i", none) | by_phase.get("I", none) | by_phase.get("R", none)
    timed = by_phase.get("X", none) | instant
    flow = by_phase.get("s", none) | by_phase.get("t", none) | by_phase.get("f", none)
    counter, meta = by_phase.get("C", none), by_phase.get("M", none)
    integrity.drop("no start time", int(np.count_nonzero(bad & (timed | flow | counter))))
    timed, flow, counter = timed & ~bad, flow & ~bad, counter & ~bad
    _add_slices(out, piece, np.flatnonzero(timed), start, instant, category, lane, integrity)
    if flow.any():
        rows = np.flatnonzero(flow)
        chosen = [piece[i] for i in rows.tolist()]
        out.builder.add_flows(
            integers([MISSING if e.id is None else e.id for e in chosen]), [str(e.cat) for e in chosen],
            out.tracks.ends(lane[rows]), start[rows], np.array([e.ph == "f" for e in chosen], np.bool_),
            launch=out.launches(category[rows]))
    if counter.any():
        _add_counters(out, [piece[i] for i in np.flatnonzero(counter).tolist()], start[counter], integrity)
    if meta.any():
        chosen = [piece[i] for i in np.flatnonzero(meta).tolist()]
        args, _ = decode_args(MetaArgs, [e.args for e in chosen])
        room = MAX_METADATA - len(out.metadata)
        integrity.repair(f"names of lanes beyond the first {MAX_METADATA:,}: not read", max(0, len(chosen) - room))
        out.metadata += [(e.name, e.pid, e.tid, a) for e, a in zip(chosen[:room], args[:room], strict=True)]
    _count_strangers(out, phase[~np.isin(phase, [out.phases[value] for value in by_phase])], integrity)


def _count_strangers(out: SharedIds, phase: Int32, integrity: Integrity) -> None:
    """Records of kinds that are not read; a hostile file has more kinds than a report can list."""
    for number, count in zip(*(column.tolist() for column in np.unique(phase, return_counts=True)), strict=True):
        reason = f"ph {out.phases.values_in_order[number]!s:.20} (this kind of record is not read yet)"
        drop_stranger(integrity, reason, count, "other kinds of record that are not read yet")


def _add_slices(out: SharedIds, piece: list[Event], rows: Rows, start: Ints, instant: Bools,
            category: Int32, lane: Int32, integrity: Integrity) -> None:
    if not rows.size:
        return
    chosen = piece if rows.size == len(piece) else [piece[i] for i in rows.tolist()]
    dur = np.zeros(rows.size, np.int64)
    spans = np.flatnonzero(~instant[rows])
    durations = [chosen[i].dur for i in spans.tolist()] if spans.size < rows.size else [e.dur for e in chosen]
    dur[spans], unknown = nanoseconds(durations, lambda: [str(value) for value in durations])
    integrity.repair("no duration: drawn as an instant of time", int(np.count_nonzero(unknown)))
    columns = _argument_columns(out, chosen, category[rows], integrity)
    name = out.builder.names.column([e.name for e in chosen])
    kind, on_gpu = out.kind(category[rows]), out.on_gpu(category[rows])
    kind[(kind == Category.COMPUTE) & (out.collective(name) | columns.pop("collective"))] = Category.COMMUNICATION
    other = out.other_device(category[rows])
    if other.any():
        kind[other] = out.device_kind(name[other])
    track, device, stream = out.tracks.tracks(lane[rows], on_gpu)
    columns["device"] = np.where(columns["device"] == MISSING, device, columns["device"])
    columns["stream"] = np.where(columns["stream"] == MISSING, stream, columns["stream"])
    _add_memory(out, chosen, start[rows], instant[rows], columns)
    out.builder.add(start_ns=start[rows], dur_ns=dur, name=name, category=kind, track=track, instant=instant[rows], **columns)


def _argument_columns(out: SharedIds, chosen: list[Event], category: Int32, integrity: Integrity) -> dict[str, Array]:
    """Id columns of the chosen slices, and what only GPU work has (MISSING elsewhere)."""
    n = len(chosen)
    columns: dict[str, Array] = {
        **{key: np.full(n, MISSING, np.int64) for key in ("correlation", "external_id", *_GPU_NUMBERS)},
        "grid": np.full((n, 3), MISSING, np.int64), "block": np.full((n, 3), MISSING, np.int64),
        "occupancy_pct": np.full(n, np.nan), "detail": np.full(n, -1, np.int32), "collective": np.zeros(n, np.bool_)}
    external, form_of = columns["external_id"], out.form(category)
    for number, form in enumerate(_FORMS):
        rows = np.flatnonzero(form_of == number)
        if not rows.size:
            continue
        args, bad = decode_args(form, [chosen[i].args for i in rows.tolist()])
        integrity.repair("arguments that could not be understood were left out", bad)
        external[rows] = integers([a.external_id for a in args])
        if form is not OpArgs:
            columns["correlation"][rows] = integers([a.correlation for a in args])
        without = np.flatnonzero(external[rows] == MISSING)
        external[rows[without]] = integers([args[i].external_id_old for i in without.tolist()])
        if form is not IdArgs:
            shown = detail_ids(out.details, args, OP_DETAILS if form is OpArgs else GPU_DETAILS)
            columns["detail"][rows] = np.where(shown >= 0, out.shown(shown), -1)
            integrity.repair(LEFT_OUT, int(np.count_nonzero(shown == -2)))
        if form is GpuArgs:
            for key, values in _gpu_columns(args).items():
                columns[key][rows] = values
    rows = np.flatnonzero(out.whole(category))
    if rows.size:
        columns["detail"][rows] = out.arguments.details([chosen[i].args for i in rows.tolist()])
    return columns


_FORMS: tuple[Any, ...] = (OpArgs, GpuArgs, IdArgs)


def _form_number(category: str) -> int:
    """Number of the form in which the arguments of a category are read, -1 where none of them matters."""
    return 0 if category in OPERATORS else 1 if category in GPU_ARGUMENTS else -1 if category in NO_ARGUMENTS else 2


_GPU_NUMBERS = ("device", "stream", "registers_per_thread", "smem_bytes", "bytes")


def _gpu_columns(args: list[GpuArgs]) -> dict[str, Array]:
    return {
        "device": optional(a.device for a in args), "stream": optional(a.stream for a in args),
        "registers_per_thread": optional(a.registers for a in args), "smem_bytes": optional(a.shared_memory for a in args),
        "bytes": _moved_bytes(args), "grid": triples([a.grid for a in args]), "block": triples([a.block for a in args]),
        "occupancy_pct": floats([a.occupancy for a in args]),
        "collective": np.array([len(bytes(a.collective)) > 2 for a in args], np.bool_)}


_DTYPE_BYTES = {b"float": 4, b"float32": 4, b"int": 4, b"half": 2, b"float16": 2, b"bfloat16": 2, b"double": 8, b"long": 8,
                b"int64": 8, b"byte": 1, b"char": 1, b"bool": 1, b"int8": 1, b"uint8": 1, b"short": 2}


def _moved_bytes(args: list[GpuArgs]) -> Ints:
    """Bytes of copies and sets as stated; of collectives the larger of what goes in and out, from elements and dtype."""
    moved = optional(a.bytes for a in args)
    for i, a in enumerate(args):
        size = _DTYPE_BYTES.get(bytes(a.dtype).strip(b'"').lower()) if a.dtype else None
        if size and moved[i] == MISSING:
            elements = [int(raw) for raw in (bytes(a.in_elements), bytes(a.out_elements)) if raw.isdigit() and len(raw) < 19]
            if elements:
                moved[i] = max(elements) * size
    return moved


def _add_counters(out: SharedIds, chosen: list[Event], start: Ints, integrity: Integrity) -> None:
    """ph C: one sample per number in the arguments; the counter is (pid, name, argument)."""
    args, bad = decode_args(dict, [e.args for e in chosen])
    series, times, values = [], [], []
    empty = bad
    for event, arguments, time in zip(chosen, args, start.tolist(), strict=True):
        numbers = [(key, value) for key, value in arguments.items() if isinstance(value, (int, float))]
        empty += not numbers
        for key, value in numbers[:64]:
            series.append(out.series[(event.pid, f"{event.name}", key, None)])
            times.append(time)
            values.append(value)
    integrity.drop("counter without a number", min(empty, len(chosen)))
    out.builder.add_samples(out.counter(np.array(series, np.int32)), np.array(times, np.int64), np.array(values, np.float64))


# c10/core/DeviceType.h of pytorch/pytorch: CUDA, HIP, XPU, MPS, HPU, MTIA, other accelerators; 0 is the CPU.
_ACCELERATORS = frozenset({1, 6, 12, 13, 15, 19, 20})
_LARGEST = 2**41                         # bytes of one allocation, and GPUs of a host, beyond which a number is none
_MOST_GPUS = 4096


def _add_memory(out: SharedIds, chosen: list[Event], start: Ints, instant: Bools,
            columns: dict[str, Array]) -> None:
    """`[memory]` instants: bytes (negative: freed), address (as external id) and GPU become columns; what is allocated and
    reserved then also counter tracks per device."""
    rows = np.array([i for i in np.flatnonzero(instant).tolist() if chosen[i].name == "[memory]"], np.intp)
    if not rows.size:
        return
    args, _ = decode_args(MemoryArgs, [chosen[i].args for i in rows.tolist()])
    size, device = optional(a.bytes for a in args), optional(a.device_id for a in args)
    on_gpu = np.array([isinstance(a.device_type, int) and a.device_type in _ACCELERATORS for a in args], np.bool_)
    on_gpu &= (device >= 0) & (device < _MOST_GPUS)
    columns["bytes"][rows] = np.where(np.abs(size) < _LARGEST, size, MISSING)
    columns["external_id"][rows] = optional(a.address for a in args)
    columns["device"][rows] = np.where(on_gpu, device, MISSING)
    for attribute, label in (("total_allocated", "memory allocated"), ("total_reserved", "memory reserved")):
        values = optional(getattr(a, attribute) for a in args)
        rows_with_value = np.flatnonzero(values != MISSING)
        keys = [(int(device[i]) if on_gpu[i] else chosen[rows[i]].pid, f"{label} ({'GPU' if on_gpu[i] else 'CPU'})", "", "bytes")
                for i in rows_with_value.tolist()]
        track = out.counter(out.series.column(keys))
        out.builder.add_samples(track, start[rows][rows_with_value], values[rows_with_value].astype(np.float64))
