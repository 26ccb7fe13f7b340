"""What a command behind walls cannot do, tried by commands that want to. Each runs under limits that this machine survives."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.workers.core import hostile
from workers.core import sandboxed
from workers.core.sandboxed import Bounds, Ending

pytestmark = [pytest.mark.process,
              pytest.mark.skipif(bool(sandboxed.why_not()), reason=f"no sandbox here: {sandboxed.why_not()}")]
SMALL = Bounds(wall_s=20, cpu_s=20, memory_mb=512, data_mb=256, processes=48, room_mb=32, files=200, file_mb=16, said_bytes=1 << 20)
SECRET = "a secret of this installation"


def tried(code: str, bounds: Bounds = SMALL, given: bytes = b"", **more: Any) -> tuple[Ending, list[str]]:
    lines: list[str] = []
    ending = sandboxed.run([sys.executable, "-c", code], given, bounds=bounds,
                           on_line=lambda line: lines.append(line.decode()), **more)
    return ending, lines


def running(mark: str) -> list[str]:
    found = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            command = Path("/proc", entry, "cmdline").read_text()
        except OSError:
            continue
        found += [entry] if mark in command and entry != str(os.getpid()) else []
    return found


def test_what_leaves_by_itself_says_what_it_was_given() -> None:
    ending, lines = tried("import sys; print(sys.stdin.read().upper()); sys.exit(3)", given=b"word\nword")
    assert (ending.why, ending.status, lines) == ("", 3, ["WORD", "WORD"])


def test_packages_of_another_environment_are_seen_and_nothing_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path file of a virtual environment names them: torch of the machine, say."""
    packages = tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    for path in (packages / "theirs.py", tmp_path / "lib" / "secret.py"):
        path.write_text("NUMBER = 7\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages), str(tmp_path / "lib")])
    code = f"""
import os, sys
sys.path.append({str(packages)!r})
import theirs
print(theirs.NUMBER, os.listdir({str(packages.parent)!r}))
"""
    ending, lines = tried(code)
    assert (ending.why, ending.status, lines) == ("", 0, ["7 ['site-packages']"]), ending.said


def test_a_fork_bomb_stays_within_its_bounds_and_leaves_nothing() -> None:
    mark = "bomb-of-this-test"
    code = hostile.bomb(mark)
    most = 0

    def look() -> bool:
        nonlocal most
        most = max(most, len(running(mark)))
        return False

    ending, _ = tried(code, Bounds(**{**vars(SMALL), "wall_s": 3}), is_over=look)
    assert ending.why == "it took longer than 3 s"
    assert 10 < most <= SMALL.processes + 4
    until = time.monotonic() + 10
    while running(mark):
        assert time.monotonic() < until
        time.sleep(0.1)


def test_nobody_can_be_connected_to(tmp_path: Path) -> None:
    asked: list[Any] = []
    servers = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
    servers[1].bind(str(tmp_path / "socket"))
    servers[2].bind("\0ridgepoint-test-command")
    for server in servers:
        server.listen()
        threading.Thread(target=lambda server=server: asked.append(server.accept()), daemon=True).start()
    port = servers[0].getsockname()[1]
    _, lines = tried(hostile.connect(port, tmp_path / "socket", "ridgepoint-test-command"))
    for server in servers:
        server.close()
    assert {line.split()[1] for line in lines} == {"refused"} and len(lines) == 8 and not asked


def test_no_secret_is_to_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret_key").write_text(SECRET)
    monkeypatch.setenv("DATABASE_URL", f"postgres://{SECRET}")
    monkeypatch.setenv("RIDGEPOINT_SECRET_KEY", SECRET)
    ending, lines = tried(hostile.look(tmp_path, tmp_path / "secret_key"))
    said = "\n".join(lines)
    assert ending.why == "" and len(lines) > 12
    assert SECRET not in said and "DATABASE_URL" not in said and "REDIS" not in said
    assert "['.venv']" in said or "bin" in said
    assert "secret_key False" in said and "/etc/shadow False" in said and "manage.py" not in said
    assert [line.split()[0] for line in lines if line[0].isdecimal()] == ["1"]           # no process but its own


def test_nothing_outside_is_written_and_no_right_is_had(tmp_path: Path) -> None:
    _, lines = tried(hostile.write(tmp_path))
    assert len(lines) == 22
    root_in_its_own_namespace = {"root done", "uid root"} if os.getuid() else set()      # a number without a right
    assert [line for line in lines if not line.endswith("refused") and line not in root_in_its_own_namespace] == []


@pytest.mark.parametrize("code", [
    "open('large', 'wb').write(bytes(1 << 30))",
    "import os\nfor at in range(100):\n    open(f'{at}', 'wb').write(bytes(4 << 20))",
    "for at in range(10_000):\n    open(f'{at}', 'w')",
    "import os\nos.truncate(os.open('sparse', os.O_CREAT | os.O_RDWR), 1 << 40)",
])
def test_the_disk_is_not_filled(code: str) -> None:
    ending, _ = tried(code)
    assert ending.why == "" and ending.status != 0
    assert "Error" in ending.said or ending.status == 153        # SIGXFSZ


def test_gigabytes_of_memory_are_refused_to_one_process() -> None:
    ending, lines = tried("""
try:
    bytearray(1 << 30)
    print("had")
except MemoryError:
    print("refused")
""")
    assert (ending.why, lines) == ("", ["refused"])


def test_gigabytes_of_memory_are_refused_to_all_together() -> None:
    ending, _ = tried("""
import os, time
for _ in range(8):
    if not os.fork():
        held = bytearray(150 << 20)
        time.sleep(60)
time.sleep(60)
""")
    assert ending.why == "it needs more memory than 512 MiB"


@pytest.mark.parametrize(("code", "name"), [
    ("import os; fd = os.memfd_create('x'); os.write(fd, bytes(1 << 20)); print('had')", "memory without a process"),
    ("import ctypes; print('had' if ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600) >= 0 else 'refused')", "shared memory"),
])
def test_memory_that_no_process_is_counted_for_is_not_given(code: str, name: str) -> None:
    _, lines = tried(code)
    assert "had" not in lines, name


def test_shared_memory_of_no_file_is_not_given_without_a_gpu_and_counted_with_one() -> None:
    ending, lines = tried(hostile.SHARED)
    assert lines == [] and "PermissionError" in ending.said
    ending, lines = tried("import mmap\nmmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nprint('had')")
    assert lines == ["had"]
    ending, _ = tried(hostile.SHARED, devices=[Path("/dev/tty")])         # any node does
    assert ending.why == "it needs more memory than 512 MiB"
    ending, _ = tried(hostile.SHARED, walls=False)
    assert ending.why == "it needs more memory than 512 MiB"


def test_what_forks_share_is_counted_once_and_what_each_makes_its_own_for_each() -> None:
    code = """
import os, time
held = bytearray(b"x") * (150 << 20)
for each in range(5):
    if not os.fork():
        {}
        time.sleep({})
        os._exit(0)
for each in range(5):
    os.wait()
print("all")
"""
    assert tried(code.format("pass", 0.5)) == (Ending("", 0), ["all"])                    # 900 MiB, were it counted for each
    ending, lines = tried(code.format("held[::4096] = bytes(len(held) // 4096)", 10))
    assert (ending.why, lines) == ("it needs more memory than 512 MiB", [])


def test_printing_gigabytes_ends_it() -> None:
    for stream in ("stdout", "stderr"):
        began_s = time.monotonic()
        ending, _ = tried(f"import sys\nwhile True: sys.{stream}.write('x' * 10000 + '\\n')")
        assert ending.why == "it printed more than 1 MiB" and time.monotonic() - began_s < SMALL.wall_s


def test_who_reads_nothing_and_never_ends_is_ended() -> None:
    ending, _ = tried("while True: pass", Bounds(**{**vars(SMALL), "wall_s": 1.5}), given=bytes(1 << 20))
    assert ending.why == "it took longer than 2 s"
    ending, _ = tried("while True: pass", Bounds(**{**vars(SMALL), "cpu_s": 1}))
    assert ending.why == "" and ending.status == 137             # SIGKILL by RLIMIT_CPU


def test_a_stop_ends_it_at_once() -> None:
    began_s = time.monotonic()
    ending, _ = tried("import time; time.sleep(60)", is_over=lambda: time.monotonic() - began_s > 0.5)
    assert ending.why == "stopped" and time.monotonic() - began_s < SMALL.wall_s


def test_only_devices_that_are_named_are_opened() -> None:
    code = hostile.DEVICES
    _, lines = tried(code)
    assert lines == ["['full', 'null', 'random', 'shm', 'urandom']", "null opened", *(
        f"{name} refused" for name in ("zero", "tty", "mem", "kvm", "fuse"))]
    node = Path("/dev/tty")         # any node does: it is there, and whether it opens is its driver's affair
    _, lines = tried(code, devices=[node])
    assert "'tty'" in lines[0] and lines[4:] == ["mem refused", "kvm refused", "fuse refused"]
    for wrong in (Path("/etc/passwd"), Path("/dev/../etc/passwd"), Path("/dev/no-such"), Path("/dev")):
        ending, _ = tried("print('ran')", devices=[wrong])
        assert "is no device below /dev" in ending.why, ending


def test_of_proc_a_process_writes_its_own_alone_and_only_with_a_device() -> None:
    code = hostile.PROC
    _, lines = tried(code)
    assert lines == ["name False", "True []", "made False False False"]
    _, lines = tried(code, devices=[Path("/dev/tty")])
    assert lines == ["name True", "True []", "made False False False"]


def test_its_folder_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed.tempfile, "tempdir", str(tmp_path))
    tried("open('left', 'w').write('x')")
    assert list(tmp_path.iterdir()) == []


def test_where_the_host_refuses_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed, "INSIDE", Path(__file__).parent / "no_sandbox.py")
    ending, _ = tried("print('ran')")
    assert ending.why == "this host lets no sandbox be made: unshare: Operation not permitted"


def test_without_walls_the_limits_hold() -> None:
    code = "import os\ntry:\n    bytearray(1 << 30)\nexcept MemoryError:\n    print(sorted(os.environ))"
    ending, lines = tried(code, walls=False)
    assert ending.why == "" and lines and "DATABASE_URL" not in lines[0]
