"""Forks of a warm parent behind walls: what a command cannot do there, a fork cannot either, and it has no secret in its memory."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.product import PROJECT
from tests.workers.core import hostile
from workers.core import sandboxed, warm
from workers.core.child import ChildDied, ChildHung
from workers.core.sandboxed import Bounds
from workers.core.walled import WalledChild, Walls

pytestmark = [pytest.mark.process,
              pytest.mark.skipif(bool(sandboxed.why_not()), reason=f"no sandbox here: {sandboxed.why_not()}")]
SMALL = Bounds(cpu_s=20, memory_mb=512, data_mb=256, processes=48, room_mb=32, files=200, file_mb=16)
SECRET = "a secret of this worker's variables"
CODE, FAKE = "tests.workers.core.code_child", "tests.workers.core.fake_child"
GIVEN = {"PYTHONPATH": str(PROJECT)}
READ = (*sandboxed.OURS, PROJECT / "tests")
PARENT = "tests.workers.core.walled_parent"


def base(**more: str) -> dict[str, str]:
    """Return the variables of a parent: see workers.tune.own.warm_environ."""
    given = {**sandboxed.spec_of([], Path("/sandbox"), environ=GIVEN)["env"], **more}
    return {name: value for name, value in given.items() if name != "TMPDIR"}


@pytest.fixture(scope="module")
def keeper() -> Iterator[warm.Keeper]:
    """A parent as a worker keeps it, whose own variables hold a secret."""
    os.environ["DATABASE_URL"] = SECRET
    keeper = warm.Keeper(base(), module=PARENT)
    warm.keep(keeper, walled=True)
    keeper.tend()
    yield keeper
    warm.keep(None, walled=True)
    keeper.close()
    del os.environ["DATABASE_URL"]


def fork(module: str = CODE, *, bounds: Bounds = SMALL, write: tuple[Path, ...] = (), devices: tuple[Path, ...] = (),
         **environ: str) -> WalledChild:
    child = Walls(READ, write, devices, GIVEN, bounds).spawn(module, environ)
    assert isinstance(child.process, warm.ForkedProcess)
    return child


def run(code: str, **walls: Any) -> list[str]:
    child = fork(**walls)
    try:
        answer = child.ask({"do": "run", "code": code}, 20.0, threading.Event())
        assert "ok" in answer, answer
        lines: list[str] = answer["ok"]
        return lines
    finally:
        child.close()


def test_a_fork_sees_no_file_no_variable_and_no_process_of_the_worker(keeper: warm.Keeper, tmp_path: Path) -> None:
    (tmp_path / "secret_key").write_text(SECRET)
    lines = run(hostile.look(tmp_path, tmp_path / "secret_key"))
    said = "\n".join(lines)
    assert SECRET not in said and "DATABASE_URL" not in said and "REDIS" not in said and "manage.py" not in said
    assert "secret_key False" in said and "/etc/shadow False" in said
    assert [line.split()[0] for line in lines if line[0].isdecimal()] == ["1"]           # no process but its own


def test_a_fork_has_no_secret_in_its_memory(keeper: warm.Keeper) -> None:
    assert run(hostile.search_memory(SECRET)) == ["looked nothing"]
    assert run(hostile.search_memory(SECRET), CUDA_VISIBLE_DEVICES=SECRET) == ["looked found"]        # of what it is given it is


def test_a_fork_keeps_its_two_pipes_and_no_other_way_to_the_worker(keeper: warm.Keeper) -> None:
    others = [fork(), fork()]
    lines = run("""
