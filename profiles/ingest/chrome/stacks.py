"""Begins and ends (B, E) of threads and asynchronous chains (b, n, e; before 2014 S, T, p, F) of a Chrome trace to slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from profiles.ingest.chrome.lanes import ChromeLanes
from profiles.ingest.chrome.records import UNNAMED, Index, Piece
from profiles.ingest.chrome.work import Arguments
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.columns import Table
from profiles.ingest.core.events import Event
from profiles.ingest.core.pairs import BEGIN, END, MARK, NAMELESS, ROW, PairedSlices, Pairs
from profiles.ingest.trace import Integrity

_STEPS = {"B": BEGIN, "E": END, "b": BEGIN, "S": BEGIN, "e": END, "F": END, "n": MARK, "T": MARK, "p": MARK}


class Stacks:
    """Gathers records; `threads` and `chains` are paired by the reader at the end."""

    def __init__(self, builder: TraceBuilder, lanes: ChromeLanes, arguments: Arguments) -> None:
        self._builder, self._lanes, self._arguments = builder, lanes, arguments
        self.threads, self.chains = Pairs(), Pairs()
        self._processes = Table(lanes.ids, lambda value: self._process(value[0]), np.int32)
        self._pids: dict[str, int] = {}
        self._pid_of: list[Any] = []

    def _process(self, pid: Any) -> int:
        number = self._pids.setdefault(str(pid), len(self._pid_of))
        if number == len(self._pid_of):
            self._pid_of.append(pid)
        return number

    def of_threads(self, here: Piece, rows: Index) -> None:
        """B and E: a stack per thread."""
        out = self._rows(here, rows, here.events(rows))
        out["stack"] = self._lanes.same(here.lane[rows])
        self.threads.add(out)

    def of_chains(self, here: Piece, rows: Index) -> None:
        """Add rows of chains: a stack per category and id.

        Ids hold for all processes unless `id2` calls them local. S, T, p, F: also per name.
        """
        chosen = here.events(rows)
        out = self._rows(here, rows, chosen)
        keys = []
        for event, extra in zip(chosen, here.extra(rows), strict=True):
            own: Any = event.id
            if own is None and isinstance(extra.id2, dict):
                local = "local" in extra.id2
                own = (str(event.pid), str(extra.id2["local"])) if local else extra.id2.get("global")
            legacy = event.name if event.ph in ("S", "F", "T", "p") else None
            keys.append(hash((str(event.cat), str(extra.scope), str(own), str(legacy))))
        out["stack"] = keys
        self.chains.add(out)

    def _rows(self, here: Piece, rows: Index, chosen: list[Event]) -> npt.NDArray[Any]:
        out = np.zeros(rows.size, ROW)
        out["time"], out["sequence"] = here.start[rows], here.number[rows]
        out["category"], out["track"] = here.category[rows], here.lane[rows]
        out["step"] = [_STEPS[e.ph] for e in chosen]
        out["name"] = self._builder.names.column([e.name or UNNAMED for e in chosen])
        out["name"][np.array([not e.name for e in chosen], np.bool_) & (out["step"] == END)] = NAMELESS
        out["detail"] = self._arguments.details([e.args for e in chosen])
        return out

    def tracks_of_chains(self, paired: PairedSlices) -> npt.NDArray[np.int32]:
        """The track of every slice of a chain: one per process and name of the chain's first slice."""
        pid = self._processes(paired.root["track"])
        both = pid.astype(np.int64) << 32 | paired.root["name"].astype(np.int64)
        kinds, inverse = np.unique(both, return_inverse=True)
        numbers = np.empty(kinds.size, np.int32)
        for place, key in enumerate(kinds.tolist()):
            name = str(self._builder.names.values_in_order[key & 0xFFFFFFFF])
            track, order = self._lanes.chain(self._pid_of[key >> 32], name)
            numbers[place] = self._builder.track(("chain", key), lambda track=track: track, order)  # type: ignore[misc]
        return numbers[inverse]

    def report(self, integrity: Integrity) -> None:
        """Count what did not pair."""
        for pairs, what in ((self.threads, "slice"), (self.chains, "asynchronous slice")):
            integrity.drop(f"end without the begin of its {what}", pairs.counts.without_begin)
            integrity.repair(f"{what} that never ended: drawn to the end of what surrounds it, or of the trace",
                             pairs.counts.never_ended)
            integrity.repair(f"{what} whose end has another name", pairs.counts.renamed)
