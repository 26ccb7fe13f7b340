"""One JSON document of a sampling profiler: read whole within the limit of a record, its long arrays a piece at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from profiles.ingest.core.damage import cleanse
from profiles.ingest.core.source import Source
from profiles.ingest.trace import Integrity, TraceError

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
    message, at = str(error), _BYTE.search(str(error))
    if "truncated" in message:
        raise TraceError(f"byte {len(data)}", "the file ends in the middle, before anything that could be read", _HINT)
    what = _BYTE.sub("", message).removeprefix("JSON is malformed: ").strip()
    raise TraceError(f"byte {at[1]}" if at else "the document", f"not a profile as its tool writes it ({what})", _HINT)


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
    at, end = 1, len(text) - 1
    while at < end:
        match = boundary.search(text, at + PIECE_BYTES) if at + PIECE_BYTES < end else None
        stop, following = (match.start(), match.end()) if match else (end, end)
        yield _decode_piece(decoder, form, b"".join((b"[", text[at:stop], b"]")))
        at = following


def _decode_piece(decoder: msgspec.json.Decoder[Any], form: Any, piece: bytes) -> list[Any]:
    try:
        found: list[Any] = decoder.decode(piece)
        return found
    except _ERRORS:
        pass
    try:
        raws = msgspec.json.decode(piece, type=list[msgspec.Raw]) if len(piece) < _MOST_SINGLE_BYTES else None
    except _ERRORS:
        raws = None
    if raws is None:
        raise TraceError("the document", "a list whose elements cannot be told apart", _HINT)
    single = msgspec.json.Decoder(form)
    return [_decode_one(single, bytes(each)) for each in raws]


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
    found = _decode_one(msgspec.json.Decoder(str), text) if 2 < len(text) < 4000 else None
    return found[:400] if found else None


def to_ns(value: Any, scale: int) -> int | None:
    """Return a time in units of `scale` ns as whole ns, None where it is no believable number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 2**62 / scale:
        return None
    whole = math.floor(value)
    return whole * scale + round((value - whole) * scale)