import os
for number in sorted(map(int, os.listdir("/proc/self/fd"))):
    if os.path.lexists(f"/proc/self/fd/{number}"):              # the list's own is closed by now
        print(number, os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
""")
    for other in others:
        other.close()
    kinds = [line.split(maxsplit=1) for line in lines]
    assert [number for number, _ in kinds[:3]] == ["0", "1", "2"] and kinds[0][1] == "/dev/null" and kinds[1][1] == kinds[2][1]
    assert kinds[1][1].endswith("(deleted)") and [kind for _, kind in kinds[3:]] == ["pipe", "pipe"]


def test_a_fork_reaches_nobody(keeper: warm.Keeper, tmp_path: Path) -> None:
    asked: list[Any] = []
    servers = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    servers[1].bind(str(tmp_path / "socket"))
    servers[2].bind("\0ridgepoint-test-fork")
    for server in servers:
        server.listen()
        threading.Thread(target=lambda server=server: asked.append(server.accept()), daemon=True).start()
    lines = run(hostile.connect(servers[0].getsockname()[1], tmp_path / "socket", "ridgepoint-test-fork"))
    for server in servers:
        server.close()
    assert {line.split()[1] for line in lines} == {"refused"} and len(lines) == 8 and not asked


def test_a_fork_writes_nothing_outside_and_has_no_right(keeper: warm.Keeper, tmp_path: Path) -> None:
    lines = run(hostile.write(tmp_path))
    root_in_its_own_namespace = {"root done", "uid root"} if os.getuid() else set()      # a number without a right
    assert len(lines) == 22
    assert [line for line in lines if not line.endswith("refused") and line not in root_in_its_own_namespace] == []


def test_a_fork_opens_the_devices_that_are_named_and_names_its_threads_with_one(keeper: warm.Keeper) -> None:
    assert run(hostile.DEVICES) == ["['full', 'null', 'random', 'shm', 'urandom']", "null opened", *(
        f"{name} refused" for name in ("zero", "tty", "mem", "kvm", "fuse"))]
    assert run(hostile.PROC) == ["name False", "True []", "made False False False"]
    assert run(hostile.PROC, devices=(Path("/dev/tty"),)) == ["name True", "True []", "made False False False"]


def test_a_fork_gets_no_more_memory_than_its_bounds(keeper: warm.Keeper) -> None:
    assert run("try:\n    bytearray(1 << 30)\n    print('had')\nexcept MemoryError:\n    print('refused')") == ["refused"]
    assert run("import ctypes; print('had' if ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600) >= 0 else 'refused')") == ["refused"]
    child = fork(devices=(Path("/dev/tty"),))
    try:
        with pytest.raises(ChildDied, match="was ended: it needs more memory than 512 MiB"):
            child.ask({"do": "run", "code": hostile.SHARED}, 20.0, threading.Event())
    finally:
        child.close()


def test_a_fork_bomb_ends_with_who_asked(keeper: warm.Keeper) -> None:
    child = fork()
    with pytest.raises(ChildHung):
        child.ask({"do": "run", "code": hostile.bomb("x")}, 1.0, threading.Event())
    child.close()
    gone(child.process.pid)
    child = fork(FAKE)                                      # and harms no other
    assert child.ask({"do": "run", "config": {"do": "fine"}, "seed": 1}, 20.0, threading.Event())["ok"]["median_ms"] == 1.0
    child.close()


def test_a_fork_ends_with_the_worker_and_with_its_parent(keeper: warm.Keeper) -> None:
    first = fork()
    below = sandboxed._processes_below(first.process.pid)
    assert len(below) == 2                                  # the one outside, which waits, and the one behind the walls
    first.process.close()                                   # as where the process of a task is killed
    gone(*below)
    lone = warm.Keeper(base(), module=PARENT)
    warm.keep(lone, walled=True)
    try:
        lone.tend()
        second = fork()
        below = sandboxed._processes_below(second.process.pid)
        assert lone.parent is not None
        os.kill(lone.parent.process.pid, signal.SIGKILL)
        gone(*below)
        second.close()
    finally:
        warm.keep(keeper, walled=True)
        lone.close()


def test_a_parent_whose_memory_its_forks_could_write_forks_none(caplog: pytest.LogCaptureFixture, keeper: warm.Keeper) -> None:
    lone = warm.Keeper(base(SHARES="1"), module=PARENT)
    warm.keep(lone, walled=True)
    try:
        lone.tend()
        walls = Walls(READ, environ={**GIVEN, "SHARES": "1"}, bounds=SMALL)
        child = walls.spawn(FAKE, {})
        assert not isinstance(child.process, warm.ForkedProcess) and "shares memory with its parent" in caplog.text
        assert child.ask({"do": "open", "shape": {}}, 20.0, threading.Event())["ok"]["gpu"]        # a new process
        child.close()
    finally:
        warm.keep(keeper, walled=True)
        lone.close()


def test_a_parent_that_is_not_made_for_walls_builds_none(caplog: pytest.LogCaptureFixture, keeper: warm.Keeper) -> None:
    lone = warm.Keeper(base(), module="tests.workers.tune.holding_parent")
    warm.keep(lone, walled=True)
    try:
        lone.tend()
        child = Walls(READ, environ=GIVEN, bounds=SMALL).spawn(FAKE, {})
        assert not isinstance(child.process, warm.ForkedProcess) and "builds no walls" in caplog.text
        child.close()
    finally:
        warm.keep(keeper, walled=True)
        lone.close()


def gone(*pids: int) -> None:
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.02)
