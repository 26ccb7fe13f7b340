"""PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`, a pickle of plain data) → `Trace`.

Facts: torch/csrc/cuda/memory_snapshot.cpp and c10/cuda/CUDACachingAllocator.cpp of pytorch/pytorch. An entry's `size` is what was
asked for; the allocator counts it rounded up to 512 bytes, so sums here are of rounded sizes. Bytes count as allocated until
`free_requested`, as active until `free_completed`. The history is a ring: what was before its first entry follows from the state
at its end.
"""

from __future__ import annotations

import pickletools
from collections import Counter
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.arrays import Ints
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.source import Source
from profiles.ingest.other.plain_pickle import PlainPickle
from profiles.ingest.other.snapshot_history import COUNTERS, LANES, History, Stacks
from profiles.ingest.other.snapshot_tables import MAX_DEVICES, State, headline, tables, whole
from profiles.ingest.trace import Category, Device, Integrity, Trace, TraceError, Track

FORMAT = "torch-snapshot"
_CODES = frozenset(ord(opcode.code) for opcode in pickletools.opcodes)
_LATEST_NS = 2**62
_LARGEST_BYTES = 2**41                   # of one entry
_HINT = "Write it with torch.cuda.memory._dump_snapshot(…) after torch.cuda.memory._record_memory_history(…)."


