"""PostgreSQL's own pg_dump and pg_restore: which ones, and how they are run. No shell; passwords go by the environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from django.conf import settings

from webapp.backup.errors import BackupError, Damaged
from webapp.backup.stores import CHUNK_BYTES, Readable
from webapp.embedded import postgres

_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_SAID = 2000            # characters of a tool's message that are passed on


def find_tool(name: str, least_major: int) -> Path:
    """Return pg_dump or pg_restore of at least a server's version: of the wheel that is installed with us, else of PATH.

    Raises BackupError: an older one refuses to read a newer server.
    """
    candidates = []
    with suppress(RuntimeError):                # the wheel is not installed
        candidates.append(postgres.binaries() / name)
    if on_path := shutil.which(name):
        candidates.append(Path(on_path))
    majors_by_path = {path: major for path in candidates if (major := _major(path)) is not None}
    for path, major in majors_by_path.items():
        if major >= least_major:
            return path
    versions = ", ".join(f"{path} is of version {major}" for path, major in majors_by_path.items()) or "none was found"
    raise BackupError(f"{name} of PostgreSQL {least_major} or later is needed: {versions}. Install PostgreSQL's client programs "
                      f"(postgresql-client-{least_major}), or name their folder by RIDGEPOINT_PG_BIN")


def _major(path: Path) -> int | None:
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(output)
    return int(match[1]) if match else None


@contextmanager
def dump_stream(snapshot: str, least_major: int) -> Iterator[IO[bytes]]:
    """Yield what pg_dump writes of one exported snapshot (custom format, compressed). Raises BackupError when it fails."""
    command = [str(find_tool("pg_dump", least_major)), "--format=custom", "--no-owner", "--no-privileges", "--no-password",
               f"--snapshot={snapshot}"]
    with tempfile.TemporaryFile() as stderr_file, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr_file, env=_connection()) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        except BaseException:
            process.kill()
            raise
        process.stdout.read()
        if process.wait() != 0:
            raise BackupError(f"pg_dump failed: {_tail(stderr_file)}")


def load_dump(source: Readable, least_major: int) -> None:
    """Write a dump into the database, all of it or nothing: one transaction. Raises BackupError with PostgreSQL's words."""
    _feed([find_tool("pg_restore", least_major), "--no-owner", "--no-privileges", "--no-password", "--single-transaction",
           "--exit-on-error", f"--dbname={settings.DATABASES['default']['NAME']}"], source, BackupError)


def read_dump(source: Readable, least_major: int) -> None:
    """Read and unpack a whole dump, to nowhere. Raises Damaged."""
    _feed([find_tool("pg_restore", least_major), f"--file={os.devnull}"], source, Damaged)


def _feed(command: list[str | Path], source: Readable, kind: type[BackupError]) -> None:
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, env=_connection()) as process:
            assert process.stdin is not None
            try:
                while chunk := source.read(CHUNK_BYTES):
                    process.stdin.write(chunk)
                process.stdin.close()
            except BrokenPipeError:         # it ended first: its message says why
                pass
            except BaseException:
                process.kill()              # else it would take what came for all of it
                raise
        if process.returncode != 0:
            raise kind(f"pg_restore failed: {_tail(said)}")


def _connection() -> dict[str, str]:
    """Return the environment of a tool: this process's, with the address of the database as libpq reads it."""
    database = settings.DATABASES["default"]
    named = {"PGHOST": database["HOST"], "PGPORT": database["PORT"], "PGUSER": database["USER"], "PGPASSWORD": database["PASSWORD"],
             "PGDATABASE": database["NAME"]}
    return {**os.environ, **{name: str(value) for name, value in named.items() if value}}


def _tail(said: IO[bytes]) -> str:
    said.seek(0)
    return said.read().decode(errors="replace").strip()[-_SAID:] or "it said nothing"
