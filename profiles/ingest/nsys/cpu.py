"""What threads did: calls of the CUDA runtime and of libraries, the operating system's scheduling, samples of the CPU."""

from __future__ import annotations

import json
import re

import numpy as np

from profiles.ingest.arrays import Array, Int32, Ints
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.nsys.export import (
    API_DETAILS,
    APIS,
    MAX_DETAILS,
    Api,
    Batch,
    Export,
    details,
    is_on_clock,
    or_missing,
    per_value,
)
from profiles.ingest.nsys.gpu import times
from profiles.ingest.nsys.lanes import Lanes
from profiles.ingest.trace import Category

_VERSION = re.compile(r"_v\d{4,}$")        # "cudaLaunchKernel_v7000"; cublasSgemm_v2 is a name
_UNPAIRED = "scheduling records without their counterpart (the thread ran before or after the recording)"
_MAX_FRAMES = 4_000_000
_STACK = 64


def read(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """Every table of calls, known or not, then scheduling and samples."""
    for table, api in APIS.items():
        if export.table(table):
            read_calls(export, lanes, build, table, api)
    _scheduling(export, lanes, build)
    _samples(export, lanes, build)


def looks_like_calls(columns: set[str]) -> bool:
    """Tables of a tool newer than this reader: a start, a thread and a name are all it takes."""
    return {"start", "globalTid"} <= columns and bool({"nameId", "textId", "name", "text"} & columns)


def read_calls(export: Export, lanes: Lanes, build: TraceBuilder, table: str, api: Api) -> None:
    """Calls with a start, an end and a thread."""
    column_names = ["start", "end", "globalTid", "nameId", "name", "text", "correlationId", "overheadType", *API_DETAILS]
    kinds = export.label("ENUM_CUPTI_OVERHEAD_TYPE", {}) if api.category == Category.OVERHEAD else {}
    for batch in export.events(table, column_names):
        start, dur, timed = times(batch, build)
        shown = {label: batch.ints(column) for column, label in API_DETAILS.items() if batch.has(column)}
        if "return value" in shown:
            shown["return value"] = or_missing(shown["return value"])
        if kinds:
            shown["kind"] = batch.ints("overheadType")
        columns: dict[str, Array] = {
            "start_ns": start, "dur_ns": dur, "name": _names(export, batch, build, table),
            "category": np.full(batch.count, int(api.category), np.uint8),
            "track": lanes.of_threads(batch.ints("globalTid"), api.track),
            "detail": details(build, shown, {"kind": kinds}) if shown else np.full(batch.count, -1, np.int32)}
        if api.category == Category.RUNTIME:
            columns["correlation"] = lanes.correlation(batch, "globalTid")
        build.add(**(columns if timed.all() else {key: values[timed] for key, values in columns.items()}))


def _names(export: Export, batch: Batch, build: TraceBuilder, table: str) -> Int32:
    """Names by id or inline; the version that the driver appends is no part of a name."""
    other = build.names[table.removesuffix("_EVENTS").removesuffix("_API").replace("_", " ").lower()]

    def name_number(text: int) -> int:
        name = export.strings.get(text)
        return build.names[_VERSION.sub("", name)] if name else other

    if batch.has("nameId"):
        return per_value(batch.ints("nameId"), name_number)
    texts = batch.texts("name" if batch.has("name") else "text")
    return np.array([build.names[text] if text else other for text in texts], np.int32)


def _scheduling(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """Context switches of a thread, in and out, to the times that it ran."""
    running: dict[int, tuple[int, int]] = {}            # thread -> when and where it began to run, at the end of a batch
    for batch in export.events("SCHED_EVENTS", ["start", "cpu", "isSchedIn", "globalTid"]):
        thread, start, cpu = batch.ints("globalTid"), batch.ints("start"), batch.ints("cpu")
        carried = [(serial, *begun) for serial, begun in running.items()]
        thread = np.concatenate([np.array([run[0] for run in carried], np.int64), thread])
        start = np.concatenate([np.array([run[1] for run in carried], np.int64), start])
        cpu = np.concatenate([np.array([run[2] for run in carried], np.int64), cpu])
        into = np.concatenate([np.ones(len(carried), np.bool_), batch.ints("isSchedIn") > 0])
        order = np.lexsort((~into, start, thread))
        thread, start, cpu, into = thread[order], start[order], cpu[order], into[order]
        same = np.append(thread[1:] == thread[:-1], False)
        begins = into & same & ~np.append(into[1:], False)
        last = into & ~same                                # still running when the batch ends
        running = {int(thread[row]): (int(start[row]), int(cpu[row])) for row in np.flatnonzero(last).tolist()}
        rows = np.flatnonzero(begins & is_on_clock(start))
        build.integrity.drop(_UNPAIRED, thread.size - 2 * rows.size - len(running))
        _add_run(lanes, build, thread[rows], start[rows], start[rows + 1] - start[rows], cpu[rows])
    build.integrity.drop(_UNPAIRED, len(running))


def _add_run(lanes: Lanes, build: TraceBuilder, thread: Ints, start: Ints, dur: Ints, cpu: Ints) -> None:
    build.add(start_ns=start, dur_ns=dur, name=per_value(cpu, lambda number: build.names[f"runs on CPU {number}"]),
              category=np.full(start.size, int(Category.OTHER), np.uint8), track=lanes.of_threads(thread, "scheduling"))


def _samples(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """CPU samples as instants, named by the innermost function, with their stack."""
    if not export.table("COMPOSITE_EVENTS"):
        return
    stacks = _Stacks(export)
    for batch in export.events("COMPOSITE_EVENTS", ["id", "start", "cpu", "globalTid"]):
        start, ids = batch.ints("start"), batch.ints("id")
        timed = is_on_clock(start)
        build.integrity.drop("rows without a start", int(np.count_nonzero(~timed)))
        name, detail = stacks.of(ids, build)
        columns: dict[str, Array] = {
            "start_ns": start, "dur_ns": np.zeros_like(start), "name": name, "detail": detail,
            "category": np.full(start.size, int(Category.OTHER), np.uint8),
            "instant": np.ones(start.size, np.bool_), "track": lanes.of_threads(batch.ints("globalTid"), "samples")}
        build.add(**{key: values[timed] for key, values in columns.items()})


class _Stacks:
    """Call stacks of samples: which rows of SAMPLING_CALLCHAINS belong to an id."""

    def __init__(self, export: Export) -> None:
        self._strings = export.strings
        parts: list[tuple[Ints, Ints, Ints]] = []
        rows = 0
        for batch in export.descriptions("SAMPLING_CALLCHAINS", ["id", "symbol", "stackDepth"]):
            parts.append((batch.ints("id"), batch.ints("symbol"), batch.ints("stackDepth", 0)))
            rows += batch.count
            if rows > _MAX_FRAMES:
                break
        parts = parts or [(np.empty(0, np.int64),) * 3]
        ids, symbols, depths = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
        order = np.lexsort((depths, ids))
        self._ids, self._symbols = ids[order], symbols[order]

    def of(self, ids: Ints, build: TraceBuilder) -> tuple[Int32, Int32]:
        """Return names and details of samples: the same stack is the same detail."""
        first, end = np.searchsorted(self._ids, ids), np.searchsorted(self._ids, ids, side="right")
        names, stacks = np.empty(ids.size, np.int32), np.full(ids.size, -1, np.int32)
        for index, (low, high) in enumerate(zip(first.tolist(), end.tolist(), strict=True)):
            frames = [self._strings.get(symbol, "?") for symbol in self._symbols[low:min(high, low + _STACK)].tolist()]
            names[index] = build.names[frames[0] if frames else "CPU sample"]
            text = json.dumps({"stack": frames}, ensure_ascii=False) if len(frames) > 1 else ""
            if text and (text in build.details or len(build.details) < MAX_DETAILS):
                stacks[index] = build.details[text]
        return names, stacks


def read_unknown(export: Export, lanes: Lanes, build: TraceBuilder) -> None:
    """Tables that nobody here knows: calls where they look like calls, else counted by name."""
    for name in list(export.rest()):
        columns = export.columns(name)
        if looks_like_calls(columns):
            words = name.removesuffix("_EVENTS").removesuffix("_API").replace("_", " ").lower()
            read_calls(export, lanes, build, name, Api(Category.OTHER, words[:60]))
            continue
        for batch in export.events(name, []):
            build.integrity.drop(f"table {name[:80]}: not read", batch.count)


