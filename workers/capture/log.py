"""The log of a running capture: lines to the page as they come, a bounded tail in the row."""

from __future__ import annotations

import re
import time

from profiles.models import Capture
from workers import jobs

TAIL_CHARS = 64_000
LINE_CHARS = 2000
LINES_AT_ONCE = 200
FLUSH_EVERY_S = 0.4
_COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")        # the CUTLASS profiler writes them into pipes as well


class CaptureLog:
    """Takes bytes; `flush` writes what is new and says whether the capture goes on."""

    def __init__(self, capture_id: int, worker: str) -> None:
        self.capture_id, self.worker = capture_id, worker
        self.tail = ""
        self.stop_asked = False             # as of the last flush
        self.dumps_asked = 0                # so too
        self._partial = b""
        self._new: list[str] = []
        self._flushed_s = 0.0

    def feed(self, data: bytes) -> None:
        """Add output bytes, cut anywhere; of a redrawn line the last state stays."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > 4 * LINE_CHARS:
            lines, self._partial = [*lines, self._partial], b""
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            self.add(text.rpartition("\r")[2])

    def add(self, line: str) -> None:
        """Add a line."""
        clean = "".join(char if char.isprintable() or char == "\t" else "�" for char in _COLOR.sub("", line))
        line = clean if len(clean) <= LINE_CHARS else clean[:LINE_CHARS] + " …"
        self._new.append(line)
        self.tail = (self.tail + line + "\n")[-TAIL_CHARS:]

    def close(self) -> None:
        """End the output: an unfinished line counts as a line."""
        if self._partial:
            self.feed(b"\n")

    def flush(self, force: bool = False) -> bool:
        """Write at most every FLUSH_EVERY_S unless forced; False when stopped or taken away."""
        if not force and time.monotonic() - self._flushed_s < FLUSH_EVERY_S:
            return True
        self._flushed_s = time.monotonic()
        mine = Capture.objects.filter(pk=self.capture_id, worker=self.worker, status=Capture.Status.RUNNING)
        row = mine.values("stop_asked", "dumps_asked").first()
        if row is None:
            return False
        self.stop_asked, self.dumps_asked = row["stop_asked"] is not None, row["dumps_asked"]
        if not self._new:
            return True
        lines, self._new = self._new, []
        if not mine.update(log=self.tail):
            return False
        if len(lines) > LINES_AT_ONCE:
            left_out = len(lines) - LINES_AT_ONCE
            lines = [f"… {left_out:,} lines left out here; the log of the row has more …", *lines[-LINES_AT_ONCE:]]
        jobs.publish(f"capture.{self.capture_id}", "log", {"lines": lines})
        return True
