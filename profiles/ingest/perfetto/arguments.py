"""Debug annotations of track events: some become columns, the others JSON text, each combination decoded once.

rocprofv3 (rocprofiler-sdk, source/lib/output/generatePerfetto.cpp) writes its launch facts as annotations: a kernel's
grid and workgroup as one number of work-items each, LDS bytes, registers, the correlation with the call.
"""

from __future__ import annotations

import re
import tempfile
from array import array
from typing import IO, Any

import msgspec
import numpy as np
from google.protobuf.message import DecodeError

from profiles.ingest.arrays import Ints
from profiles.ingest.core.columns import Ids
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.protobuf_messages import text
from profiles.ingest.perfetto.packets import Annotation
from profiles.ingest.trace import Integrity

# annotation -> column; -1 repeats what the slice itself says
COLUMNS = {
    "begin_ns": -1, "end_ns": -1, "delta_ns": -1, "corr_id": 0, "correlation_id": 0, "stream_ID": 1, "stream_id": 1, "agent": 2,
    "grid_size": 3, "workgroup_size": 4, "LDS_Block_Size": 5, "VGPR_Count": 6, "copy_bytes": 7, "bytes": 7, "dst_agent": 8,
}
CORRELATION, STREAM, AGENT, GRID, WORKGROUP, LDS, REGISTERS, BYTES, COPY_AGENT = range(9)
_UNKNOWN = [MISSING] * 9
_SHOWN = frozenset((STREAM, AGENT, COPY_AGENT))             # shown as the file spells them too
MAX_CHARS, MAX_VALUES, MAX_DEPTH, MAX_DETAIL_CHARS = 2000, 200, 8, 20_000
_SPILL_NUMBERS = 1 << 22                 # kept in memory of the rows of numbers: 32 MB
_KNOWN_TEXTS = 50_000                    # combinations remembered of one sequence
_NUMBER = re.compile(r"(\d{1,9})\D*$")


