"""Folders of fetched code on this worker: named by what they hold, kept for the next job, the oldest gone beyond a bound."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.code.git import folder_bytes
from workers.core.child import SandboxError

MOST_BYTES = 4 << 30
LOOK_S = 0.1
_KEY = re.compile(r"[0-9a-f]{40}\Z")


def _lock(handle: int, kind: int) -> bool:
    """Lock without waiting; False where another process, or another handle of this one, keeps it from that."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@dataclass
class Held:
    """A folder of code. It stays as long as it is held."""

    folder: Path
    facts: dict[str, Any]
    _lock: int

    def release(self) -> None:
        """Let it go: it may be deleted from now on."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class CodeStore:
    """The folders of one worker's host."""

    def __init__(self, root: Path, most_bytes: int = MOST_BYTES) -> None:
        self.root, self.most_bytes = root, most_bytes
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    @staticmethod
    def key(*parts: object) -> str:
        """Return the name of what these parts name."""
        return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:40]

    def find_or_make(self, key: str, make: Callable[[Path], dict[str, Any]],
                     should_stop: Callable[[], bool] = lambda: False) -> Held:
        """Return the folder of a key, held; `make` fills it where there is none, and returns what is said of it.

        Raises SandboxError where a stop comes while another worker makes it.
        """
        lock = os.open(self.root / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        folder, facts_file = self.root / key, self.root / f"{key}.json"
        try:
            while not (_lock(lock, fcntl.LOCK_SH) and folder.is_dir() and facts_file.is_file()):
                if _lock(lock, fcntl.LOCK_EX):               # another worker of the host may make it, or have made it meanwhile
                    if not (folder.is_dir() and facts_file.is_file()):
                        self._make(folder, facts_file, make)
                elif should_stop():
                    raise SandboxError("stopped")
                else:
                    time.sleep(LOOK_S)
            os.utime(folder)
            held = Held(folder, json.loads(facts_file.read_text()), lock)
        except BaseException:
            os.close(lock)
            raise
        self.tidy()
        return held

    def _make(self, folder: Path, facts_file: Path, make: Callable[[Path], dict[str, Any]]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self.root, prefix="new-") as made:
            content = Path(made, "code")
            content.mkdir()
            facts = make(content)
            content.rename(folder)
        facts_file.write_text(json.dumps(facts))

    def tidy(self) -> None:
        """Delete the folders that were used longest ago, beyond the bound; what is held stays."""
        folders = sorted((path for path in self.root.iterdir() if _KEY.match(path.name)), key=lambda path: path.stat().st_mtime)
        sizes = {path: folder_bytes(path) for path in folders}
        total = sum(sizes.values())
        for path in folders:
            if total <= self.most_bytes:
                return
            if self._delete(path):
                total -= sizes[path]

    def _delete(self, path: Path) -> bool:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _lock(lock, fcntl.LOCK_EX):
                return False
            path.with_suffix(".json").unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
            return True
        finally:
            os.close(lock)