def sniff(head: bytes) -> bool:
    """Any pickle of protocol 2 or later: what it holds is judged by walking it."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and head[2] in _CODES


def read(source: Source) -> Trace:
    """Raises TraceError where the pickle is not plain data, or not a snapshot."""
    pickle = PlainPickle(source)
    snapshot = pickle.value
    if isinstance(snapshot, list):                                 # PyTorch 1.13 and earlier: only the segments
        snapshot = {"segments": snapshot}
    if not isinstance(snapshot, dict) or not {"segments", "device_traces"} & set(snapshot):
        raise TraceError("the pickle", "plain data, but not a memory snapshot (no `segments`, no `device_traces`)", _HINT)
    integrity = Integrity()
    if pickle.cut_at is not None:
        integrity.truncated_at = f"byte {pickle.cut_at}"
        integrity.notes.append(f"The pickle ends at byte {pickle.cut_at}, in the middle of its data: what was complete is shown"
                               + (f" ({source.damage})." if source.damage else "."))
    return _Reader(source, integrity).read(snapshot)


class _Reader:
    def __init__(self, source: Source, integrity: Integrity) -> None:
        self.source, self.integrity = source, integrity
        self.builder = TraceBuilder(source, FORMAT, integrity)
        self.stacks = Stacks()
        self.untimed = False
        self._details: dict[tuple[Any, ...], int] = {}

    def read(self, snapshot: dict[str, Any]) -> Trace:
        state = State(self.stacks, self.integrity)
        state.take(snapshot.get("segments"))
        traces = snapshot.get("device_traces")
        own = {id(entries): (device, entries) for device, entries in enumerate(_as_list(traces)[:MAX_DEVICES]) if _as_list(entries)}
        histories = [self._history(device, entries) for device, entries in own.values()]
        for history in histories:
            history.settle(state.bytes_now(history.device))
            self.integrity.remark("freed blocks that were allocated before the recording's first entry", history.freed_earlier)
            self._draw(history)
        self._annotations(snapshot.get("external_annotations"))
        if self.untimed:
            self.integrity.notes.append("The entries have no times (PyTorch 2.0 and earlier): they are drawn 1 µs apart, in order.")
        if not histories and not state.devices():
            raise TraceError("the pickle", "a memory snapshot without a history and without segments", _HINT)
        if not histories:
            self.integrity.notes.append("No history was recorded: only the state at one moment is shown.")
            self._state_alone(state)
        self.integrity.settle()
        devices = sorted({history.device for history in histories} | state.devices())
        trace = self.builder.finish(devices=[Device(index, "") for index in devices],
                                    metadata={"allocator": _settings(snapshot.get("allocator_settings")),
                                              "headline": headline(histories, state),
                                              "memory_state": state.sums_by_device()})
        self.integrity.repaired.pop("overlapping slices were moved to overflow lanes", None)     # allocations do overlap
        trace.tables = tables(histories, state, self.stacks)
        return trace

    def _history(self, device: int, entries: list[Any]) -> History:
        out = History(device)
        kinds: Counter[str] = Counter()
        for number, entry in enumerate(entries):
            action = entry.get("action") if type(entry) is dict else None
            if type(action) is not str:
                self.integrity.drop("an entry without an action")
                continue
            kinds[action[:40]] += 1
            time = entry.get("time_us")
            self.untimed |= type(time) is not int
            out.action.append(action[:40])
            out.time_ns.append(max(0, min(time * 1000, _LATEST_NS)) if type(time) is int else number * 1000)
            size = whole(entry.get("size"), -1)
            if not 0 <= size <= _LARGEST_BYTES:
                self.integrity.repair("entries without a size, or with one that no GPU has: counted as 0 bytes")
                size = 0
            out.bytes.append(size)
            out.address.append(whole(entry.get("addr", entry.get("device_free")), MISSING))
            stack = self.stacks.number(entry.get("frames"))
            out.stack.append(stack)
            out.detail.append(self._detail(entry, stack))
        self.integrity.records_read += len(entries)
        for kind, count in kinds.items():
            self.integrity.count(f"entry: {kind}", count)
        self.source.progress("reading", self.integrity.records_read)
        return out

    def _detail(self, entry: dict[str, Any], stack: int) -> int:
        """Stack, stream and what the user noted; once per combination."""
        noted = tuple((key, value[:500]) for key in ("compile_context", "user_metadata")
                      if type(value := entry.get(key)) is str and value not in ("", "N/A"))
        stream = entry.get("stream") if type(entry.get("stream")) is int else None
        key = (stack, stream, noted)
        number = self._details.get(key)
        if number is None:
            shown: dict[str, Any] = {"stream": stream} if stream is not None else {}
            shown |= dict(noted)
            if stack >= 0:
                shown |= {"site": self.stacks.site(stack), "stack": self.stacks.lines(stack)}
            text = msgspec.json.encode(shown).decode("utf-8", "replace") if shown else ""
            number = self._details[key] = self.builder.details[text] if shown else -1
        return number

    def _draw(self, history: History) -> None:
        """Counters, one instant per entry, and the largest allocations as slices."""
        group, device = f"GPU {history.device}", history.device
        time = np.array(history.time_ns, np.int64)
        for name in COUNTERS:
            track = self.builder.track((name, device), lambda name=name: Track(  # type: ignore[misc]
                kind="counter", name=f"{name} memory", group=group, device=device, unit="bytes"), _order(device, name))
            changed = np.flatnonzero(np.diff(history.levels[name], prepend=history.before[name] - 1))
            self.builder.add_samples(np.full(changed.size, track, np.int32), time[changed],
                                     history.levels[name][changed].astype(np.float64))
        track = self.builder.track(("entries", device), lambda: Track(
            kind="other", name="allocator", group=group, device=device), _order(device, "allocator"))
        n = time.size
        self.builder.add(
            start_ns=time, dur_ns=np.zeros(n, np.int64), name=self.builder.names.column(history.action),
            category=np.full(n, int(Category.OTHER), np.uint8), track=np.full(n, track, np.int32), instant=np.ones(n, np.bool_),
            external_id=np.array(history.address, np.int64), bytes=np.array(history.bytes, np.int64),
            device=np.full(n, device, np.int64), detail=np.array(history.detail, np.int32))
        self._lifetimes(history, time)

    def _lifetimes(self, history: History, time: Ints) -> None:
        chosen = history.largest()
        self.integrity.remark(f"allocations beyond the largest ({LANES} at a time): in counters and entries, not drawn as slices",
                              len(history.alive) - len(chosen))
        if not chosen:
            return
        began = np.array([history.alive[i][0] for i in chosen], np.intp)
        ended = np.array([history.alive[i][1] for i in chosen], np.intp)
        track = self.builder.track(("lifetimes", history.device), lambda: Track(
            kind="other", name="largest allocations", group=f"GPU {history.device}", device=history.device),
            _order(history.device, "largest allocations"))
        names = [self.stacks.site(history.stack[i]) or f"{history.bytes[i]} bytes" for i in began.tolist()]
        self.builder.add(
            start_ns=time[began], dur_ns=np.where(ended < 0, time.max(), time[ended]) - time[began],
            name=self.builder.names.column(names), category=np.full(began.size, int(Category.ANNOTATION), np.uint8),
            track=np.full(began.size, track, np.int32), external_id=np.array(history.address, np.int64)[began],
            bytes=np.array(history.bytes, np.int64)[began], detail=np.array(history.detail, np.int32)[began])

    def _annotations(self, annotations: Any) -> None:
        """Ranges that the program named (record_function, optimizer steps): START and END of one name nest."""
        open_at: dict[tuple[int, str], list[int]] = {}
        rows: list[tuple[int, int, str, int]] = []
        for entry in _as_list(annotations):
            self.integrity.records_read += 1
            self.integrity.count("annotation")
            device, name, time = (entry.get(key) for key in ("device", "name", "time_us")) if type(entry) is dict else (None,) * 3
            if type(device) is not int or not 0 <= device < MAX_DEVICES or type(name) is not str or type(time) is not int:
                self.integrity.drop("an annotation without device, name or time")
                continue
            time = max(0, min(time * 1000, _LATEST_NS))
            if entry.get("stage") == "START":
                open_at.setdefault((device, name), []).append(time)
            elif open_at.get((device, name)):
                start = open_at[device, name].pop()
                rows.append((start, max(0, time - start), name, device))
            else:
                self.integrity.drop("the end of an annotation without its start")
        self.integrity.drop("the start of an annotation without its end", sum(map(len, open_at.values())))
        for device in {row[3] for row in rows}:
            own = [row for row in rows if row[3] == device]
            track = self.builder.track(("annotations", device), lambda device=device: Track(  # type: ignore[misc]
                kind="other", name="annotations", group=f"GPU {device}", device=device), _order(device, "annotations"))
            self.builder.add(
                start_ns=np.array([row[0] for row in own], np.int64), dur_ns=np.array([row[1] for row in own], np.int64),
                name=self.builder.names.column([row[2] for row in own]), track=np.full(len(own), track, np.int32),
                category=np.full(len(own), int(Category.ANNOTATION), np.uint8))

    def _state_alone(self, state: State) -> None:
        """One sample per counter, so that a snapshot without a history is a profile as well."""
        for device in state.devices():
            for name, value in (state.bytes_now(device) or {}).items():
                track = self.builder.track((name, device), lambda name=name, device=device: Track(  # type: ignore[misc]
                    kind="counter", name=f"{name} memory", group=f"GPU {device}", device=device, unit="bytes"),
                    _order(device, name))
                self.builder.add_samples(np.array([track], np.int32), np.zeros(1, np.int64), np.array([value], np.float64))


def _order(device: int, name: str) -> tuple[tuple[int, int]]:
    """Under each GPU what its program did, its memory, and then the allocations, which take most room."""
    return ((device, ("annotations", *COUNTERS, "allocator", "largest allocations").index(name)),)


def _as_list(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _settings(value: Any) -> str:
    """The allocator's settings that are not off, as one line."""
    if type(value) is not dict:
        return ""
    shown = [f"{key}={entry}" for key, entry in list(value.items())[:40] if type(entry) in (str, int, float, bool) and entry]
    return ", ".join(shown)[:500]
