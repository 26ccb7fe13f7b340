"""Lines that say how far a long step is."""

from __future__ import annotations

import time
from collections.abc import Callable

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
