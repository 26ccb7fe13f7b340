"""A build that is SLOWER does not become green by asking in a weaker way, and becomes green in the ways that the verdict names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from tests.tuner.gate.test_gates import H200, gate, records
from tuner.gate.baselines.services import record_baseline_change
from tuner.gate.builds.services import ensure_build
from tuner.gate.client import gate_table
from tuner.gate.regressions.services import change_regression
from tuner.gate.reports import REPORTS
from tuner.gate.suites.upload_services import runs_store
from tuner.gate.verdicts import selectors, services
from tuner.gate.verdicts.sides_selectors import candidate_runs, spread_over
from tuner.models import Gate, GateKernel, KernelRun, Regression, Suite

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unwatched")]


@pytest.fixture(scope="module")
def sent_once(made_once: None) -> None:
    """A suite of uploaded runs in which b2 is SLOWER in softmax; what a test changes of its rows is undone after it."""
    suite = Suite.objects.create(name="sent", kind=Suite.Kind.UPLOADED, device="")
    gate(suite, "b1", range(1, 11))
    assert gate(suite, "b2", range(11, 16), {"softmax": 1.08}, hour=1).verdict == "SLOWER"


@pytest.fixture
def sent(sent_once: None, db: None) -> Suite:
    return Suite.objects.get()


def softmax(of: Gate) -> GateKernel:
    return of.kernels.get(kernel__op="softmax")


def stays(found: Gate, *words: str) -> None:
    """Red, exit code 1, and the reason names what was asked otherwise, wherever it is read."""
    document = selectors.gate_document(found)
    assert (found.status, found.verdict, document["exit_code"]) == ("done", "SLOWER", 1), found.reason
    texts = [found.reason, gate_table(document), REPORTS["md"].make(document).decode().replace("\\", ""),
             REPORTS["junit"].make(document).decode(), json.dumps(document, ensure_ascii=False)]
    for word in words:
        for text in texts:
            assert word in text.replace("&#9650;", ""), (word, text)
    assert "Green again by" in document["green"] and "Green again by" in gate_table(document)
    assert b"<failure" in REPORTS["junit"].make(document)


@pytest.mark.parametrize(("rule", "words"), [({"target": 0.2, "floor": 0.15}, "floor 15 % instead of 2 %"),
                                             ({"alpha": 1e-6}, "alpha 0.0001 % instead of 1 %")])
def test_a_more_lenient_rule_stays_slower(sent: Suite, rule: dict[str, float], words: str) -> None:
    sent.rule = rule
    sent.save()
    stays(services.create_gate(sent, "b2", records=records([16], {"softmax": 1.08}), environment=H200), words)


def test_the_same_gate_judged_again_under_another_rule_stays_slower(sent: Suite) -> None:
    sent.rule = {"target": 0.2, "floor": 0.15}
    sent.save()
    found = services.measure_gate_again(Gate.objects.get(build__name="b2"))
    stays(found, "floor 15 % instead of 2 %")


def test_another_baseline_stays_slower(sent: Suite) -> None:
    runs_store(sent, ensure_build("slow", at=timezone.now()), records(range(1, 11), {"softmax": 1.09}, label="s"), **H200)
    stays(services.create_gate(sent, "b2", against="slow", environment=H200), "against slow instead of b1")


def test_slow_runs_sent_for_the_baselines_build_stay_slower(sent: Suite) -> None:
    runs_store(sent, "b1", records(range(15, 25), {"softmax": 1.09}, label="late"), **H200)
    stays(services.create_gate(sent, "b2", environment=H200), "10 runs of the baseline came after that verdict")


def test_a_commit_time_that_moves_the_build_stays_slower(sent: Suite) -> None:
    early = Gate.objects.get(build__name="b1").build.at - timezone.timedelta(days=1)
    stays(services.create_gate(sent, "b2", at=early, environment=H200), "asked otherwise")


def test_another_gpu_model_or_driver_stays_slower(sent: Suite) -> None:
    b200 = {**H200, "gpu": "NVIDIA B200"}
    runs_store(sent, "b1", records(range(15, 25), label="x"), **b200)
    fast = records(range(1, 6), dict.fromkeys(("softmax", "matmul", "layernorm"), 1.0001))
    found = services.create_gate(sent, "b2", environment=b200, records=fast)
    stays(found, "on NVIDIA B200", "instead of NVIDIA H200")
    assert softmax(found).facts["stays"]["by_itself"] in ("PASS", "NO DATA")


def test_a_deleted_gate_leaves_its_verdict_and_a_page_of_its_number(sent: Suite) -> None:
    number = Gate.objects.get(build__name="b2").pk
    Gate.objects.filter(pk=number).delete()
    KernelRun.objects.filter(build__name="b2").delete()
    found = services.create_gate(sent, "b2", environment=H200, records=records(range(16, 21), label="new"))
    assert softmax(found).facts["stays"] is not None if found.verdict == "SLOWER" else found.report["standing"]
    assert f"gate {number}" in json.dumps(found.report["standing"])


def test_runs_of_the_old_build_under_the_new_ones_name_are_no_runs_of_it(sent: Suite) -> None:
    copied = [{**line, "run": f"c{line['run']}"} for line in records(range(1, 11))]
    found = services.create_gate(sent, "b2", environment=H200, records=copied)
    assert found.verdict == "SLOWER"
    assert KernelRun.objects.filter(build__name="b2", rejected__contains="samples of a run of b1").count() == len(copied)
    fresh = services.create_gate(sent, "b9", environment=H200, records=copied)
    assert selectors.exit_code(fresh) == 2 and "samples of a run of b1" in fresh.kernels.first().reason
    before = KernelRun.objects.count()
    runs_store(sent, "b9", copied, **H200)
    assert KernelRun.objects.count() == before, "sent twice they are known"


def test_all_runs_of_a_build_count_not_the_newest(sent: Suite) -> None:
    found = Gate.objects.get(build__name="b2")
    for n in range(20):                                   # 20 uploads of 5 fast runs: 100 newer than the slow ones
        more = [{**line, "us": [us * (1 + 1e-6 * n) for us in line["us"]]} for line in records(range(16, 21), label=f"u{n}-")]
        runs_store(sent, "b2", more, **H200)
    chosen = [row for row in candidate_runs(found) if row.kernel.op == "softmax"]
    assert len(chosen) == 100 and sum(row.p50_us > 40 for row in chosen) >= 1
    assert spread_over(list(range(200)), 100)[0] == 0 and spread_over(list(range(200)), 100)[-1] == 199
    assert spread_over([1, 2], 100) == [1, 2]


def test_a_pin_to_the_slow_build_is_refused_and_an_older_pin_is_named(sent: Suite, alice: Any) -> None:
    with pytest.raises(Refused, match="SLOWER in softmax"):
        record_baseline_change(sent, "pin", build=ensure_build("b2"), author=alice)
    record_baseline_change(sent, "pin", build=ensure_build("b1"), author=alice, note="release 1")
    found = gate(sent, "b3", range(16, 21), hour=2)
    assert found.verdict == "PASS"
    assert any("pinned to b1 by alice" in note and "release 1" in note for note in found.report["notes"])


def test_comparing_with_a_slow_build_is_named(sent: Suite) -> None:
    found = gate(sent, "b3", range(16, 21), {"softmax": 1.08}, hour=2, against="b2")
    assert found.verdict == "PASS"
    assert any("compared with b2, which gate" in note for note in selectors.gate_document(found)["notes"])


def test_an_intended_regression_is_green_and_says_who_and_when(sent: Suite, alice: Any) -> None:
    change_regression(Regression.objects.get(), "intended", note="exact exponent", by=alice)
    found = services.create_gate(sent, "b2", environment=H200)
    document = selectors.gate_document(found)
    assert (document["verdict"], document["exit_code"]) == ("PASS", 0), found.reason
    for text in (gate_table(document), REPORTS["md"].make(document).decode()):
        assert "alice said on" in text and "exact exponent" in text
    assert gate(sent, "b3", range(16, 21), {"softmax": 1.08}, hour=2).verdict == "PASS"


def test_an_environments_slowdown_is_a_persons_word_too(sent: Suite, alice: Any) -> None:
    change_regression(Regression.objects.get(), "environment", note="fan was broken", by=alice)
    sent.rule = {"target": 0.2, "floor": 0.15}
    sent.save()
    found = services.create_gate(sent, "b2", environment=H200)
    assert found.verdict == "PASS" and "alice said on" in found.report["standing"][0]["says"]


def test_a_request_key_answers_only_the_request_that_made_it(sent: Suite, api: Any, alice: Any) -> None:
    client, where = api(alice), reverse("api-gates")
    body = {"suite": "sent", "build": "b5", "environment": H200, "runs": records(range(16, 21), label="k")}
    first = client.post(where, body, format="json", HTTP_IDEMPOTENCY_KEY="k1")
    again = client.post(where, body, format="json", HTTP_IDEMPOTENCY_KEY="k1")
    assert first.status_code == again.status_code == 201 and first.json()["id"] == again.json()["id"]
    other = client.post(where, {**body, "against": "b1"}, format="json", HTTP_IDEMPOTENCY_KEY="k1")
    assert other.status_code == 409 and "another way" in json.dumps(other.json())


def test_exploring_against_another_build_does_not_redden_the_ordinary_gate(sent: Suite) -> None:
    assert gate(sent, "b6", range(16, 21), hour=6).verdict == "PASS"
    runs_store(sent, ensure_build("fast"), records(range(1, 11), {"softmax": 0.9}, label="f"), **H200)
    assert services.create_gate(sent, "b6", against="fast", environment=H200).verdict == "SLOWER"
    assert services.create_gate(sent, "b6", environment=H200).verdict == "PASS"
