"""Running queries for people: which profiles, within which limits, and results kept for a while, because a chart, a file and a
track on the timeline are made of the same rows."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from django.conf import settings

from profiles.exports.files import plain
from profiles.ingest.trace import TraceError
from profiles.library.connection_services import connection_release
from profiles.models import Profile
from profiles.sql import process as sql_process
from profiles.sql import views as sql_views
from profiles.sql.analyses import analysed_tables, stamps
from profiles.sql.process import Limits, QueryError
from profiles.sql.tables import NAMES

MAX_PROFILES = 64
SQL_CHARS = 20_000
MOST = Limits(rows=1_000_000, bytes=512 << 20, seconds=60.0)       # what anybody may ask for
_KEPT_BYTES = 1 << 30               # of results on this machine
_KEPT_SECONDS = 3600
_RUN_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True)
class Result:
    """Rows of a query. `seconds`: of the run that made them."""

    table: pa.Table
    truncated: bool
    limits: Limits
    seconds: float
    kept: bool                      # of an earlier run of the same query over the same profiles
    walled: bool = True             # the kernel's own walls stood around it


def limits_of(rows: int | None = None, seconds: float | None = None, whole: bool = False) -> Limits:
    """Return the usual limits with what was asked for, never more than MOST.

    `whole`: for a file, not for a page.
    """
    usual = Limits(rows=MOST.rows, bytes=MOST.bytes) if whole else Limits()
    return replace(usual, rows=min(rows or usual.rows, MOST.rows), seconds=min(seconds or usual.seconds, MOST.seconds))


def choose_profiles(ids: Iterable[int] = (), build: str = "", tag: str = "") -> list[Profile]:
    """Return ready profiles by id, build or tag, newest first.

    What is given narrows. Raises TraceError.
    """
    rows = Profile.objects.filter(status=Profile.Status.READY)
    numbers = list(dict.fromkeys(ids))
    if numbers:
        rows = rows.filter(pk__in=numbers)
    if build:
        rows = rows.filter(build=build)
    if tag:
        rows = rows.filter(tags__contains=[tag])
    if not (numbers or build or tag):
        raise TraceError("profiles", "no profile is chosen", "Choose profiles by id, build or tag")
    chosen = list(rows.order_by("-created", "-pk")[:MAX_PROFILES + 1])
    if len(chosen) > MAX_PROFILES:
        raise TraceError("profiles", f"more than {MAX_PROFILES} profiles are chosen", "Narrow them by build, tag or id")
    missing = [str(pk) for pk in numbers if pk not in {profile.pk for profile in chosen}]
    if not chosen or (missing and not build and not tag):
        which = f"there is no ready profile {', '.join(missing)}" if missing else "no ready profile is of that build or tag"
        raise TraceError("profiles", which, "The list of profiles shows their status")
    return chosen


def query_run(sql: str, profiles: list[Profile], person: str, limits: Limits | None = None, *, run: str = "",
              fresh: bool = False) -> Result:
    """Return the rows of one query over these profiles.

    `person` counts towards the limit of queries at once; `run` names this run for `query_stop`; `fresh` runs it again even if its
    rows are kept. Raises QueryError.
    """
    limits = limits or Limits()
    if len(sql) > SQL_CHARS:
        raise QueryError("refused", "query", f"the query has {len(sql):,} characters; {SQL_CHARS:,} are allowed", "Shorten it")
    path = _home() / "results" / f"{_digest(sql, profiles, limits)}.arrow"
    if not fresh and (stored := _read_kept(path, limits)):
        return stored
    began = time.monotonic()
    stop = _stop_file(person, run)
    connection_release()
    leftovers_delete()
    with _stoppable(stop), sql_process.place(_home() / "places", hashlib.sha256(person.encode()).hexdigest()[:16]), \
            sql_process.workplace(_home() / "runs") as folder:
        prepared = sql_views.prepare(profiles, folder, analysed=analysed_tables(sql))
        connection_release()
        request = {"statements": prepared.statements, "files": prepared.files, "targets": prepared.targets, "tables": NAMES}
        answer = sql_process.run(sql, folder, request, limits, stop)
        seconds = time.monotonic() - began
        return _keep(path, answer, limits, seconds)


def query_stop(person: str, run: str) -> None:
    """End this person's run of that name, here or in another process of this machine."""
    if not run:
        raise TraceError("run", "the run has no name", "Give the name that the query was run with")
    path = _stop_file(person, run)
    if _running(path).exists():             # a file for each made-up name would fill the folder
        path.touch()


