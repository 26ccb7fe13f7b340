"""Captures that the server ordered: begun once, within the budgets, and told with the next batch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.agent.server import Server, serve
from workers.agent.deep.asking import Orders
from workers.agent.deep.captures import Budget, Captures
from workers.agent.deep.kineto import KinetoDaemon, written_path
from workers.agent.identity import identity_of
from workers.agent.node import Node
from workers.agent.send import Sender, Spool


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as own:
        yield own


@pytest.fixture
def daemon() -> Iterator[KinetoDaemon]:
    own = KinetoDaemon({}, f"\0orders-{os.getpid()}\0")
    yield own
    own.close()


@pytest.fixture
def orders(daemon: KinetoDaemon, tmp_path: Path, server: Server) -> Orders:
    sender = Sender(Spool(tmp_path / "spool"), server.address, lambda: "secret")
    return Orders(Captures(daemon, tmp_path / "captures", sender.post, Budget(per_job_day=2)), daemon,
                  lambda pid: {"job": f"job-{pid // 10}"}, "host-1")


def asks(daemon: KinetoDaemon, *pids: int) -> None:
    for pid in pids:
        daemon._note(pid, 0, time.monotonic())


def wait(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def test_an_order_is_begun_once_and_told(orders: Orders, daemon: KinetoDaemon, server: Server) -> None:
    asks(daemon, 41)
    assert not orders.changed()
    orders.take({"id": 7, "pid": 41, "steps": 0, "milliseconds": 120})
    orders.take({"id": 7, "pid": 41, "steps": 0, "milliseconds": 120})          # the receipt came again
    assert "ACTIVITIES_DURATION_MSECS=120" in daemon.processes[41].orders[0] and len(daemon.processes[41].orders) == 1
    assert orders.changed()
    (told,) = orders.state()
    assert (told["order"], told["state"], told["job"], told["profile"]) == (7, "asked", "job-4", None)
    orders.mark_told()
    assert not orders.changed()
    (own,) = orders.captures.every
    written_path(own.path, 41).write_text('{"traceEvents": []}')
    orders.captures.poll()
    own.grew = (own.grew[0], own.grew[1] - 10)                                  # it did not grow for so long
    orders.captures.poll()
    wait(lambda: own.state == "uploaded")
    assert orders.changed() and orders.state()[0]["profile"] == 1 and len(server.uploads) == 1
    assert server.posts[-1][0] == "/api/fleet/captures/7/trace/"


def test_an_order_for_a_job_finds_its_process_and_what_cannot_be_is_told(orders: Orders, daemon: KinetoDaemon) -> None:
    asks(daemon, 41, 52)
    orders.take({"id": 1, "job": "job-5", "steps": 2})
    assert "ACTIVITIES_ITERATIONS=2" in daemon.processes[52].orders[0] and not daemon.processes[41].orders
    orders.take({"id": 2, "pid": 41})
    orders.take({"id": 3, "job": "no such"})
    for nonsense in (None, 7, {"id": "x"}, {"id": 2**80}, {"id": -1}, {"id": 9, "steps": -3}, {"pid": 41}):
        orders.take(nonsense)
    told = {each["order"]: (each["state"], each["why"]) for each in orders.state()}
    assert told == {1: ("asked", ""), 2: ("failed", "a capture is under way on this host"),
                    3: ("failed", "no process of 'no such' asks for captures")}


def test_processes_that_begin_together_run_beside_each_other(orders: Orders, daemon: KinetoDaemon) -> None:
    asks(daemon, 41, 42)
    start_ms = int(time.time() * 1e3) + 60_000
    for number, pid in ((1, 41), (2, 42)):
        orders.take({"id": number, "pid": pid, "milliseconds": 200, "start_ms": start_ms})
        assert f"PROFILE_START_TIME={start_ms}" in daemon.processes[pid].orders[0]
    asks(daemon, 43)
    orders.take({"id": 3, "pid": 43, "milliseconds": 200, "start_ms": start_ms + 1})
    assert "under way" in orders.refused[3]


def test_an_order_that_comes_late_is_refused(orders: Orders, daemon: KinetoDaemon) -> None:
    asks(daemon, 41)
    orders.take({"id": 1, "pid": 41, "milliseconds": 200, "start_ms": int(time.time() * 1e3) + 1000})
    assert "after the moment" in orders.refused[1] and not daemon.processes[41].orders


def test_a_receipt_orders_and_the_next_batch_tells(tmp_path: Path, server: Server, daemon: KinetoDaemon) -> None:
    spool = Spool(tmp_path / "spool")
    sender = Sender(spool, server.address, lambda: "secret")
    node = Node(spool, sender, f"/tmp/rp-orders-{os.getpid()}.sock", "host-1", None, daemon)
    try:
        asks(daemon, 41)
        server.orders = [{"id": 5, "pid": 41, "milliseconds": 100}]
        node.flush(None)
        assert sender.step() == 0
        node._each_second()
        assert spool.batches == 1                   # the news does not wait for the minute
        assert sender.step() == 0
        first, second = (batch.state for batch in server.seen.values())
        assert [each["pid"] for each in first["asking"]] == [41] and first["captures"] == []
        assert [(each["order"], each["state"]) for each in second["captures"]] == [(5, "asked")]
        node._each_second()
        assert spool.batches == 0
    finally:
        node.listener.close()


def test_what_a_process_says_of_itself_is_read_from_its_environment() -> None:
    environ = {**os.environ, "RANK": "3", "RIDGEPOINT_JOB": "pretrain", "RIDGEPOINT_BUILD": "b7"}
    child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()", "x"], env=environ, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        own = identity_of(child.pid)
        assert (own.job, own.build, own.rank) == ("pretrain", "b7", 3)
    finally:
        child.communicate("\n")
    gone = identity_of(child.pid)
    assert (gone.job, gone.rank) == (f"process {child.pid}", -1)
