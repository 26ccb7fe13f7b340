"""Where a serving engine's traces lie: a folder that the worker sees, or one of the object store. Both are listed within bounds."""

from __future__ import annotations

import os
import stat
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import default_storage

from profiles.running.engines.client import EngineProblem
from profiles.running.models import EngineServer

ENDINGS = (".json", ".json.gz", ".pickle", ".hatchet", ".msgpack")
OWN_FOLDER = "give the engine a folder of its own"
SETTLE_S = 2.0                      # nothing grew for so long
ANOTHERS = "capture-"               # of processes, by an agent (workers.agent.deep.captures)
EARLY_S = 2.0                       # clocks of file servers differ
MOST_FILES, MOST_LISTED, MOST_DEPTH = 64, 20_000, 3


@dataclass
class Results(ABC):
    """Files below a folder that are newer than `begin()`. Where the capture's own word is in any name, only those count."""

    folder: str
    prefix: str
    hint: str = "does the engine write into this folder, and does the worker see it?"
    began_s: float = 0.0
    known: set[str] = field(default_factory=set)
    grew: tuple[tuple[tuple[str, int], ...], float] = ((), 0.0)

    @property
    def where(self) -> str:
        return f"looked for *{', *'.join(ENDINGS)} in {self.folder}"

    def check(self) -> None:        # noqa: B027 - an object store has nothing to look for before
        """Raises EngineProblem where nothing could come."""

    def begin(self) -> None:
        self.began_s = time.time()
        self.known = {name for name, _, _ in self.listed()}

    @abstractmethod
    def listed(self) -> list[tuple[str, int, float]]:
        """Return (name, bytes, when it was changed) of files with one of the endings."""

    @abstractmethod
    def opened(self, name: str) -> Any:
        """Return a listed file, open for reading bytes."""

    def fresh(self) -> list[tuple[str, int]]:
        found = [(name, size) for name, size, changed_s in self.listed() if size and name not in self.known
                 and changed_s >= self.began_s - EARLY_S and not name.rsplit("/", 1)[-1].startswith(ANOTHERS)]
        own = [each for each in found if self.prefix in each[0].rsplit("/", 1)[-1]]
        return sorted(own or found)[:MOST_FILES]

    def are_whole(self) -> bool:
        """Return whether files came, and none grew lately."""
        now = tuple(self.fresh())
        if now != self.grew[0]:
            self.grew = (now, time.monotonic())
        return bool(now) and time.monotonic() - self.grew[1] >= SETTLE_S

    def files(self, opened: ExitStack) -> list[File[bytes]]:
        """Return what came, opened. Raises EngineProblem where it is too much."""
        fresh = self.fresh()
        if not fresh:
            raise EngineProblem(f"its traces went away again: {self.where}", OWN_FOLDER)
        if sum(size for _, size in fresh) > settings.UPLOAD_MAX_BYTES:
            raise EngineProblem(f"its traces are above {settings.UPLOAD_MAX_BYTES:,} bytes", "record fewer steps")
        traces = [each for each in fresh if not each[0].endswith(".pickle")] or fresh
        return [File(opened.enter_context(self.opened(name)), name=name.rsplit("/", 1)[-1]) for name, _ in traces]


class FolderResults(Results):
    def check(self) -> None:
        if not os.path.isdir(self.folder):
            raise EngineProblem(f"the worker sees no folder {self.folder}", "mount it where the worker runs")

    def listed(self) -> list[tuple[str, int, float]]:
        found: list[tuple[str, int, float]] = []
        looked = 0
        for root, folders, names in os.walk(self.folder):
            if root[len(self.folder):].count(os.sep) >= MOST_DEPTH:
                folders.clear()
            for name in names:
                looked += 1
                if looked > MOST_LISTED:
                    raise EngineProblem(f"{self.folder} holds more than {MOST_LISTED:,} files", OWN_FOLDER)
                if name.endswith(ENDINGS) and (told := _lstat(os.path.join(root, name))):
                    found.append((os.path.join(root, name), told.st_size, told.st_mtime))
        return found

    def opened(self, name: str) -> Any:
        return os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW), "rb")


class BucketResults(Results):
    hint = "does the engine write into this folder of the object store?"

    def listed(self) -> list[tuple[str, int, float]]:
        try:
            names = default_storage.listdir(self.folder)[1]
        except FileNotFoundError:
            return []
        if len(names) > MOST_LISTED:
            raise EngineProblem(f"{self.folder} holds more than {MOST_LISTED:,} objects", OWN_FOLDER)
        keys = [f"{self.folder.rstrip('/')}/{name}" for name in names if name.endswith(ENDINGS)]
        fresh = [key for key in keys if key not in self.known]
        return [(key, default_storage.size(key), default_storage.get_modified_time(key).timestamp()) for key in fresh] + [
            (key, 0, 0.0) for key in keys if key in self.known]

    def opened(self, name: str) -> Any:
        return default_storage.open(name)


def results_of(server: EngineServer, prefix: str) -> Results:
    """Return where to look for a server's traces."""
    kind = BucketResults if server.results == EngineServer.Results.BUCKET else FolderResults
    return kind(str(Path(server.folder)) if kind is FolderResults else server.folder, prefix)


def _lstat(path: str) -> os.stat_result | None:
    try:
        told = os.lstat(path)
    except OSError:
        return None
    return told if stat.S_ISREG(told.st_mode) else None
