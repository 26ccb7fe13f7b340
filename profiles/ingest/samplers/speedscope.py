"""speedscope's own JSON (py-spy, rbspy, converters of pprof and many others): threads of nested slices.

https://www.speedscope.app/file-format-schema.json. `shared.frames` are numbered by their place. A profile is "evented" (frames
open and close at stated times) or "sampled" (stacks, outermost frame first, each with a weight): a sample states how long it
stands for and not when it was taken, so it begins where the one before it ends. Weights that are no time have no timeline.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.chrome.records import UNNAMED
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.source import Source
from profiles.ingest.samplers.document import (
    LISTS,
    MAX_DEPTH,
    MAX_SLICES,
    NUMBERS,
    OBJECTS,
    Frames,
    StackSlices,
    decode_document,
    decode_text,
    iterate_elements,
    load_content,
    to_ns,
)
from profiles.ingest.trace import Category, Integrity, Trace, TraceError, Track

FORMAT = "speedscope"
MAX_FRAMES = 1_000_000
_SCALES_NS = {"nanoseconds": 1, "microseconds": 1_000, "milliseconds": 1_000_000, "seconds": 1_000_000_000}
_SCHEMA = re.compile(rb"speedscope\.app/file-format-schema\.json")
_PROFILES = re.compile(rb'"type"\s*:\s*"(?:evented|sampled)"')
_OTHERS = re.compile(rb'"traceEvents"\s*:')
_PROFILE = re.compile(rb'(?<=\})\s*,\s*(?=\{\s*"type"\s*:\s*"(?:evented|sampled)")')
_PYTHON = ("py-spy", "austin")           # exporters whose frames are Python's
_NOT_DRAWN = "frames that the file does not describe: drawn without a name"
_HINT = "Record again with a profiler that writes times (py-spy 0.4 or later, rbspy), or open the file in speedscope."


class _Document(msgspec.Struct):
    profiles: msgspec.Raw = msgspec.Raw()
    shared: msgspec.Raw = msgspec.Raw()
    exporter: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()


class _Shared(msgspec.Struct):
    frames: msgspec.Raw


class _Frame(msgspec.Struct, gc=False):
    name: Any = None
    file: Any = None
    line: Any = None
    col: Any = None


class _Profile(msgspec.Struct):
    type: str
    name: Any = None
    unit: Any = None
    startValue: Any = None
    endValue: Any = None
    events: msgspec.Raw = msgspec.Raw()
    samples: msgspec.Raw = msgspec.Raw()
    weights: msgspec.Raw = msgspec.Raw()


class _Event(msgspec.Struct, gc=False):
    type: str
    at: int | float
    frame: int


def sniff(head: bytes) -> bool:
    """Tell whether content is JSON that names speedscope's schema, or holds profiles and frames as it says."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] != b"{" or _OTHERS.search(text):
        return False
    return bool(_SCHEMA.search(text)) or bool(_PROFILES.search(text) and b'"profiles"' in text and b'"unit"' in text)


def read(source: Source) -> Trace:
    """Raises TraceError where no profile has times and frames."""
    integrity = Integrity()
    document = decode_document(load_content(source, integrity), _Document, integrity)
    builder = TraceBuilder(source, FORMAT, integrity)
    reader = _Reader(builder, document, integrity)
    for profiles in iterate_elements(document.profiles, _PROFILE, _Profile):
        for profile in profiles:
            reader.read_profile(profile)
            source.progress("reading", integrity.records_read)
    reader.slices.finish(integrity)
    if not builder.rows:
        raise TraceError("profiles", reader.why_nothing(), _HINT)
    integrity.settle()
    metadata = {key: text for key, text in (("exporter", reader.exporter), ("name", reader.group)) if text}
    return builder.finish(devices=[], metadata=metadata)