class Arguments:
    """Turns annotations into a detail number and, where any applies, a row of numbers for the columns."""

    def __init__(self, details: Ids, integrity: Integrity) -> None:
        self.details, self.integrity = details, integrity
        self.correlation = MISSING                         # of the event taken last
        self._rows = 0
        self._waiting = array("q")
        self._file: IO[bytes] | None = None

    def take(self, raws: Any, sequence: Any, category: str | None, columns: bool,
             further: dict[str, Any] | None) -> tuple[int, int]:
        """Return (number in `details` or -1, row of `table` or -1) of one event's annotations.

        `category` is shown with the arguments where it is not None; `columns`: the event is of a GPU or a call to its API.
        """
        row = -1
        self.correlation = MISSING
        if columns and raws:
            raws, row = self._split(raws, sequence)
        if further:
            return self._detail({"category": category} | further if category else further, raws, sequence), row
        if not raws and not category:
            return -1, row
        key = (category, *raws)
        detail_by_key: dict[Any, int] = sequence.details
        detail = detail_by_key.get(key)
        if detail is None:
            if len(detail_by_key) >= _KNOWN_TEXTS:
                detail_by_key.clear()
            detail = detail_by_key[key] = self._detail({"category": category} if category else {}, raws, sequence)
        return detail, row

    def table(self) -> Ints:
        """Return the rows of numbers, MISSING where unknown.

        Those that waited on disk are mapped, not read.
        """
        if self._file is None:
            return np.frombuffer(self._waiting or array("q", _UNKNOWN), np.int64).reshape(-1, len(_UNKNOWN))
        self._spill()
        self._file.flush()
        return np.memmap(self._file, np.int64, "r", shape=(self._rows, len(_UNKNOWN)))   # keeps the file open

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="ridgepoint-")      # noqa: SIM115  # ends with the reader
        self._waiting.tofile(self._file)
        self._waiting = array("q")

    def _split(self, raws: Any, sequence: Any) -> tuple[list[bytes], int]:
        """Annotations that stay text, and the row of those that are columns."""
        raw_texts: list[bytes] = []
        values: list[int] = []
        columns = sequence.columns
        for raw in raws:
            column = columns.get(raw[1]) if len(raw) > 2 and raw[0] == 8 and raw[1] < 128 else self._column(raw, sequence)
            if column is None:
                raw_texts.append(raw)
            elif column >= 0:
                values = values or _UNKNOWN.copy()
                values[column] = self._number(raw, sequence)
                if column in _SHOWN:
                    raw_texts.append(raw)
        if not values:
            return raw_texts, -1
        self.correlation = values[CORRELATION]
        self._waiting.extend(values)
        self._rows += 1
        if len(self._waiting) > _SPILL_NUMBERS:
            self._spill()
        return raw_texts, self._rows - 1

    def _column(self, raw: bytes, sequence: Any) -> int | None:
        try:
            return COLUMNS.get(self._name(Annotation.FromString(raw), sequence))
        except DecodeError:
            return None

    def _number(self, raw: bytes, sequence: Any) -> int:
        if len(raw) > 3 and raw[2] in (0x18, 0x20):        # name_iid, then uint_value or int_value
            if raw[-1] < 0x80 and len(raw) < 7:
                value = raw[3] & 0x7F
                if len(raw) > 4:
                    value |= (raw[4] & 0x7F) << 7
                return value | raw[5] << 14 if len(raw) > 5 else value
            return _varint(raw, 3)
        try:
            stated = self._value(Annotation.FromString(raw), sequence, 0, [MAX_VALUES])
        except DecodeError:
            return MISSING
        if isinstance(stated, str):                         # "Agent-4"
            match = _NUMBER.search(stated[:100])
            return int(match[1]) if match else MISSING
        return int(stated) if isinstance(stated, (int, float)) and abs(stated) < 2**62 else MISSING

    def _detail(self, shown: dict[str, Any], raws: Any, sequence: Any) -> int:
        """Number of the JSON text, put together from the texts of single annotations, which mostly come again."""
        fragment_by_raw: dict[bytes, str] = sequence.fragments
        parts, size = [msgspec.json.encode(shown).decode()[1:-1]] if shown else [], 0
        for count, raw in enumerate(raws):
            fragment = fragment_by_raw.get(raw)
            if fragment is None:
                if len(fragment_by_raw) >= _KNOWN_TEXTS:
                    fragment_by_raw.clear()
                fragment = fragment_by_raw[raw] = self._fragment(raw, sequence)
            size += len(fragment)
            if count >= MAX_VALUES or size > MAX_DETAIL_CHARS:
                self.integrity.repair(f"slices with more than {MAX_VALUES} arguments or {MAX_DETAIL_CHARS} characters of them: "
                                      "the others were left out")
                break
            if fragment:
                parts.append(fragment)
            else:
                self.integrity.repair("arguments that could not be understood were left out")
        return self.details["{" + ",".join(parts) + "}"] if parts else -1

    def _fragment(self, raw: bytes, sequence: Any) -> str:
        """One annotation as `"name":value`, empty where it cannot be understood."""
        try:
            annotation = Annotation.FromString(raw)
        except DecodeError:
            return ""
        named = {self._name(annotation, sequence): self._value(annotation, sequence, 0, [MAX_VALUES])}
        return msgspec.json.encode(named).decode()[1:-1]

    def _name(self, annotation: Any, sequence: Any) -> str:
        if annotation.HasField("name"):
            return text(annotation.name)[:200]
        return str(sequence.annotations.get(annotation.name_iid) or f"argument {annotation.name_iid}")

    def _value(self, annotation: Any, sequence: Any, depth: int, left: list[int]) -> Any:
        left[0] -= 1
        if depth > MAX_DEPTH or left[0] < 0:
            return "…"
        if annotation.dict_entries:
            return {self._name(entry, sequence): self._value(entry, sequence, depth + 1, left)
                    for entry in annotation.dict_entries[:left[0] + 1]}
        if annotation.array_values:
            return [self._value(element, sequence, depth + 1, left) for element in annotation.array_values[:left[0] + 1]]
        kind = annotation.WhichOneof("union_1")
        if kind is None:
            return None
        if kind == "string_value_iid":
            return sequence.strings.get(annotation.string_value_iid, f"text {annotation.string_value_iid}")
        value = getattr(annotation, kind)
        if kind == "nested_value":
            return _nested_value(value, depth + 1, left)
        if kind == "pointer_value":
            return hex(value)
        if isinstance(value, bytes):
            return _clip(text(value[:4 * MAX_CHARS]))
        return value if value == value and abs(value) != float("inf") else str(value)


def _varint(raw: bytes, offset: int) -> int:
    value = shift = 0
    for byte in raw[offset:offset + 10]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value if value < 2**63 else MISSING
        shift += 7
    return MISSING


def _nested_value(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        return "…"
    if value.dict_keys:
        pairs = zip(value.dict_keys, value.dict_values, strict=False)
        return {text(key)[:200]: _nested_value(member, depth + 1, left) for key, member in pairs}
    if value.array_values:
        return [_nested_value(element, depth + 1, left) for element in value.array_values[:left[0] + 1]]
    for kind in ("int_value", "bool_value", "string_value", "double_value"):
        if value.HasField(kind):
            inner = getattr(value, kind)
            return _clip(text(inner[:4 * MAX_CHARS])) if isinstance(inner, bytes) else inner if inner == inner else "NaN"
    return None


def _clip(value: str) -> str:
    return value if len(value) <= MAX_CHARS else value[:MAX_CHARS - 1] + "…"
