"""Gates and baselines over HTTP: who may do what, what is refused with a field's name, waiting, and the baselines' page."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from django.urls import reverse

from tests.tuner.gate.test_gates import H200, gate, records
from tuner.gate.verdicts import api as gate_api
from tuner.gate.verdicts import services
from tuner.models import BaselineChange, Build, Gate, Regression, Suite, SuiteKernel

pytestmark = pytest.mark.django_db
HALF, HUGE = "\ud800", 10**400


@pytest.fixture
def suite() -> Suite:
    return Suite.objects.create(name="nightly", kind=Suite.Kind.UPLOADED, device="")


def asked(**given: Any) -> dict[str, Any]:
    return {"suite": "nightly", "build": "b2", "environment": H200, "runs": records(range(11, 16), {"softmax": 1.08}), **given}


def test_a_pipeline_gets_its_answer_in_one_request(suite: Suite, api: Any, alice: Any) -> None:
    gate(suite, "b1", range(1, 11))
    said = asked(branch="main", title="Faster exp", parent="b1", url="https://ci/7")
    answer = api(alice).post(reverse("api-gates"), said, format="json")
    told = answer.json()
    assert answer.status_code == 201 and (told["verdict"], told["exit_code"], told["branch"]) == ("SLOWER", 1, "main")
    assert told["links"]["api"].startswith("http://testserver/api/gates/")
    again = api(alice).get(told["links"]["api"]).json()
    assert again["kernels"] == told["kernels"] and Gate.objects.get(pk=told["id"]).owner == alice
    listed = api(alice).get(reverse("api-gates"), {"verdict": "SLOWER", "suite": "nightly"}).json()
    assert [each["id"] for each in listed["gates"]] == [told["id"]] and listed["verdicts"] == {"SLOWER": 1}
    assert api(alice).get(reverse("api-gates"), {"build": "nobody"}).json()["total"] == 0


def test_a_request_that_is_sent_again_finds_the_gate_it_made(suite: Suite, api: Any, alice: Any, olga: Any,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(person: Any, key: str, **given: Any) -> Any:
        return api(person).post(reverse("api-gates"), asked(**given), format="json", headers={"Idempotency-Key": key})

    first = ask(alice, "k1").json()["id"]
    assert ask(alice, "k1").json()["id"] == first and Gate.objects.count() == 1
    other = ask(alice, "k1", build="b3")
    assert other.status_code == 409 and "Idempotency-Key" in other.json()["fields"] and not Build.objects.filter(name="b3").exists()
    assert ask(olga, "k1").json()["id"] != first                # keys are each person's own
    assert ask(alice, "x" * 81).status_code == 400
    unseen = iter([None, Gate.objects.get(pk=first)])           # both look before either has written: the constraint decides
    monkeypatch.setattr(services, "_existing_gate", lambda *args: next(unseen))
    assert ask(alice, "k1").json()["id"] == first and Gate.objects.filter(owner=alice).count() == 1


def test_viewers_read_and_engineers_ask(suite: Suite, api: Any, alice: Any, bob: Any) -> None:
    assert api(bob).post(reverse("api-gates"), asked(), format="json").status_code == 403
    made = api(alice).post(reverse("api-gates"), asked(), format="json").json()["id"]
    assert api(bob).get(reverse("api-gate", args=[made])).status_code == 200
    for name in ("api-gate-stop", "api-gate-again"):
        assert api(bob).post(reverse(name, args=[made])).status_code == 403
        assert api(alice).post(reverse(name, args=[made])).status_code == 200
    baselines = reverse("api-baselines", args=[suite.pk])
    assert api(bob).post(baselines, {"action": "roll"}, format="json").status_code == 403


@pytest.mark.parametrize(("wrong", "field"), [
    ({"suite": "nobody"}, "suite"), ({"suite": 7}, "suite"), ({"suite": HALF}, "suite"), ({"build": True}, "build"),
    ({"build": HALF}, "build"), ({"build": "a\0"}, "build"), ({"build": "x" * 81}, "build"), ({"build": None}, "build"),
    ({"environment": [1]}, "environment"), ({"environment": {"gpu": HALF}}, "environment"),
    ({"environment": {"gpu": {}}}, "environment"), ({"environment": "H200"}, "environment"),
    ({"against": HALF}, "against"), ({"title": HALF}, "title"),
    ({"branch": "a\0b"}, "branch"),
    ({"url": "ftp://x"}, "url"), ({"url": HALF}, "url"), ({"at": "yesterday"}, "at"), ({"at": "9999-01-01T00:00:00Z"}, "at"),
    ({"configs": []}, "configs"), ({"configs": {HALF: {"a": 1}}}, "configs"), ({"runs": True}, "runs"), ({"runs": "5"}, "runs"),
    ({"runs": 5}, "runs"), ({"runs": []}, "runs"), ({"runs": [7]}, "runs"),
    ({"runs": [{"op": HALF, "run": 1, "us": [1.0]}]}, "runs"),
    ({"runs": [{"op": "m", "run": HUGE, "us": [1.0], "shape": {}}]}, "runs"), ({"parent": HALF}, "parent"),
    ({"author": HALF}, "author")])
def test_what_is_sent_is_refused_with_the_fields_name(suite: Suite, api: Any, alice: Any, wrong: dict[str, Any],
                                                      field: str) -> None:
    answer = api(alice).post(reverse("api-gates"), json.dumps(asked(**wrong)), content_type="application/json")
    assert answer.status_code in (400, 404, 409), answer.content
    assert any(field in name for name in answer.json()["fields"]), answer.json()
    answer.content.decode()
    assert not Gate.objects.exists() and not Build.objects.exists()


@pytest.mark.parametrize("body", ["[" * 100_000, '{"suite": NaN}', "null", "7", '"x"', "[]", "{", '{"runs": [' + "[" * 5000])
def test_what_is_no_request_is_refused(suite: Suite, api: Any, alice: Any, body: str) -> None:
    answer = api(alice).post(reverse("api-gates"), body, content_type="application/json")
    assert answer.status_code == 400 and answer.json()["error"]


@pytest.mark.parametrize("query", ["wait=x", "wait=NaN", "wait=-1", "wait=1e999", "wait="])
def test_a_wait_that_is_no_time_is_answered_at_once(suite: Suite, api: Any, alice: Any, query: str) -> None:
    made = api(alice).post(reverse("api-gates"), asked(runs=None) | {"runs": records(range(1, 3))}, format="json").json()["id"]
    began = time.monotonic()
    assert api(alice).get(f"{reverse('api-gate', args=[made])}?{query}").status_code in (200, 400)
    assert time.monotonic() - began < 20


@pytest.mark.django_db(transaction=True)
def test_a_wait_ends_with_the_gate(suite: Suite, api: Any, alice: Any) -> None:
    row = Gate.objects.create(suite=suite, build=Build.objects.create(name="b", at="2026-11-01T00:00:00Z"), status="waiting")

    def end() -> None:
        time.sleep(0.4)
        Gate.objects.filter(pk=row.pk).update(status="done", verdict="PASS")
        from django.db import connection
        connection.close()
    ends = threading.Thread(target=end)
    ends.start()
    began = time.monotonic()
    told = api(alice).get(f"{reverse('api-gate', args=[row.pk])}?wait=60").json()
    ends.join()
    assert told["verdict"] == "PASS" and 0.3 < time.monotonic() - began < 30
    row.status = "waiting"
    row.save()
    began = time.monotonic()
    assert api(alice).get(f"{reverse('api-gate', args=[row.pk])}?wait=0.6").json()["exit_code"] is None
    assert 0.5 < time.monotonic() - began < 20


def test_only_so_many_wait_at_once(suite: Suite, monkeypatch: Any) -> None:
    row = Gate.objects.create(suite=suite, build=Build.objects.create(name="b", at="2026-11-01T00:00:00Z"), status="waiting")
    monkeypatch.setattr(gate_api, "_waiting_slots", threading.BoundedSemaphore(1))
    assert gate_api._waiting_slots.acquire(blocking=False)
    began = time.monotonic()
    assert not gate_api.wait_for_end(row.pk, 60)
    assert time.monotonic() - began < 30


def test_baselines_say_what_the_next_build_is_compared_with(suite: Suite, api: Any, alice: Any) -> None:
    gate(suite, "b1", range(1, 11))
    where = reverse("api-baselines", args=[suite.pk])
    told = api(alice).get(where, {"samples": 1}).json()
    assert told["environment"] == {**H200, "recorded": ""} and len(told["kernels"]) == 3
    softmax = next(each for each in told["kernels"] if each["op"] == "softmax")
    assert (softmax["mode"], softmax["runs"], softmax["builds"], len(softmax["samples"][0]["us"])) == ("rolling", 10, ["b1"], 100)
    [one] = api(alice).get(where, {"kernel": softmax["kernel"]}).json()["kernels"]
    assert one["kernel"] == softmax["kernel"] and "samples" not in one
    assert api(alice).get(where, {"kernel": "nobody"}).status_code == 400
    SuiteKernel.objects.bulk_create(SuiteKernel(suite=suite, key=f"k{n}", op="k", family="k") for n in range(50))
    assert api(alice).get(where, {"samples": 1}).status_code == 400 and api(alice).get(where).status_code == 200
    assert softmax["low_us"] <= softmax["p50_us"] <= softmax["high_us"] and 0 < softmax["spread"] < 0.02
    made = api(alice).post(where, {"action": "pin", "build": "b1", "kernel": softmax["kernel"], "note": "release 1"}, format="json")
    assert made.status_code == 201 and made.json()["author"] == "alice"
    told = api(alice).get(where).json()
    assert [each["action"] for each in told["changes"]] == ["pin"]
    assert next(each for each in told["kernels"] if each["op"] == "softmax")["change"]["note"] == "release 1"


def test_an_accepted_change_answers_its_regression(suite: Suite, api: Any, alice: Any) -> None:
    gate(suite, "b1", range(1, 11))
    worse = gate(suite, "b2", range(11, 16), {"softmax": 1.08, "matmul": 1.1}, hour=1)
    said = {"action": "intended", "build": "b2", "note": "exact exponent",
            "kernel": worse.kernels.get(kernel__op="softmax").kernel.key}
    assert api(alice).post(reverse("api-baselines", args=[suite.pk]), said, format="json").status_code == 201
    states = {row.family: (row.state, row.note) for row in Regression.objects.all()}
    assert states == {"softmax": ("intended", "exact exponent"), "matmul": ("open", "")}


@pytest.mark.parametrize(("said", "field"), [
    ({"action": "forget"}, "action"), ({"action": "pin"}, "build"), ({"action": "pin", "build": "nobody"}, "build"),
    ({"action": "pin", "build": HALF}, "build"), ({"action": "roll", "kernel": "nobody"}, "kernel"),
    ({"action": "intended", "build": "b1"}, "note"), ({"action": "roll", "note": HALF}, "note"),
    ({"action": "roll", "gpu": HALF}, "gpu")])
def test_a_change_that_cannot_be_is_refused(suite: Suite, api: Any, alice: Any, said: dict[str, Any], field: str) -> None:
    gate(suite, "b1", range(1, 4))
    answer = api(alice).post(reverse("api-baselines", args=[suite.pk]), json.dumps(said), content_type="application/json")
    assert answer.status_code == 400 and field in answer.json()["fields"], answer.content
    assert not BaselineChange.objects.exists()


def test_the_baselines_page_answers_first_and_keeps_what_was_typed(suite: Suite, client: Any, alice: Any, bob: Any) -> None:
    where = reverse("suite-baselines", args=[suite.pk])
    client.force_login(bob)
    assert "No run of this suite" in client.get(where).content.decode()
    gate(suite, "b1", range(1, 11))
    gate(suite, "b2", range(11, 16), hour=1, environment={**H200, "driver": "590.44"})
    page = client.get(where, {"driver": "580.159"}).content.decode()
    assert "3 of 3 kernels have a baseline" in page and page.count('class="sp-dot"') == 30 and "Say so" not in page
    assert "No run was taken on driver 1; shown instead" in client.get(where, {"driver": "1"}).content.decode()
    assert client.post(reverse("baseline-change", args=[suite.pk]), {"action": "roll"}).status_code == 403
    client.force_login(alice)
    change = reverse("baseline-change", args=[suite.pk])
    wrong = client.post(change, {"action": "intended", "build": "nobody", "note": "why & how"})
    assert wrong.status_code == 400
    assert "why &amp; how" in wrong.content.decode() and "no build of this name" in wrong.content.decode()
    good = client.post(change, {"action": "intended", "build": "b1", "note": "exact"}, follow=True)
    assert "in force" in good.content.decode() and "exact" in good.content.decode()


def test_the_baselines_page_costs_as_many_queries_for_many_builds(suite: Suite, client: Any, bob: Any,
                                                                  django_assert_max_num_queries: Any) -> None:
    for n in range(1, 5):
        gate(suite, f"b{n}", range(5 * n - 4, 5 * n + 1), hour=n)
    client.force_login(bob)
    with django_assert_max_num_queries(25):
        client.get(reverse("suite-baselines", args=[suite.pk]))
