"""Orders between batches, traces of ranks that become one profile, captures that are stopped, agents that were started anew."""

from __future__ import annotations

import gzip
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from profiles.fleet import capture_services as services
from profiles.fleet.browse import capture_selectors
from profiles.models import FleetAgent, FleetCapture, Profile
from profiles.running import join_services

pytestmark = pytest.mark.django_db
ASKING = [{"pid": 9, "job": "train", "role": "launcher"},
          {"pid": 10, "job": "train", "rank": 0, "gpu": "GPU-a", "command": "python t.py"},
          {"pid": 11, "job": "train", "rank": 1, "index": 1, "on_gpu": True}, {"pid": 20, "job": "serve", "build": "b7"}]
NOW = int(time.time() * 1e3)


@pytest.fixture
def visitor(client: Client, alice: Any) -> Client:
    client.force_login(alice)
    return client


def ask(visitor: Client, captures: list[dict[str, Any]] | None = None, run: int = NOW, asking: Any = ASKING) -> list[Any]:
    """Return the orders of an agent's question."""
    answer = visitor.post(reverse("api-fleet-orders"), {"agent": "agent-1", "host": "host-1", "run": run, "asking": asking,
                                                        "captures": captures or []}, content_type="application/json")
    assert answer.status_code == 200, answer.content
    assert answer.json()["again_s"] == 2.0
    return list(answer.json()["orders"])


def trace(pid: int) -> SimpleUploadedFile:
    events = [{"ph": "X", "name": f"step {pid}", "pid": pid, "tid": 1, "ts": 1000 + at, "dur": 5, "cat": "cpu_op"}
              for at in range(0, 50, 10)]
    return SimpleUploadedFile("t.json.gz", gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))


def send(visitor: Client, pk: int, pid: int = 10) -> Any:
    return visitor.post(reverse("api-fleet-capture-trace", args=[pk]), {"file": trace(pid), "name": "one", "tags": "fleet,deep"})


def test_an_agent_asks_between_its_batches(visitor: Client) -> None:
    assert ask(visitor) == []
    rows = {each["pid"]: each for each in visitor.get(reverse("api-fleet-captures")).json()["processes"]}
    assert rows[9]["launcher"] and not rows[10]["launcher"]
    assert (rows[10]["gpu"], rows[10]["command"], rows[11]["gpu"], rows[20]["build"]) == ("GPU-a", "python t.py", "GPU 1", "b7")
    (row,) = services.order(services.chosen("serve"), 4, None, None, stacks=True)
    (order,) = ask(visitor)
    assert (order["id"], order["steps"], order["shapes"], order["stacks"]) == (row.pk, 4, True, True)
    assert ask(visitor, [{"order": row.pk, "state": "asked"}]) == []


def test_a_trace_alone_is_a_profile_at_once(visitor: Client) -> None:
    ask(visitor)
    (row,) = services.order(services.chosen(pid=20), 4, None, None)
    answer = send(visitor, row.pk)
    assert answer.status_code == 201
    row.refresh_from_db()
    assert row.profile_id == answer.json()["id"] and row.profile is not None and row.profile.name == "one"
    assert send(visitor, row.pk).status_code == 400                 # it came already
    ask(visitor, [{"order": row.pk, "state": "uploaded", "profile": row.profile_id}])
    row.refresh_from_db()
    assert row.state == "uploaded" and row.profile is not None


def test_ranks_become_one_profile(visitor: Client) -> None:
    ask(visitor)
    first, second = services.order(services.chosen("train", ranks="0-1"), None, 200, None)
    assert first.together == second.together is not None and first.start_ms == second.start_ms > time.time() * 1e3 + 15_000
    assert send(visitor, second.pk, 11).json()["id"] is None
    ask(visitor, [{"order": second.pk, "state": "uploaded", "profile": None}])
    assert capture_selectors.line_of(FleetCapture.objects.get(pk=second.pk)).state == "joining"
    assert join_services.join(second.pk) is None and join_services.wake_joins() == []
    send(visitor, first.pk, 10)
    keys = list(FleetCapture.objects.values_list("part", flat=True))
    assert all(default_storage.exists(key) for key in keys)
    profile = join_services.join(first.pk)
    assert profile is not None and profile.name == "train: 2 ranks" and "job:train" in profile.tags
    assert [each["name"] for each in profile.metadata["files"]] == ["rank0.json.gz", "rank1.json.gz"]
    assert set(FleetCapture.objects.values_list("profile", "part")) == {(profile.pk, "")}
    assert join_services.join(first.pk) is None and Profile.objects.count() == 1


def test_what_came_is_joined_when_the_others_ended_without_a_trace(visitor: Client) -> None:
    ask(visitor)
    first, second = services.order(services.chosen("train", ranks="0,1"), None, 200, None)
    send(visitor, first.pk)
    assert join_services.wake_joins() == []
    ask(visitor, [{"order": second.pk, "state": "failed", "why": "the process ended"}])
    assert join_services.wake_joins() == [first.pk] and join_services.wake_joins({first.pk}) == []
    profile = join_services.join(first.pk)
    assert profile is not None and profile.name == "train: 1 of 2 ranks"
    assert "process 11 on host-1: the process ended" in profile.notes


