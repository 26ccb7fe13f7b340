"""Drift: 0.1 % a build raises no gate, and opens one regression of its own kind against a pinned baseline."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.urls import reverse
from django.utils import timezone

from tests.public_timing import medians_us
from tuner.gate.baselines.services import record_baseline_change
from tuner.gate.builds.selectors import slow_builds
from tuner.gate.history.series_services import update_series
from tuner.gate.regressions.services import change_regression
from tuner.gate.reports.message import regression_message
from tuner.gate.stats.noise import find_drift
from tuner.models import Build, KernelRun, Regression, Suite, SuiteKernel

ENV = {"gpu": "NVIDIA RTX A4000", "toolkit": "cuda 12.3", "driver": "535", "recorded": ""}
TIMES = medians_us()["CUDA_CUDA-12.3"]


def drawn(builds: int, per_build: float, seed: int = 3, step: tuple[int, float] = (0, 1.0)) -> list[Any]:
    """Runs of builds drawn from recorded runs of identical code, with a made drift."""
    series = np.random.default_rng(seed).choice(TIMES, (builds, 5)) * (1 + per_build) ** np.arange(builds)[:, None]
    series[step[0]:] *= step[1]
    return list(series)


def test_identical_builds_never_drift_and_a_drift_is_told_in_time() -> None:
    assert all(find_drift(drawn(300, 0.0, seed)[:n], 0.02) is None for seed in range(5) for n in range(10, 300, 5))
    told = [next(n for n in range(10, 80) if find_drift(drawn(80, 0.001, seed)[:n], 0.02)) for seed in range(5)]
    assert max(told) <= 45
    found = find_drift(drawn(60, 0.001), 0.02)
    assert found is not None and 0.0008 < found.per_build < 0.0012 and found.low > 1.02 and found.low < found.ratio < found.high


def test_one_step_is_no_drift_and_less_than_the_floor_is_none() -> None:
    assert find_drift(drawn(60, 0.0, step=(30, 1.08)), 0.02) is None
    assert find_drift(drawn(60, 0.001), 0.10) is None and find_drift(drawn(9, 0.05), 0.02) is None
    assert find_drift(drawn(60, -0.001), 0.02) is None


@pytest.fixture
def kernel(db: Any) -> SuiteKernel:
    suite = Suite.objects.create(name="long", kind=Suite.Kind.UPLOADED, device="")
    return SuiteKernel.objects.create(suite=suite, key="gemm", op="gemm", family="gemm", declared=False)


def arrive(kernel: SuiteKernel, series: Iterable[Any], first: int = 0) -> None:
    """Builds with their runs, and what the worker does then."""
    begin = timezone.now() - timedelta(days=300)
    for n, runs in enumerate(series, first):
        build = Build.objects.create(name=f"b{n:03}", at=begin + timedelta(days=n))
        KernelRun.objects.bulk_create(
            KernelRun(kernel=kernel, build=build, run=str(number), us=[us], p50_us=us, p95_us=us, n=1, **ENV)
            for number, us in enumerate(map(float, runs)))
    update_series(kernel.suite_id)


def test_a_drift_is_one_regression_with_its_ends_and_trend(kernel: SuiteKernel, api: Any, alice: Any, client: Any) -> None:
    arrive(kernel, drawn(55, 0.001))
    [row] = Regression.objects.filter(kind="drift")
    assert (row.good.name, row.build.name, row.state) == ("b000", "b054", "open")
    assert "% a build; no single gate was SLOWER" in row.why and 1.03 < row.ratio < 1.06
    arrive(kernel, drawn(60, 0.001)[55:], first=55)
    assert Regression.objects.filter(kind="drift").count() == 1, "once per drift, not with each build"
    told = regression_message({"suite": "long", "family": "gemm", "kind": row.kind, "build": row.build.name, "good": row.good.name,
                               "ratio": row.ratio, "low": row.low, "high": row.high}, "found")
    assert told["subject"].startswith("gemm of long drifted from b000 to b054: +") and "was not" not in told["mail"]
    client.force_login(alice)
    page = client.get(reverse("regression", args=[row.pk])).content.decode()
    assert "drifted" in page and "b000" in page and "b054" in page
    told = api(alice).get(reverse("api-regression", args=[row.pk])).json()
    assert told["kind"] == "drift" and told["good"] == "b000"


def test_an_accepted_drift_begins_anew_and_one_that_is_over_is_fixed(kernel: SuiteKernel, alice: Any) -> None:
    arrive(kernel, drawn(45, 0.001))
    row = Regression.objects.get(kind="drift")
    change_regression(row, "intended", note="more accurate", by=alice)
    arrive(kernel, drawn(55, 0.001)[45:], first=45)
    assert Regression.objects.filter(kind="drift").count() == 1, "measured from the accepted build on"
    arrive(kernel, drawn(85, 0.001)[55:], first=55)
    second = Regression.objects.filter(kind="drift").order_by("-pk").first()
    assert second.pk != row.pk and second.good.name == "b044"
    arrive(kernel, drawn(8, 0.0), first=85)
    second.refresh_from_db()
    assert second.state == "fixed" and "back at the baseline" in second.note


def test_a_person_pins_what_drift_is_measured_against(kernel: SuiteKernel, alice: Any) -> None:
    arrive(kernel, drawn(20, 0.001))
    record_baseline_change(kernel.suite, "pin", build=Build.objects.get(name="b015"), author=alice)
    arrive(kernel, drawn(35, 0.001)[20:], first=20)
    assert not Regression.objects.filter(kind="drift").exists(), "1.9 % since the pinned build"
    arrive(kernel, drawn(60, 0.001)[35:], first=35)
    assert Regression.objects.get(kind="drift").good.name == "b015"


def test_a_drift_keeps_no_build_out_of_baselines(kernel: SuiteKernel) -> None:
    arrive(kernel, drawn(45, 0.001))
    assert Regression.objects.filter(kind="drift").exists()
    Regression.objects.filter(kind="step").delete()
    assert slow_builds(kernel.suite, ENV) == {}
