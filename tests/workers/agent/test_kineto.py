"""Kineto's datagrams, and a capture of a real torch job armed through them, uploaded with its tags, within its budgets."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.agent.server import Server, serve
from workers.agent.deep.captures import LEAST_LEAD_S, Budget, Captures
from workers.agent.deep.kineto import FORGET_S, HEADER, KinetoDaemon, capture_config, written_path
from workers.agent.send import Sender, Spool

TORCH_JOB = """
import time, torch
a, end = torch.randn(64, 64), time.time() + 300
while time.time() < end:
    a = torch.tanh(a @ a)
    time.sleep(0.001)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as own:
        yield own


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[KinetoDaemon]:
    own = KinetoDaemon({}, f"\0dynolog-{os.getpid()}\0")
    yield own
    own.close()


def question(pid: int, job: int = 7) -> bytes:
    return HEADER.pack(40, b"req") + struct.pack("<iiq", 3, 2, job) + struct.pack("<2i", pid, 1)


def captures_of(daemon: KinetoDaemon, tmp_path: Path, server: Server, budget: Budget | None = None) -> Captures:
    return Captures(daemon, tmp_path / "captures", Sender(Spool(tmp_path / "spool"), server.address, lambda: "secret").post, budget)


def test_a_question_is_answered_with_an_order_once(daemon: KinetoDaemon) -> None:
    assert not daemon.arm(42, "A=1\n")                          # it never asked
    assert daemon.answer(question(42), 0.0) == HEADER.pack(0, b"req")
    daemon.processes[42].seen_s = time.monotonic()
    assert daemon.arm(42, "A=1\n") and not daemon.arm(42, "B=1\n")
    assert daemon.answer(question(42)) == HEADER.pack(4, b"req") + b"A=1\n"
    assert daemon.answer(question(42)) == HEADER.pack(0, b"req")
    assert daemon.answer(HEADER.pack(16, b"ctxt") + struct.pack("<iiq", 1, 42, 7)) == HEADER.pack(4, b"ctxt") + struct.pack("<i", 1)
    daemon.forget(time.monotonic() + FORGET_S + 1)
    assert not daemon.processes


@pytest.mark.parametrize("datagram", [b"", b"x" * 39, HEADER.pack(0, b"req"), HEADER.pack(0, b"other") + bytes(64),
                                      HEADER.pack(0, b"req") + struct.pack("<iiq", 3, 2**30, 7) + bytes(8),
                                      HEADER.pack(0, b"req") + struct.pack("<iiq", 3, -1, 7) + bytes(8)])
def test_what_is_no_question_has_no_answer(daemon: KinetoDaemon, datagram: bytes) -> None:
    assert daemon.answer(datagram) is None and not daemon.processes


def test_where_another_daemon_listens_captures_are_its(daemon: KinetoDaemon) -> None:
    second = KinetoDaemon({}, f"\0dynolog-{os.getpid()}\0")
    assert second.socket is None and "dynolog" in second.why
    second.poll()
    second.close()


def test_configurations_say_steps_or_time() -> None:
    assert "ACTIVITIES_ITERATIONS=3" in capture_config("/t/a.json", "r", steps=3)
    assert "ACTIVITIES_DURATION_MSECS=500" in capture_config("/t/a.json", "r")
    assert written_path("/t/a.json", 42) == Path("/t/a_42.json")


@pytest.mark.parametrize(("left_s", "warm_up_s"), [(22, 5), (11.6, 5), (9.6, 3), (3, 0), (-1, 0)])
def test_a_moment_leaves_as_much_warm_up_as_there_is_time(daemon: KinetoDaemon, left_s: float, warm_up_s: int) -> None:
    """An answer may be read with the next question only, 5 s later, and Kineto's warm-up has to fit after that."""
    config = capture_config("/t/a.json", "r", start_ms=int((time.time() + left_s) * 1e3))
    daemon.answer(question(42))
    assert daemon.arm(42, config) and "WARMUP" not in config
    answer = daemon.answer(question(42))
    assert answer is not None and answer.decode().endswith(f"\nACTIVITIES_WARMUP_PERIOD_SECS={warm_up_s}\n")
    assert HEADER.unpack_from(answer)[0] == len(answer) - HEADER.size
    assert daemon.arm(42, capture_config("/t/a.json", "r")) and b"WARMUP" not in (daemon.answer(question(42)) or b"")


