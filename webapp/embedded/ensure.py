"""PostgreSQL and Redis for a process: those of the environment, else private ones.

Whoever uses the private servers holds a shared lock on `users.lock` in the data folder; the last one out stops them.
A user that is killed leaves no trace: its lock dies with it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from webapp.embedded import launch, postgres, redis
from webapp.embedded.launch import CannotStart, Server, Start
from webapp.embedded.postgres import Postgres
from webapp.embedded.redis import Redis

ROOM_EVERY_S = 1.0              # between two looks at a full disk
log = logging.getLogger(__name__)
_kept: list[Server] = []        # the private servers of this process
_starts: list[Start] = []       # those that were begun and not waited for
_keepers: list[Keeper] = []
_leaving = threading.Event()


def begin_servers(home: Path) -> None:
    """Start private servers where the environment names none; `wait_for_servers` waits."""
    private = [name for name in ("DATABASE_URL", "REDIS_URL") if not os.environ.get(name)]
    if not private:
        return
    home.mkdir(parents=True, exist_ok=True)
    users = open(home / "users.lock", "w")      # noqa: SIM115  held until this process ends
    fcntl.flock(users, fcntl.LOCK_SH)           # waits while a last user is stopping them
    atexit.register(_leave, users, home, os.getpid())
    if "DATABASE_URL" in private:
        database = Postgres(home / "pg" / "data")
        os.environ["DATABASE_URL"] = database.url
        _kept.append(database)
    if "REDIS_URL" in private:
        queue = Redis(home / "redis")
        os.environ["REDIS_URL"] = queue.url
        _kept.append(queue)
    _starts.extend(map(Start, _kept))
    for start in reversed(_starts):             # the first PostgreSQL of a data folder takes seconds to be made
        with contextlib.suppress(CannotStart):      # who waits tries again, and is told
            start.step()


def wait_for_servers(*, for_room: bool = False) -> None:
    """Return when what was begun answers; for_room: on a full disk, whenever that is. Raises CannotStart and TimeoutError."""
    starts = _starts[:]
    _starts.clear()
    while True:
        try:
            return launch.wait(*starts)
        except CannotStart as error:
            if not for_room or not any(launch.disk_is_full(server.folder) for server in _kept):
                raise
            log.warning("%s; waiting for room", error)
        while any(launch.disk_is_full(server.folder) for server in _kept):
            time.sleep(ROOM_EVERY_S)
        starts = [Start(server) for server in _kept]


def name_servers(home: Path) -> None:
    """Name the private servers where the environment names none, as a start would, without starting them."""
    pg, queue = home / "pg", home / "redis"     # where these are missing, nothing was ever started, and nothing is made
    if not os.environ.get("DATABASE_URL"):
        never = f"postgresql://ridgepoint@/postgres?host={pg / 's'}&port={postgres.PORT}"
        os.environ["DATABASE_URL"] = Postgres(pg / "data").url if pg.is_dir() else never
    if not os.environ.get("REDIS_URL"):
        os.environ["REDIS_URL"] = Redis(queue).url if queue.is_dir() else f"unix://{queue / 'redis.sock'}"


def make_keepers(say: Callable[[str], None]) -> list[Keeper]:
    """Return one keeper for each private server that this process asked for."""
    _keepers.extend(Keeper(server, say) for server in _kept)
    return _keepers


class Keeper:
    """Restarts one private server when its process is gone."""

    def __init__(self, server: Server, say: Callable[[str], None]) -> None:
        self.server, self.say = server, say
        self.turn = threading.Lock()        # nothing is started while the servers are being stopped

    def look(self) -> str | None:
        """Restart the server where it died, and say so; None while it lives. May raise CannotStart."""
        if self.server.is_running():
            return None
        start = Start(self.server, say=self.say)
        try:
            while not self._step(start):
                time.sleep(launch.POLL_S)
        finally:
            start.close()
        return None if _leaving.is_set() else f"{self.server.name} had died and was started again"

    def _step(self, start: Start) -> bool:
        with self.turn:
            return _leaving.is_set() or start.step()


def _leave(users: TextIO, home: Path, owner_pid: int) -> None:
    if os.getpid() != owner_pid:                # a forked child that exits through Python uses its parent's lock
        return
    _leaving.set()
    with contextlib.ExitStack() as turns:
        for keeper in _keepers:
            turns.enter_context(keeper.turn)
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:                 # somebody else is still there
            return
        redis.stop(home / "redis")
        postgres.stop(home / "pg" / "data")