def test_a_stopped_capture_is_told_to_its_agent_and_takes_no_trace(visitor: Client) -> None:
    ask(visitor)
    (row,) = services.order(services.chosen(pid=20), 4, None, None)
    ask(visitor, [{"order": row.pk, "state": "asked"}])
    assert visitor.post(reverse("fleet-capture-stop", args=[row.pk])).status_code == 302
    assert ask(visitor, [{"order": row.pk, "state": "asked"}]) == [{"id": row.pk, "stop": True}]
    assert send(visitor, row.pk).status_code == 400
    assert ask(visitor, [{"order": row.pk, "state": "failed", "why": "stopped"}]) == []
    assert FleetCapture.objects.get().state == "stopped"
    assert visitor.get(reverse("api-fleet-capture", args=[row.pk])).json()["state"] == "stopped"


def test_an_agent_that_was_started_anew_lost_what_was_under_way(visitor: Client) -> None:
    ask(visitor)
    first, second = services.order(services.chosen(pid=20), 4, None, None), services.order(services.chosen(pid=10), 4, None, None)
    ask(visitor, [{"order": first[0].pk, "state": "asked"}])
    ask(visitor, [], NOW - 5000)                                    # told by the agent of before, and late
    assert {row.state for row in FleetCapture.objects.all()} == {"asked", "ordered"}
    (order,) = ask(visitor, [], NOW + 5000)
    states = {row.pk: (row.state, row.why) for row in FleetCapture.objects.all()}
    assert states[first[0].pk] == ("failed", "its agent was started anew meanwhile")
    assert states[second[0].pk][0] == "ordered" and order["id"] == second[0].pk


def test_an_agent_that_is_gone_leaves_no_capture_open(visitor: Client) -> None:
    ask(visitor)
    (row,) = services.order(services.chosen(pid=20), 4, None, None)
    FleetAgent.objects.update(last_seen=timezone.now() - timedelta(minutes=4))
    assert capture_selectors.line_of(FleetCapture.objects.select_related("agent").get(pk=row.pk)).state == "overdue"


def test_what_a_capture_cost_is_kept_once_it_is_told(visitor: Client) -> None:
    ask(visitor)
    (row,) = services.order(services.chosen(pid=20), 4, None, None)
    ask(visitor, [{"order": row.pk, "state": "uploaded"}])
    cost = {"before_ms": [10.0, 0.1], "during_ms": [12.0, 0.2], "after_ms": [10.1, 0.1], "during_pct": [18.0, 20.0, 22.0],
            "after_pct": [-1.0, 1.0, 3.0], "lost_s": 1.5}
    ask(visitor, [{"order": row.pk, "state": "uploaded", "cost": {**cost, "more": "x"}}])
    row.refresh_from_db()
    assert row.cost == cost and capture_selectors.line_of(row).slower == "+20.0 % (+18.0 to +22.0)"
    assert "step 10 ms before, 12 ms during" in visitor.get(reverse("fleet-captures")).content.decode()
    ask(visitor, [{"order": row.pk, "state": "uploaded", "cost": {"why": "later"}}])
    assert FleetCapture.objects.get().cost == cost
    FleetCapture.objects.update(cost=None)
    ask(visitor, [{"order": row.pk, "state": "uploaded", "cost": {"during_pct": "x"}}])
    assert FleetCapture.objects.get().cost == {"why": "its agent told no cost"}


@pytest.mark.parametrize("given", [
    {}, {"agent": "a"}, {"agent": "a", "asking": 7}, {"agent": "a", "asking": [], "run": -1}, {"agent": "a", "asking": [0] * 2000},
    {"agent": "a", "asking": ["x" * 300_000]}, {"agent": "a", "asking": [[[[[[[[[[[[[[[[[[[[[[[[7]]]]]]]]]]]]]]]]]]]]]]]]}])
def test_a_question_that_is_none_is_refused(visitor: Client, given: dict[str, Any]) -> None:
    assert visitor.post(reverse("api-fleet-orders"), given, content_type="application/json").status_code == 400
    assert not FleetAgent.objects.exists()


def test_launchers_and_ranks_that_are_none_are_refused(visitor: Client) -> None:
    ask(visitor)
    (launcher,) = [each for each in services.processes("train", launchers=True) if each.launcher]
    for given, field in (({"process": [launcher.key]}, "process"), ({"job": "train", "ranks": "x"}, "ranks"),
                         ({"job": "train", "ranks": "5-9"}, "process"), ({"pid": 9}, "process")):
        answer = visitor.post(reverse("api-fleet-captures"), given, content_type="application/json")
        assert answer.status_code == 400 and field in answer.json()["fields"], answer.content
    page = visitor.get(reverse("fleet-captures")).content.decode()
    assert f'value="{launcher.key}"' not in page and "launcher" in page


def test_only_engineers_order_and_stop(client: Client, bob: Any) -> None:
    client.force_login(bob)
    agent = FleetAgent.objects.create(name="a")
    row = FleetCapture.objects.create(agent=agent, pid=1)
    for name, args in (("api-fleet-orders", []), ("api-fleet-capture-trace", [row.pk]), ("api-fleet-capture-stop", [row.pk]),
                       ("fleet-capture-stop", [row.pk])):
        assert client.post(reverse(name, args=args), {}, content_type="application/json").status_code == 403
