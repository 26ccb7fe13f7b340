"""A node agent with jobs and a server: what jobs send arrives, once, and the agent tells of itself what is so."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.waiting import until
from tests.workers.agent.server import Server, serve
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.link import Frames, Link, Listener, MessageRefused, SocketTaken, frame, read_window, window_message
from workers.agent.node import Node
from workers.agent.send import Sender, Spool

JOB = """
import os, sys
from workers.agent import job
own = job.start()
job.step()
own.collecting.is_alive() and own.collecting.join(0.5)
for number in range(int(sys.argv[1])):
    own.link.put({"kind": "window", "number": number})
if len(sys.argv) > 2:
    child = os.fork()
    if child == 0:
        mine = job.start()
        print("child", mine is not None and mine is not own, mine and mine.state()["state"], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print(job.state()["state"], job.state()["why"], sep="|", flush=True)
own.link.end()
own.link.join(5)
"""


def a_window(seed: int = 1, count: int = 1000, at_ns: int | None = None) -> Window:
    chance = np.random.default_rng(seed)
    signatures = [Signature(f"kernel_{number}", (number + 1, 1, 1), (128, 1, 1), 0) for number in range(20)]
    sums = sum_durations(chance.integers(0, 20, count), chance.integers(1000, 10**6, count), signatures)
    return Window(Context("pretrain", "b1", "NVIDIA H200"), Gpu("GPU-1", "NVIDIA H200", "host-1"), at_ns or time.time_ns(),
                  200_000_000, 4_000_000_000, sums, 3)


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as own:
        yield own


@pytest.fixture
def node(tmp_path: Path, server: Server) -> Iterator[Node]:
    spool = Spool(tmp_path / "spool")
    own = Node(spool, Sender(spool, server.address, lambda: "secret"), str(tmp_path / "agent.sock"), "host-1")
    yield own
    own.listener.close()


def poll(node: Node, true: Callable[[], Any]) -> None:
    def look() -> Any:
        node.listener.poll(0.02)
        return true()

    until(look)


def test_windows_of_jobs_arrive_as_they_were(node: Node, server: Server) -> None:
    link = Link(node.listener.path, lambda: {"kind": "state", "job": "pretrain", "rank": 3, "state": "collecting", "loss_pct": 0.31,
                                             "records": 2000})
    windows = [a_window(seed) for seed in (1, 2)]
    for window in windows:
        link.put(window_message(window))
    link.start()
    poll(node, lambda: node.jobs and node.aggregator.minutes and link.sent == 3)
    node.flush(None)
    assert node.sender.step() == 0
    (batch,) = server.seen.values()
    assert int(batch.tables["kernels"]["launches"].sum()) == 2000
    assert int(batch.tables["kernels"]["total_ns"].sum()) == sum(each.total_ns for window in windows for each in window.kernels)
    assert float(batch.tables["kernels"]["estimate_launches"].sum()) == pytest.approx(2000 * 20)
    assert batch.tables["on_gpus"]["windows"].tolist() == [2] and batch.tables["on_gpus"]["rank"].tolist() == [3]
    assert batch.contexts == [windows[0].context] and batch.gpus == [windows[0].gpu]
    (told,) = batch.state["jobs"]
    assert (told["job"], told["rank"], told["loss_pct"], told["pid"]) == ("pretrain", 3, 0.31, os.getpid())
    assert batch.state["rss_bytes"] > 10**6 and batch.state["spool_batches"] == 0 and batch.state["dropped_batches"] == 0
    link.end()
    link.join()
    poll(node, lambda: node.jobs[os.getpid()][1]["state"] == "ended")


def test_a_window_travels_unchanged() -> None:
    window = a_window()
    (message,) = Frames().feed(frame(window_message(window)))
    again = read_window(message)
    assert (again.context, again.gpu, again.rank, again.weight) == (window.context, window.gpu, window.rank, window.weight)
    for one, other in zip(again.kernels, window.kernels, strict=True):
        assert (one.signature, one.launches, one.total_ns, one.min_ns, one.max_ns, one.log_sum) == (
            other.signature, other.launches, other.total_ns, other.min_ns, other.max_ns, other.log_sum)
        assert one.bucket.tolist() == other.bucket.tolist() and one.count.tolist() == other.count.tolist()


def test_what_jobs_may_not_say(node: Node) -> None:
    def spoil(**more: Any) -> dict[str, Any]:
        return {**window_message(a_window()), **more}

    def column(name: str, kind: str, value: float) -> dict[str, bytes]:
        values = np.frombuffer(window_message(a_window())[name], kind).copy()
        values[0] = value
        return {name: values.tobytes()}

    spoiled = (spoil(start_ns=1), spoil(start_ns="now"), spoil(observed_ns=-1), spoil(rank=-2), {"kind": "window"},
               spoil(**column("launches", "<i8", 7)), spoil(**column("sizes", "<i4", -1)), spoil(**column("count", "<i8", 2**62)),
               spoil(**column("total_ns", "<i8", 2**61)), spoil(**column("log_sum", "<f8", np.nan)),
               spoil(**column("bucket", "<i2", 4000)), spoil(**column("buckets", "<i4", 2**31 - 1)), spoil(bucket=b"\1"),
               spoil(kernels=["one"]), spoil(kernels=7))
    for message in spoiled:
        node._take(1, message)
    assert node.refused_windows == len(spoiled) and not node.aggregator.minutes
    with pytest.raises(MessageRefused):
        list(Frames().feed(b"\xff\xff\xff\xff1234"))
    with pytest.raises(MessageRefused):
        list(Frames().feed(b"\x02\0\0\0\xc1\xc1"))
    with socket.socket(socket.AF_UNIX) as rude:                 # one that talks nonsense is shown out, the others stay
        rude.connect(node.listener.path)
        rude.sendall(b"GET / HTTP/1.1\r\n\r\n")
        poll(node, lambda: node.listener.refused)


def test_two_agents_do_not_share_a_socket_and_a_dead_ones_is_taken(node: Node, tmp_path: Path) -> None:
    with pytest.raises(SocketTaken):
        Listener(node.listener.path, lambda pid, message: None, lambda pid: None)
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    Listener(str(left), lambda pid, message: None, lambda pid: None).close()
    assert not left.exists()


@pytest.mark.process
def test_a_job_without_a_node_agent_goes_on_and_says_so(tmp_path: Path) -> None:
    said = subprocess.run([sys.executable, "-c", JOB, "3"], capture_output=True, text=True, timeout=60, check=True,
                          env={**os.environ, "PYTHONPATH": os.getcwd(), "RIDGEPOINT_AGENT_SOCKET": str(tmp_path / "none.sock")})
    assert said.stdout.startswith("waiting|the job made no CUDA context yet") and said.stderr == ""


@pytest.mark.process
def test_a_forked_child_has_an_agent_of_its_own(node: Node) -> None:
    child = subprocess.Popen([sys.executable, "-c", JOB, "0", "fork"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "PYTHONPATH": os.getcwd(), "RIDGEPOINT_AGENT_SOCKET": node.listener.path,
                                  "RIDGEPOINT_JOB": "forks", "RANK": "2"})
    poll(node, lambda: child.poll() is not None)
    out, errors = child.communicate()
    assert "child True" in out and errors == "" and child.returncode == 0
    poll(node, lambda: node.jobs)
    assert {told["job"] for _, told in node.jobs.values()} == {"forks"} and node.jobs[child.pid][1]["rank"] == 2


@pytest.mark.process
@pytest.mark.parametrize("name, value, why", [
    ("KINETO_USE_DAEMON", "1", "off|Kineto's daemon mode"), ("NSYS_PROFILING_SESSION_ID", "7", "off|Nsight Systems"),
    ("RIDGEPOINT_AGENT_SAMPLE", "ranks=1000000", "not collected|one of 1000000 ranks"),
    ("RIDGEPOINT_AGENT_SAMPLE", "ranks=1", "waiting|")])
def test_who_does_not_collect(tmp_path: Path, name: str, value: str, why: str) -> None:
    said = subprocess.run([sys.executable, "-c", JOB, "0"], capture_output=True, text=True, timeout=60, check=True,
                          env={**os.environ, "PYTHONPATH": os.getcwd(), "RIDGEPOINT_AGENT_SOCKET": str(tmp_path / "none.sock"),
                               "RANK": "1", name: value})
    assert said.stdout.startswith(why)


@pytest.mark.process
def test_killed_after_the_receipt_nothing_is_lost_or_counted_twice(tmp_path: Path, server: Server) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    sent = 0
    command = [sys.executable, "-m", "workers.agent.node", "--server", server.address, "--token-file", str(token), "--spool",
               str(tmp_path / "spool"), "--socket", str(tmp_path / "a.sock"), "--no-telemetry", "--no-captures"]
    for round_number in range(2):
        child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.getcwd()})
        until(lambda: (tmp_path / "a.sock").exists())
        link = Link(str(tmp_path / "a.sock"), lambda: {"kind": "state", "job": "j", "state": "collecting"})
        link.put(window_message(a_window(round_number)))
        link.start()
        until(lambda link=link: link.sent >= 2)
        sent += 1000
        link.end()
        link.join()
        time.sleep(0.3)
        child.terminate()                                       # what is open goes to disk
        assert child.wait(20) == 0
    spool = Spool(tmp_path / "spool")
    sender = Sender(spool, server.address, lambda: "secret")
    while spool.batches:
        sender.step()
    assert sum(int(batch.tables["kernels"]["launches"].sum()) for batch in server.seen.values()) == sent
    assert len({agent for agent, _ in server.seen}) == 1
