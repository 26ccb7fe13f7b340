"""The weekly digest says what the pages say, goes where it is asked for, and only where something happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from profiles.models import KernelFamily, KernelStat, Profile
from tuner.gate.channels.services import add_destination
from tuner.gate.regressions.services import change_regression
from tuner.models import Delivery, Gate, Regression, TuneJob
from webapp.models import DigestSent, TalkPreference
from webapp.threads import digest as weeks
from webapp.threads import digest_services, services, subjects

pytestmark = [pytest.mark.servers, pytest.mark.django_db]


def test_a_week_is_monday_to_sunday() -> None:
    start, end = weeks.bounds("2026-W01")
    assert (start.date().isoformat(), end.date().isoformat()) == ("2025-12-29", "2026-01-05")
    assert weeks.week_of(start.date()) == "2026-W01" and weeks.week_of((end - timedelta(days=1)).date()) == "2026-W01"
    for wrong in ("2026-W54", "2026W01", "0000-W01", "9999-W99", "2026-W00"):
        with pytest.raises(ValueError, match="no week"):
            weeks.bounds(wrong)


@pytest.fixture
def week(regression: Regression, alice: Any, olga: Any) -> str:
    """One of everything in this week, and one of each before it."""
    now, long_ago = timezone.now(), datetime(2026, 1, 5, tzinfo=UTC)
    same = {"suite": regression.suite, "build": regression.build, "found_by": "gate"}
    fixed = Regression.objects.create(**same, family="matmul", gpu="H200", ratio=1.2)
    change_regression(fixed, "fixed", by=alice)
    noted = Regression.objects.create(**same, family="norm", state="fixed",
                                      history=[{"at": long_ago.isoformat(), "who": "", "state": "fixed", "note": ""}])
    Regression.objects.filter(pk__in=[fixed.pk, noted.pk]).update(created=long_ago)
    job = {"operator": "softmax", "shape": {"R": 64, "C": 64}, "dtype": "fp16", "device": "gpu", "strategy": "random",
           "gpu": "H200", "budget_trials": 1, "budget_seconds": 1.0, "status": "done", "default_ms": 3.0}
    TuneJob.objects.create(**job, best_ms=2.0, finished=now)
    TuneJob.objects.create(**job, best_ms=3.0, finished=now)            # won nothing
    TuneJob.objects.create(**job, best_ms=1.0, finished=long_ago)
    gate = {"suite": regression.suite, "build": regression.build}
    for status, verdict, finished in (("done", "SLOWER", now), ("failed", "", now), ("done", "PASS", now),
                                      ("done", "SLOWER", long_ago)):
        Gate.objects.create(**gate, status=status, verdict=verdict, finished=finished)
    subject = subjects.find("regression", str(regression.pk))
    assert subject is not None
    services.assign(services.thread_ensure(subject), "olga", by=alice)
    profile = Profile.objects.create(name="run", status="ready", kind="trace", format="kineto", gpu="H200", wall_ns=10**9)
    family = KernelFamily.objects.create(name="gemm_kernel", function="gemm_kernel")
    KernelStat.objects.create(profile=profile, family=family, name="gemm_kernel", short_name="gemm_kernel", launches=4,
                              total_ns=4e8)
    return weeks.week_of(timezone.localdate())


def test_its_numbers_are_those_of_the_pages(week: str, client: Client, olga: Any, sign_in_mode: None) -> None:
    client.force_login(olga)
    told = client.get("/api/digest/", {"week": week}).json()
    assert {name: told[name]["count"] for name in ("regressions", "resolved", "tune_wins", "gate_failures", "assigned")} == {
        "regressions": 1, "resolved": 1, "tune_wins": 1, "gate_failures": 2, "assigned": 1}
    page = client.get("/digest/", {"week": week})
    shown = page.context["digest"]
    regressions = {row["id"]: row for row in client.get("/api/regressions/").json()["results"]}
    for row in (*told["regressions"]["rows"], *told["resolved"]["rows"]):
        assert (row["ratio"], row["state"]) == (regressions[row["id"]]["ratio"], regressions[row["id"]]["state"])
    for row, size in shown.found.rows:
        assert size in client.get(f"/regressions/{row.pk}/").content.decode() and size in page.content.decode()
    home = client.get("/").context["fixes"]
    assert [(fix.line.name, fix.line.worth.total_ns) for fix in home] == [
        (row["name"], row["total_ns"]) for row in told["worth_fixing"]] != []
    assert [(row.pk, row.status) for row in client.get("/threads/", {"assignee": "olga"}).context["page"]] == [
        (row["thread"], row["status"]) for row in told["assigned"]["rows"]]
    gates = {row["id"]: row["verdict"] for row in client.get("/api/gates/").json()["gates"]}
    assert all((gates[row["id"]] or None) == row["verdict"] for row in told["gate_failures"]["rows"])
    text = digest_services.text_of(weeks.digest(week))
    assert "New regressions: 1" in text and "8.0 % slower since b2" in text and "1.50× the default" in text and "&" not in text


def test_it_goes_to_who_asks_for_it_once(week: str, olga: Any, bob: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add_destination(kind="email", address="team@example.org", verdicts=["DIGEST"])
    add_destination(kind="email", address="ci@example.org")
    TalkPreference.objects.create(user=olga, digest=True)
    TalkPreference.objects.create(user=bob, digest=False)
    monkeypatch.setattr(digest_services, "week_due", lambda: week)
    assert digest_services.send_due() == 1 and digest_services.send_due() == 0
    delivery = Delivery.objects.get()
    assert (delivery.to.address, delivery.event, delivery.status) == ("team@example.org", f"digest {week}", "waiting")
    assert delivery.body["digest"]["regressions"]["count"] == 1 and "New regressions: 1" in delivery.body["mail"]
    assert [each.to for each in mail.outbox] == [["olga@example.org"]] and DigestSent.objects.get().told == 2


def test_nothing_is_sent_when_nothing_happened(olga: Any) -> None:
    add_destination(kind="email", address="team@example.org", verdicts=["DIGEST"])
    TalkPreference.objects.create(user=olga, digest=True)
    said = StringIO()
    call_command("digest", "--week", "2026-W02", stdout=said)
    assert "sent to 0" in said.getvalue() and not Delivery.objects.exists() and not mail.outbox


def test_the_command_shows_and_refuses(week: str) -> None:
    said = StringIO()
    call_command("digest", "--week", week, "--dry-run", stdout=said)
    assert "Gates failed: 2" in said.getvalue() and not DigestSent.objects.exists()
    for wrong in (["--week", "yesterday"], ["--project", "nobody"]):
        with pytest.raises(CommandError):
            call_command("digest", *wrong)
