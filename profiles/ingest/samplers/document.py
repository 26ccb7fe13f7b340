"""One JSON document of a sampling profiler: read whole within the limit of a record, its long arrays a piece at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.damage import cleanse
from profiles.ingest.core.source import Source
from profiles.ingest.trace import Category, Integrity, TraceError

# Stacks over time to nested slices: a frame that stays open from one sample to the next is one slice.

MAX_DEPTH = 512                          # frames of one stack that are drawn
MAX_SLICES = 10_000_000
_BATCH = 65_536
_MOST_WAITING = 8 * _BATCH


class Frames:
    """The distinct functions of a file: name, place in the source, category."""

    def __init__(self, builder: TraceBuilder) -> None:
        self._builder = builder
        self._numbers: dict[tuple[str, str, int], int] = {}
        self.name: list[int] = []
        self.detail: list[int] = []
        self.category: list[int] = []

    def add(self, name: str, place: dict[str, Any], category: Category) -> int:
        """Return the number of a frame; frames of the same name and place are one."""
        text = msgspec.json.encode(place).decode() if place else ""
        key = (name, text, int(category))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.name)
            self.name.append(self._builder.names[name])
            self.detail.append(self._builder.details[text] if text else -1)
            self.category.append(int(category))
        return number


class StackSlices:
    """Opens and closes the frames of one track after another; rows go to the builder in batches, outer frames first."""

    def __init__(self, builder: TraceBuilder, frames: Frames) -> None:
        self._builder, self._frames = builder, frames
        self.count = self.deeper = 0
        self._track = 0
        self._open: list[int] = []                   # rows of the open frames, -1: not drawn
        self._closed_ns: int | None = None           # when the last frame was closed
        self._rows: list[list[int]] = []             # start, duration, frame, track

    @property
    def full(self) -> bool:
        return self.count >= MAX_SLICES

    @property
    def depth(self) -> int:
        return len(self._open)

    def begin_track(self, track: int) -> None:
        """Draw what follows on another track; all frames must be closed."""
        self._track, self._closed_ns = track, None

    def open(self, frame: int, at_ns: int) -> None:
        """Begin a frame within those that are open."""
        if len(self._open) >= MAX_DEPTH:
            self.deeper += 1
            self._open.append(-1)
            return
        # frames that end together are written together: of two with the same times the outer one must come first
        if len(self._rows) >= _BATCH and (self._closed_ns is None or at_ns > self._closed_ns or len(self._rows) >= _MOST_WAITING):
            self._flush()
        self._open.append(len(self._rows))
        self._rows.append([at_ns, -1, frame, self._track])
        self.count += 1

    def keep(self, depth: int, at_ns: int) -> None:
        """End all open frames but the outermost `depth`."""
        if len(self._open) > depth:
            for row in self._open[depth:]:
                if row >= 0:
                    self._rows[row][1] = at_ns - self._rows[row][0]
            del self._open[depth:]
            self._closed_ns = at_ns

    def show(self, stack: list[int], before: list[int], at_ns: int) -> None:
        """Replace the open stack `before` by `stack`."""
        same = 0
        for new_frame, other in zip(stack, before, strict=False):
            if new_frame != other:
                break
            same += 1
        self.keep(same, at_ns)
        for frame in stack[same:]:
            self.open(frame, at_ns)

    def _flush(self) -> None:
        waiting = [row for row in self._open if row >= 0]
        still_open = set(waiting)
        done = [row for number, row in enumerate(self._rows) if number not in still_open]
        carried = [self._rows[row] for row in waiting]
        self._rows = carried
        numbers = iter(range(len(carried)))
        self._open = [next(numbers) if row >= 0 else -1 for row in self._open]
        if not done:
            return
        start, dur, frame, track = np.array(done, np.int64).T
        self._builder.add(
            start_ns=start, dur_ns=dur, name=np.array(self._frames.name, np.int32)[frame],
            category=np.array(self._frames.category, np.uint8)[frame], track=track.astype(np.int32),
            detail=np.array(self._frames.detail, np.int32)[frame])

    def finish(self, integrity: Integrity) -> None:
        """Write what waits, and say what was not drawn."""
        self._flush()
        integrity.repair(f"frames deeper than {MAX_DEPTH} levels: not drawn", self.deeper)


PIECE_BYTES = 1 << 20
_MOST_SINGLE_BYTES = 16 << 20            # a piece whose elements are tried one by one
NUMBERS = re.compile(rb",")
LISTS = re.compile(rb"(?<=\])\s*,\s*(?=\[)")
OBJECTS = re.compile(rb'(?<=\})\s*,\s*(?=\{\s*")')
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(rb"(\\[^u]|\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..", re.DOTALL)
_BYTE = re.compile(r"\(byte (\d+)\)")
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_HINT = "Record it again, and copy the file only after the profiler has finished writing."


def load_content(source: Source, integrity: Integrity) -> bytes:
    """Return all bytes of the content. Raises TraceError where they are more than one record may have."""
    parts, size = [], 0
    while block := source.read(PIECE_BYTES):
        parts.append(block)
        size += len(block)
        if size > source.limits.record_bytes:
            raise TraceError(f"byte {size}", f"a profile of more than {source.limits.record_bytes >> 20} MB in one JSON document",
                             "Record for a shorter time or at a lower rate.")
        source.progress("reading", 0)
    if source.damage:
        integrity.truncated_at = source.damage.split(":")[0]
    return b"".join(parts).removeprefix(b"\xef\xbb\xbf")


def decode_document(data: bytes, form: Any, integrity: Integrity) -> Any:
    """Decode the document as `form`; one that is cut off is closed behind its last whole element.

    Raises TraceError where it is not JSON, or not of this form.
    """
    for mend in (_close_cut, _replace_surrogates, cleanse, _give_up):
        try:
            return msgspec.json.decode(data, type=form)
        except RecursionError:
            raise TraceError("the document", "its values nest more than a thousand levels deep", _HINT) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            mended = mend(data, error)
        if mend is _close_cut and mended is not data:
            integrity.truncated_at = integrity.truncated_at or f"byte {len(data)}"
        data = mended
    raise AssertionError("the last step raises")


def _give_up(data: bytes, error: Exception) -> bytes:
    message, match = str(error), _BYTE.search(str(error))
    if "truncated" in message:
        raise TraceError(f"byte {len(data)}", "the file ends in the middle, before anything that could be read", _HINT)
    what = _BYTE.sub("", message).removeprefix("JSON is malformed: ").strip()
    raise TraceError(f"byte {match[1]}" if match else "the document", f"not a profile as its tool writes it ({what})", _HINT)


def _close_cut(data: bytes, error: Exception) -> bytes:
    """Return a document that was cut off with its open brackets closed, without the element that the cut went through."""
    if "truncated" not in str(error):
        return data
    opened: list[list[int]] = []                     # bracket, end of its last whole child that has brackets
    after = len(data)
    for token in _TOKEN.finditer(data):
        byte = data[token.start()]
        if byte in b"[{":
            opened.append([byte, token.end()])
        elif byte in b"]}":
            if not opened:
                return data
            opened.pop()
            if opened:
                opened[-1][1] = token.end()
        elif token.end() - token.start() == 1:       # a text that does not end
            after = token.start()
            break
    while len(opened) > 1 and (opened[-1][0] == ord("{") or opened[-2][0] == ord("[")):
        opened.pop()
        after = 0
    if not opened:
        return data
    cut = opened[-1][1]
    last_comma = data.rfind(b",", cut, after)
    scalars = data[cut:last_comma] if last_comma > cut else b""
    closing = bytes(ord("]") if bracket == ord("[") else ord("}") for bracket, _ in reversed(opened))
    return data[:cut] + scalars + closing


def _replace_surrogates(data: bytes, _: Exception) -> bytes:
    """Return the text with halves of surrogate pairs, which no column can hold, replaced."""
    return _SURROGATE.sub(lambda match: match[1] or b"\\ufffd", data)


def iterate_elements(raw: msgspec.Raw, boundary: re.Pattern[bytes], form: Any) -> Iterator[list[Any]]:
    """Yield the elements of an array, a piece at a time; None in place of one that is not of `form`.

    `boundary` finds where one element ends and the next begins. Raises TraceError where the array cannot be told apart.
    """
    text = bytes(raw).strip()
    if text[:1] != b"[":
        return
    decoder = msgspec.json.Decoder(list[form])
    start, end = 1, len(text) - 1
    while start < end:
        match = boundary.search(text, start + PIECE_BYTES) if start + PIECE_BYTES < end else None
        stop, following = (match.start(), match.end()) if match else (end, end)
        yield _decode_piece(decoder, form, b"".join((b"[", text[start:stop], b"]")))
        start = following


def _decode_piece(decoder: msgspec.json.Decoder[Any], form: Any, piece: bytes) -> list[Any]:
    try:
        elements: list[Any] = decoder.decode(piece)
        return elements
    except _ERRORS:
        pass
    try:
        raws = msgspec.json.decode(piece, type=list[msgspec.Raw]) if len(piece) < _MOST_SINGLE_BYTES else None
    except _ERRORS:
        raws = None
    if raws is None:
        raise TraceError("the document", "a list whose elements cannot be told apart", _HINT)
    single = msgspec.json.Decoder(form)
    return [_decode_one(single, bytes(raw)) for raw in raws]


def _decode_one(decoder: msgspec.json.Decoder[Any], text: bytes) -> Any:
    for _ in range(2):
        try:
            return decoder.decode(text)
        except UnicodeDecodeError as error:
            text = cleanse(text, error)
        except (msgspec.DecodeError, RecursionError):
            return None
    return None


def decode_text(raw: msgspec.Raw) -> str | None:
    """Return a short text of the document, None where it is none."""
    text = bytes(raw)
    short_text = _decode_one(msgspec.json.Decoder(str), text) if 2 < len(text) < 4000 else None
    return short_text[:400] if short_text else None


def to_ns(value: Any, scale: int) -> int | None:
    """Return a time in units of `scale` ns as whole ns, None where it is no believable number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 2**62 / scale:
        return None
    whole = math.floor(value)
    return whole * scale + round((value - whole) * scale)
