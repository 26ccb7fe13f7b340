"""Faults beside kills, each in turn in a random order: a full disk, servers that stop or crawl, clocks that step, two restores at
once, an emptied project, an account that goes. Each heals what it did before the next.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from tests.soak.actors import Place
from tests.soak.backups import Backups, restore_twice
from tests.soak.book import Book
from tests.soak.clock import Clock
from tests.soak.disk import fill
from tests.soak.kills import Running, processes_of, tree
from tests.soak.leavers import Leavers

LASTS_S = 15.0                                  # a fault that is healed
HOUR_S = 3600
STOPPED_S, RUNS_S = 0.4, 0.1                    # of a server that crawls
SMALL_BYTES, NONE_BYTES = 30 << 20, 0           # left on the disk: less than is kept for what runs, nothing


@dataclass
class Faults:
    """Makes them as long as the load lasts. `small`: the data folder lies on a disk of its own, which may be filled."""

    running: Running
    backups: Backups
    clock: Clock | None
    leavers: Leavers
    small: bool
    lasts_s: float = LASTS_S
    restored: int = 0
    _chance: random.Random = field(default_factory=random.Random)

    def run(self, book: Book, place: Place, every_s: float, seed: int) -> None:
        self._chance, waiting = random.Random(seed), list[str]()
        while book.wait(every_s * self._chance.uniform(0.7, 1.3)):
            waiting = waiting or self._chance.sample(list(self.kinds()), len(self.kinds()))
            kind = waiting.pop()
            try:
                made = self.kinds()[kind](book, place)
            except Exception as error:
                book.violate(f"a fault broke ({kind}): {type(error).__name__}: {error}")
                continue
            (book.faults if made else book.no_fault)[kind] += 1

    def kinds(self) -> dict[str, Callable[[Book, Place], bool]]:
        """Return what makes each fault; it says whether it could be made."""
        return {
            "disk nearly full": lambda book, place: self.fill_disk(book, SMALL_BYTES),
            "disk full": lambda book, place: self.fill_disk(book, NONE_BYTES),
            "PostgreSQL stopped": lambda book, place: self.stop(book, "PostgreSQL"),
            "Valkey stopped": lambda book, place: self.stop(book, "Valkey"),
            "PostgreSQL slow": lambda book, place: self.stop(book, "PostgreSQL", crawl=True),
            "Valkey slow": lambda book, place: self.stop(book, "Valkey", crawl=True),
            "clock an hour ahead": lambda book, place: self.step_clock(book, HOUR_S),
            "clock an hour back": lambda book, place: self.step_clock(book, -HOUR_S),
            "two restores at once": self.restore_twice,
            "project emptied at work": self.leavers.empty_project,
            "account deactivated at work": self.leavers.deactivate,
            "account deleted at work": self.leavers.delete}

    def fill_disk(self, book: Book, left_bytes: int) -> bool:
        if not self.small:
            return False
        ballast = fill(self.running.home, left_bytes)
        try:
            book.wait(self.lasts_s)
        finally:
            ballast.unlink()
        return True

    def stop(self, book: Book, kind: str, *, crawl: bool = False) -> bool:
        """Stop a server with all its processes, or let it run for a fifth of the time."""
        end = time.monotonic() + self.lasts_s
        found = False
        while time.monotonic() < end and not book.stop.is_set():
            stopped = [each for server in processes_of(kind, self.running.home) for each in (server, *tree(server.pid))]
            found |= bool(stopped)
            try:
                send(stopped, signal.SIGSTOP)
                book.wait(STOPPED_S if crawl else self.lasts_s)
            finally:
                send(stopped, signal.SIGCONT)
            book.wait(RUNS_S)
        return found

    def step_clock(self, book: Book, by_s: int) -> bool:
        """Put the clock of the product's host off, and leave it there for a while."""
        if self.clock is None:
            return False
        self.clock.set_off(by_s)
        try:
            book.wait(self.lasts_s)
        finally:
            self.clock.set_off(0)
        return True

    def restore_twice(self, book: Book, place: Place) -> bool:
        if not self.backups.ended:
            return False
        self.restored += 1
        restore_twice(book, place, self.backups, place.folder / f"restored-{self.restored}")
        return True


def send(processes: list[psutil.Process], number: signal.Signals) -> None:
    for each in processes:
        with suppress(psutil.Error, ProcessLookupError):
            if each.is_running():               # a number that was given to another process is not this one
                os.kill(each.pid, number)
