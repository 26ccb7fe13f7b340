"""Where a serving engine's traces lie: a folder that the worker sees, one of the object store, or one of the engine's host, which
the agent there fetches. All are listed within bounds."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import default_storage

from profiles.base.refused import Refused
from profiles.running import fetch_services
from profiles.running.engines import EngineProblem
from profiles.running.models import EngineCapture, EngineFetch, EngineServer
from workers.agent.deep.folders import MOST_LISTED, TRACES, FolderProblem, Listed, fresh, list_files, open_file

OWN_FOLDER = "give the engine a folder of its own"
SETTLE_S = 2.0                      # nothing grew for so long
LOOK_S = 1.0                        # between looks into a folder
WRITTEN_S, FETCHED_S = 240.0, 900.0     # for traces to be written; and to be fetched from another host
T = TypeVar("T")
READY_S = 75.0                      # for an agent to take an order: it asks every 2 s, of many agents up to every 60 s


class Results(ABC):
    """`hint`: what helps where none come. `longest_s`: that they may take once the engine has stopped."""

    hint = ""
    longest_s = WRITTEN_S

    @property
    def waits(self) -> str:
        """Return what is waited for once the engine has stopped, in words."""
        return "waits for the traces"

    @property
    @abstractmethod
    def where(self) -> str:
        """Return where they are looked for, in words."""

    def check(self) -> None:        # noqa: B027 - an object store has nothing to look for before
        """Raises EngineProblem where nothing could come."""

    @abstractmethod
    def begin(self) -> None:
        """What is there by now is old. Raises EngineProblem."""

    def is_ready(self) -> bool:
        """Return whether the engine may start. Raises EngineProblem."""
        return True

    def collect(self) -> None:      # noqa: B027 - where the worker itself looks, nobody has to be told
        """The engine has stopped."""

    @abstractmethod
    def are_whole(self) -> bool:
        """Return whether files came, and none grew lately. Raises EngineProblem where none can come any more."""

    @abstractmethod
    def files(self, opened: ExitStack) -> list[File[bytes]]:
        """Return what came, opened. Raises EngineProblem where it is too much."""

    def end(self) -> None:          # noqa: B027 - nothing is kept of what lies in a folder
        """Nobody waits any more."""


@dataclass
class ListedResults(Results):
    """Files below a folder whose names are new. Where the capture's own word is in any name, only those count."""

    folder: str
    prefix: str
    known: frozenset[str] = frozenset()
    grew: tuple[list[Listed], float] = field(default_factory=lambda: ([], 0.0))
    looked_s: float = 0.0

    @property
    def where(self) -> str:
        return f"looked for *{', *'.join(TRACES)} in {self.folder}"

    def begin(self) -> None:
        self.known = frozenset(self.names())

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of files with one of the endings."""

    @abstractmethod
    def listed(self) -> list[Listed]:
        """Return files with one of the endings; of those that are known the size may be 0."""

    @abstractmethod
    def opened(self, listed: Listed) -> Any:
        """Return a listed file, open for reading bytes."""

    def fresh(self) -> list[Listed]:
        return fresh(self.listed(), self.known, self.prefix)

    def are_whole(self) -> bool:
        now_s = time.monotonic()
        if now_s - self.looked_s >= LOOK_S:
            self.looked_s, now = now_s, self.fresh()
            if now != self.grew[0]:
                self.grew = (now, now_s)
        return bool(self.grew[0]) and now_s - self.grew[1] >= SETTLE_S

    def files(self, opened: ExitStack) -> list[File[bytes]]:
        results = self.fresh()
        if not results:
            raise EngineProblem(f"its traces went away again: {self.where}", OWN_FOLDER)
        if sum(file.size for file in results) > settings.UPLOAD_MAX_BYTES:
            raise EngineProblem(f"its traces are above {settings.UPLOAD_MAX_BYTES:,} bytes", "record fewer steps")
        return [File(opened.enter_context(self.opened(trace)), name=trace.name.rsplit("/", 1)[-1])
                for trace in _traces(results, [file.name for file in results])]


class FolderResults(ListedResults):
    hint = "does the engine write into this folder, and does the worker see it?"

    def check(self) -> None:
        try:
            self.listed()
        except EngineProblem as problem:
            hint = problem.hint or "mount it where the worker runs"
            raise EngineProblem(f"the worker cannot read it: {problem.what}", hint) from problem

    def names(self) -> list[str]:
        return [file.name for file in self.listed()]

    def listed(self) -> list[Listed]:
        try:
            return list_files(self.folder)
        except FolderProblem as problem:
            raise EngineProblem(str(problem), OWN_FOLDER if "more than" in str(problem) else "") from problem

    def opened(self, listed: Listed) -> Any:
        try:
            return open_file(self.folder, "", listed)
        except FolderProblem as problem:
            raise EngineProblem(str(problem), OWN_FOLDER) from problem


class BucketResults(ListedResults):
    hint = "does the engine write into this folder of the object store?"

    def names(self) -> list[str]:
        with _asking_store():
            try:
                names = default_storage.listdir(self.folder)[1]
            except FileNotFoundError:       # of a folder in its place: nothing was written yet
                return []
        if len(names) > MOST_LISTED:
            raise EngineProblem(f"{self.folder} holds more than {MOST_LISTED:,} objects", OWN_FOLDER)
        return [name for name in names if name.endswith(TRACES)]

    def listed(self) -> list[Listed]:
        """An object's size is a question of its own: of what is known it is not asked."""
        names = self.names()
        with _asking_store():
            return [Listed(name, 0 if name in self.known else default_storage.size(self._key(name))) for name in names]

    def opened(self, listed: Listed) -> Any:
        with _asking_store():
            return default_storage.open(self._key(listed.name))

    def _key(self, name: str) -> str:
        return f"{self.folder.rstrip('/')}/{name}"


