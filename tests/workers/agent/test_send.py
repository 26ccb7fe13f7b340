"""Sending against a real HTTP server: each batch arrives once, whatever the server and the network do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.agent.server import Server, serve
from workers.agent.send import MOST_WAIT_S, NO_LEAVE_S, Sender
from workers.agent.spool import Spool
from workers.agent.wire import make_batch, pack


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


@pytest.mark.parametrize("address", ["", "ridgepoint.example", "file:///etc/passwd"])
def test_an_address_that_is_none(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="--server"):
        Sender(Spool(tmp_path), address, lambda: "")
