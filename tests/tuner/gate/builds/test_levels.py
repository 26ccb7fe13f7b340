"""A baseline holds one level: what becomes of a suite after a build that is faster, and of one whose days differ."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.urls import reverse
from django.utils import timezone

from tuner.gate.baselines.levels import series_starts
from tuner.gate.baselines.selectors import Env, load_baselines
from tuner.gate.baselines.services import record_baseline_change
from tuner.gate.builds.services import ensure_build
from tuner.gate.reports import github
from tuner.gate.suites.upload_services import runs_store
from tuner.gate.verdicts import selectors, services
from tuner.models import Gate, Regression, Suite

pytestmark = pytest.mark.django_db
H200 = {"gpu": "NVIDIA H200", "toolkit": "cuda 13.0, triton 3.6.0", "driver": "580.159"}


@pytest.fixture
def suite() -> Suite:
    return Suite.objects.create(name="nightly", kind=Suite.Kind.UPLOADED, device="")


def runs(levels: dict[str, float], seed: int, count: int = 5, scale: float = 1.0) -> list[dict[str, Any]]:
    """Runs of kernels at these levels (µs), 0.4 % apart, 30 samples each."""
    random = np.random.default_rng(seed)
    return [{"run": str(run), "op": op, "shape": {"N": 64}, "us": (scale * level * np.exp(0.004 * random.standard_normal())
                                                                  * (1 + 0.01 * random.standard_normal(30))).tolist()}
            for run in range(count) for op, level in levels.items()]


def at(hour: int) -> Any:
    return timezone.now() - timedelta(days=20) + timedelta(hours=hour)


def gate(suite: Suite, hour: int, levels: dict[str, float], scale: float = 1.0, **given: Any) -> Gate:
    """The gate of build b<hour>."""
    return services.create_gate(suite, f"b{hour}", at=at(hour), environment=H200, records=runs(levels, hour, scale=scale), **given)


def test_after_a_faster_build_a_return_is_slower_however_often_it_comes(suite: Suite) -> None:
    levels = [40.0, 40.0, 40.0, 32.0, 40.0, 40.0, 32.0, 32.0, 40.0]
    found = [gate(suite, hour, {"softmax": us, "matmul": 90.0, "add": 12.0}) for hour, us in enumerate(levels)]
    assert [each.verdict for each in found] == ["NO DATA", "PASS", "PASS", "FASTER", "SLOWER", "SLOWER", "PASS", "PASS", "SLOWER"]
    for each in (found[4], found[5], found[8]):
        softmax = each.kernels.get(kernel__op="softmax")
        assert softmax.ratio_p50 == pytest.approx(1.25, abs=0.02) and "back at the speed of build b2" in softmax.reason
        assert set(softmax.facts["baseline"]["builds"]) in ({"b3"}, {"b6", "b7"})
    kernels = list(suite.kernels.select_related("suite"))
    softmax = load_baselines(kernels, Env(**H200))[suite.kernels.get(op="softmax").pk]
    assert "since b3 made it faster" in softmax.says and {run.build.name for run in softmax.earlier} == {"b2", "b1"}
    assert Regression.objects.filter(family="softmax").count() == 2, "fixed in between, and come back"
    record_baseline_change(suite, "intended", build=ensure_build("b8"), note="more accurate")
    assert gate(suite, 9, {"softmax": 40.0, "matmul": 90.0, "add": 12.0}).verdict == "PASS"


def test_a_slip_of_units_is_red_and_no_baseline(suite: Suite) -> None:
    levels = {"softmax": 400.0, "matmul": 900.0}
    for hour in range(2):
        gate(suite, hour, levels)
    slip = gate(suite, 2, levels, scale=1e-3)
    assert slip.verdict == "AMBIGUOUS" and "not believed: units? (1000 times faster)" in slip.reason
    after = gate(suite, 3, levels)
    assert after.verdict == "PASS" and "b2" not in after.kernels.first().facts["baseline"]["builds"]
    runs_store(suite, ensure_build("b4", at=at(4)), runs(levels, 4, scale=1e-3), **H200)          # and nobody asked for a gate
    last = gate(suite, 5, levels)
    assert last.verdict == "PASS" and "b4" not in last.kernels.first().facts["baseline"]["builds"]
    short = gate(suite, 6, {"softmax": 40.0, "matmul": 90.0}, scale=1e-3)
    assert short.verdict == "NO DATA" and "shorter than any launch" in short.reason


def test_what_is_slower_by_its_mean_is_said_so_wherever_its_number_stands(suite: Suite, client: Any, alice: Any) -> None:
    """10 % of slow launches, then 40 %: neither p50 nor p95 moves."""
    for hour, slow in enumerate((0.1, 0.1, 0.4)):
        random = np.random.default_rng(hour)
        us = 40 * (1 + 0.004 * random.standard_normal((5, 100))) * np.where(random.random((5, 100)) < slow, 1.6, 1.0)
        lines = [{"run": str(run), "op": "softmax", "shape": {"N": 64}, "us": each.tolist()} for run, each in enumerate(us)]
        found = services.create_gate(suite, f"b{hour}", at=at(hour), environment=H200, records=lines)
    row = found.kernels.get()
    assert (found.verdict, row.decided.name) == ("SLOWER", "mean") and row.ratio_p50 < 1.02 < 1.1 < row.decided.ratio
    regression = Regression.objects.get()
    assert (regression.quantity, regression.ratio) == ("mean", row.decided.ratio)
    document = selectors.gate_document(found)
    assert document["kernels"][0]["decided"]["quantity"] == "mean"
    title = github.check_run(document, head_sha="a" * 40)["output"]["title"]
    assert title.endswith(f"softmax N=64 mean +{100 * (row.decided.ratio - 1):.1f} %")
    client.force_login(alice)
    number = f"+{100 * (row.decided.ratio - 1):.1f} %"
    for page in (reverse("gate", args=[found.pk]), reverse("gate-kernel", args=[found.pk, row.pk]), reverse("gate-list"),
                 reverse("regression-list"), reverse("regression", args=[regression.pk])):
        text = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", client.get(page).content.decode()))
        assert f"mean {number}" in text, page
    builds = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", client.get(reverse("build-list"), {"suite": "nightly"}).content.decode()))
    assert f"▲ {number}" in builds


def test_samples_of_two_units_in_one_process_are_no_run(suite: Suite) -> None:
    levels = {"softmax": 400.0, "matmul": 900.0}
    for hour in range(2):
        gate(suite, hour, levels)
    lines = [{**each, "us": [us * (1e-3 if at % 3 == 0 else 1) for at, us in enumerate(each["us"])]} for each in runs(levels, 2)]
    slip = services.create_gate(suite, "b2", at=at(2), environment=H200, records=lines)
    assert slip.verdict == "NO DATA" and "20 of 30 samples are about 1000 times the others: units?" in slip.reason
    assert gate(suite, 3, levels).verdict == "PASS"
    hiccup = [{**each, "us": [each["us"][0] * 1000, *each["us"][1:]]} for each in runs(levels, 4)]        # one launch that waited
    assert services.create_gate(suite, "b4", at=at(4), environment=H200, records=hiccup).verdict == "PASS"


def test_a_first_build_in_another_unit_is_set_right_by_a_persons_word(suite: Suite) -> None:
    levels = {"softmax": 400.0, "matmul": 900.0}
    gate(suite, 0, levels, scale=1e3)
    assert "units? (1000 times faster), of this build or of its baseline" in gate(suite, 1, levels).reason
    record_baseline_change(suite, "intended", build=ensure_build("b1"), note="b0 was in ns")
    assert gate(suite, 2, levels).verdict == "PASS"


@pytest.mark.parametrize("judged", [True, False])
def test_a_build_that_no_gate_compared_with_the_level_does_not_mix_into_it(suite: Suite, judged: bool) -> None:
    """It passed against an old build alone, or nobody asked: its runs are of the speed before, and so was every later verdict."""
    levels = {"softmax": 40.0, "matmul": 90.0}
    for hour, us in enumerate((40.0, 40.0, 30.0)):
        found = gate(suite, hour, {**levels, "softmax": us})
    assert found.verdict == "FASTER"
    if judged:
        assert gate(suite, 3, levels, against="b1").verdict == "PASS"
    else:
        runs_store(suite, ensure_build("b3", at=at(3)), runs(levels, 3), **H200)
    last = gate(suite, 4, levels)
    softmax = last.kernels.get(kernel__op="softmax")
    assert (last.verdict, softmax.facts["baseline"]["builds"]) == ("SLOWER", ["b2"]), softmax.reason
    assert set(last.kernels.get(kernel__op="matmul").facts["baseline"]["builds"]) == {"b2", "b3"}, "there it is no other level"


def test_looking_at_a_faster_side_branch_makes_no_build_of_the_main_line_a_slow_one(suite: Suite) -> None:
    levels = {"softmax": 40.0, "matmul": 90.0}
    for hour in range(3):
        gate(suite, hour, levels)
    runs_store(suite, ensure_build("fast", at=at(-5), branch="side"), runs({**levels, "softmax": 36.0}, 50), **H200)
    found = services.create_gate(suite, "b2", against="fast", environment=H200)
    assert found.verdict == "SLOWER" and not Regression.objects.exists()
    assert gate(suite, 3, levels).kernels.get(kernel__op="softmax").facts["baseline"]["builds"] == ["b2", "b1"]
    old = services.create_gate(suite, "b4", at=at(4), against="b0", environment=H200, records=runs({**levels, "softmax": 44.0}, 4))
    assert old.verdict == "SLOWER" and Regression.objects.get().build.name == "b4", "against its own past it is one"
    assert gate(suite, 5, levels).kernels.get(kernel__op="softmax").facts["baseline"]["builds"] == ["b3", "b2"]


def test_days_that_differ_blame_nobody_and_are_known_from_the_history(suite: Suite) -> None:
    levels = {"softmax": 40.0, "matmul": 90.0}
    for hour in range(2):
        gate(suite, hour, levels)
    doubted = gate(suite, 2, levels, scale=1.055)
    assert doubted.verdict == "AMBIGUOUS" and "sessions differ by 2 % (taken as such: too few" in doubted.reason
    ensure_build("b2").delete()
    for hour in range(3, 7):
        assert gate(suite, hour, levels).verdict == "PASS"
    known = gate(suite, 7, levels, scale=1.055)
    assert known.verdict == "SLOWER", "all days were alike"


def test_an_environment_is_one_however_it_is_spelled(suite: Suite) -> None:
    levels = {"softmax": 40.0, "matmul": 90.0}
    for hour in range(2):
        gate(suite, hour, levels)
    spelled = {"gpu": "nvidia  H200", "toolkit": "Triton 3.6.0 ,CUDA 13.0", "driver": " 580.159"}
    found = services.create_gate(suite, "b2", at=at(2), environment=spelled, records=runs(levels, 2))
    assert (found.verdict, found.gpu, found.toolkit, found.driver) == ("PASS", *H200.values())
    for environment in ({**H200, "gpu": "h200", "toolkit": "CUDA version 13.0 Triton v3.6.0", "driver": "Driver Version: 580.159"},
                        {"gpu": "NVIDIA-H200", "cuda": "CUDA 13.0", "triton": "v3.6.0", "driver": "580.159"}):
        found = services.create_gate(suite, "b2", at=at(2), environment=environment)
        assert (found.verdict, found.gpu, found.toolkit, found.driver) == ("PASS", *H200.values())
    other = services.create_gate(suite, "b3", at=at(3), environment={**H200, "driver": "590.1"}, records=runs(levels, 3))
    assert other.verdict == "NO DATA" and "driver 580.159 → 590.1" in other.reason and "NVIDIA H200 →" not in other.reason


def test_a_series_begins_anew_where_it_is_faster_than_ever() -> None:
    def step(bad: str, before: float, after: float) -> dict[str, Any]:
        return {"bad": bad, "before_us": before, "after_us": after}

    assert series_starts([step("b", 100, 80)], 0.02) == [("b", 100.0)]
    assert series_starts([step("b", 100, 120), step("c", 120, 100)], 0.02) == [], "back at its old speed"
    assert series_starts([step("b", 100, 120), step("c", 120, 90), step("d", 90, 89.5)], 0.02) == [("c", 120.0)]
