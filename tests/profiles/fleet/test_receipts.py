"""What hosts send is told apart by content, token, machine and time: nothing genuine is lost, nothing forged is added."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.utils import timezone
from django.utils.html import strip_tags

from profiles.fleet import services
from profiles.fleet.models import FleetAgent, FleetBatch
from tests.profiles.fleet.test_robust_batches import KIND, PATH
from webapp.models import ApiToken
from workers.agent.aggregate import Aggregator
from workers.agent.launches import MINUTE_NS, Context, Gpu, Signature, Window, sum_durations
from workers.agent.wire import make_batch, pack

pytestmark = pytest.mark.django_db
NOW = int(time.time()) // 60


def batch(launches: int, sequence: int = 1, minute: int = NOW, machine: str = "", agent: str = "node-1") -> bytes:
    sums = Aggregator()
    sums.add(Window(Context("job"), Gpu("GPU-1", "NVIDIA H200", "host"), minute * MINUTE_NS, MINUTE_NS, MINUTE_NS,
                    sum_durations(np.zeros(launches, np.int64), np.full(launches, 1000),
                                  [Signature("kernel", (1, 1, 1), (32, 1, 1), 0)])))
    return pack(make_batch(agent, sequence, minute * MINUTE_NS, sums.take(), [], {"machine": machine} if machine else {}))


@pytest.fixture
def tokens(alice: Any) -> dict[str, tuple[Any, str]]:
    return {name: ApiToken.objects.create(alice, name=name, scope="write") for name in ("first", "second")}


def send(client: Any, token: tuple[Any, str], payload: bytes) -> Any:
    return client.post(PATH, payload, content_type=KIND, headers={"Authorization": f"Token {token[1]}"})


def launches() -> list[int]:
    """Return how many rows wait, by agent."""
    return list(FleetBatch.objects.order_by("pk").values_list("sequence", flat=True))


def test_a_forged_sequence_does_not_make_the_genuine_batch_a_duplicate(client: Any, tokens: dict[str, Any]) -> None:
    first, second = tokens["first"], tokens["second"]
    assert send(client, first, batch(20, 1)).json()["duplicate"] is False
    forged = send(client, second, batch(1, 2))
    assert forged.status_code == 409 and forged.json()["where"] == "agent" and "“first”" in forged.json()["error"]
    genuine = send(client, first, batch(20, 2))
    assert genuine.status_code == 200 and genuine.json()["duplicate"] is False and launches() == [1, 2]
    again = send(client, first, batch(20, 2))
    assert again.status_code == 200 and again.json()["duplicate"] is True


def test_another_content_under_the_same_sequence_is_told_and_counted(client: Any, tokens: dict[str, Any]) -> None:
    send(client, tokens["first"], batch(20))
    answer = send(client, tokens["first"], batch(21))
    assert answer.status_code == 409 and answer.json()["where"] == "sequence" and launches() == [1]
    agent = FleetAgent.objects.get()
    assert agent.conflicts == 1 and "another content" in agent.conflict and agent.batches == 1
    client.force_login(tokens["first"][0].user)
    page = client.get("/fleet/agents/").content.decode()
    assert "1 conflict" in strip_tags(page) and "another content" in page


def test_a_batch_whose_digest_is_not_known_is_a_duplicate(client: Any, tokens: dict[str, Any]) -> None:
    send(client, tokens["first"], batch(20))
    FleetBatch.objects.update(sha256="")            # from before digests were kept
    assert send(client, tokens["first"], batch(20)).json()["duplicate"] is True


def test_a_name_goes_to_the_next_token_when_its_own_has_ended(client: Any, tokens: dict[str, Any]) -> None:
    send(client, tokens["first"], batch(20, 1))
    ApiToken.objects.filter(pk=tokens["first"][0].pk).update(expiry=timezone.now() - timedelta(seconds=1))
    assert send(client, tokens["second"], batch(20, 2)).status_code == 200
    assert FleetAgent.objects.get().token == tokens["second"][0]
    tokens["second"][0].delete()
    third = ApiToken.objects.create(tokens["first"][0].user, name="third", scope="write")
    assert send(client, third, batch(20, 3)).status_code == 200 and launches() == [1, 2, 3]


def test_two_hosts_of_one_name_are_told_apart_by_their_machine(client: Any, tokens: dict[str, Any]) -> None:
    for machine, count in (("aaaa", 20), ("bbbb", 30)):
        answer = send(client, tokens["first"], batch(count, 1, machine=machine))
        assert answer.status_code == 200 and answer.json()["duplicate"] is False
    assert sorted(FleetAgent.objects.values_list("machine", "batches")) == [("aaaa", 1), ("bbbb", 1)]
    orders = client.post("/api/fleet/orders/", {"agent": "node-1", "machine": "bbbb", "host": "here", "asking": []},
                         content_type="application/json", headers={"Authorization": f"Token {tokens['first'][1]}"})
    assert orders.status_code == 200 and FleetAgent.objects.get(machine="bbbb").host == "here"
    forged = client.post("/api/fleet/orders/", {"agent": "node-1", "machine": "bbbb", "asking": []},
                         content_type="application/json", headers={"Authorization": f"Token {tokens['second'][1]}"})
    assert forged.status_code == 409


def test_an_agent_that_is_updated_stays_the_one_it_was(client: Any, tokens: dict[str, Any]) -> None:
    """What it packed before it told of its machine, and sends again, is the duplicate that it is."""
    send(client, tokens["first"], batch(20, 1))
    send(client, tokens["first"], batch(20, 2, machine="aaaa"))
    assert send(client, tokens["first"], batch(20, 1)).json()["duplicate"] is True
    assert FleetAgent.objects.get().machine == "aaaa" and launches() == [1, 2]


@pytest.mark.parametrize(("ahead", "told"), [
    (12, "ahead of the server's clock"), (2880, "min ahead"), (None, "days old"), (-91 * 1440, "91 days old")])
def test_minutes_of_another_time_are_refused_and_counted(
        client: Any, tokens: dict[str, Any], ahead: int | None, told: str) -> None:
    minute = 0 if ahead is None else int(time.time()) // 60 + ahead             # now: a run takes longer than the ten minutes
    send(client, tokens["first"], batch(20, 1))
    answer = send(client, tokens["first"], batch(20, 2, minute=minute))
    assert answer.status_code == 400 and answer.json()["where"] == "minutes" and told in answer.json()["error"]
    agent = FleetAgent.objects.get()
    assert agent.refused == 1 and told in agent.refused_why and agent.batches == 1
    client.force_login(tokens["first"][0].user)
    assert "1 refused" in strip_tags(client.get("/fleet/agents/").content.decode())


@pytest.mark.parametrize("ahead", [8, -89 * 1440])
def test_minutes_that_a_late_or_quick_clock_explains_are_taken(client: Any, tokens: dict[str, Any], ahead: int) -> None:
    minute = int(time.time()) // 60 + ahead
    assert send(client, tokens["first"], batch(20, minute=minute)).status_code == 200


def test_a_command_feeds_what_lies_long_ago() -> None:
    assert services.batch_accept(batch(20, minute=NOW - 200 * 1440))["duplicate"] is False