@contextmanager
def _stoppable(stop: Path) -> Iterator[None]:
    """While it lasts, `query_stop` knows the run."""
    stop.parent.mkdir(parents=True, exist_ok=True)
    _running(stop).touch()
    try:
        yield
    finally:
        for path in (_running(stop), stop):
            path.unlink(missing_ok=True)


def _running(stop: Path) -> Path:
    return stop.with_suffix(".running")


def _stop_file(person: str, run: str) -> Path:
    if run and not _RUN_NAME.fullmatch(run):
        raise TraceError("run", "the run's name holds other characters than letters, digits and -", "Use up to 64 of them")
    whose = hashlib.sha256(f"{person}\n{run or os.urandom(8).hex()}".encode()).hexdigest()[:32]
    return _home() / "stop" / whose


def _home() -> Path:
    return Path(settings.HOME) / "sql"


def _digest(sql: str, profiles: list[Profile], limits: Limits) -> str:
    """Of everything that the rows depend on. A profile's files change with its ingest, its row with an edit."""
    about: list[tuple[object, ...]] = [
        (row.pk, row.name, row.build, row.model, row.tags, str(row.heartbeat), row.stored_bytes, row.seconds,
         row.summary.get("needed_pct"))
        for row in profiles]
    about += stamps(profiles, analysed_tables(sql))
    return hashlib.sha256(repr((sql, about, limits.rows, limits.bytes)).encode()).hexdigest()[:40]


_TRUNCATED, _SECONDS = b"ridgepoint.truncated", b"ridgepoint.seconds"


def _keep(path: Path, answer: sql_process.Answer, limits: Limits, seconds: float) -> Result:
    """The child's stream becomes a file that later requests map."""
    with pa.OSFile(str(answer.path)) as file, pa.ipc.open_stream(file) as stream:
        table = plain(stream.read_all())
    table = table.replace_schema_metadata({_TRUNCATED: b"1" if answer.truncated else b"", _SECONDS: repr(seconds).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}-{time.monotonic_ns()}")
    with pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    os.replace(part, path)
    _prune(path.parent)
    return Result(table, answer.truncated, limits, seconds, kept=False, walled=answer.walled)


def _read_kept(path: Path, limits: Limits) -> Result | None:
    with suppress(OSError, pa.ArrowInvalid):
        if time.time() - path.stat().st_mtime < _KEPT_SECONDS:
            with pa.memory_map(str(path)) as file:
                table = pa.ipc.open_file(file).read_all()
            about = table.schema.metadata or {}
            return Result(table, bool(about.get(_TRUNCATED)), limits, float(about.get(_SECONDS, b"0")), kept=True)
    return None


def _prune(folder: Path) -> None:
    """Forget results that are old, then the oldest until the rest is small enough."""
    files = []
    for path in folder.iterdir():
        with suppress(OSError):
            files.append((path.stat().st_mtime, path.stat().st_size, path))
    used = sum(size for _, size, _ in files)
    for when, size, path in sorted(files):
        if used <= _KEPT_BYTES and time.time() - when < _KEPT_SECONDS:
            return
        path.unlink(missing_ok=True)
        used -= size


def leftovers_delete() -> None:
    """Delete folders of queries whose process was killed before it could clean up."""
    for path in (_home() / "runs").glob("query-*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > MOST.seconds + 60:
                shutil.rmtree(path, ignore_errors=True)
    for path in (_home() / "stop").glob("*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > MOST.seconds + 60:
                path.unlink()

