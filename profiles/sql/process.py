"""One query, one process: started, watched, stopped. The web process only ever waits for it and maps its result."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from profiles.ingest.trace import TraceError

log = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent.parent
_START = "import sys; sys.path.insert(0, sys.argv[1]); from profiles.sql.child import main; main()"
_ANSWER_BYTES = 1 << 20
_LAST_WORDS_BYTES = 4096
_GRACE_S = 1.5                      # beyond the query's own time: starting Python and DuckDB
_LOOK_EVERY_S = 0.02
AT_ONCE, AT_ONCE_EACH = max(2, min(8, os.cpu_count() or 2)), 2     # queries of everybody, of one person
WAIT_FOR_PLACE_S = 3.0


@dataclass(frozen=True)
class Limits:
    """What one query may take."""

    rows: int = 10_000
    bytes: int = 16 << 20           # of the result
    seconds: float = 20.0
    memory_bytes: int = 1 << 30     # of DuckDB; the process may hold 2 GiB of addresses more
    spill_bytes: int = 1 << 30      # on disk, for sorting and grouping
    threads: int = 2


class QueryError(TraceError):
    """A query that gave no result. `position`: index of the character it is about; `kind`: refused, query, memory, time,
    stopped, busy, crash."""

    def __init__(self, kind: str, where: str, what: str, hint: str, position: int | None = None) -> None:
        super().__init__(where, what, hint)
        self.kind, self.position = kind, position


@dataclass(frozen=True)
class Answer:
    path: Path                      # result.arrow
    rows: int
    truncated: bool
    walled: bool                    # the kernel's own walls stood


_HINTS = {
    "refused": "See the tables beside the editor for what a query may read",
    "query": "See the tables beside the editor for names and types",
    "memory": "Aggregate or filter earlier, or choose fewer profiles",
    "time": "Filter earlier, or ask for longer",
    "stopped": "Run it again when you want it",
    "crash": "Make the query simpler; the server is well",
    "busy": "Try again when one of them has ended",
}


def run(sql: str, folder: Path, request: dict[str, Any], limits: Limits, stop: Path) -> Answer:
    """Run a query in `folder`, which holds the files of `request`.

    `stop`: a file that ends the query when it appears. Raises QueryError.
    """
    question = {**request, "sql": sql, "folder": str(folder), "parent": os.getpid(), **limits.__dict__}
    with tempfile.TemporaryFile(dir=folder) as question_file, tempfile.TemporaryFile(dir=folder) as answer, \
            tempfile.TemporaryFile(dir=folder) as error_file:
        question_file.write(json.dumps(question).encode())
        question_file.seek(0)
        child = _start(folder, question_file, answer, error_file)
        ended = _watch(child, limits.seconds + _GRACE_S, stop)
        answer.seek(0)
        text = answer.read(_ANSWER_BYTES)
        last_words = _end_of(error_file)
    if ended:
        raise _error(ended, {"time": f"the query ran longer than {limits.seconds:g} s and was ended",
                             "stopped": "the query was stopped"}[ended])
    return _answer(text, child.returncode, folder, sql, last_words)


def _end_of(said: IO[bytes]) -> str:
    """Return the last of what a process wrote to its standard error."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
    return said.read(_LAST_WORDS_BYTES).decode(errors="replace").strip()


def _start(folder: Path, given: IO[bytes], answer: IO[bytes], said: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _START, str(ROOT)], stdin=given, stdout=answer, stderr=said, cwd=folder,
        env={"LC_ALL": "C.UTF-8", "HOME": str(folder), "TMPDIR": str(folder)}, start_new_session=True, close_fds=True)


def _watch(child: subprocess.Popen[bytes], seconds: float, stop: Path) -> str:
    """Wait; "time" or "stopped" when it had to be killed, else ""."""
    end = time.monotonic() + seconds
    try:
        while child.poll() is None:
            if stop.exists():
                return "stopped"
            if time.monotonic() > end:
                return "time"
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_LOOK_EVERY_S)
        return ""
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _answer(told: bytes, status: int, folder: Path, sql: str, last_words: str = "") -> Answer:
    try:
        document = json.loads(told)
    except ValueError:
        if status in (-signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGXCPU):
            raise _error("memory", "the query took more than the machine gives to one") from None
        log.warning("the process of a query ended with status %s: %s", status, last_words or "it said nothing")
        if status < 0:
            raise _error("crash", f"the query ended its process by {signal.Signals(-status).name}") from None
        why = last_words.splitlines()[-1][:300] if last_words else f"status {status}"
        raise QueryError("crash", "query", f"its process ended before it gave an answer: {why}",
                         "A fault of this installation, not of the query: the web process's log has the trace") from None
    if "error" in document:
        raise _error(document["kind"], document["error"], document["position"], sql)
    return Answer(folder / "result.arrow", document["rows"], document["truncated"], document["walled"])


def _error(kind: str, what: str, position: int | None = None, sql: str = "") -> QueryError:
    where = "query"
    if position is not None:
        before = sql[:position]
        where = f"line {before.count(chr(10)) + 1}, column {position - (before.rfind(chr(10)) + 1) + 1}"
    return QueryError(kind, where, what.strip().rstrip("."), _HINTS[kind], position)


@contextlib.contextmanager
def workplace(home: Path) -> Iterator[Path]:
    """Give a folder for one query, gone afterwards."""
    home.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="query-", dir=home))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def place(home: Path, person: str) -> Iterator[None]:
    """Hold one of the places for queries of this machine, and one of this person's.

    Locks on files, so that they count across processes and end with whoever holds them. Raises QueryError("busy").
    """
    home.mkdir(parents=True, exist_ok=True)
    own = [home / f"person-{person}-{number}" for number in range(AT_ONCE_EACH)]
    everybody = [home / f"everybody-{number}" for number in range(AT_ONCE)]
    with _one_of(own, f"{AT_ONCE_EACH} queries of yours are running"), _one_of(everybody, f"{AT_ONCE} queries are running"):
        yield


@contextlib.contextmanager
def _one_of(files: list[Path], what: str) -> Iterator[None]:
    end = time.monotonic() + WAIT_FOR_PLACE_S
    while True:
        for path in files:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                continue
            try:
                yield
            finally:
                os.close(handle)
            return
        if time.monotonic() > end:
            raise _error("busy", what)
        time.sleep(0.05)