def test_an_order_that_is_taken_after_its_moment_has_failed_at_once(daemon: KinetoDaemon, tmp_path: Path, server: Server,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    captures = captures_of(daemon, tmp_path, server)
    daemon.answer(question(42))
    assert captures.ask(42, {"job": "a"}, start_ms=int((time.time() + LEAST_LEAD_S + 1) * 1e3)) == ""
    captures.poll()
    assert captures.every[0].state == "asked"
    later_s = time.time() + LEAST_LEAD_S + 2
    monkeypatch.setattr(time, "time", lambda: later_s)
    daemon.answer(question(42))
    captures.poll()
    assert (captures.every[0].state, captures.every[0].why) == (
        "failed", "it took the order after the moment at which all were to begin")


def test_budgets_of_job_and_host_hold_over_restarts(daemon: KinetoDaemon, tmp_path: Path, server: Server) -> None:
    budget = Budget(per_job_day=1, per_host_day=2, longest_s=0.0)
    captures = captures_of(daemon, tmp_path, server, budget)
    for pid in (1, 2, 3):
        daemon.answer(question(pid))
    assert "asks for no captures" in captures.ask(99, {"job": "a"})
    assert captures.ask(1, {"job": "a"}) == "" and "under way" in captures.ask(2, {"job": "b"})
    captures.poll()
    assert captures.every[0].state == "failed" and "no trace within" in captures.every[0].why and not daemon.processes[1].orders
    captures = captures_of(daemon, tmp_path, server, budget)
    assert "the job made its 1" in captures.ask(2, {"job": "a"})
    assert captures.ask(2, {"job": "b"}) == ""
    captures.poll()
    assert "this host made its 2" in captures.ask(3, {"job": "c"})


@pytest.mark.deep_only          # capture/test_running.py, running/test_hosts.py
@pytest.mark.process
@pytest.mark.slow
def test_a_real_job_is_captured_and_its_trace_arrives(tmp_path: Path, server: Server) -> None:
    """Ordered right after it asked, for the nearest moment that is taken: Kineto has the order 3 s before that.

    On a machine so busy that the answer is 50 ms late, Kineto reads it after the moment: then it is ordered once more.
    """
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    folder = tempfile.mkdtemp(prefix="rp", dir="/tmp")          # short: Kineto's own socket beside has 50 characters more
    environ = {**os.environ, "KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": folder,
               "KINETO_ONDEMAND_TRACE_DIR": str(tmp_path / "captures"), "OMP_NUM_THREADS": "1"}
    daemon = KinetoDaemon(environ)
    captures = captures_of(daemon, tmp_path, server, Budget(longest_s=15))
    child = subprocess.Popen([sys.executable, "-c", TORCH_JOB], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 150
        while time.monotonic() < end and not server.uploads:
            daemon.poll()
            asking = daemon.processes.get(child.pid)
            if asking is not None and asking.ancestors and len(captures.every) < 4 and all(
                    each.state == "failed" for each in captures.every) and time.monotonic() - asking.seen_s < 0.1:
                assert captures.ask(child.pid, {"job": "tanh, loop", "host": "host-1", "rank": 0}, steps=0, milliseconds=2000,
                                    start_ms=int((time.time() + LEAST_LEAD_S) * 1e3) + 100) == ""
            captures.poll()
            time.sleep(0.005)
    finally:
        child.kill()
        child.wait()
        daemon.close()
        shutil.rmtree(folder)
    assert server.uploads, [(each.state, each.why) for each in captures.every]
    assert captures.every[-1].start_ms / 1e3 - captures.every[-1].picked_s < 4.5         # less than Kineto's own warm-up
    (body,) = server.uploads
    assert b"fleet,deep,job:tanh__loop,host:host-1" in body and b"Deep capture" in body
    trace = json.loads(gzip.decompress(body[body.index(b"\x1f\x8b"):body.rindex(b"\r\n--")]))
    names = {event.get("name") for event in trace["traceEvents"]}
    assert "aten::tanh" in names and "aten::mm" in names


def test_the_socket_folder_is_made_for_jobs_of_anyone_and_what_keeps_it_is_said(tmp_path: Path) -> None:
    folder = tempfile.mkdtemp(prefix="rp", dir="/tmp")
    try:
        own = KinetoDaemon({"KINETO_IPC_SOCKET_DIR": f"{folder}/a/kineto"})
        assert own.why == "" and Path(folder, "a/kineto").stat().st_mode & 0o7777 == 0o1777
        own.close()
        Path(folder, "file").touch()
        own = KinetoDaemon({"KINETO_IPC_SOCKET_DIR": f"{folder}/file"})
        assert own.socket is None and f"no socket for captures at {folder}/file/dynolog" in own.why
    finally:
        shutil.rmtree(folder)
