"""Snapshots of CUDA's caching allocator with its history, for the torch launcher. torch comes from there.

Somebody who watches the capture asks for one by a number in a file beside the result, which a thread reads a few times a second:
no signal reaches the program, and no call of its own waits for one.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from typing import Any

ASKED = "ridgepoint.dumps"      # how many snapshots were asked for, as workers.capture.dumps writes it
MOST_DUMPS = 8
LOOK_EVERY_S = 0.25


class Memory:
    """Records the allocator's history and writes it once: at the end, at the first out-of-memory, or when the program asks.

    `when`: off, end (which an out-of-memory comes before), oom, request. `path`: of a snapshot by its name, "*" for the rank.
    `why`: what the one snapshot was written for, "" while it is not. What is asked for from outside comes beside it.
    """

    def __init__(self, torch: Any, when: str, entries: int, path: Callable[[str], str], say: Callable[[str], None]) -> None:
        self._torch, self._when, self._entries, self._path, self._say = torch, when, entries, path, say
        self._recording = False
        self._dumps = 0
        self._writing = threading.RLock()       # an out-of-memory may come while another is written
        self._over = threading.Event()
        self.why = ""

    @property
    def written(self) -> bool:
        return bool(self.why)

    def start(self) -> None:
        """Begin to record, where there is a GPU; what is asked for from now on is answered."""
        if self._when == "off":
            return
        threading.Thread(target=self._listen, name="ridgepoint-dumps", daemon=True).start()
        memory: Any = getattr(self._torch.cuda, "memory", None)
        if memory is None or not self._torch.cuda.is_available() or not hasattr(memory, "_record_memory_history"):
            self._say("no memory snapshot: torch sees no CUDA GPU")
            return
        parameters = inspect.signature(memory._record_memory_history).parameters
        memory._record_memory_history(**{name: value for name, value in (
            ("enabled", "all"), ("context", "all"), ("stacks", "python"), ("max_entries", self._entries)) if name in parameters})
        self._recording = True
        attach = getattr(self._torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is not None and self._when in ("end", "oom"):
            attach(lambda *_: self._dump_once("out of memory"))
        self._say(f"recording the allocator's last {self._entries:,} events")

    def request(self) -> None:
        """The program asks: `ridgepoint_snapshot()`. The last request before the end counts."""
        if self._recording:
            self._dump_once("request")

    def trace_written(self) -> None:
        """The trace is whole: a snapshot at its end is due; one on request, or of an out-of-memory, may still come."""
        if self._when == "end":
            self.end()

    def end(self) -> None:
        """The recording or the program ends: write what is due then. After snapshots on request, the last state is due too."""
        with self._writing:
            if self._recording and not self.why and (self._when in ("end", "request") or self._dumps):
                self._dump_once("end")
            if self._recording:
                self._recording = False
                self._torch.cuda.memory._record_memory_history(enabled=None)

    def close(self) -> None:
        """The program is over: nothing is answered any more."""
        self._over.set()
        with self._writing:                     # one that is being written is written whole
            pass

    def _dump_once(self, why: str) -> None:
        with self._writing:
            if self.why == "out of memory":     # the first is what somebody looks for
                return
            self._write(self._path("snapshot*.pickle"))
            self.why = why
            self._say(f"memory snapshot written ({why})")

    def _write(self, path: str) -> None:
        part = f"{path}.part"
        self._torch.cuda.memory._dump_snapshot(part)
        os.replace(part, path)

    def _listen(self) -> None:
        path = os.path.join(os.path.dirname(self._path("")), ASKED)
        while not self._over.wait(LOOK_EVERY_S):
            with self._writing:
                while self._dumps < _asked(path) and not self._over.is_set():
                    self._dumps += 1
                    self._answer(self._dumps)

    def _answer(self, number: int) -> None:
        """Write the snapshot that was asked for; where it cannot be written, say so: the program goes on."""
        if not self._recording:
            self._say(f"no memory snapshot {number}: the allocator's history is not recorded")
            return
        try:
            self._write(self._path(f"dump-{number}*.pickle"))
        except Exception as error:
            self._say(f"memory snapshot {number} could not be written: {type(error).__name__}: {error}")
        else:
            self._say(f"memory snapshot {number} written (asked for)")


def _asked(path: str) -> int:
    """Return how many were asked for until now, 0 where the file says nothing."""
    try:
        with open(path, encoding="ascii") as stream:
            return min(int(stream.read(16)), MOST_DUMPS)
    except (OSError, ValueError):
        return 0
