"""Memory and disk of an installation over the time of a load."""

from __future__ import annotations

import os
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.soak.book import Book
from tests.soak.kills import Running, command, tree

MB = 1e6


@dataclass(frozen=True)
class Sample:
    at_s: float
    memory_mb: float        # proportional share of every process that `manage.py serve` started
    web_mb: float           # resident set of the web process
    objects_mb: float       # traces, columns, reports
    database_mb: float      # PostgreSQL's tables, its log ahead left out
    log_ahead_mb: float
    load: float             # of the machine, over a minute


@dataclass
class Samples:
    """One each `every_s`."""

    taken: list[Sample] = field(default_factory=list)

    def run(self, book: Book, running: Running, every_s: float) -> None:
        began, home = time.monotonic(), running.home
        while book.wait(every_s):
            processes = tree(running.product.process.pid)
            web = [each for each in processes if "manage.py web" in command(each)]
            ahead = size_mb(home / "pg" / "data" / "pg_wal")
            database = size_mb(home / "pg" / "data")
            self.taken.append(Sample(
                time.monotonic() - began, sum(map(_share_mb, processes)), sum(map(_resident_mb, web)),
                size_mb(home) - database, database - ahead, ahead, os.getloadavg()[0]))

    def quarters(self, name: str) -> list[float]:
        """Return the median of each quarter of the time."""
        values = [getattr(each, name) for each in self.taken]
        size = max(1, len(values) // 4)
        return [statistics.median(values[at * size:(at + 1) * size] or values[-1:]) for at in range(4)] if values else []


def size_mb(folder: Path) -> float:
    """Return what the files of a folder take on the disk."""
    total = 0
    for path, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(path, file)).st_blocks * 512
    return total / MB


def _share_mb(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return float(process.memory_full_info().pss) / MB
    return 0.0


def _resident_mb(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return float(process.memory_info().rss) / MB
    return 0.0
