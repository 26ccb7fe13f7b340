"""The search API: short lines of every kind, each with an address that answers."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from profiles.fleet.models import FleetAgent
from profiles.models import Capture, CaptureTarget, KernelStat, Profile
from tuner.models import Build, CachedConfig, Candidate, Suite, TuneJob
from webapp.frame.api import LINES

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("alice", password="x"))
    return client


def everything_called(name: str) -> None:
    run = Profile.objects.create(name=name, build=f"{name}-old", status="failed", error={"error": "cut short"}, kind="trace",
                                 file_name="t.json", upload_key="k")
    KernelStat.objects.create(profile=run, name=name, short_name=name, category="compute", launches=1, total_ns=1, mean_ns=1,
                              p50_ns=1, p95_ns=1, min_ns=1, max_ns=1, share_pct=1)
    Build.objects.create(name=f"{name}/new", at=timezone.now())
    Suite.objects.create(name=name)
    TuneJob.objects.create(operator=name, dtype="fp16", shape={"M": 1}, strategy="random", budget_trials=1, budget_seconds=1)
    Candidate.objects.create(operator=name, dtype="fp16", shape={"M": 1}, text="x", note="tiles of 64", verdict="FASTER")
    target = CaptureTarget.objects.create(name=name, argv=["true"])
    Capture.objects.create(target=target, tool="torch")
    FleetAgent.objects.create(name=name, host="h")


def test_each_kind_is_found_and_its_address_answers(alice: Client) -> None:
    everything_called("zebra")
    groups = alice.get(reverse("api-search"), {"q": "zebra"}).json()["groups"]
    assert [group["kind"] for group in groups] == ["profiles", "kernels", "builds", "suites", "tune jobs", "candidates",
                                                  "captures", "agents"]
    for group in groups:
        for hit in group["hits"]:
            assert "zebra" in hit["title"]
            assert alice.get(hit["url"]).status_code == 200, hit
    assert {group["kind"] for group in groups} | {"gates", "configurations"} == set(LINES)
    assert CachedConfig.objects.count() == 0


def test_a_candidate_is_found_by_its_note_and_its_verdict(alice: Client) -> None:
    everything_called("zebra")
    [group] = alice.get(reverse("api-search"), {"q": "tiles faster"}).json()["groups"]
    assert [(group["kind"], hit["title"], hit["detail"]) for hit in group["hits"]] == [
        ("candidates", f"#{Candidate.objects.get().pk} candidate of zebra fp16 M 1", "FASTER")]
    page = alice.get(reverse("search"), {"q": "tiles faster"}).content.decode()
    assert ">FASTER</span>" in page and "tiles of 64" in page


def test_a_group_is_short_and_says_that_there_are_more(alice: Client) -> None:
    for number in range(7):
        FleetAgent.objects.create(name=f"node-{number}")
    [group] = alice.get(reverse("api-search"), {"q": "node"}).json()["groups"]
    assert len(group["hits"]) == 5 and group["more"]


@pytest.mark.parametrize("query", ["", "   ", "%", "'; drop table x", "x" * 5000])
def test_any_text_is_answered(alice: Client, query: str) -> None:
    assert alice.get(reverse("api-search"), {"q": query}).json() == {"groups": []}