@dataclass
class AgentResults(Results):
    """A folder of the engine's host: its agent watches it from `begin`, and uploads what came after `collect`."""

    row: EngineCapture
    prefix: str
    fetch: EngineFetch | None = None
    hint = "does the engine write into this folder of its host?"
    longest_s = FETCHED_S

    @property
    def waits(self) -> str:
        return f"the agent of {self.row.server.host} fetches the traces"

    @property
    def where(self) -> str:
        return f"the agent of {self.row.server.host} looked for *{', *'.join(TRACES)} in {self.row.server.folder}"

    def check(self) -> None:
        try:
            fetch_services.present_agent(self.row.server.host, self.row.server.folder)
        except Refused as refused:
            raise _problem(refused) from refused

    def begin(self) -> None:
        server = self.row.server
        try:
            self.fetch = fetch_services.begin(self.row, server.host, server.folder, self.prefix)
        except Refused as refused:
            raise _problem(refused) from refused

    def is_ready(self) -> bool:
        return self._now().state != EngineFetch.State.ORDERED

    def collect(self) -> None:
        fetch_services.collect(self._now())

    def are_whole(self) -> bool:
        now = self._now()
        return now.state == EngineFetch.State.FETCHED if now.collect else now.whole

    def files(self, opened: ExitStack) -> list[File[bytes]]:
        parts = [part for _, part in sorted(self._now().parts.items(), key=lambda each: int(each[0]))]
        if not parts:
            raise EngineProblem(f"the agent of {self.row.server.host} told that it sent the traces, and none came", "try again")
        return [File(opened.enter_context(default_storage.open(key)), name=name)
                for key, name, _ in _traces(parts, [name for _, name, _ in parts])]

    def end(self) -> None:
        fetch_services.end(self.row)

    def _now(self) -> EngineFetch:
        assert self.fetch is not None
        try:
            return fetch_services.check(self.fetch)
        except Refused as refused:
            raise _problem(refused) from refused


def results_of(row: EngineCapture, prefix: str) -> Results:
    """Return where to look for the traces of a capture."""
    server = row.server
    if server.results == EngineServer.Results.AGENT:
        return AgentResults(row, prefix)
    if server.results == EngineServer.Results.BUCKET:
        return BucketResults(server.folder, prefix)
    return FolderResults(str(Path(server.folder)), prefix)


@contextmanager
def _asking_store() -> Iterator[None]:
    """Every kind of store has errors of its own: whatever it says ends the capture, in words."""
    try:
        yield
    except Exception as error:
        hint = "is RIDGEPOINT_S3_BUCKET there, and may this server read it?"
        raise EngineProblem(f"the object store: {error}"[:300], hint) from error


def _traces(found: Sequence[T], names: Sequence[str]) -> list[T]:
    """Return what is a trace: snapshots of memory (.pickle) only where nothing else came."""
    return [result for result, name in zip(found, names, strict=True) if not name.endswith(".pickle")] or list(found)


def _problem(refused: Refused) -> EngineProblem:
    return EngineProblem(str(refused), refused.hint)
