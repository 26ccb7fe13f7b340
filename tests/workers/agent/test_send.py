"""Sending against a real HTTP server: each batch arrives once, whatever the server and the network do."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.workers.agent.server import Server, serve
from workers.agent.aggregate import Aggregator
from workers.agent.identity import machine_id
from workers.agent.launches import MINUTE_NS, Context, Gpu, Signature, Window, sum_durations
from workers.agent.link import window_message
from workers.agent.node import Node
from workers.agent.send import MOST_WAIT_S, NO_LEAVE_S, Sender, Spool
from workers.agent.wire import make_batch, pack, unpack


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as own:
        yield own


def sender_of(tmp_path: Path, server: Server, batches: int = 1) -> Sender:
    spool = Spool(tmp_path / "spool")
    for _ in range(batches):
        spool.put(lambda sequence: pack(make_batch(spool.agent, sequence, 1, [])))
    return Sender(spool, server.address + "/", lambda: "secret", random.Random(1))


def test_batches_go_in_order_with_the_token(tmp_path: Path, server: Server) -> None:
    sender = sender_of(tmp_path, server, 3)
    assert [sender.step() for _ in range(3)] == [0, 0, 0] and sender.step() > 0
    assert [sequence for _, sequence in server.seen] == [0, 1, 2] and sender.spool.batches == 0 and sender.sent == 3
    assert server.posts[0] == ("/api/fleet/batches/", "Token secret")


@pytest.mark.parametrize("headers, low, high",
                         [({"Retry-After": "30"}, 30, 46), ({}, 0.5, 1.0), ({"Retry-After": "soon"}, 0.5, 1.0)])
def test_a_busy_server(tmp_path: Path, server: Server, headers: dict[str, str], low: float, high: float) -> None:
    server.answers = [(429, headers)]
    sender = sender_of(tmp_path, server)
    assert low <= sender.step() <= high and sender.why and sender.spool.batches == 1
    assert sender.step() == 0 and len(server.seen) == 1 and sender.why == ""


def test_waits_grow_while_the_server_fails_and_end_with_it(tmp_path: Path, server: Server) -> None:
    server.answers = [(500, {})] * 12
    sender = sender_of(tmp_path, server)
    waits = [sender.step() for _ in range(12)]
    assert waits[0] <= 1 and waits[3] > waits[0] and max(waits) <= MOST_WAIT_S and waits[-1] >= MOST_WAIT_S / 2
    assert sender.step() == 0 and len(server.seen) == 1
    server.answers = [(503, {})]
    sender.spool.put(lambda sequence: pack(make_batch(sender.spool.agent, sequence, 1, [])))
    assert sender.step() <= 1


def test_a_refused_batch_does_not_keep_the_others(tmp_path: Path, server: Server) -> None:
    sender = sender_of(tmp_path, server, 0)
    sender.spool.put(lambda sequence: b"this is no batch")
    sender.spool.put(lambda sequence: pack(make_batch(sender.spool.agent, sequence, 1, [])))
    assert sender.step() == 0 and "refused batch 0" in sender.why and sender.step() == 0
    assert [sequence for _, sequence in server.seen] == [1] and sender.spool.refused == 1
    assert "not a batch" in (tmp_path / "spool" / "refused" / "000000000000.reason").read_text()


def test_a_token_that_is_not_taken(tmp_path: Path, server: Server) -> None:
    server.answers = [(401, {}), (403, {})]
    sender = sender_of(tmp_path, server)
    assert sender.step() == NO_LEAVE_S == sender.step() and "token" in sender.why and sender.spool.batches == 1


def test_no_server(tmp_path: Path, server: Server) -> None:
    sender = sender_of(tmp_path, server)
    sender.server = "http://127.0.0.1:9"
    assert 0.5 <= sender.step() <= 1 and "does not answer" in sender.why and sender.spool.batches == 1


def test_a_receipt_that_is_lost_makes_a_duplicate_and_counts_once(tmp_path: Path, server: Server) -> None:
    server.loses_answers = 1
    sender = sender_of(tmp_path, server)
    assert sender.step() > 0 and sender.spool.batches == 1 and len(server.seen) == 1
    assert sender.step() == 0 and sender.duplicates == 1 and len(server.seen) == 1


def test_an_answer_that_is_no_receipt_is_not_one(tmp_path: Path, server: Server) -> None:
    server.answers = [(200, {})]
    sender = sender_of(tmp_path, server)
    assert sender.step() > 0 and "no receipt" in sender.why and sender.spool.batches == 1


def test_the_token_follows_no_redirect(tmp_path: Path, server: Server) -> None:
    server.answers = [(307, {"Location": "http://127.0.0.1:9/"})]
    sender = sender_of(tmp_path, server)
    assert sender.step() > 0 and "307" in sender.why and len(server.posts) == 1


def batch_of(sender: Sender, minute: int, **state: object) -> None:
    sums = Aggregator()
    sums.add(Window(Context("job"), Gpu("GPU-1", "NVIDIA H200", "host"), minute * MINUTE_NS, MINUTE_NS, MINUTE_NS,
                    sum_durations(np.zeros(3, np.int64), np.full(3, 1000), [Signature("kernel", (1, 1, 1), (32, 1, 1), 0)])))
    sender.spool.put(lambda sequence: pack(make_batch(sender.spool.agent, sequence, 1, sums.take(), [], state)))


def test_a_sequence_that_the_server_knows_otherwise_is_sent_under_another(tmp_path: Path, server: Server) -> None:
    """The launches are not lost, as they were when the server called the batch a duplicate."""
    sender = sender_of(tmp_path, server, 0)
    batch_of(sender, 1000)
    server.answers, server.documents = [(409, {})], [{"error": "another content", "where": "sequence"}]
    assert sender.step() > 0 and "copy" in sender.why and sender.spool.batches == 1
    assert sender.step() == 0 and sender.spool.batches == 0 == sender.spool.refused
    [(_, sequence)] = server.seen
    [batch] = server.seen.values()
    assert sequence == 1 and batch.tables["kernels"]["launches"].tolist() == [3]


def test_a_name_that_is_another_token_s_keeps_its_batches(tmp_path: Path, server: Server) -> None:
    server.answers, server.documents = [(409, {})], [{"error": "belongs to the token", "where": "agent"}]
    sender = sender_of(tmp_path, server)
    assert sender.step() == NO_LEAVE_S and "belongs to the token" in sender.why and sender.spool.batches == 1


@pytest.mark.parametrize("ahead_s", [0.0, 2.0, 86_400.0, -3600.0])
def test_the_server_s_clock_is_told_by_its_answers(tmp_path: Path, server: Server, ahead_s: float) -> None:
    sender = sender_of(tmp_path, server)
    server.clock_ahead_s = ahead_s
    sender.measure_clock()
    assert sender.offset_s == (pytest.approx(ahead_s, abs=3) if abs(ahead_s) > 60 else 0)
    server.clock_ahead_s = 0.0              # somebody set it right
    assert sender.step() == 0 and sender.offset_s == 0


def test_minutes_of_a_wrong_clock_are_moved_once_it_is_known(tmp_path: Path, server: Server) -> None:
    sender = sender_of(tmp_path, server, 0)
    batch_of(sender, 10_000, clock_offset_s=0.0)            # packed before the server answered for the first time
    server.clock_ahead_s = -86_400.0
    server.answers, server.documents = [(400, {})] * 2, [{"error": "ahead", "where": "minutes"}] * 2
    assert sender.step() > 0 and sender.spool.batches == 1
    batch = unpack((sender.spool.oldest() or (0, b""))[1])
    assert batch.tables["kernels"]["minute"].tolist() == [10_000 - 1440]
    assert sender.step() == 0 and sender.spool.refused == 1 and sender.spool.batches == 0      # the clock explains no more


def test_a_node_s_minutes_are_those_of_the_server(tmp_path: Path, server: Server) -> None:
    sender = sender_of(tmp_path, server, 0)
    server.clock_ahead_s = 86_400.0
    sender.measure_clock()
    node = Node(sender.spool, sender, str(tmp_path / "socket"), "host")
    window = Window(Context("job"), Gpu("GPU-1", "NVIDIA H200", "host"), time.time_ns(), MINUTE_NS, MINUTE_NS,
                    sum_durations(np.zeros(3, np.int64), np.full(3, 1000), [Signature("kernel", (1, 1, 1), (32, 1, 1), 0)]))
    node._take(1, window_message(window))
    node.flush(None)
    node.listener.close()
    batch = unpack((sender.spool.oldest() or (0, b""))[1])
    minute = int(batch.tables["kernels"]["minute"][0])
    assert minute - time.time() / 60 == pytest.approx(1440, abs=2) and batch.sent_ns / 60e9 == pytest.approx(minute, abs=2)
    assert batch.state["clock_offset_s"] == pytest.approx(86_400, abs=3) and batch.state["machine"] == machine_id()


def test_a_machine_is_told_by_a_digest(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("4f1c0d\n")
    known = machine_id([str(tmp_path / "none"), str(tmp_path / "id")])
    assert len(known) == 16 and "4f1c" not in known and machine_id([str(tmp_path / "none")]) == ""


@pytest.mark.parametrize("address", ["", "ridgepoint.example", "file:///etc/passwd"])
def test_an_address_that_is_none(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="--server"):
        Sender(Spool(tmp_path), address, lambda: "")
