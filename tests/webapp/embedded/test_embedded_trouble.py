"""The private servers in trouble: stopped, on a full disk, over damaged files, unable to start. Slow is not dead."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis as redis_client

from webapp.embedded import ensure, postgres, redis
from webapp.embedded.launch import CannotStart, Start, take_lock, wait

pytestmark = pytest.mark.process

START_VALKEY = "import sys; from pathlib import Path; from webapp.embedded import redis; print(redis.start(Path(sys.argv[1])))"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "redis"
    yield folder
    redis.stop(folder)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "pg" / "data"
    yield folder
    postgres.stop(folder)


def client_of(folder: Path) -> redis_client.Redis:
    return redis_client.Redis(unix_socket_path=str(redis.socket_path(folder)), socket_timeout=20)


def servers(folder: Path) -> list[int]:
    """Return the live servers that work inside the folder."""
    found = []
    for process in psutil.process_iter(["name", "cwd", "status"]):
        told = process.info
        if told["cwd"] == str(folder) and "server" in told["name"] and told["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def starter(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", START_VALKEY, str(folder)], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("lost", ["nothing", "pid file", pytest.param("lock file", marks=pytest.mark.deep_only)])
def test_a_stopped_valkey_is_waited_for(queue: Path, lost: str) -> None:
    """The pid file is empty after a full disk; files can be deleted by hand."""
    redis.start(queue)
    [pid] = servers(queue)
    client_of(queue).rpush("queue", *range(100))
    if lost != "nothing":
        (queue / {"pid file": "redis.pid", "lock file": ".lock"}[lost]).unlink()
    with stopped(pid):
        others = [starter(queue), starter(queue)]
        time.sleep(3)       # a ping is given one second
        assert servers(queue) == [pid]
        assert all(other.poll() is None for other in others)
    assert {other.communicate(timeout=30)[0].strip() for other in others} == {f"unix://{redis.socket_path(queue)}"}
    assert servers(queue) == [pid] and client_of(queue).llen("queue") == 100


def test_a_stopped_valkey_is_not_dead_for_the_watch(queue: Path) -> None:
    redis.start(queue)
    [pid] = servers(queue)
    keeper = ensure.Keeper(redis.Redis(queue), print)
    with stopped(pid):
        assert keeper.look() is None and servers(queue) == [pid]
    os.kill(pid, signal.SIGKILL)
    until(lambda: servers(queue) == [])
    until(lambda: not keeper.server.is_running())                               # the lock goes with the last of its processes
    assert keeper.look() == "Valkey had died and was started again"
    assert len(servers(queue)) == 1 and keeper.look() is None


def test_a_live_server_that_says_nothing_is_named(queue: Path) -> None:
    redis.start(queue)
    [pid] = servers(queue)
    with stopped(pid), pytest.raises(TimeoutError, match=f"process {pid}"):
        redis.start(queue, timeout_s=1)
    assert servers(queue) == [pid]


def test_a_cluster_that_another_starter_makes_is_waited_for_however_long_that_takes(data: Path) -> None:
    """Of three commands on a fresh checkout of a busy machine two ended: the third was still making the cluster after 60 s."""
    server = postgres.Postgres(data, durable=False)
    maker = take_lock(server.folder)
    assert maker is not None
    waiting = Start(server)
    waiting.heard -= 2 * waiting.silent_s
    assert not waiting.step()
    os.close(maker)                             # it was killed: who waited makes it
    wait(waiting)
    assert postgres.alive(data)


def test_a_start_that_was_begun_long_ago_is_listened_to_from_now_on(queue: Path) -> None:
    """Between the two a command imports its code, on a busy machine for longer than a server may be silent."""
    server = redis.Redis(queue)
    other = take_lock(server.folder)
    assert other is not None
    start = Start(server)
    assert not start.step()
    start.heard -= 2 * start.silent_s
    threading.Timer(0.2, os.close, [other]).start()
    wait(start)
    assert len(servers(queue)) == 1


def test_starters_that_race_for_a_killed_valkey_get_one(queue: Path) -> None:
    redis.start(queue)
    os.kill(servers(queue)[0], signal.SIGKILL)
    starters = [starter(queue) for _ in range(4)]
    assert all(each.wait(60) == 0 for each in starters)
    assert len(servers(queue)) == 1 and client_of(queue).ping()


def spoil(queue: Path, part: str) -> None:
    [path] = (queue / "appendonlydir").glob(f"*{part}")
    stored = path.read_bytes()
    path.write_bytes(stored[:len(stored) // 2] + b"*3\r\nof another server\r\n" + stored[len(stored) // 2:])


@pytest.mark.parametrize("part", [".incr.aof", ".manifest", pytest.param(".base.rdb", marks=pytest.mark.deep_only)])
def test_a_damaged_file_of_valkey_is_set_aside(queue: Path, caplog: pytest.LogCaptureFixture, part: str) -> None:
    redis.start(queue)
    client_of(queue).rpush("queue", *range(100))
    redis.stop(queue)
    spoil(queue, part)
    with caplog.at_level(logging.WARNING, "webapp.embedded"):
        redis.start(queue)
    assert client_of(queue).llen("queue") == 0 and client_of(queue).rpush("queue", 1) == 1
    [kept] = queue.glob("appendonlydir.damaged-*")
    assert list(kept.glob(f"*{part}"))
    [said] = [record.getMessage() for record in caplog.records if record.name.startswith("webapp.")]
    assert "set aside as appendonlydir.damaged-" in said and "\n" not in said


def test_a_torn_end_is_cut_off_and_the_rest_kept(queue: Path) -> None:
    redis.start(queue)
    for n in range(100):
        client_of(queue).rpush("queue", n)
    redis.stop(queue)
    [path] = (queue / "appendonlydir").glob("*.incr.aof")
    path.write_bytes(path.read_bytes()[:-5])
    redis.start(queue)
    assert client_of(queue).llen("queue") == 99 and not list(queue.glob("*.damaged-*"))


def test_what_valkey_stored_stays_where_something_else_keeps_it_from_starting(
        queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redis.start(queue)
    client_of(queue).rpush("queue", *range(100))
    redis.stop(queue)
    broken = tmp_path / "valkey-server"
    broken.write_text("#!/bin/sh\necho 'ERROR cannot load a library'; exit 1\n")
    broken.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("RIDGEPOINT_REDIS_BIN", str(broken))
        with pytest.raises(CannotStart, match="cannot load a library"):
            redis.start(queue, ending_s=0.2)
    redis.start(queue)
    assert client_of(queue).llen("queue") == 100 and not list(queue.glob("*.damaged-*"))


def test_postgres_that_cannot_start_is_tried_with_a_growing_pause(data: Path) -> None:
    postgres.start(data, durable=False)
    postgres.stop(data)
    with open(data / "postgresql.conf", "a") as settings:
        settings.write("nonsense = 1\n")
    before = time.monotonic()
    with pytest.raises(CannotStart, match='unrecognized configuration parameter "nonsense"'):
        postgres.start(data, ending_s=2)
    took_s = time.monotonic() - before
    tries = (data.parent / "postgres.log").read_text().count('unrecognized configuration parameter "nonsense"')
    assert 2 <= tries <= 6 and took_s > 1.5     # after 0, 0.1, 0.3, 0.7, 1.5, 3.1 s


def test_a_killed_postgres_comes_back_while_a_query_of_it_goes_on(data: Path) -> None:
    url = postgres.start(data, durable=False)

    def compute() -> None:
        with contextlib.suppress(psycopg.Error), psycopg.connect(url) as connection:
            connection.execute("SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b")

    threading.Thread(target=compute, daemon=True).start()
    active = "SELECT query FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%generate_series%'"
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: connection.execute(active).fetchone() is not None)
    pid = postgres.alive(data)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: postgres.alive(data) is None)
    with psycopg.connect(postgres.start(data, durable=False, timeout_s=20)) as connection:
        assert connection.execute(active).fetchone() is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 96 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if not mount or subprocess.run([mount, "-t", "tmpfs", "-o", "size=96m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("no small disk: mounting needs root with CAP_SYS_ADMIN")
    try:
        yield folder
    finally:
        redis.stop(folder / "redis")
        postgres.stop(folder / "pg" / "data")
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> Path:
    """Take all that is left of a disk."""
    path = folder / "filling"
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return path


def test_a_full_disk_under_valkey(small_disk: Path) -> None:
    folder = small_disk / "redis"
    redis.start(folder)
    [pid] = servers(folder)
    client = client_of(folder)
    client.rpush("queue", *range(100))
    filling = fill(small_disk)
    with pytest.raises(redis_client.ResponseError, match="MISCONF"):
        for _ in range(200):
            client.set("more", bytes(20_000))
            time.sleep(0.01)
    assert not redis.ping(redis.socket_path(folder))        # refused as well
    redis.start(folder)
    assert ensure.Keeper(redis.Redis(folder), print).look() is None
    assert servers(folder) == [pid] and client.llen("queue") == 100
    os.kill(pid, signal.SIGKILL)
    until(lambda: servers(folder) == [])
    filling.unlink()
    redis.start(folder)
    assert client_of(folder).llen("queue") == 100 and client_of(folder).set("more", 1)


def test_a_full_disk_under_postgres(small_disk: Path) -> None:
    data = small_disk / "pg" / "data"
    postgres.start(data, durable=False)
    postgres.stop(data)
    filling = fill(small_disk)
    with pytest.raises(CannotStart, match=r"tried [2-6] times.*no space left on the disk"):
        postgres.start(data, ending_s=2)
    filling.unlink()
    with psycopg.connect(postgres.start(data, durable=False)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def until(holds: Callable[[], bool], within_s: float = 20) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
