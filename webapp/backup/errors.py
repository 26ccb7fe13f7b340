"""What can go wrong with a backup, each kind with the exit code of its command."""

from __future__ import annotations

import time
from collections.abc import Callable

# Lines that say how far a long step is.

EVERY_S = 2.0


class Progress:
    """`say` gets a line now and then, and a last one: objects and bytes done of all."""

    def __init__(self, say: Callable[[str], None], verb: str, objects: int, size: int) -> None:
        self.say, self.verb, self.objects, self.size = say, verb, objects, size
        self.done = self.done_bytes = 0
        self.next_s = time.monotonic() + EVERY_S

    def step(self, size: int) -> None:
        """Count one more object of `size` bytes."""
        self.done, self.done_bytes = self.done + 1, self.done_bytes + size
        if time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + EVERY_S
            self.say(self.line)

    @property
    def line(self) -> str:
        return f"{self.verb} {self.done:,} of {self.objects:,} objects, {readable(self.done_bytes)} of {readable(self.size)}"


def readable(size: float) -> str:
    """Return bytes as people read them: 1.2 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1000
    return f"{size:,.3g} TB"


class BackupError(Exception):
    """It was not done; the text says what, where and what to do."""

    exit_code = 1


class Damaged(BackupError):
    """A backup lacks something or holds other bytes than it was made of."""

    exit_code = 3


class Refused(BackupError):
    """It would overwrite data, or meet a running product."""

    exit_code = 4
