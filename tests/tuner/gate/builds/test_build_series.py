"""Series of kernels over builds: kept change points, and the regressions that they alone tell of."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tuner.gate.builds.test_builds import WHERE, gate
from tuner.gate.builds.services import ensure_build
from tuner.gate.history import series_selectors, series_services
from tuner.gate.regressions.services import change_regression, update_regressions
from tuner.models import BaselineChange, Build, KernelRun, KernelSeries, Regression, Suite, SuiteJob, SuiteKernel

pytestmark = pytest.mark.django_db
DAY = datetime(2026, 9, 1, tzinfo=UTC)
ENV = {**WHERE, "recorded": ""}


@pytest.fixture
def suite() -> Suite:
    suite = Suite.objects.create(name="nightly", kind="uploaded")
    for place, (key, family) in enumerate([("matmul M=64", "matmul"), ("matmul M=4096", "matmul"), ("softmax M=64", "softmax")]):
        SuiteKernel.objects.create(suite=suite, key=key, op=family, family=family, place=place)
    return suite


def measure(suite: Suite, levels_us: dict[str, list[float]], *, first: int = 0, runs: int = 5, noise: float = 0.003) -> list[Build]:
    """Builds b<first> …, each with `runs` fresh runs of each kernel around its level."""
    rng = np.random.default_rng([first, runs])
    count = len(next(iter(levels_us.values())))
    builds = [ensure_build(f"b{first + at}", at=DAY + timedelta(hours=first + at)) for at in range(count)]
    kernels = {kernel.key: kernel for kernel in suite.kernels.all()}
    KernelRun.objects.bulk_create([
        KernelRun(kernel=kernels[key], build=build, run=f"{build.name}-{at}-{key}", us=[level], n=1,
                  p50_us=level * float(np.exp(rng.normal(0, noise))), **ENV)
        for key, levels in levels_us.items() for build, level in zip(builds, levels, strict=True) for at in range(runs)])
    series_services.update_series(suite.pk)
    return builds


@pytest.mark.parametrize(("n", "interval"), [(1, None), (2, (0, 1)), (5, (0, 4)), (8, (1, 6)), (11, (2, 8))])
def test_the_interval_of_a_median_holds_it_as_often_as_it_says(n: int, interval: tuple[float, float] | None) -> None:
    assert series_selectors.median_interval([float(value) for value in range(n)]) == interval
    if n >= 5:
        rng = np.random.default_rng(n)
        found = [series_selectors.median_interval(rng.lognormal(size=n).tolist()) for _ in range(2000)]
        assert np.mean([low <= 1.0 <= high for low, high in found]) >= series_selectors.LEVEL - 0.015


def test_a_step_is_kept_with_its_range_and_becomes_one_regression_of_its_family(suite: Suite) -> None:
    measure(suite, {"matmul M=64": [20.0] * 10 + [21.0] * 8, "matmul M=4096": [200.0] * 10 + [216.0] * 8,
                    "softmax M=64": [30.0] * 18})
    of = {row.kernel.key: row for row in KernelSeries.objects.select_related("kernel")}
    step, = of["matmul M=4096"].changes
    assert (step["good"], step["build"], step["bad"]) == ("b9", "b10", "b10")
    assert step["low"] < 1.08 < step["high"]
    assert of["softmax M=64"].changes == []
    row = Regression.objects.get()
    assert (row.family, row.build.name, row.good.name, row.found_by, row.state) == ("matmul", "b10", "b9", "series", "open")
    assert row.kernels == ["matmul M=4096", "matmul M=64"]
    assert row.ratio == pytest.approx(1.08, abs=0.005)
    assert "200" in row.why and "µs" in row.why


def test_nothing_is_worked_out_twice_and_new_runs_are_found_by_the_sweep(suite: Suite, monkeypatch: Any) -> None:
    woken: list[tuple[str, str, int]] = []
    monkeypatch.setattr(series_services.jobs, "enqueue", lambda *entry: woken.append(entry))
    monkeypatch.setattr(series_services.jobs, "waiting", lambda task: set())
    measure(suite, {"softmax M=64": [30.0] * 6})
    assert series_services.update_series(suite.pk) == 0
    assert series_services.wake_stale_series() == []
    kernel = suite.kernels.get(key="softmax M=64")
    KernelRun.objects.create(kernel=kernel, build=ensure_build("new"), run="r", p50_us=30.0, n=1, **ENV)
    job = SuiteJob.objects.create(suite=suite, status="running", builds=[{"build": "new"}], runs=1, device="gpu")
    assert series_services.wake_stale_series() == []              # its end wakes it
    job.delete()
    assert series_services.wake_stale_series() == [suite.pk]
    assert woken == [("small", "series", suite.pk)]
    assert series_services.update_series(suite.pk) == 1
    assert series_services.update_series(10 ** 9) == 0


def test_a_run_that_was_rejected_is_looked_at_once(suite: Suite) -> None:
    KernelRun.objects.create(kernel=suite.kernels.first(), build=ensure_build("b0"), run="r", rejected="died", **ENV)
    assert series_services.update_series(suite.pk) == 1
    assert series_services.update_series(suite.pk) == 0


def test_the_series_and_a_gate_tell_of_one_regression(suite: Suite) -> None:
    builds = measure(suite, {"matmul M=4096": [200.0] * 8 + [216.0]})
    assert not Regression.objects.exists()                                        # one build may have had a bad session
    told, = update_regressions(gate(suite, builds[8], builds[2], k1=1.08))         # b8 is slower, b2 is not: a wide range
    measure(suite, {"matmul M=4096": [216.0] * 6}, first=9)
    row = Regression.objects.get()
    assert row.pk == told.pk
    assert (row.good.name, row.build.name) == ("b7", "b8")                        # and the series narrows it down
    assert "1.08 times" in row.why                                                # the gate's sentence stays


def test_back_at_the_old_speed_is_fixed_and_a_meant_step_is_none(suite: Suite) -> None:
    builds = measure(suite, {"matmul M=64": [20.0] * 8 + [21.6] * 8, "softmax M=64": [30.0] * 16})
    row = Regression.objects.get()
    measure(suite, {"matmul M=64": [20.0] * 8, "softmax M=64": [33.0] * 8}, first=16)
    row.refresh_from_db()
    assert (row.state, row.fixed_in.name) == ("fixed", "b16")
    other = Regression.objects.get(family="softmax")
    assert other.build.name == "b16"
    Regression.objects.all().delete()
    KernelSeries.objects.all().delete()
    BaselineChange.objects.create(suite=suite, action="intended", build=Build.objects.get(name="b16"))
    series_services.update_series(suite.pk)
    assert list(Regression.objects.values_list("family", "build__name")) == [("matmul", builds[8].name)]


def test_a_creep_in_the_series_is_one_regression_that_grows(suite: Suite) -> None:
    creep = [30.0] * 8 + [31.0] * 6 + [32.1] * 6 + [33.2] * 6
    measure(suite, {"softmax M=64": creep})
    row = Regression.objects.get()
    assert (row.build.name, row.ratio) == ("b8", pytest.approx(33.2 / 30, abs=0.01)) and len(row.history) == 2
    measure(suite, {"softmax M=64": [33.2] * 2}, first=26)
    assert len(Regression.objects.get().history) == 2, "looked at again, it did not grow"
    measure(suite, {"softmax M=64": [30.0] * 8 + [33.0] * 8}, first=28)
    states = dict(Regression.objects.values_list("build__name", "state"))
    assert states == {"b8": "fixed", "b36": "open"}, "what comes after the repair is another one"


def test_what_the_series_no_longer_shows_is_closed_unless_somebody_took_it_up(suite: Suite, alice: Any) -> None:
    builds = measure(suite, {"matmul M=64": [20.0] * 8, "softmax M=64": [30.0] * 8})
    rows = [Regression.objects.create(suite=suite, family=family, build=builds[4], good=builds[3], kernels=[key], ratio=1.05,
                                      found_by="series", **ENV)
            for family, key in (("matmul", "matmul M=64"), ("softmax", "softmax M=64"))]
    change_regression(rows[1], "acknowledged", by=alice)
    measure(suite, {"matmul M=64": [20.0], "softmax M=64": [30.0]}, first=8)
    assert [Regression.objects.get(pk=row.pk).state for row in rows] == ["fixed", "acknowledged"]
    assert "no such change" in Regression.objects.get(pk=rows[0].pk).note


def test_branches_and_environments_are_series_of_their_own(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(suite, {"softmax M=64": [30.0] * 6})
    kernel = suite.kernels.get(key="softmax M=64")
    branch = ensure_build("pr", branch="fix")
    KernelRun.objects.create(kernel=kernel, build=branch, run="r", p50_us=40.0, n=1, **ENV)
    KernelRun.objects.create(kernel=kernel, build=branch, run="s", p50_us=50.0, n=1, **{**ENV, "driver": "590.1"})
    series_services.update_series(suite.pk)
    assert sorted(KernelSeries.objects.values_list("branch", "driver", "builds")) == [
        ("", "580.159", 6), ("fix", "580.159", 1), ("fix", "590.1", 1)]
    assert series_selectors.measured_lines(suite) == ["", "fix"]
    main, = series_selectors.load_series(suite, ENV)
    assert [point.build.name for point in main.points] == [f"b{at}" for at in range(6)]
    monkeypatch.setattr(series_selectors, "MOST_RUNS", 7)           # the newest seven, in the order in which they were measured
    newest, = series_selectors.load_series(suite, ENV)
    assert [us for point in newest.points for us in point.us] == [us for point in main.points for us in point.us][-7:]


def test_runs_that_were_timed_in_another_way_are_no_part_of_the_series(suite: Suite) -> None:
    measure(suite, {"softmax M=64": [30.0] * 6})
    KernelRun.objects.update(environment={"timing": "cold, 100 samples after 50"})
    measure(suite, {"softmax M=64": [24.0] * 6}, first=6)
    KernelRun.objects.filter(build__name__in=[f"b{at}" for at in range(6, 12)]).update(environment={"timing": "warm, 100 samples"})
    KernelSeries.objects.all().delete()
    Regression.objects.all().delete()
    series_services.update_series(suite.pk)
    row = KernelSeries.objects.get()
    assert (row.builds, row.changes) == (6, [])


def test_steps_survive_the_row_as_they_were(suite: Suite) -> None:
    measure(suite, {"matmul M=64": [20.0] * 10 + [21.0] * 10})
    one, = series_selectors.load_series(suite, ENV, keys=["matmul M=64"])
    assert one.computed and one.steps[0].slower and len(one.since) == 10
    assert json.loads(json.dumps(KernelSeries.objects.get(kernel=one.kernel).changes)) == [vars(one.steps[0])]


def test_recorded_runs_cut_into_builds_of_identical_code_show_no_regression(suite: Suite) -> None:
    """Runs recorded on an H200, five a build, in a drawn order: no code changed, so nothing got slower."""
    import gzip

    path = Path(__file__).parents[3] / "data/h200/timing_runs.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    kernel = suite.kernels.get(key="softmax M=64")
    mine = [float(np.median(row["us"])) for row in rows if row["op"] == rows[0]["op"] and row["shape"] == rows[0]["shape"]
            and row.get("config") == rows[0].get("config")]
    rng = np.random.default_rng(7)
    for at in range(20):
        build = ensure_build(f"b{at}", at=DAY + timedelta(hours=at))
        for run, us in enumerate(rng.choice(mine, 5, replace=False)):
            KernelRun.objects.create(kernel=kernel, build=build, run=f"{at}-{run}", p50_us=us, n=1, **ENV)
    series_services.update_series(suite.pk)
    assert KernelSeries.objects.get().changes == []
    assert not Regression.objects.exists()