class _Reader:
    def __init__(self, builder: TraceBuilder, document: _Document, integrity: Integrity) -> None:
        self._builder, self._integrity = builder, integrity
        self.exporter, self.group = decode_text(document.exporter), decode_text(document.name)
        self._category = Category.PYTHON if (self.exporter or "").lower().startswith(_PYTHON) else Category.OTHER
        self._table = Frames(builder)
        self.slices = StackSlices(builder, self._table)
        self._unknown = self._table.add(UNNAMED, {}, Category.OTHER)
        self._frames = self._read_frames(document.shared)
        self._number = 0

    def _read_frames(self, raw: msgspec.Raw) -> list[int]:
        """Return the number in the table of each of the file's frames."""
        try:
            shared = msgspec.json.decode(raw, type=_Shared)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise TraceError("shared.frames", "the file describes no frames, so its stacks have no names",
                             "If the file was cut off, copy it again; else record again.") from None
        numbers: list[int] = []
        for frames in iterate_elements(shared.frames, OBJECTS, _Frame):
            numbers += [self._unknown if frame is None else self._add_frame(frame) for frame in frames]
            if len(numbers) > MAX_FRAMES:
                self._integrity.repair(f"frames beyond the first {MAX_FRAMES:,}: drawn without a name", len(numbers) - MAX_FRAMES)
                return numbers[:MAX_FRAMES]
        return numbers

    def _add_frame(self, frame: _Frame) -> int:
        place: dict[str, Any] = {"file": frame.file[:1000]} if isinstance(frame.file, str) and frame.file else {}
        place |= {key: int(value) for key, value in (("line", frame.line), ("col", frame.col))
                  if type(value) in (int, float) and 0 <= value < 2**31}
        return self._table.add(frame.name if isinstance(frame.name, str) and frame.name else UNNAMED, place, self._category)

    def read_profile(self, profile: _Profile | None) -> None:
        """Read one profile: one track."""
        if profile is None or profile.type not in ("sampled", "evented"):
            self._count("profile", 1)
            self._integrity.drop("a profile that is neither sampled nor evented as the format says")
            return
        self._number += 1
        scale = _SCALES_NS.get(profile.unit) if isinstance(profile.unit, str) else None
        if scale is None:
            self._leave_out(profile)
            return
        start_ns = to_ns(profile.startValue, scale)
        if start_ns is None:
            self._integrity.repair("profile without a start: drawn from 0")
            start_ns = 0
        number, name = self._number, profile.name[:400].strip() if isinstance(profile.name, str) else ""
        self.slices.begin_track(self._builder.track(number, lambda: Track(
            kind="thread", name=name or f"profile {number}", group=self.group or "profile", sort=number)))
        if profile.type == "sampled":
            self._draw_samples(profile, scale, start_ns)
        else:
            self._draw_events(profile, scale)

    def _count(self, kind: str, number: int) -> None:
        self._integrity.records_read += number
        self._integrity.count(kind, number)

    def _leave_out(self, profile: _Profile) -> None:
        kind, pieces = ("sample", iterate_elements(profile.samples, LISTS, list[int])) if profile.type == "sampled" else (
            "event", iterate_elements(profile.events, OBJECTS, _Event))
        number = sum(map(len, pieces))
        self._count(kind, number)
        unit = f'"{profile.unit}"' if profile.unit in ("none", "bytes") else "unknown"
        self._integrity.drop(f"{kind}s of a profile that is not measured in time (unit {unit})", number)

    def _draw_samples(self, profile: _Profile, scale: int, start_ns: int) -> None:
        begins, good = _sample_times(profile.weights, scale, start_ns)
        number, before = 0, list[int]()
        frames, count, unknown = self._frames, len(self._frames), self._unknown
        last: list[int] | None = None
        counts = {"unread": 0, "weightless": 0, "empty": 0, "beyond": 0, "nameless": 0}
        for stacks in iterate_elements(profile.samples, LISTS, list[int]):
            times = begins[number:number + len(stacks)].tolist()
            usable = good[number:number + len(stacks)].tolist()
            number += len(stacks)
            counts["weightless"] += len(stacks) - len(usable)
            for stack, at_ns, has_weight in zip(stacks, times, usable, strict=False):
                if stack is None or not has_weight or self.slices.full:
                    counts["unread" if stack is None else "weightless" if not has_weight else "beyond"] += 1
                    stack = [] if has_weight else last or []
                else:
                    counts["empty"] += not stack
                if stack == last:
                    continue
                last = stack
                shown = [frames[index] if 0 <= index < count else unknown for index in stack[:MAX_DEPTH]]
                self.slices.deeper += max(len(stack) - MAX_DEPTH, 0)
                counts["nameless"] += shown.count(unknown)
                self.slices.show(shown, before, at_ns)
                before = shown
        self.slices.keep(0, int(begins[min(number, good.size)]))
        self._count("sample", number)
        self._report_samples(counts, good.size - number)

    def _report_samples(self, counts: dict[str, int], left_over: int) -> None:
        say = self._integrity
        say.drop("samples that are no list of frame numbers", counts["unread"])
        say.drop("samples without a weight, or whose weight is no duration", counts["weightless"])
        say.drop(f"samples beyond the first {MAX_SLICES:,} slices", counts["beyond"])
        say.remark("samples without a stack: nothing is drawn", counts["empty"])
        say.repair(_NOT_DRAWN, counts["nameless"])
        say.repair("weights without a sample were left out", max(left_over, 0))
        note = "Samples state how long they stand for, not when they were taken: each begins where the one before it ends."
        if note not in say.notes:
            say.notes.append(note)

    def _draw_events(self, profile: _Profile, scale: int) -> None:
        rows: list[Ints] = []
        total = unread = 0
        for events in iterate_elements(profile.events, OBJECTS, _Event):
            times = [(to_ns(event.at, scale), event) for event in events if event is not None and event.type in ("O", "C")]
            good = [(at_ns, event.type == "O", event.frame if 0 <= event.frame < len(self._frames) else -1)
                    for at_ns, event in times if at_ns is not None]
            rows.append(np.array(good, np.int64).reshape(-1, 3))
            total += len(events)
            unread += len(events) - len(good)
        self._count("event", total)
        self._integrity.drop("events without a kind (O, C), a time or a frame", unread)
        if rows:
            end_ns = to_ns(profile.endValue, scale)
            self._pair(_sort_by_time(np.concatenate(rows)), end_ns)

    def _pair(self, rows: Ints, end_ns: int | None) -> None:
        """Draw a stack of begins and ends: an end closes the nearest open frame of its number, and all within that one."""
        stack: list[int] = []
        is_open: dict[int, int] = {}
        unopened = unended = nameless = 0
        at_ns = None
        for part in range(0, len(rows), 65_536):
            for at_ns, opens, frame in rows[part:part + 65_536].tolist():
                if opens:
                    nameless += frame < 0
                    self.slices.open(self._frames[frame] if frame >= 0 else self._unknown, at_ns)
                    stack.append(frame)
                    is_open[frame] = is_open.get(frame, 0) + 1
                    continue
                if not is_open.get(frame):
                    unopened += 1
                    continue
                while (closed := stack.pop()) != frame:
                    is_open[closed] -= 1
                    unended += 1
                is_open[frame] -= 1
                self.slices.keep(len(stack), at_ns)
        if stack and at_ns is not None:
            self.slices.keep(0, at_ns if end_ns is None else max(at_ns, end_ns))
        self._integrity.drop("end of a frame that is not open", unopened)
        self._integrity.repair("frame that never ended: drawn to the end of what surrounds it", unended + len(stack))
        self._integrity.repair(_NOT_DRAWN, nameless)

    def why_nothing(self) -> str:
        """Say why no slice came out."""
        reasons = ", ".join(self._integrity.not_kept)
        return f"none of its {self._number} profiles has a stack with a time" + (f" ({reasons})" if reasons else "")


def _sample_times(weights: msgspec.Raw, scale: int, start_ns: int) -> tuple[Ints, Bools]:
    """Return when each sample begins (one more: when the last ends), and which weights are durations."""
    parts = [np.array([np.nan if weight is None else weight for weight in piece], np.float64)
             for piece in iterate_elements(weights, NUMBERS, float)]
    values = np.concatenate(parts) if parts else np.empty(0)
    good = (values >= 0) & (values < 2**52 / scale)
    values = np.where(good, values, 0.0)
    whole = np.floor(values)
    spent = np.cumsum(whole) * scale + np.cumsum((values - whole) * scale)
    good &= spent < 2**61
    ns = np.cumsum(np.where(good, whole, 0).astype(np.int64)) * scale
    ns += np.rint(np.cumsum(np.where(good, (values - whole) * scale, 0.0))).astype(np.int64)
    return np.concatenate(([0], ns)) + start_ns, good


def _sort_by_time(rows: Ints) -> Ints:
    time = rows[:, 0]
    return rows[stable_order(time)] if (time[1:] < time[:-1]).any() else rows
