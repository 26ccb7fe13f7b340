"""Kernels that are slower in production: found from the fleet's own sums, told once, answered, closed; equal builds are quiet."""

from __future__ import annotations

import io
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.fleet import services as fleet_services
from profiles.fleet.models import FleetDay
from profiles.fleet.stores import fleet_store
from tests.scale import DEEP
from tuner.gate.channels.services import add_destination
from tuner.gate.production import series as production_series
from tuner.gate.production import services
from tuner.gate.production.point_services import Watched, days_to_keep, wake_production
from tuner.gate.production.selectors import list_sentence, watched_text
from tuner.gate.production.series import Day, alpha_of, hour_levels, in_order, steps
from tuner.models import Build, Delivery, ProductionPoint, ProductionRegression
from workers.agent.aggregate import Aggregator
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.wire import make_batch, pack

HOUR_NS = 3_600_000_000_000
GEMM = Signature("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", (132, 1, 1), (384, 1, 1), 231_424)
NORM = Signature("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float)",
                 (4096, 1, 1), (32, 4, 1), 48)


def fleet_days(days: int, *, slow_from: int | None = None, factor: float = 1.1, gpus: int = 3, simulated: bool = False,
               bad_gpu: bool = False, back_from: int | None = None, first_day: int = 0) -> date:
    """Send so many days of an hourly window a GPU through the agent's own batches, sum them; return the newest day.

    The gemm is `factor` slower from day `slow_from` on, with a new build; the layer norm stays as it is.
    """
    today = (timezone.now().date() - date(1970, 1, 1)).days
    for at in range(first_day, days):
        day, rng = today - days + at, np.random.default_rng(at)
        slow = slow_from is not None and at >= slow_from and (back_from is None or at < back_from)
        build = "b1" if slow_from is None or at < slow_from else "b2" if back_from is None or at < back_from else "b3"
        sums = Aggregator()
        for hour in range(0, 24, 4):
            for gpu in range(gpus):
                base = np.array([120e3 * (factor if slow else 1.0), 29e3])
                base = base * 1.6 if bad_gpu and gpu == 0 and at > days // 2 else base
                level = base * np.exp(rng.normal(0, 0.003, 2))
                durations = np.concatenate([each * rng.lognormal(0, 0.03, 40) for each in level]).astype(np.int64)
                context = Context("train", build, "NVIDIA H200", "llama", "torch 2.11", "580.159", simulated)
                sums.add(Window(context, Gpu(f"GPU-{gpu}", "NVIDIA H200", "host-1"), day * 24 * HOUR_NS + hour * HOUR_NS,
                                60_000_000_000, HOUR_NS, sum_durations(np.repeat([0, 1], 40), durations, [GEMM, NORM])))
        fleet_services.batch_accept(pack(make_batch(f"agent-{simulated}", day, 0, sums.take())))
    fleet_services.merge_waiting()
    fleet_store().roll_up([(day - date(1970, 1, 1)).days for day in FleetDay.objects.values_list("day", flat=True)])
    return date(1970, 1, 1) + timedelta(days=today - 1)


# ---- the statistics ----

def made_days(rng: np.random.Generator, count: int, day_sd: float, step: float = 1.0, at: int | None = None) -> list[Day]:
    levels = 80 * np.exp(rng.normal(0, day_sd, count)) * np.where(np.arange(count) >= (count if at is None else at), step, 1.0)
    return [Day(day, f"b{day // 4}" if at is None else f"b{int(day >= at)}", (level * np.exp(rng.normal(0, 0.004, 6))).tolist())
            for day, level in enumerate(levels)]


@pytest.mark.slow
def test_hundreds_of_series_of_identical_builds_are_quiet() -> None:
    """Looked at every day of a week, as a server does; days and blocks differ, and every fourth day is another build.

    bench/fleet_alarms.py does the same for many more weeks and worse days; docs/fleet-regressions.md has what it says.
    """
    rng = np.random.default_rng(23)
    spread = np.exp(rng.normal(np.log(0.0015), 0.5, 1000 if DEEP else 250))
    fleet = [made_days(rng, 42 + 7, float(sd)) for sd in spread]
    told = {(number, step.at.day) for look in range(7) for number, days in enumerate(fleet)
            for step in steps(days[look + 1:look + 43], 1000)}
    assert not told


@pytest.mark.parametrize(("step", "sd"), [(1.03, 0.002), (1.05, 0.004), (1.12, 0.006), (2.0, 0.01)])
def test_a_step_is_found_once_three_days_stand_after_it(step: float, sd: float) -> None:
    found = 0
    for seed in range(20):
        days = made_days(np.random.default_rng(seed), 20, sd, step, 15)
        told = steps(days, 1000)
        assert len(told) <= 1
        if told:
            found += 1
            assert abs(told[0].change.index - 15) <= 1 and told[0].change.ratio == pytest.approx(step, rel=0.02)
            assert told[0].change.low < told[0].change.ratio < told[0].change.high
    assert found >= 18
    assert steps(made_days(np.random.default_rng(1), 17, sd, step, 15), 1000) == []       # two days are weather


def test_what_is_below_the_floor_or_rests_on_bad_days_is_not_told() -> None:
    rng = np.random.default_rng(3)
    assert steps(made_days(rng, 40, 0.001, 1.015, 20), 1000) == []
    bad = made_days(rng, 40, 0.003)
    bad[20] = Day(20, "b5", [each * 1.5 for each in bad[20].us])
    bad[21] = Day(21, "b5", [each * 1.3 for each in bad[21].us])
    assert steps(bad, 1000) == []


def test_the_level_of_the_test_is_divided_by_series_and_looks() -> None:
    assert alpha_of(1000) == pytest.approx(0.01 / 7000) and alpha_of(1) == production_series.ALPHA_BUILDS


