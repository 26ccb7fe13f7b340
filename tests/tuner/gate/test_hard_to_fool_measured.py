"""As test_hard_to_fool.py, of a suite that a worker measures: b2 is SLOWER by its configuration."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from tests.tuner.gate.recorded_suite import KEY, SIMILAR, SLOWER, THREE, suite_made
from tests.tuner.gate.test_gates_measured import at, base, measured
from tests.tuner.gate.test_hard_to_fool import stays
from tuner.gate.builds.services import ensure_build
from tuner.gate.client import gate_table
from tuner.gate.suites.run_services import run_record
from tuner.gate.verdicts import selectors, services
from tuner.models import KernelRun, Regression, SlowerVerdict, Suite

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unwatched")]


@pytest.fixture(scope="module")
def measured_once(unwatched: None, made_once: None) -> None:
    """What a test changes of its rows is undone after it."""
    suite = suite_made(THREE)
    base(suite)
    assert measured(services.create_gate(suite, "b2", at=at(1), configs={KEY: SLOWER})).verdict == "SLOWER"


@pytest.fixture
def nightly(measured_once: None, db: None) -> Suite:
    return Suite.objects.get()


def test_a_retry_without_its_configuration_stays_slower(nightly: Suite) -> None:
    again = measured(services.create_gate(nightly, "b2"))
    stays(again, "configuration", "PER_SM=32", "instead of", "PER_SM=8")
    row = again.kernels.get(kernel__key=KEY)
    assert row.facts["stays"]["by_itself"] == "PASS" and 0.98 < row.ratio_p50 < 1.02, "its own numbers stand beside it"
    assert Regression.objects.get().ratio > 1.05, "the regression keeps what was measured"
    assert measured(services.create_gate(nightly, "b3", at=at(2))).verdict == "PASS", "a new build is judged by itself"


def test_the_same_question_asked_again_may_clear_a_build_and_says_so(nightly: Suite) -> None:
    row = SlowerVerdict.objects.get()
    SlowerVerdict.objects.update(basis={**row.basis, "config": nightly.kernels.get(key=KEY).config})     # as if noise had done it
    found = measured(services.create_gate(nightly, "b2"))
    assert found.verdict == "PASS" and "asked in at least the same way" in found.report["standing"][0]["says"]
    row.refresh_from_db()
    assert row.over is not None and f"gate {row.number}" in row.over_because
    assert measured(services.create_gate(nightly, "b2", configs={KEY: SIMILAR})).verdict == "PASS", "nothing stands any more"


def test_asking_until_one_is_green_does_not_help(nightly: Suite) -> None:
    measured(services.create_gate(nightly, "b2", configs={KEY: SLOWER}))
    row = SlowerVerdict.objects.get()
    assert (row.said_slower, row.said_not) == (2, 0)
    SlowerVerdict.objects.update(basis={**row.basis, "config": nightly.kernels.get(key=KEY).config})
    stays(measured(services.create_gate(nightly, "b2")), "2 gates asked in this way say SLOWER, 1 does not")
    row.refresh_from_db()
    assert (row.said_slower, row.said_not, row.over) == (2, 1, None), "one more that does not say SLOWER clears it"


def test_fewer_runs_stay_slower(nightly: Suite) -> None:
    SlowerVerdict.objects.update(basis={**SlowerVerdict.objects.get().basis, "config": nightly.kernels.get(key=KEY).config})
    stays(measured(services.create_gate(nightly, "b2", runs=4)), "4 runs instead of 5")


def test_a_kernel_that_is_switched_off_or_renamed_stays_slower(nightly: Suite) -> None:
    nightly.kernels.filter(key=KEY).update(enabled=False)
    found = measured(services.create_gate(nightly, "b2"))
    stays(found, "switched off in the suite or bears another name")
    assert found.kernels.get(kernel__key=KEY).candidate_runs == []


def test_another_timing_policy_or_other_limits_stay_slower(nightly: Suite) -> None:
    SlowerVerdict.objects.update(basis={**SlowerVerdict.objects.get().basis, "config": nightly.kernels.get(key=KEY).config})
    nightly.policy, nightly.metrics = {"min_samples": 20}, {"registers": {"max_increase": 5.0, "optional": True}}
    nightly.save()
    stays(measured(services.create_gate(nightly, "b2")), "another policy", "other limits beside time")


def test_the_same_code_under_another_name_stays_slower(nightly: Suite) -> None:
    for build in ("b2", "b2-renamed"):
        ensure_build(build, url="https://ci/pull/7")
    KernelRun.objects.filter(build__name="b2").update(source_hash="h1")
    kernel = nightly.kernels.get(key=KEY)
    SlowerVerdict.objects.update(basis={**SlowerVerdict.objects.get().basis, "config": kernel.config})
    renamed = services.create_gate(nightly, "b2-renamed", runs=4, at=at(2))
    renamed = measured(renamed)
    run_record(None, kernel, "b2-renamed", number=99, run="h", us=[40.0] * 20, source_hash="h1", gpu="NVIDIA H200")
    stays(measured(services.create_gate(nightly, "b2-renamed", runs=4)), "in build b2 ", "4 runs instead of 5")


def test_an_older_pass_no_longer_answers_for_the_build(nightly: Suite, api: Any, alice: Any) -> None:
    passed = measured(services.create_gate(nightly, "b4", at=at(4)))
    assert passed.verdict == "PASS"
    worse = measured(services.create_gate(nightly, "b4", configs={KEY: SLOWER}))
    assert worse.verdict == "SLOWER"
    told = selectors.gate_document(passed)
    assert told["exit_code"] == 1 and f"gate {worse.pk} says SLOWER" in gate_table(told)
    page = api(alice).get(reverse("api-gate", args=[passed.pk])).json()
    assert page["exit_code"] == 1 and page["verdict"] == "PASS"
