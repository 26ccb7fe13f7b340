"""What is told of a process: its command line without secrets, its role, its pace before, during and after a capture."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.agent.deep.asking import Askers
from workers.agent.deep.captures import Captures
from workers.agent.deep.kineto import HEADER, KinetoDaemon
from workers.agent.deep.pace import BESIDE_S, Paces, seconds_of
from workers.agent.deep.processes import MOST_COMMAND, command_of, gpus_by_process, holds_gpu, masked, seen_from_here, trace_folder


@pytest.fixture
def daemon() -> Iterator[KinetoDaemon]:
    own = KinetoDaemon({}, f"\0processes-{os.getpid()}\0")
    yield own
    own.close()


def question(pid: int, *ancestors: int) -> bytes:
    pids = (pid, *ancestors)
    return HEADER.pack(40, b"req") + struct.pack("<iiq", 3, len(pids), 0) + struct.pack(f"<{len(pids)}i", *pids)


@pytest.mark.parametrize(("argv", "shown"), [
    (["python", "train.py", "--lr", "3"], "python train.py --lr 3"),
    (["x", "--hf-token", "abc", "--lr", "3"], "x --hf-token *** --lr 3"),
    (["x", "--api-key=abc", "--tokenizer", "llama", "--max-tokens", "9"], "x --api-key=*** --tokenizer llama --max-tokens 9"),
    (["x", "--db.password=a=b"], "x --db.password=***"),
    (["x", "HF_TOKEN=abc", "--token"], "x HF_TOKEN=*** --token"),
    (["x", "--key", "--lr"], "x --key --lr"),
    (["x", "https://me:abc@host/p?token=abc&b=2"], "x https://***@host/p?token=***&b=2"),
    (["curl", "-H", "Authorization: Bearer abc"], "curl -H Authorization: Bearer ***"),
    (["x", "hf_abcdefghij"], "x ***"),
    (["python", "-c", "import torch\n" * 40], "python -c import torch import torch import torch i…"),
])
def test_a_command_line_has_no_secrets(argv: list[str], shown: str) -> None:
    assert masked(argv) == shown


def test_a_command_line_is_bounded_and_of_one_line() -> None:
    long = masked(["x\ny"] + ["word"] * 1000)
    assert len(long) == MOST_COMMAND and long.startswith("x y word") and long.endswith("…")
    assert command_of(os.getpid()) and command_of(2**22 + 7) == ""


def test_who_holds_a_gpu_is_seen_by_its_open_files(tmp_path: Path) -> None:
    for pid, files in ((7, ["/dev/null", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"]),
                       (8, ["/dev/null", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"])):      # NVML was asked
        folder = tmp_path / str(pid) / "fd"
        folder.mkdir(parents=True)
        for number, name in enumerate(files):
            (folder / str(number)).symlink_to(name)
    assert [holds_gpu(pid, tmp_path) for pid in (7, 8, 9)] == [True, False, None]


def test_nvml_names_the_gpu_of_a_process_or_nothing() -> None:
    class Nvml:
        @staticmethod
        def nvmlDeviceGetComputeRunningProcesses(handle: str) -> list[Any]:
            if handle == "lost":
                raise RuntimeError("GPU is lost")
            return [type("Process", (), {"pid": 70})()]

    assert gpus_by_process(Nvml, [("GPU-0", "lost"), ("GPU-1", "here")]) == {70: "GPU-1"}


def test_the_trace_folder_is_what_the_process_was_started_with(tmp_path: Path) -> None:
    for pid, environ in ((7, b"A=1\0KINETO_ONDEMAND_TRACE_DIR=/traces\0"), (8, b"A=1\0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(environ)
    assert [trace_folder(pid, tmp_path) for pid in (7, 8, 9)] == ["/traces", "", None]


def test_a_file_of_a_container_is_found_under_its_root(tmp_path: Path) -> None:
    inside = tmp_path / "7" / "root" / "traces"
    inside.mkdir(parents=True)
    (inside / "a.json").write_text("{}")
    assert seen_from_here("/traces/a.json", 7, tmp_path) == inside / "a.json"
    assert seen_from_here("/traces/b.json", 7, tmp_path) == Path("/traces/b.json")


def test_the_kernel_says_who_asks_and_the_answer_finds_it(tmp_path: Path) -> None:
    folder = tempfile.mkdtemp(prefix="rp", dir="/tmp")
    own = KinetoDaemon({"KINETO_IPC_SOCKET_DIR": folder})
    code = ("import socket, sys\n"
            "link = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "link.bind(sys.argv[1] + '/client')\n"
            "link.settimeout(20)\n"
            "link.sendto(bytes.fromhex(sys.argv[2]), sys.argv[1] + '/dynolog')\n"
            "print(link.recv(100).hex(), flush=True)\n")
    child = subprocess.Popen([sys.executable, "-c", code, folder, question(1, 77).hex()], stdout=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 20
        while not own.processes and time.monotonic() < end:
            own.poll()
            time.sleep(0.01)
        (asking,) = own.processes.values()
        assert (asking.pid, asking.own_pid, asking.ancestors) == (child.pid, 1, (77,))       # it calls itself 1, as in a container
        assert child.communicate(timeout=20)[0].strip() == HEADER.pack(0, b"req").hex()
    finally:
        child.kill()
        own.close()
        for each in Path(folder).iterdir():
            each.unlink()
        Path(folder).rmdir()


def test_a_name_that_is_another_folder_in_the_container_is_answered_here() -> None:
    folder = tempfile.mkdtemp(prefix="rp", dir="/tmp")
    own = KinetoDaemon({"KINETO_IPC_SOCKET_DIR": folder})
    client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        client.bind(f"{folder}/client")
        client.setblocking(False)
        own._send(b"answer", "/mounted/elsewhere/client")
        assert client.recv(10) == b"answer"
        own._send(b"answer", "/mounted/elsewhere/nobody")           # it is gone
    finally:
        client.close()
        own.close()
        Path(folder, "client").unlink()
        Path(folder).rmdir()


def test_the_folder_that_a_job_names_is_made_for_it(daemon: KinetoDaemon, tmp_path: Path) -> None:
    named = tmp_path / "a" / "traces"
    child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, env={**os.environ, "KINETO_ONDEMAND_TRACE_DIR": str(named)})
    try:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        daemon.answer(question(child.pid))
        captures = Captures(daemon, tmp_path / "captures", lambda path, body, headers: b"")
        assert captures.ask(child.pid, {"job": "a"}) == "" and named.is_dir()
        assert captures.every[0].path.startswith(f"{named}/capture-")
        assert f"ACTIVITIES_LOG_FILE={named}/capture-" in daemon.processes[child.pid].orders[0]
        child.communicate("\n", timeout=20)
        captures.poll()
        assert captures.every[0].why == "the process ended"
    finally:
        child.kill()


def test_a_launcher_is_one_that_started_others_and_holds_no_gpu(daemon: KinetoDaemon, tmp_path: Path) -> None:
    for pids in ((100,), (201, 100, 1), (202, 100, 1)):
        daemon.answer(question(*pids))
    asking = Askers(daemon, Captures(daemon, tmp_path / "captures", lambda path, body, headers: b""), "host",
                    gpus=lambda: {201: "GPU-a"})
    told = {each["pid"]: (each["role"], each["gpu"]) for each in asking.state()["asking"]}
    assert told == {100: ("launcher", ""), 201: ("worker", "GPU-a"), 202: ("worker", "")}
    daemon.answer(HEADER.pack(16, b"ctxt") + struct.pack("<iiq", 3, 100, 0))        # a rank that starts others: GPU 3 is its own
    assert {each["pid"]: each["role"] for each in asking.state()["asking"]}[100] == "worker"


def moments(step_ms: float, seconds: float, begin_s: float) -> Any:
    return (begin_s * 1e9 + np.arange(0, seconds * 1e3, step_ms) * 1e6).astype(np.int64)


def test_seconds_hold_the_steps_that_ended_in_them() -> None:
    found = seconds_of(moments(10, 5, 1000))
    assert [at for at, _, _ in found] == [1000, 1001, 1002, 1003]
    assert found[1:] == [(1001, 100, pytest.approx(1000)), (1002, 100, pytest.approx(1000)), (1003, 100, pytest.approx(1000))]
    assert seconds_of(moments(10, 0.005, 1000)) == []


def test_what_a_capture_cost_is_its_steps_beside_those_before() -> None:
    now, paces, rng = time.time(), Paces(), np.random.default_rng(7)
    began, whole = int(now) - 60, int(now) - 50
    told = [(at, 100, 1000 * (1.5 if began <= at < whole else 1.0) * rng.normal(1, 0.01)) for at in range(began - 35, int(now))]
    for first in range(0, len(told), 10):
        paces.take(7, told[max(0, first - 50):first + 10])
    assert paces.is_complete(7, whole)
    cost = paces.cost(7, began, whole)
    low, middle, high = cost["during_pct"]
    assert low < 50 < high and abs(middle - 50) < 2 and cost["lost_s"] == pytest.approx(5, abs=0.3)
    assert abs(cost["after_pct"][1]) < 2 and cost["before_ms"][0] == pytest.approx(10, rel=0.01)


def test_a_cost_that_cannot_be_known_says_why() -> None:
    paces, now = Paces(), time.time()
    assert "RIDGEPOINT_AGENT=1" in paces.cost(7, now, now + 1)["why"]
    paces.take(7, [(int(now) - 3, 10, 100.0)])
    assert "too few seconds" in paces.cost(7, now - 2, now)["why"]
    assert not paces.is_complete(7, now - BESIDE_S)
    for nonsense in (None, 7, [7], [[1, 2]], [["x", 1, 1]], [[int(now), -1, 5]], [[int(now), 1, float("nan")]], [[10**30, 1, 1]]):
        paces.take(8, nonsense)
    assert "RIDGEPOINT_AGENT=1" in paces.cost(8, now, now)["why"]
    paces.forget([])
    assert paces._seconds == {}
