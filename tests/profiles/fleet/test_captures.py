"""Deep captures ordered by page, API and command: what agents are told, and what they tell."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from profiles.fleet import capture_services as services
from profiles.fleet.browse import capture_selectors
from profiles.fleet.services import batch_accept, merge_waiting
from profiles.models import FleetAgent, FleetCapture, Profile
from workers.agent.aggregate import Sums
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.wire import make_batch, pack

pytestmark = pytest.mark.django_db
ASKING = [{"pid": 10, "job": "train", "rank": 0}, {"pid": 11, "job": "train", "rank": 1}, {"pid": 20, "job": "serve"}]


@pytest.fixture
def visitor(client: Client, alice: Any) -> Client:
    client.force_login(alice)
    return client


def send(sequence: int, captures: list[dict[str, Any]] | None = None, agent: str = "agent-1", asking: Any = ASKING) -> list[Any]:
    """Return the orders of the receipt."""
    state = {"asking": asking, "captures": captures or [], "host": "gpu-host-1"}
    return list(batch_accept(pack(make_batch(agent, sequence, 0, [], (), state)))["orders"])


def test_an_order_travels_until_its_agent_names_it_and_ends_as_a_profile(visitor: Client) -> None:
    assert send(1) == []
    key = services.processes("serve")[0].key
    answer = visitor.post(reverse("fleet-capture-order"), {"process": [key], "how": "steps", "steps": "4", "shapes": "on"},
                          follow=True)
    assert "1 capture ordered" in answer.content.decode() and "waits for its agent" in answer.content.decode()
    row = FleetCapture.objects.get()
    order = {"id": row.pk, "pid": 20, "job": "serve", "steps": 4, "milliseconds": 0, "start_ms": 0, "shapes": True, "stacks": False}
    assert send(2) == [order] and send(3) == [order]
    assert send(4, agent="agent-2") == []
    assert send(5, [{"order": row.pk, "state": "asked"}]) == []
    profile = Profile.objects.create(name="deep", status="ready", tags=["fleet", "deep", "job:serve"])
    send(6, [{"order": row.pk, "state": "uploaded", "profile": profile.pk, "took_s": 7.5, "bytes": 12_345}])
    row.refresh_from_db()
    assert (row.state, row.profile, row.took_s, row.bytes) == ("uploaded", profile, 7.5, 12_345)
    page = visitor.get(reverse("fleet-captures")).content.decode()
    assert reverse("profile", args=[profile.pk]) in page and "uploaded" in page
    found = visitor.get(reverse("api-fleet-capture", args=[row.pk])).json()
    assert (found["state"], found["profile"], found["steps"], found["host"]) == ("uploaded", profile.pk, 4, "gpu-host-1")
    send(7, [{"order": row.pk, "state": "failed", "why": "late"}])              # what ended stays as it ended
    assert FleetCapture.objects.get().state == "uploaded"


def test_only_a_deep_capture_is_linked_and_only_by_its_own_agent() -> None:
    send(1)
    send(1, agent="agent-2")
    (row,) = services.order([services.processes("serve")[0].key], None, 200, None)
    other = Profile.objects.create(name="another", status="ready", tags=["fleet"])
    wrong = "agent-2" if row.agent.name == "agent-1" else "agent-1"
    send(2, [{"order": row.pk, "state": "failed", "why": "no"}], agent=wrong)
    assert FleetCapture.objects.get().state == "ordered"
    for told in ({"order": row.pk, "state": "ordered"}, {"order": str(row.pk), "state": "failed"}, {"order": row.pk, "state": 7}, 7,
                 {"order": row.pk}):
        send(3 + FleetAgent.objects.get(name=row.agent.name).batches, [told], agent=row.agent.name)         # type: ignore[list-item]
    assert FleetCapture.objects.get().state == "ordered"
    send(90, [{"order": row.pk, "state": "uploaded", "profile": other.pk, "took_s": -1, "bytes": "x"}], agent=row.agent.name)
    row.refresh_from_db()
    assert (row.state, row.profile, row.took_s, row.bytes) == ("uploaded", None, None, None)


def test_ranks_begin_at_one_moment(visitor: Client) -> None:
    send(1)
    answer = visitor.post(reverse("api-fleet-captures"), {"job": "train", "most": 8, "milliseconds": 300},
                          content_type="application/json")
    assert answer.status_code == 201
    assert [(each["pid"], each["rank"], each["milliseconds"]) for each in answer.json()["captures"]] == [(10, 0, 300), (11, 1, 300)]
    orders = send(2)
    assert len(orders) == 2 and len({each["start_ms"] for each in orders}) == 1
    assert orders[0]["start_ms"] > timezone.now().timestamp() * 1e3 + 60_000


@pytest.mark.parametrize(("given", "field"), [
    ({}, "process"), ({"process": ["1-2"]}, "process"), ({"job": "no such"}, "process"), ({"job": "serve", "steps": 99}, "steps"),
    ({"job": "serve", "milliseconds": 1}, "milliseconds"), ({"job": "train", "most": 2, "steps": 3}, "steps"),
    ({"process": "x" * 99}, "process"), ({"job": "serve", "most": 400}, "most")])
def test_what_cannot_be_ordered_is_said(visitor: Client, given: dict[str, Any], field: str) -> None:
    send(1)
    answer = visitor.post(reverse("api-fleet-captures"), given, content_type="application/json")
    assert answer.status_code == 400 and field in str(answer.json())
    assert not FleetCapture.objects.exists()


def test_the_form_keeps_what_was_chosen(visitor: Client) -> None:
    send(1)
    key = services.processes("train")[0].key
    for given in ({"process": [key], "how": "milliseconds", "milliseconds": "5"}, {"process": [key], "how": "milliseconds",
                                                                                    "milliseconds": "many"},
                  {"process": [key], "how": "x"}):
        answer = visitor.post(reverse("fleet-capture-order"), given)
        assert answer.status_code == 400
        page = answer.content.decode()
        assert f'value="{key}" aria-label="process 10 on gpu-host-1" checked' in page and "field-error" in page
    assert not FleetCapture.objects.exists()


def test_an_agent_that_is_silent_cannot_be_asked_and_an_order_without_news_is_overdue() -> None:
    send(1)
    (row,) = services.order([services.processes("serve")[0].key], None, None, None)
    assert (row.steps, row.milliseconds) == (services.STEPS, 0)
    FleetCapture.objects.update(changed=timezone.now() - timedelta(minutes=11), created=timezone.now() - timedelta(minutes=11))
    assert capture_selectors.line_of(FleetCapture.objects.get()).state == "overdue"
    assert send(2) == []
    FleetAgent.objects.update(last_seen=timezone.now() - timedelta(minutes=4))
    assert services.processes() == []


@pytest.mark.parametrize("asking", [None, 7, [7], [{"pid": "x"}], [{"pid": -1}], [{"pid": 2**40}], {"pid": 1}])
def test_what_agents_say_is_not_believed(visitor: Client, asking: Any) -> None:
    send(1, asking=asking)
    assert services.processes() == []
    assert visitor.get(reverse("fleet-captures")).status_code == 200


def test_a_kernel_of_the_fleet_leads_to_the_job_that_runs(visitor: Client) -> None:
    sums = Sums()
    sums.add(Window(Context("serve", "b", "NVIDIA H200"), Gpu("GPU-1", "NVIDIA H200", "h"), int(time.time() * 1e9), 10**9, 10**9,
                    sum_durations(np.zeros(9, np.int64), np.full(9, 10**6), [Signature("some_kernel", (1, 1, 1), (1, 1, 1), 0)])))
    batch_accept(pack(make_batch("other", 1, 0, [sums.summed()])))
    merge_waiting()
    link = reverse("fleet-captures") + "?job=serve"
    assert link not in visitor.get(reverse("fleet"), {"job": "serve"}).content.decode()
    send(1)
    assert link in visitor.get(reverse("fleet"), {"job": "serve"}).content.decode()
    send(2, asking=[])
    assert link not in visitor.get(reverse("fleet"), {"job": "serve"}).content.decode()
