"""The private servers under bad luck: killed, raced for, in deep folders, owned by another identity."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis as redis_client

from webapp.embedded import postgres, redis
from webapp.embedded.secret import secret_key

pytestmark = pytest.mark.process

START = ("import sys; from pathlib import Path; from webapp.embedded import postgres; "
         "print(postgres.start(Path(sys.argv[1]), durable=False))")


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "pg" / "data"
    yield folder
    postgres.stop(folder)


def one(url: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT 1").fetchone()
        assert row is not None
        return row[0]


def test_it_starts_once_and_stops(data: Path) -> None:
    url = postgres.start(data, durable=False)
    assert one(url) == 1
    pid = postgres.alive(data)
    assert postgres.start(data, durable=False) == url and postgres.alive(data) == pid
    postgres.stop(data)
    assert postgres.alive(data) is None
    with pytest.raises(psycopg.OperationalError):
        one(url)


def test_committed_rows_survive_a_kill(data: Path) -> None:
    url = postgres.start(data)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (7)")
        connection.commit()
    pid = postgres.alive(data)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)        # our own child: it stays a zombie until it is reaped
    time.sleep(0.2)
    assert postgres.alive(data) is None
    with psycopg.connect(postgres.start(data)) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (7,)


def test_a_stale_pid_file_that_names_a_living_stranger(data: Path) -> None:
    postgres.start(data, durable=False)
    pid = postgres.alive(data)
    assert pid is not None
    text = (data / "postmaster.pid").read_text()
    postgres.stop(data)
    (data / "postmaster.pid").write_text(text.replace(str(pid), str(os.getpid()), 1))
    assert postgres.alive(data) is None
    assert one(postgres.start(data, durable=False)) == 1


def test_starters_that_race_get_one_server(data: Path) -> None:
    starters = [subprocess.Popen([sys.executable, "-c", START, str(data)], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    urls = {starter.communicate(timeout=60)[0].strip() for starter in starters}
    assert len(urls) == 1 and one(urls.pop()) == 1


def test_a_half_made_cluster_is_made_again(data: Path) -> None:
    unfinished = data.with_name("data.init")
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18")
    assert one(postgres.start(data, durable=False)) == 1


def test_a_folder_too_deep_for_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    url = postgres.start(deep / "pg" / "data", durable=False)
    queue = redis.start(deep / "redis")
    try:
        assert one(url) == 1 and redis_client.Redis.from_url(queue).ping()
    finally:
        postgres.stop(deep / "pg" / "data")
        redis.stop(deep / "redis")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another identity")
def test_as_root_without_user_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGEPOINT_PG_ROOT_MODE", "nobody")
    with tempfile.TemporaryDirectory(prefix="rp-nobody-") as name:
        os.chmod(name, 0o755)       # pytest's own folders are closed to others
        folder = Path(name) / "pg" / "data"
        assert one(postgres.start(folder, durable=False)) == 1
        pid = postgres.alive(folder)
        assert Path(f"/proc/{pid}").stat().st_uid != 0
        postgres.stop(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another identity")
def test_as_root_in_a_closed_home(tmp_path: Path) -> None:
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    folder = closed / "pg" / "data"
    assert one(postgres.start(folder, durable=False)) == 1
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    postgres.stop(folder)


def test_redis_keeps_its_queue_over_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    client = redis_client.Redis.from_url(redis.start(folder))
    client.rpush("queue", *range(100))
    time.sleep(1.2)         # the log is synced every second
    os.kill(int((folder / "redis.pid").read_text()), signal.SIGKILL)
    time.sleep(0.2)
    client = redis_client.Redis.from_url(redis.start(folder))
    assert client.llen("queue") == 100
    redis.stop(folder)
    assert not redis.ping(redis.socket_path(folder))


def test_the_secret_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    key = secret_key(tmp_path)
    assert len(key) > 50 and secret_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600
