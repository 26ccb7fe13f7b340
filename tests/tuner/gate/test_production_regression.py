"""One kernel that a build made slower in production: found, told, captured, answered, guarded, and led on from."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command
from django.test import TestCase
from django.urls import reverse
from django.utils import timezone

from profiles.models import FleetAgent, FleetCapture, KernelStat, Profile
from profiles.running.schedule_services import schedule_save
from tests.tuner.gate.test_production import GEMM, fleet_days
from tuner.gate.channels.services import add_destination
from tuner.gate.production import services
from tuner.gate.production.point_services import days_to_keep
from tuner.models import Build, Delivery, ProductionPoint, ProductionRegression, Suite, SuiteKernel

pytestmark = pytest.mark.django_db


class Look(NamedTuple):
    """What a look at sixteen days said."""

    waiting_days: int
    found: tuple[int, int]


@pytest.fixture(scope="module")
def look(made_once: None) -> Look:
    """Sixteen days, the gemm slower from the eleventh on, looked at once; what a test changes of the rows is undone after it."""
    add_destination(kind="email", address="team@example.org")
    schedule_save(name="regressions", when="regression", options={"milliseconds": 300})
    fleet_days(16, slow_from=11)
    FleetAgent.objects.create(name="asks", host="host-1", last_seen=timezone.now(), run=1, state={
        "asking": [{"pid": 7, "job": "train", "rank": 0}, {"pid": 8, "job": "other"}]})
    waiting = len(days_to_keep())
    with TestCase.captureOnCommitCallbacks(execute=True):
        found = services.watch_production()
    return Look(waiting, found)


@pytest.fixture
def row(look: Look, db: None) -> ProductionRegression:
    return ProductionRegression.objects.get()


def test_a_build_that_made_a_kernel_slower_is_found_told_and_answered(look: Look, row: ProductionRegression, alice: Any,
                                                                     client: Any, api: Any) -> None:
    assert look == (16, (16, 1))
    assert (row.kernel, row.from_build, row.to_build, row.gpu_model, row.state) == (GEMM.kernel, "b1", "b2", "NVIDIA H200", "open")
    assert row.ratio == pytest.approx(1.1, rel=0.01) and row.low and row.high and row.low < 1.1 < row.high
    assert row.shape == {"grid": [132, 1, 1], "block": [384, 1, 1], "shared_bytes": 231_424} and row.gpus == 3
    assert row.since == timezone.now().date() - timedelta(days=5)
    assert {"b1", "b2"} <= set(Build.objects.values_list("name", flat=True))
    message = Delivery.objects.get(to__address="team@example.org", production=row)
    assert "slower in production on NVIDIA H200" in message.body["subject"]
    assert reverse("production-regression", args=[row.pk]) in message.body["mail"]
    # the next look tells nobody again
    assert services.watch_production() == (0, 0) and services.look_for_changes(timezone.now().date() - timedelta(days=1)) == 0
    assert Delivery.objects.count() == 1

    client.force_login(alice)
    page = client.get(reverse("production-list")).content.decode()
    assert "1 kernel is slower in production" in page and "/fleet/?kernel=" in page and "b1 → b2" in page
    detail = client.get(reverse("production-regression", args=[row.pk]))
    assert detail.status_code == 200 and "CI missed it" in detail.content.decode() and "production-json" in detail.content.decode()
    document = api(alice).get(reverse("api-production")).json()
    assert document["series"] == 2 and document["days"] == 16 and document["rows"][0]["from_build"] == "b1"
    assert api(alice).get(reverse("api-production-regression", args=[row.pk])).json()["points"][0]["us"]
    out = io.StringIO()
    call_command("fleet", "regressions", "--json", stdout=out)
    assert json.loads(out.getvalue())["rows"][0]["id"] == row.pk

    assert client.post(reverse("production-change", args=[row.pk]), {"state": "intended"}).status_code == 400
    assert client.post(reverse("production-change", args=[row.pk]), {"state": "acknowledged", "note": "who"}).status_code == 302
    row.refresh_from_db()
    assert row.state == "acknowledged" and row.changed_by == alice
    refused = api(alice).post(reverse("api-production-regression", args=[row.pk]), {"state": "nonsense"}, format="json")
    assert refused.status_code == 400


def test_a_regression_that_opens_is_captured_by_its_schedule(row: ProductionRegression, alice: Any, client: Any,
                                                            django_capture_on_commit_callbacks: Any) -> None:
    (made,) = FleetCapture.objects.all()
    assert (made.pid, made.job, made.milliseconds) == (7, "train", 300) and "became slower" in made.why_ordered
    with django_capture_on_commit_callbacks(execute=True):
        services.look_for_changes(timezone.now().date() - timedelta(days=1))
    assert FleetCapture.objects.count() == 1                    # it opened once
    client.force_login(alice)
    page = client.get(reverse("production-regression", args=[row.pk])).content.decode()
    assert f"{reverse('fleet-captures')}?job=train" in page


def test_an_answered_regression_stays_answered_as_days_come(row: ProductionRegression) -> None:
    services.change_production(row, "intended", "the new attention is more exact")
    ProductionPoint.objects.filter(day=row.since).update(us=[132.0] * 6)
    assert services.look_for_changes(timezone.now().date() - timedelta(days=1)) == 0
    assert ProductionRegression.objects.get().state == "intended"


def test_what_ci_missed_becomes_a_suite_entry_that_takes_uploaded_runs(row: ProductionRegression, alice: Any, client: Any) -> None:
    from tuner.gate.suites.upload_services import runs_store

    client.force_login(alice)
    assert client.post(reverse("production-guard", args=[row.pk]), {"suite": "no such name!"}).status_code == 400
    Suite.objects.create(name="operators", kind="operators")
    assert client.post(reverse("production-guard", args=[row.pk]), {"suite": "operators"}).status_code == 400
    for _ in range(2):
        assert client.post(reverse("production-guard", args=[row.pk]), {"suite": "production"}).status_code == 302
    kernel = SuiteKernel.objects.get()
    op, shape = services.suite_entry(row)
    runs_store(kernel.suite, "b3", [{"op": op, "shape": shape, "run": run, "us": [120.0 + run, 121.0]} for run in range(3)],
               gpu="NVIDIA H200")
    assert SuiteKernel.objects.count() == 1 and kernel.runs.count() == 3
    assert kernel.suite.name in client.get(reverse("production-regression", args=[row.pk])).content.decode()


def test_a_kernel_that_a_profile_shows_leads_to_where_it_is_tuned_and_guarded(row: ProductionRegression, alice: Any,
                                                                              client: Any) -> None:
    client.force_login(alice)
    page = reverse("production-regression", args=[row.pk])
    assert "Tune and guard" not in client.get(page).content.decode()
    profile = Profile.objects.create(name="deep", status=Profile.Status.READY, kind="trace", gpu="NVIDIA H200")
    stat = KernelStat.objects.create(profile=profile, name=row.kernel, short_name=row.short_name, launches=4, total_ns=1000)
    assert f"/kernels/problem/?kernel={stat.pk}" in client.get(page).content.decode()
    assert row.short_name in client.get(f"/kernels/problem/?kernel={stat.pk}").content.decode()
