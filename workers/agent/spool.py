"""Batches on disk until the server has acknowledged them: files of their sequence number, bounded in bytes.

Whatever moment the process ends at: a batch is there whole or not at all (written aside, synced, renamed), and no sequence
number is given twice (the next one is on disk before it is used). So (agent, sequence) names one content for ever, and sending
again is safe."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 30
MOST_ASIDE = 20
ENDING = ".batch"


class Spool:
    """`dropped`: batches that had to go for lack of room, oldest first; it counts over restarts. Any thread may call."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES, name: str = "") -> None:
        self.folder, self.most_bytes = folder, most_bytes
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in folder.glob("*.part"):
            part.unlink()
        self._sizes = {int(path.stem): path.stat().st_size for path in folder.glob(f"*{ENDING}") if path.stem.isdecimal()}
        known = self._read_state()
        self.agent = str(known.get("agent") or name or f"agent-{uuid.uuid4()}")
        self._next = max([_count(known, "next"), *(sequence + 1 for sequence in self._sizes)])
        self.dropped, self.refused = _count(known, "dropped"), _count(known, "refused")
        self._write_state()

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    @property
    def batches(self) -> int:
        return len(self._sizes)

    def put(self, make: Callable[[int], bytes]) -> int:
        """Store the batch that `make` returns for a sequence number; return that number."""
        with self._lock:
            sequence, self._next = self._next, self._next + 1
            self._write_state()
            payload = make(sequence)
            self._write(self._path(sequence), payload)
            self._sizes[sequence] = len(payload)
            while self.size_bytes > self.most_bytes and len(self._sizes) > 1:
                self._remove(min(self._sizes))
                self.dropped += 1
                self._write_state()
            return sequence

    def oldest(self) -> tuple[int, bytes] | None:
        """Return (sequence, payload) of the batch that waits longest."""
        with self._lock:
            while self._sizes:
                sequence = min(self._sizes)
                try:
                    return sequence, self._path(sequence).read_bytes()
                except FileNotFoundError:
                    del self._sizes[sequence]           # somebody cleaned up
            return None

    def done(self, sequence: int) -> None:
        """The server has it."""
        with self._lock:
            self._remove(sequence)

    def set_aside(self, sequence: int, reason: str) -> None:
        """The server will never take it: keep the last MOST_ASIDE of these with the reason."""
        aside = self.folder / "refused"
        aside.mkdir(exist_ok=True)
        self._write(aside / f"{sequence:012}.reason", reason[:2000].encode(errors="replace"))
        with self._lock:
            if sequence in self._sizes:
                os.replace(self._path(sequence), aside / f"{sequence:012}{ENDING}")
                del self._sizes[sequence]
            self.refused += 1
            self._write_state()
        for ending in (ENDING, ".reason"):
            for old in sorted(aside.glob(f"*{ending}"))[:-MOST_ASIDE]:
                old.unlink()

    def _path(self, sequence: int) -> Path:
        return self.folder / f"{sequence:012}{ENDING}"

    def _remove(self, sequence: int) -> None:
        self._path(sequence).unlink(missing_ok=True)
        self._sizes.pop(sequence, None)

    def _read_state(self) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / "state.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write_state(self) -> None:
        state = {"agent": self.agent, "next": self._next, "dropped": self.dropped, "refused": self.refused}
        self._write(self.folder / "state.json", json.dumps(state).encode())

    def _write(self, path: Path, data: bytes) -> None:
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _count(known: dict[str, Any], name: str) -> int:
    found = known.get(name)
    return found if isinstance(found, int) and found > 0 else 0
