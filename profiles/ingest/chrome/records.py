"""One piece of a Chrome trace as columns, and the phases (`ph`) of the trace event format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from profiles.ingest.core.columns import Ids, Int32, Int64
from profiles.ingest.core.events import Event
from profiles.ingest.core.pieces import Pieces

Index = npt.NDArray[np.intp]
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
    start: Int64
    number: npt.NDArray[np.int64]        # of the record in the file
    timed: npt.NDArray[np.bool_]
    extras: list[Extra] | None

    def rows(self, phases: Sequence[str]) -> Index:
        """Timed rows of some phases."""
        wanted = [self.phases[value] for value in phases if value in self.phases]
        return np.flatnonzero(np.isin(self.phase, wanted) & self.timed) if wanted else np.empty(0, np.intp)

    def events(self, rows: Index) -> list[Event]:
        return self.records if rows.size == len(self.records) else [self.records[i] for i in rows.tolist()]

    def extra(self, rows: Index) -> list[Extra]:
        return [self.extras[i] for i in rows.tolist()] if self.extras else [_NO_EXTRA] * rows.size


def extras_of(pieces: Pieces, records: list[Event]) -> list[Extra] | None:
    """The rare fields of the piece handed out last; None where no record has any."""
    return pieces.again(EXTRAS, records) if any(map(pieces.holds, _KEYS)) else None
