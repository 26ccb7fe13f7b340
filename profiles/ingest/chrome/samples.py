"""Counters (ph C) and stack samples (ph P) of a Chrome trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.chrome.lanes import ChromeLanes
from profiles.ingest.chrome.records import UNNAMED, Index, Piece
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import Ids, Table, decode_args, nanoseconds
from profiles.ingest.trace import Category, Integrity

_SERIES = 64                     # numbers of one counter record
_FRAMES = 512                    # of one stack


class Counters:
    """One track per series of a counter; a counter is a name and id of a process."""

    def __init__(self, builder: TraceBuilder, lanes: ChromeLanes) -> None:
        self._builder, self._lanes = builder, lanes
        self._series = Ids()
        self._track = Table(self._series, self._make, np.int32)

    def _make(self, key: tuple[Any, str, str]) -> int:
        number = self._series[key]
        track, order = self._lanes.counter(key[0], key[1], key[2], number)
        return self._builder.track(("counter", key), lambda: track, order)

    def records(self, here: Piece, rows: Index, integrity: Integrity) -> None:
        """Add one sample per number; a text that is one counts as such."""
        args, bad = decode_args(dict, [e.args for e in here.events(rows)])
        series, times, values = [], [], []
        empty = more = 0
        for event, arguments, time in zip(here.events(rows), args, here.start[rows].tolist(), strict=True):
            numbers = [(str(key)[:200], number) for key, value in arguments.items() if (number := _number(value)) is not None]
            empty += not numbers
            more += len(numbers) > _SERIES
            name = f"{event.name}" if event.id is None else f"{event.name}[{event.id}]"
            for key, number in numbers[:_SERIES]:
                series.append(self._series[(_plain(event.pid), name[:200], key)])
                times.append(time)
                values.append(number)
        integrity.drop("counter without a number", empty)
        integrity.repair(f"counter with more than {_SERIES} numbers: the first are kept", more)
        integrity.repair("arguments that could not be understood were left out", min(bad, len(args)))
        if series:
            self._builder.add_samples(self._track(np.array(series, np.int32)), np.array(times, np.int64),
                                      np.array(values, np.float64))

    def rename(self) -> None:
        """Processes may be named after their counters."""
        for key in self._series.values_in_order:
            track, order = self._lanes.counter(key[0], key[1], key[2], self._series[key])
            number = self._builder.track(("counter", key), lambda track=track: track, order)  # type: ignore[misc]
            if number != self._builder.shared:
                self._builder.describe(number, track, order)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, str)) else str(value)


def _number(value: Any) -> float | None:
    if isinstance(value, str) and len(value) < 40:
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, (int, float)) or not abs(value) < 1e300:        # NaN is not
        return None
    return float(value)


class Samples:
    """Moments at which a profiler looked at a thread's stack: instants that carry it."""

    def __init__(self, builder: TraceBuilder, lanes: ChromeLanes) -> None:
        self._builder, self._lanes = builder, lanes
        self._keys = Ids()                                   # stack frame ids, or texts of frames
        self._parts: list[dict[str, Any]] = []

    def records(self, here: Piece, rows: Index) -> None:
        chosen = here.events(rows)
        keys = [_key(extra.sf, extra.stack) for extra in here.extra(rows)]
        self._parts.append({"time": here.start[rows], "lane": here.lane[rows], "key": self._keys.column(keys),
                            "name": self._builder.names.column([e.name or UNNAMED for e in chosen])})

    def of_file(self, samples: Any, ids: Ids, integrity: Integrity) -> int | None:
        """Take the samples that stand beside the records ("global samples" of the format; Hermes): ts, pid, tid, sf, name.

        Return the moment of the last one in ns, None without any.
        """
        if not isinstance(samples, list):
            return None
        integrity.records_read += len(samples)
        integrity.kinds["sample of a stack beside the records"] = len(samples)
        chosen = [sample for sample in samples if isinstance(sample, dict)]
        integrity.drop("sample that is no object", len(samples) - len(chosen))
        times = [sample.get("ts") for sample in chosen]
        time, bad = nanoseconds(times, lambda: times)
        integrity.drop("no start time", int(np.count_nonzero(bad)))
        rows = np.flatnonzero(~bad)
        chosen = [chosen[i] for i in rows.tolist()]
        if not chosen:
            return None
        self._parts.append({
            "time": time[rows], "lane": ids.column([(_plain(sample.get("pid")), _plain(sample.get("tid"))) for sample in chosen]),
            "key": self._keys.column([_key(sample.get("sf"), None) for sample in chosen]),
            "name": self._builder.names.column([str(sample.get("name") or UNNAMED)[:400] for sample in chosen])})
        return int(time[rows].max())

    def finish(self, frames: Any, integrity: Integrity) -> None:
        """Look the stacks up in `stackFrames` (id -> {name, category, parent})."""
        if not self._parts:
            return
        by_id = {str(key): value for key, value in frames.items() if isinstance(value, dict)} if isinstance(frames, dict) else {}
        stacks = [_stack(key, by_id) for key in self._keys.values_in_order]
        leaf = np.array([self._builder.names[stack[-1]] if stack else -1 for stack in stacks], np.int32)
        detail = np.array([self._detail(stack) for stack in stacks], np.int32)
        for part in self._parts:
            n, key = part["time"].size, part["key"]
            integrity.repair("sample whose stack is not in the file", int(np.count_nonzero((leaf[key] < 0) & [
                self._keys.values_in_order[i] is not None for i in key.tolist()])))
            name = np.where(leaf[key] < 0, part["name"], leaf[key]).astype(np.int32)
            self._builder.add(
                start_ns=part["time"], dur_ns=np.zeros(n, np.int64), name=name,
                category=np.full(n, Category.OTHER, np.uint8), track=self._lanes.tracks(part["lane"], np.zeros(n, np.bool_)),
                instant=np.ones(n, np.bool_), detail=detail[key])

    def _detail(self, stack: Sequence[str]) -> int:
        return int(self._builder.details[msgspec.json.encode({"Call stack": ";".join(stack)}).decode()]) if stack else -1


def _key(frame: Any, stack: Any) -> Any:
    if isinstance(stack, list):
        return tuple(str(frame_name)[:400] for frame_name in stack[:_FRAMES])
    return None if frame is None else str(frame)[:100]


def _stack(key: Any, frames: dict[str, dict[str, Any]]) -> list[str]:
    """Names from the outermost frame to the innermost."""
    if key is None or isinstance(key, tuple):
        return list(key or ())
    out: list[str] = []
    path_keys = set()
    while key in frames and key not in path_keys and len(out) < _FRAMES:
        path_keys.add(key)
        out.append(str(frames[key].get("name"))[:400])
        key = str(frames[key].get("parent"))
    return out[::-1]
