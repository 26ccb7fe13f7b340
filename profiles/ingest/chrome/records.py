"""One piece of a Chrome trace as columns, and the phases (`ph`) of the trace event format."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from profiles.ingest.arrays import Bools, Int32, Ints
from profiles.ingest.core.columns import Colours, Ids, colour_of
from profiles.ingest.core.events import Event
from profiles.ingest.core.pieces import Pieces
from profiles.ingest.trace import Integrity

Index = npt.NDArray[np.intp]
_KINDS, _REASONS = 500, 50            # that a report lists: a hostile file has more
UNNAMED = "(no name)"
SPANS, INSTANTS, BEGINS = ("X",), ("i", "I", "R"), ("B", "E")
CHAINS, FLOWS = ("b", "e", "n", "S", "F", "T", "p"), ("s", "t", "f")
NOT_READ = {                          # records that are no part of a timeline
    "N": "object created (ph N)", "O": "snapshot of an object (ph O)", "D": "object deleted (ph D)",
    "v": "memory dump of a process (ph v)", "V": "memory dump of all processes (ph V)", "c": "clock synchronisation (ph c)",
    "(": "context entered (ph '(')", ")": "context left (ph ')')", "a": "association (ph a)", "=": "linked id (ph =)",
}
KNOWN = frozenset({*SPANS, *INSTANTS, *BEGINS, *CHAINS, *FLOWS, "C", "P", "M"})


class Extra(msgspec.Struct, gc=False):
    """Fields that few records have: read in a second decoding, where the text shows that one is there."""

    tdur: Any = None
    bind_id: Any = None
    flow_in: Any = None
    flow_out: Any = None
    bp: Any = None
    scope: Any = None
    id2: Any = None
    sf: Any = None
    stack: Any = None


class Coloured(msgspec.Struct, gc=False):
    """What gives a record a colour: read where the text shows that a record has one."""

    cname: Any = None
    args: Any = None


COLOURED = msgspec.json.Decoder(list[Coloured])
_COLOUR_KEYS = (b'"cname"', b'"color"', b'"colour"')
EXTRAS = msgspec.json.Decoder(list[Extra])
_NO_EXTRA = Extra()
_KEYS = (b'"tdur"', b'"bind_id"', b'"bp"', b'"scope"', b'"id2"', b'"sf"', b'"stack"')


@dataclass
class Piece:
    """Records of one piece: columns of one length; `timed` marks those that are drawn and whose time is known."""

    records: list[Event]
    phases: Ids
    phase: Int32
    category: Int32
    lane: Int32
    start: Ints
    number: Ints        # of the record in the file
    timed: Bools
    extras: list[Extra] | None

    def rows(self, phases: Sequence[str]) -> Index:
        """Timed rows of some phases."""
        numbers = [self.phases[value] for value in phases if value in self.phases]
        return np.flatnonzero(np.isin(self.phase, numbers) & self.timed) if numbers else np.empty(0, np.intp)

    def events(self, rows: Index) -> list[Event]:
        return self.records if rows.size == len(self.records) else [self.records[i] for i in rows.tolist()]

    def extra(self, rows: Index) -> list[Extra]:
        return [self.extras[i] for i in rows.tolist()] if self.extras else [_NO_EXTRA] * rows.size


def extras_of(pieces: Pieces, records: list[Event]) -> list[Extra] | None:
    """The rare fields of the piece handed out last; None where no record has any."""
    return pieces.again(EXTRAS, records) if any(map(pieces.holds, _KEYS)) else None


def read_colours(pieces: Pieces, records: list[Event], colours: Colours) -> None:
    """Colours of the piece handed out last: `cname`, or `color` among the arguments."""
    if not any(map(pieces.holds, _COLOUR_KEYS)):
        return
    for record, coloured in zip(records, pieces.again(COLOURED, records) or (), strict=False):
        arguments = coloured.args if isinstance(coloured.args, dict) else {}
        if isinstance(record.name, str):
            colours.add(record.name, colour_of(coloured.cname) or colour_of(arguments.get("color", arguments.get("colour"))))


def read_pieces(pieces: Pieces, take: Callable[[list[Event]], None]) -> None:
    """Hand all pieces that hold records to `take`, in the order of the file."""
    collecting = gc.isenabled()
    gc.disable()                     # records live for one piece and hold no cycles: walking them costs a third
    try:
        for records in pieces:
            if records:
                take(records)
    finally:
        if collecting:
            gc.enable()


def count_kinds(phases: Ids, categories: Ids, phase: Int32, category: Int32, integrity: Integrity) -> None:
    """Count the records of a piece per category, and phase where it is not X."""
    width = len(categories.values_in_order)
    codes, counts = np.unique(phase.astype(np.int64) * width + category, return_counts=True)
    for number, count in zip(codes.tolist(), counts.tolist(), strict=True):
        ph, cat = phases.values_in_order[number // width], categories.values_in_order[number % width]
        kind = str(cat)[:80] if cat and ph == "X" else f"{cat} (ph {ph})"[:80] if cat else f"ph {ph}"[:80]
        if kind not in integrity.kinds and len(integrity.kinds) >= _KINDS:
            kind = "other kinds"
        integrity.count(kind, count)


def drop_stranger(integrity: Integrity, reason: str, count: int, others: str) -> None:
    """Count records of a kind that is not read under its reason, those beyond the first 50 reasons as `others`."""
    listed = reason in integrity.not_kept or len(integrity.not_kept) < _REASONS
    integrity.drop(reason if listed else others, count)
