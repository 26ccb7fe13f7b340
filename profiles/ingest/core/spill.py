"""What a builder has not written yet: batches until they make a run, which another thread then sorts and writes."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from profiles.ingest.core.columns import Int64
from profiles.ingest.core.spool import RUN_ROWS, Columns, Runs

_PAGE_BITS = 13
_MAX_PAGES = 1 << 16                    # of 1 kB


class Spill:
    """Takes batches of columns; `finish` gives the runs. At most one run waits while one is written."""

    def __init__(self) -> None:
        self.correlations = Numbers()
        self._runs = Runs()
        self._batches: list[Columns] = []
        self._rows = 0
        self._pool: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None

    def add(self, batch: Columns) -> None:
        self._batches.append(batch)
        self._rows += batch["start_ns"].size
        if self._rows >= RUN_ROWS:
            self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="spool")
            self._wait()
            self._writing = self._pool.submit(self._write, self._take())

    def _take(self) -> list[Columns]:
        batches, self._batches, self._rows = self._batches, [], 0
        return batches

    def _write(self, batches: list[Columns]) -> None:
        columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        batches.clear()
        self.correlations.add(columns["correlation"])
        self._runs.write(columns)

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def finish(self) -> Runs:
        self._wait()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        if self._batches:
            self._write(self._take())
        return self._runs


class Numbers:
    """A set of int64 ids in a few bytes per thousand: pages of bits. Ids of more than _MAX_PAGES pages are not remembered
    (a set that is too small leaves out flows that could have been left out, never others)."""

    def __init__(self) -> None:
        self._pages: dict[int, np.ndarray[tuple[int], np.dtype[np.uint8]]] = {}

    def add(self, ids: Int64) -> None:
        ids = np.unique(ids)
        page = ids >> _PAGE_BITS
        first = np.flatnonzero(np.concatenate((page[:1] == page[:1], page[1:] != page[:-1])))
        for lo, hi in zip(first.tolist(), [*first.tolist()[1:], ids.size], strict=True):
            number = int(page[lo])
            if number not in self._pages:
                if len(self._pages) >= _MAX_PAGES:
                    continue
                self._pages[number] = np.zeros(1 << (_PAGE_BITS - 3), np.uint8)
            bit = ids[lo:hi] & ((1 << _PAGE_BITS) - 1)
            np.bitwise_or.at(self._pages[number], bit >> 3, (1 << (bit & 7)).astype(np.uint8))

    def hold(self, ids: Int64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which of `ids` are in the set."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        held = np.zeros(distinct.size, np.bool_)
        page = distinct >> _PAGE_BITS
        for number in np.unique(page).tolist():
            if number in self._pages:
                rows = np.flatnonzero(page == number)
                bit = distinct[rows] & ((1 << _PAGE_BITS) - 1)
                held[rows] = (self._pages[number][bit >> 3] >> (bit & 7)) & 1 == 1
        return held[inverse]
