"""Make sure that PostgreSQL and Redis answer: those named in the environment, else private ones in the data folder.

Whoever uses the private servers holds a shared lock on `users.lock` in the data folder; the last one out stops them.
A user that is killed leaves no trace: its lock dies with it.
"""

from __future__ import annotations

import atexit
import fcntl
import os
from pathlib import Path
from typing import TextIO

from webapp.embedded import postgres, redis

_kept: list[tuple[Path, str]] = []      # (data folder, variable) of the private servers of this process


def servers(home: Path) -> None:
    """Set DATABASE_URL and REDIS_URL where the environment does not, to private servers that are up on return."""
    private = [name for name in ("DATABASE_URL", "REDIS_URL") if not os.environ.get(name)]
    if not private:
        return
    home.mkdir(parents=True, exist_ok=True)
    users = open(home / "users.lock", "w")      # noqa: SIM115  held until this process ends
    fcntl.flock(users, fcntl.LOCK_SH)           # waits while a last user is stopping them
    atexit.register(_leave, users, home, os.getpid())
    if "DATABASE_URL" in private:
        os.environ["DATABASE_URL"] = postgres.start(home / "pg" / "data")
    if "REDIS_URL" in private:
        os.environ["REDIS_URL"] = redis.start(home / "redis")
    _kept.extend((home, name) for name in private)


def keep_up() -> list[str]:
    """Start again what died of the private servers that this process asked for; their names. Cheap while all is well."""
    revived = []
    for home, name in _kept:
        if name == "DATABASE_URL" and postgres.alive((home / "pg" / "data").resolve()) is None:
            postgres.start(home / "pg" / "data")
            revived.append("PostgreSQL")
        if name == "REDIS_URL" and not redis.ping(redis.socket_path((home / "redis").resolve())):
            redis.start(home / "redis")
            revived.append("Valkey")
    return revived


def _leave(users: TextIO, home: Path, owner_pid: int) -> None:
    if os.getpid() != owner_pid:                # a forked child that exits through Python uses its parent's lock
        return
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:                     # somebody else is still there
        return
    redis.stop(home / "redis")
    postgres.stop(home / "pg" / "data")
