"""A snapshot of CUDA's caching allocator with its history, for the torch launcher. torch comes from there."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any


class Memory:
    """Records the allocator's history and writes it once: at the end, at the first out-of-memory, or when asked.

    `when`: off, end (which an out-of-memory comes before), oom, request. `why`: what it was written for, "" while it is not.
    """

    def __init__(self, torch: Any, when: str, entries: int, path: str, say: Callable[[str], None]) -> None:
        self._torch, self._when, self._entries, self._path, self._say = torch, when, entries, path, say
        self._recording = False
        self.why = ""

    @property
    def written(self) -> bool:
        return bool(self.why)

    def start(self) -> None:
        """Begin to record, where there is a GPU."""
        if self._when == "off":
            return
        memory: Any = getattr(self._torch.cuda, "memory", None)
        if memory is None or not self._torch.cuda.is_available() or not hasattr(memory, "_record_memory_history"):
            self._say("no memory snapshot: torch sees no CUDA GPU")
            return
        known = inspect.signature(memory._record_memory_history).parameters
        memory._record_memory_history(**{name: value for name, value in (
            ("enabled", "all"), ("context", "all"), ("stacks", "python"), ("max_entries", self._entries)) if name in known})
        self._recording = True
        attach = getattr(self._torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is not None and self._when in ("end", "oom"):
            attach(lambda *_: self._dump("out of memory"))
        self._say(f"recording the allocator's last {self._entries:,} events")

    def request(self) -> None:
        """The program asks: `ridgepoint_snapshot()`. The last request before the end counts."""
        if self._recording and self.why != "out of memory":
            self._dump("request")

    def end(self) -> None:
        """The recording or the program ends: write what is due then."""
        if self._recording and not self.why and self._when in ("end", "request"):
            self._dump("end")
        if self._recording:
            self._recording = False
            self._torch.cuda.memory._record_memory_history(enabled=None)

    def _dump(self, why: str) -> None:
        if self.why == "out of memory":         # the first is what somebody looks for
            return
        part = f"{self._path}.part"
        self._torch.cuda.memory._dump_snapshot(part)
        os.replace(part, self._path)
        self.why = why
        self._say(f"memory snapshot written ({why})")
