"""NVTX ranges and marks of an Nsight Systems export, with the domain, category and payload that the program gave them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from profiles.ingest.arrays import Array, Bools, Int32, Ints, Rows
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import colour_of_argb
from profiles.ingest.core.events import MISSING
from profiles.ingest.nsys import export as nsys
from profiles.ingest.nsys.export import MAX_DETAILS, Batch, Export, is_on_clock, per_row, per_value
from profiles.ingest.nsys.lanes import Lanes, pid_of
from profiles.ingest.trace import Category

# ---- samples of Python stacks ----
# Samples of Python stacks (`nsys profile --python-sampling=true`): NVTX marks whose payload is the stack.
# NVIDIA documents no layout of them. Read here as two public programs decode real exports: 32 bytes in front of any NVTX payload
# (domain, schema and sizes), then uint64, uint32 thread state, uint32 number of frames, and per frame three uint64: text ids of
# function and file, and the line; innermost first. What does not fit to the byte, or names texts that are not there, is no sample.

MAX_FRAMES = 512
MAX_BYTES = 48 + 24 * MAX_FRAMES
SHOWN = 64                       # frames of a stack that are kept, innermost first
_STARTS = (32, 0)                # behind the header of NVTX payloads; of exports without one
_HEAD, _FRAME = struct.Struct("<QII"), struct.Struct("<QQQ")


class Frame(NamedTuple):
    function: str
    file: str
    line: int


def parse_stack(data: bytes, strings: Mapping[int, str]) -> list[Frame] | None:
    """Return the frames, innermost first; None where the payload is no Python stack."""
    for start in _STARTS:
        size = len(data) - start - _HEAD.size
        if size <= 0 or size % _FRAME.size or _HEAD.unpack_from(data, start)[2] != size // _FRAME.size:
            continue
        frames = [_FRAME.unpack_from(data, start + _HEAD.size + offset) for offset in range(0, size, _FRAME.size)]
        if all(function in strings and file in strings and line < 1 << 31 for function, file, line in frames):
            return [Frame(strings[function], strings[file], line) for function, file, line in frames[:SHOWN]]
    return None


def stack_numbers(frames: list[Frame], build: TraceBuilder) -> tuple[int, int]:
    """Return the ids of name and detail of a sample: its innermost function, and its stack."""
    text = json.dumps({"stack": [f"{frame.function} ({frame.file}:{frame.line})" for frame in frames]}, ensure_ascii=False)
    has_room = text in build.details or len(build.details) < MAX_DETAILS
    return build.names[frames[0].function or "(unnamed function)"], build.details[text] if has_room else -1


# ---- NVTX ranges ----

_TABLE = "NVTX_EVENTS"
_INTEGERS = ("uint64Value", "int64Value", "uint32Value", "int32Value")
_REALS = ("doubleValue", "floatValue")


class Nvtx:
    """Reads the table twice: names of domains and categories may stand behind their ranges."""

    def __init__(self, export: Export, lanes: Lanes, build: TraceBuilder) -> None:
        self.export, self.lanes, self.build = export, lanes, build
        self.domains: dict[tuple[int, int], str] = {}
        self.categories: dict[tuple[int, int, int], str] = {}
        self.open: list[dict[str, Array]] = []       # ranges that never ended
        self.last_ns = 0
        self.binary = 0

    def read(self) -> None:
        columns = self.export.columns(_TABLE)
        if not columns:
            return
        if "eventType" in columns:
            self._describe()
        fields = ["start", "end", "eventType", "text", "textId", "category", "domainId", "globalTid", "endGlobalTid", "jsonText",
                  "jsonTextId", "color", "binaryData", *_INTEGERS, *_REALS]
        for batch in self.export.events(_TABLE, fields):
            self._take(batch)
        for columns_open in self.open:
            start = columns_open["start_ns"]
            self.build.add(**{**columns_open, "dur_ns": np.maximum(self.last_ns - start, 0)})

    def _describe(self) -> None:
        build, strings = self.build, self.export.strings
        for batch in self.export.descriptions(_TABLE, ["eventType", "text", "textId", "category", "domainId", "globalTid"]):
            kind = batch.ints("eventType")
            rows = np.flatnonzero(np.isin(kind, (nsys.NVTX_CATEGORY, nsys.NVTX_DOMAIN, nsys.NVTX_THREAD)))
            if not rows.size:
                continue
            texts, ids = batch.texts("text", 500), batch.ints("textId")
            category, domain, thread = (batch.ints(name) for name in ("category", "domainId", "globalTid"))
            for row in rows[:100_000].tolist():
                text = texts[row] or strings.get(int(ids[row]), "")
                pid = pid_of(int(thread[row]))
                if kind[row] == nsys.NVTX_DOMAIN:
                    self.domains[pid, int(domain[row])] = text
                elif kind[row] == nsys.NVTX_CATEGORY:
                    self.categories[pid, int(domain[row]), int(category[row])] = text
                elif text:
                    self.lanes.threads[int(thread[row])] = text[:80]
        build.integrity.notes += [f"NVTX domains: {', '.join(sorted({name for name in self.domains.values() if name}))[:500]}."
                                  ] if any(self.domains.values()) else []

    def _take(self, batch: Batch) -> None:
        build = self.build
        kind = batch.ints("eventType", nsys.NVTX_PUSH_POP[0])
        names = np.isin(kind, (nsys.NVTX_CATEGORY, nsys.NVTX_DOMAIN, nsys.NVTX_THREAD, nsys.NVTX_DOMAIN_END))
        build.integrity.remark("NVTX records that name domains, categories and threads", int(np.count_nonzero(names)))
        marks = np.isin(kind, nsys.NVTX_MARKS)
        pairs = np.isin(kind, nsys.NVTX_START_END)
        ranges = np.isin(kind, nsys.NVTX_PUSH_POP)
        start, end = batch.ints("start"), batch.ints("end")
        timed = is_on_clock(start) & ~names
        build.integrity.drop("rows without a start", int(np.count_nonzero(~names & ~timed)))
        is_known = marks | pairs | ranges
        build.integrity.drop("NVTX records of a kind that is not known here", int(np.count_nonzero(timed & ~is_known)))
        is_kept = timed & is_known
        # 2021's schema could not say "no end" and wrote 0
        endless = is_kept & ~marks & (~is_on_clock(end) | ((end == 0) & (start > 0)))
        build.integrity.repair("NVTX ranges that never ended: drawn to the last record", int(np.count_nonzero(endless)))
        ended = np.where(marks | endless | ~is_kept, start, end)
        self.last_ns = max(self.last_ns, int(ended[is_kept].max(initial=0)))
        thread = batch.ints("globalTid")
        track = np.where(pairs, per_value(thread, self._pairs), self.lanes.of_threads(thread))
        columns: dict[str, Any] = {
            "start_ns": start, "dur_ns": ended - start, "name": self._names(batch), "track": track.astype(np.int32),
            "category": np.full(batch.count, int(Category.ANNOTATION), np.uint8), "instant": marks,
            "detail": self._details(batch, thread)}
        self._colours(batch, columns["name"], is_kept)
        is_kept = is_kept & ~self._python_samples(batch, np.flatnonzero(is_kept & marks), start, thread)
        whole = is_kept & ~endless
        build.add(**(columns if whole.all() else {key: values[whole] for key, values in columns.items()}))
        if endless.any():
            self.open.append({key: values[endless] for key, values in columns.items() if key != "dur_ns"})

    def _pairs(self, serial: int) -> int:
        """Ranges with a start and an end call cross threads and each other: a track of the process."""
        return self.lanes.of_process(serial, "NVTX start/end ranges")

    def _names(self, batch: Batch) -> Int32:
        """The text of the record, else the registered one."""
        build, strings = self.build, self.export.strings
        registered = per_value(batch.ints("textId"), lambda text: build.names[strings.get(text) or "unnamed NVTX range"])
        texts = batch.texts("text")
        if not any(texts):
            return registered
        inline = build.names.column([text or "" for text in texts])
        return np.where(np.array([bool(text) for text in texts]), inline, registered).astype(np.int32)

    def _python_samples(self, batch: Batch, marks: Rows, start: Ints, thread: Ints) -> Bools:
        """Draw the marks that are samples of Python stacks; return which those are."""
        drawn = np.zeros(batch.count, np.bool_)
        if not batch.has("binaryData") or not marks.size:
            return drawn
        payloads, names, details = batch.blobs("binaryData", MAX_BYTES), [], []
        for row in marks.tolist():
            payload = payloads[row]
            frames = parse_stack(payload, self.export.strings) if payload else None
            if frames:
                name, detail = stack_numbers(frames, self.build)
                names.append(name)
                details.append(detail)
                drawn[row] = True
        rows = np.flatnonzero(drawn)
        if rows.size:
            self.build.add(
                start_ns=start[rows], dur_ns=np.zeros(rows.size, np.int64), name=np.array(names, np.int32),
                detail=np.array(details, np.int32), category=np.full(rows.size, int(Category.PYTHON), np.uint8),
                instant=np.ones(rows.size, np.bool_), track=self.lanes.of_threads(thread[rows], "Python samples"))
        return drawn

    def _colours(self, batch: Batch, name: Int32, kept: Bools) -> None:
        """ARGB that the program chose; each (name, colour) of a batch is looked at once."""
        colour = batch.ints("color")
        rows = np.flatnonzero(kept & (colour != MISSING) & (colour != 0))
        if rows.size:
            pairs = np.unique(np.stack((name[rows].astype(np.int64), colour[rows])), axis=1)
            for number, argb in zip(*pairs.tolist(), strict=True):
                self.build.colours.add(str(self.build.names.values_in_order[number]), colour_of_argb(argb))

    def _details(self, batch: Batch, thread: Ints) -> Int32:
        """Domain, category and payload as JSON."""
        payload = self._payloads(batch)
        pids = per_value(thread, lambda serial: pid_of(serial) if serial != MISSING else -1).astype(np.int64)
        build = self.build

        def detail_number(values: tuple[int, ...]) -> int:
            pid, domain, category, value = values
            detail: dict[str, Any] = {}
            if name := self.domains.get((pid, domain)):
                detail["domain"] = name
            if category not in (MISSING, 0):
                detail["category"] = self.categories.get((pid, domain, category), category)
            if value >= 0:
                detail["payload"] = payload[1][value]
            text = json.dumps(detail, ensure_ascii=False, default=str) if detail else ""
            return build.details[text] if text and (text in build.details or len(build.details) < MAX_DETAILS) else -1

        return per_row([pids, batch.ints("domainId"), batch.ints("category"), payload[0]], detail_number)

    def _payloads(self, batch: Batch) -> tuple[Ints, list[Any]]:
        """Per row the number of its payload in the list (-1: none): a number, or JSON text."""
        number = np.full(batch.count, -1, np.int64)
        values: list[Any] = []
        number_by_value: dict[Any, int] = {}
        def set_value(at: int, value: Any) -> None:
            if (type(value), value) not in number_by_value:
                number_by_value[type(value), value] = len(values)
                values.append(value)
            number[at] = number_by_value[type(value), value]

        for column in _INTEGERS:
            if batch.has(column):
                values_of_column = batch.ints(column)
                for row in np.flatnonzero(values_of_column != MISSING).tolist():
                    set_value(row, int(values_of_column[row]))
        for column in _REALS:
            if batch.has(column):
                real = batch.floats(column)
                for row in np.flatnonzero(np.isfinite(real)).tolist():
                    set_value(row, float(real[row]))
        if batch.has("jsonTextId"):
            texts = batch.ints("jsonTextId")
            for row in np.flatnonzero(texts != MISSING).tolist():
                set_value(row, self.export.strings.get(int(texts[row]), "")[:4_000])
        if batch.has("jsonText"):
            for row, text in enumerate(batch.texts("jsonText", 4_000)):
                if text:
                    set_value(row, text)
        return number, values