def test_builds_stand_as_they_were_first_seen() -> None:
    days = [Day(3, "a", [1.0]), Day(1, "a", [1.0]), Day(2, "b", [1.0]), Day(1, "b", [1.0], 30), Day(4, "b", [1.0])]
    assert [(each.build, each.day) for each in in_order(days)] == [("a", 1), ("a", 3), ("b", 1), ("b", 2), ("b", 4)]


def test_the_level_of_an_hour_is_the_median_over_gpus() -> None:
    rows = [(0, gpu, 7, 1, 100, 0, 100 * np.log(value)) for gpu, value in enumerate([10.0, 11.0, 12.0, 500.0, 13.0])]
    rows += [(0, 9, 7, 1, 5, 0, 5 * np.log(1.0)), (0, 9, 7, 99, 100, 0, 0.0)]        # too few launches; a context of nobody
    (found,) = hour_levels(rows, {1: 0}).values()
    assert np.exp(found[0]) == pytest.approx(12.0) and found[1] == 500 and found[3] == 5
    assert hour_levels([], {}) == {}


# ---- rows ----

@pytest.mark.django_db
def test_one_slow_gpu_moves_no_series() -> None:
    fleet_days(14, bad_gpu=True)
    assert services.watch_production() == (14, 0)
    assert ProductionPoint.objects.values("signature").distinct().count() == 2


@pytest.mark.django_db
def test_what_is_back_at_its_old_speed_is_fixed() -> None:
    fleet_days(22, slow_from=9, back_from=16)
    services.watch_production()
    row = ProductionRegression.objects.get()
    assert row.state == "fixed" and row.fixed_in == "b3" and row.to_build == "b2"


def test_what_is_quiet_is_said_of_what_was_watched_alone() -> None:
    whole = Watched(series=12, seldom=3, beyond=0, watched_ns=930, seen_ns=1000)
    assert list_sentence([], 12, 14, whole) == (
        "Nothing is slower among the 12 series watched over 14 days, changes above 2 %. They hold 93.0 % of the GPU time seen; "
        "not watched: 3 series with fewer than 20 launches of a GPU in every hour.")
    assert "hold 99.9 % of the GPU time seen; not watched: 5 series" in watched_text(Watched(2, 0, 5, 999_999, 1_000_000))
    assert watched_text(Watched(2, 0, 0, 1000, 1000)) == "They hold all of the GPU time seen."
    assert "hours with fewer than 20" in watched_text(Watched(2, 0, 0, 900, 1000))
    assert "not counted" in watched_text(Watched.of_days([None, None]))
    two = Watched.of_days([{**whole.as_json(), "seldom": 1}, None, whole.as_json()])
    assert two and (two.seldom, two.watched_ns, two.seen_ns) == (1, 1860, 2000)


@pytest.mark.django_db
def test_kernels_that_run_too_seldom_to_be_watched_are_counted(alice: Any, client: Any, api: Any) -> None:
    """One more kernel, 19 launches an hour: it has no level, and the answer says how much GPU time that leaves out."""
    newest = fleet_days(8)
    sums, hour = Aggregator(), (newest - date(1970, 1, 1)).days * 24 * HOUR_NS
    rare = Signature("rare_kernel", (1, 1, 1), (32, 1, 1), 0)
    context = Context("train", "b1", "NVIDIA H200", "llama", "torch 2.11", "580.159", False)
    sums.add(Window(context, Gpu("GPU-0", "NVIDIA H200", "host-1"), hour, 60_000_000_000, HOUR_NS,
                    sum_durations(np.zeros(19, np.int64), np.full(19, 1_000_000, np.int64), [rare])))
    fleet_services.batch_accept(pack(make_batch("agent-rare", 1, 0, sums.take())))
    fleet_services.merge_waiting()
    fleet_store().roll_up([(newest - date(1970, 1, 1)).days])
    services.watch_production()
    document = api(alice).get(reverse("api-production")).json()
    watched = document["watched"]
    assert (watched["series"], watched["seldom"], watched["beyond"]) == (2, 1, 0)
    assert watched["seen_ns"] - watched["watched_ns"] == 19_000_000
    client.force_login(alice)
    says = "not watched: 1 series with fewer than 20 launches of a GPU in every hour."
    assert document["says"].endswith(says) and says in client.get(reverse("production-list")).content.decode()
    out = io.StringIO()
    call_command("fleet", "regressions", stdout=out)
    assert says in out.getvalue()


@pytest.mark.django_db
def test_simulated_kernels_are_labelled_and_never_mixed(alice: Any, client: Any) -> None:
    add_destination(kind="email", address="team@example.org")
    fleet_days(15, slow_from=11, simulated=True)
    fleet_days(15, first_day=9)
    assert services.watch_production() == (15, 1)
    row = ProductionRegression.objects.get()
    assert row.simulated and ProductionPoint.objects.filter(simulated=False).count() == 12
    assert Delivery.objects.get().body["subject"].startswith("Simulated: ")
    client.force_login(alice)
    assert "simulated" in client.get(reverse("production-list")).content.decode()
    with pytest.raises(Refused):
        services.guard_kernel(row, "production", alice)
    assert not Build.objects.exists()


@pytest.mark.django_db
def test_a_day_that_is_summed_again_wakes_another_look() -> None:
    newest = fleet_days(4)
    woken = wake_production(set())
    assert len(woken) == 1 and wake_production({1}) == []
    assert services.watch_production() == (4, 0) and wake_production(set()) == []
    fleet_store().roll_up([(newest - date(1970, 1, 1)).days])
    assert days_to_keep() == [newest]
