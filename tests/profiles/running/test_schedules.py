"""Schedules of captures: when each is due, what it orders, and its budgets."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.models import FleetAgent, FleetCapture, FleetContext, Profile
from profiles.running import engine_services, selectors
from profiles.running import schedule_services as services
from profiles.running.models import CaptureSchedule, EngineCapture, EngineServer
from tests.profiles.running.peer import Peer, peer

pytestmark = pytest.mark.django_db


def asking(build: str = "b1") -> FleetAgent:
    told = [{"pid": 10 + rank, "job": "train", "rank": rank, "build": build} for rank in range(2)] + [{"pid": 30, "job": "serve"}]
    return FleetAgent.objects.update_or_create(name="agent-1", defaults={
        "host": "host-1", "last_seen": timezone.now(), "run": 1, "state": {"asking": told}})[0]


def due() -> None:
    CaptureSchedule.objects.update(next_due=timezone.now() - timedelta(seconds=1))


def test_a_night_is_due_once_and_its_ranks_count_once() -> None:
    asking()
    row = services.schedule_save(name="nightly", when="night", job="train", ranks="0-1", minute=0, options={"milliseconds": 300})
    assert row.next_due is not None and timedelta(0) < row.next_due - timezone.now() <= timedelta(days=1)
    assert services.wake_schedules() == [] and services.run_due() == []
    due()
    assert services.wake_schedules() == [row.pk] and services.wake_schedules({7}) == []
    assert services.run_due() == [row.pk] and services.run_due() == []
    rows = list(FleetCapture.objects.all())
    assert [(each.rank, each.milliseconds, each.schedule_id) for each in sorted(rows, key=lambda each: each.pid)] == [
        (0, 300, row.pk), (1, 300, row.pk)] and len({each.together for each in rows}) == 1
    row.refresh_from_db()
    assert (row.last_why, services.spent(row)) == ("", 1) and row.next_due > timezone.now()
    due()
    services.run_due()
    row.refresh_from_db()
    assert row.last_why == "its 1 captures of the day are made" and FleetCapture.objects.count() == 2


def test_a_night_that_nobody_could_run_is_left_out() -> None:
    asking()
    row = services.schedule_save(name="nightly", when="night", job="train", minute=0)
    CaptureSchedule.objects.update(next_due=timezone.now() - timedelta(hours=7))
    services.run_due()
    row.refresh_from_db()
    assert "nobody ran it" in row.last_why and not FleetCapture.objects.exists()


def test_a_budget_of_the_job_counts_what_anybody_asked() -> None:
    agent = asking()
    services.schedule_save(name="nightly", when="night", job="train", per_job_day=2, per_day=9)
    together = uuid.uuid4()
    for pid in (1, 2):
        FleetCapture.objects.create(agent=agent, pid=pid, job="train", together=together)
    FleetCapture.objects.create(agent=agent, pid=3, job="train")
    due()
    services.run_due()
    assert CaptureSchedule.objects.get().last_why == "2 captures of train were made today" and FleetCapture.objects.count() == 3


def test_each_build_is_captured_once() -> None:
    asking("b1")
    row = services.schedule_save(name="builds", when="build", job="train", per_day=5)
    for build, count in (("b1", 1), ("b1", 1), ("b2", 2), ("b2", 2)):
        asking(build)
        due()
        services.run_due()
        assert FleetCapture.objects.count() == count, build
    assert "build b2" in FleetCapture.objects.latest("pk").why_ordered
    FleetAgent.objects.update(state={})
    due()
    services.run_due()
    row.refresh_from_db()
    assert row.enabled and row.seen == {"builds": ["b1", "b2"]}


def test_builds_that_run_beside_each_other_are_captured_once_each_in_their_own_processes() -> None:
    told = [{"pid": pid, "job": "train", "rank": pid, "build": build} for pid, build in ((10, "b1"), (11, "b2"))]
    FleetAgent.objects.create(name="agent", host="h", last_seen=timezone.now(), state={"asking": told})
    services.schedule_save(name="builds", when="build", job="train", per_day=9, per_job_day=9)
    for _ in range(5):                      # a rolling update: both are seen at every look
        due()
        services.run_due()
    made = FleetCapture.objects.order_by("pk").values_list("pid", "why_ordered")
    assert [(pid, why.rpartition(" ")[2]) for pid, why in made] == [(10, "b1"), (11, "b2")]


def test_one_of_so_many_requests_of_a_server(tmp_path: Path) -> None:
    with peer() as own:
        server = engine_services.server_save(name="llama", kind="vllm", address=own.address, folder=str(tmp_path))
        row = services.schedule_save(name="requests", when="requests", server=server, requests=100, per_day=3,
                                     options={"until": "seconds", "seconds": 1})
        due()
        services.run_due()
        assert not EngineCapture.objects.exists()                   # the first look counts
        own.began_s -= 11                                           # 110 requests later
        due()
        services.run_due()
        (made,) = EngineCapture.objects.all()
        assert (made.schedule_id, made.seconds, made.status) == (row.pk, 1.0, "queued")
        due()
        services.run_due()
        assert EngineCapture.objects.count() == 1
        own.on["/metrics"] = lambda _: (200, b"nothing", {})
        due()
        services.run_due()
        row.refresh_from_db()
        assert row.last_why == "its metrics do not count requests" and row.next_due is not None


def test_a_regression_captures_processes_that_run_its_build() -> None:
    asking("b2")
    row = services.schedule_save(name="regressions", when="regression", options={"stacks": True})
    other = services.schedule_save(name="only serve", when="regression", job="serve")
    FleetContext.objects.create(id=1, job="train", build="b2", gpu_model="NVIDIA H200", model="llama")
    FleetContext.objects.create(id=2, job="serve", build="b1", gpu_model="NVIDIA H200", model="llama")
    assert services.regression_opened("NVIDIA H200", "llama", "b2", "gemm became slower") == [other.pk, row.pk]
    (made,) = FleetCapture.objects.all()
    assert (made.job, made.stacks, made.schedule_id) == ("train", True, row.pk) and "gemm became slower" in made.why_ordered
    assert {each.name: each.last_why for each in CaptureSchedule.objects.all()} == {
        "regressions": "", "only serve": "no process of it asks for captures"}


def test_what_is_paused_is_not_run_and_says_nothing() -> None:
    asking()
    row = services.schedule_save(name="nightly", when="night", job="train")
    services.schedule_change(row, "pause")
    due()
    assert services.wake_schedules() == [] and services.run_due() == []
    services.schedule_change(row, "resume")
    assert CaptureSchedule.objects.get().next_due > timezone.now()


@pytest.mark.parametrize(("given", "field"), [
    ({"name": ""}, "name"), ({"when": "often"}, "when"), ({"job": ""}, "job"), ({"minute": 1440}, "minute"),
    ({"when": "requests"}, "requests"),
    ({"per_day": 0}, "per_day"), ({"per_job_day": 1000}, "per_job_day"), ({"most": 99}, "most"), ({"ranks": "x"}, "ranks"),
    ({"options": {"steps": 999}}, "steps"), ({"options": {"milliseconds": "x"}}, "milliseconds"),
    ({"most": 2, "options": {"steps": 3}}, "steps")])
def test_what_is_no_schedule_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        services.schedule_save(**{"name": "a", "when": "night", "job": "train", **given})
    assert field in refused.value.fields and not CaptureSchedule.objects.exists()


def test_the_page_lists_makes_changes_and_pauses(client: Client, alice: Any, bob: Any) -> None:
    agent = asking()
    client.force_login(alice)
    given = {"name": "nightly", "when": "night", "at": "03:30", "job": "train", "most": "1", "milliseconds": "250", "shapes": "on",
             "per_day": "2",
             "per_job_day": "4", "enabled": "on"}
    page = client.post(reverse("capture-schedules"), given, follow=True).content.decode()
    row = CaptureSchedule.objects.get()
    assert "every night 03:30 UTC" in page and "0 of 2" in page
    assert row.options == {"milliseconds": 250, "shapes": True, "stacks": False}
    profile = Profile.objects.create(name="of the night", status="ready")
    FleetCapture.objects.create(agent=agent, pid=10, job="train", schedule=row, profile=profile, state="uploaded")
    page = client.get(reverse("capture-schedules")).content.decode()
    assert "1 of 2" in page and reverse("profile", args=[profile.pk]) in page
    client.post(reverse("capture-schedules"), {**given, "edit": row.pk, "at": "04:00"})
    client.post(reverse("capture-schedule", args=[row.pk]), {"do": "pause"})
    row.refresh_from_db()
    assert (row.minute, row.enabled) == (240, False)
    assert client.post(reverse("capture-schedules"), {**given, "name": ""}).status_code == 400
    made = client.post(reverse("api-capture-schedules"), {"name": "builds", "when": "build", "job": "train"},
                       content_type="application/json")
    assert made.status_code == 201 and made.json()["spent"] == 0
    assert client.get(f"{reverse('capture-schedules')}?job=x&ranks=0-3").content.decode().count('value="0-3"') == 1
    client.force_login(bob)
    assert client.get(reverse("capture-schedules")).status_code == 200 and len(selectors.schedule_lines()) == 2
    for url in (reverse("capture-schedules"), reverse("capture-schedule", args=[row.pk])):
        assert client.post(url, given).status_code == 403


# ---- servers: asked while nothing is locked; the page, the API and the command take the same
@pytest.fixture
def llama(tmp_path: Path) -> Iterator[tuple[Peer, EngineServer]]:
    with peer("sglang") as own:
        yield own, engine_services.server_save(name="llama", kind="sglang", address=own.address, folder=str(tmp_path))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("together", [False, True])
def test_two_sweeps_at_once_make_one_capture_and_lock_nothing_while_they_ask(llama: tuple[Peer, EngineServer], together: bool,
                                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    own, server = llama
    row = services.schedule_save(name="builds", when="build", server=server, per_day=9, per_job_day=9)
    due()
    if together:                                        # as where Valkey lost who asks
        monkeypatch.setattr(services, "may_ask", lambda schedule: True)
    asked, go_on = threading.Semaphore(0), threading.Event()

    def slow(_: Any) -> Any:
        asked.release()
        go_on.wait(20)
        return 200, b'{"version": "0.5.23"}', {}
    own.on["/server_info"] = slow
    ran: list[list[int]] = []

    def sweep() -> None:
        ran.append(services.run_due())
        connections.close_all()
    sweeps = [threading.Thread(target=sweep) for _ in range(2)]
    for each in sweeps:
        each.start()
    for _ in range(1 + together):
        assert asked.acquire(timeout=20)
    with transaction.atomic(), connection.cursor() as cursor:       # pausing it does not wait for the server
        cursor.execute("SET LOCAL lock_timeout = '500ms'")
        CaptureSchedule.objects.select_for_update().get(pk=row.pk)
    go_on.set()
    for each in sweeps:
        each.join(20)
    assert sorted(ran) == [[], [row.pk]] and EngineCapture.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_schedule_that_is_changed_while_its_server_is_asked_is_decided_anew(llama: tuple[Peer, EngineServer]) -> None:
    own, server = llama
    row = services.schedule_save(name="builds", when="build", server=server)
    due()

    def paused(_: Any) -> Any:
        services.schedule_change(CaptureSchedule.objects.get(pk=row.pk), "pause")
        connections.close_all()
        return 200, b'{"version": "0.5.23"}', {}
    own.on["/server_info"] = paused
    assert services.run_due() == [] and not EngineCapture.objects.exists()


WANTED = {"until": "slow", "seconds": 30.0, "threshold_ms": 1500.0, "latency": "ttft",
          "options": {"activities": ["CPU", "GPU"], "profile_by_stage": True, "profile_stages": ["decode"], "with_stack": False,
                      "profile_prefix": "night"}}


def test_page_api_and_command_take_the_same_schedule_of_a_server(client: Client, alice: Any, llama: tuple[Peer, EngineServer],
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    _, server = llama
    client.force_login(alice)
    page = {"name": "by page", "when": "night", "at": "04:05", "server": server.pk, "most": "1", "per_day": "2", "per_job_day": "3",
            "enabled": "on", "until": "slow", "seconds": "30", "threshold_ms": "1500", "latency": "ttft",
            "sglang-activities": ["CPU", "GPU"],
            "sglang-profile_by_stage": "true", "sglang-profile_stages": ["decode"], "sglang-with_stack": "false",
            "sglang-profile_prefix": "night", "vllm-max_iterations": "not of this engine"}
    assert client.post(reverse("capture-schedules"), page).status_code == 302
    given = {"name": "by api", "when": "night", "minute": 245, "server": server.pk, "per_day": 2, "per_job_day": 3,
             "options": WANTED}
    made = client.post(reverse("api-capture-schedules"), given, content_type="application/json")
    assert made.status_code == 201, made.content
    ends = ["--until", "slow", "--seconds", "30", "--threshold-ms", "1500", "--latency", "ttft"]
    parameters = ["activities=CPU,GPU", "profile_by_stage=true", "profile_stages=decode", "with_stack=false"]
    parameters += ["profile_prefix=night"]
    call_command("capture", "schedule", "add", "by command", "--when", "night", "--at", "04:05", "--server", "llama",
                 "--per-day", "2", "--per-job-day", "3", *ends, *[word for each in parameters for word in ("-p", each)], "--json")
    rows = {row.name: row for row in CaptureSchedule.objects.all()}
    fields = [{**services.schedule_fields(row), "name": ""} for row in rows.values()]
    assert len(fields) == 3 and fields[0] == fields[1] == fields[2] and fields[0]["options"] == WANTED, fields
    assert json.loads(capsys.readouterr().out)["schedules"][0]["name"] == "by command"
    form = client.get(f"{reverse('capture-schedules')}?edit={rows['by page'].pk}").content.decode()     # it comes back as it was
    assert 'name="sglang-profile_prefix" value="night"' in form and 'name="threshold_ms" value="1500"' in form
    wrong = client.post(reverse("capture-schedules"), {**page, "name": "x", "sglang-profile_prefix": "../x", "threshold_ms": ""})
    assert wrong.status_code == 400 and wrong.content.decode().count("field-error") == 2


def test_a_schedule_is_changed_paused_and_deleted_by_api_and_command(
        api: Any, alice: Any, bob: Any, llama: tuple[Peer, EngineServer], capsys: pytest.CaptureFixture[str]) -> None:
    _, server = llama
    row = services.schedule_save(name="nightly", when="night", server=server, options=WANTED, per_day=2)
    url = reverse("api-capture-schedule", args=[row.pk])
    changed = api(alice).patch(url, {"minute": 5, "enabled": False}, format="json")
    assert changed.status_code == 200 and changed.json()["options"] == WANTED, changed.content
    row.refresh_from_db()
    assert (row.minute, row.enabled, row.per_day, row.options) == (5, False, 2, WANTED)
    assert api(alice).patch(url, {"per_day": 0}, format="json").status_code == 400
    wrong = api(alice).patch(url, {"options": {"until": "steps"}}, format="json")
    assert wrong.status_code == 400 and wrong.json()["fields"] == {"num_steps": ["how many steps are recorded"]}
    assert api(bob).patch(url, {"minute": 6}, format="json").status_code == 403 and api(bob).get(url).status_code == 200
    call_command("capture", "schedule", "resume", "nightly", "--json")
    call_command("capture", "schedule", "change", "nightly", "--at", "00:07", "--json")
    row.refresh_from_db()
    assert (row.minute, row.enabled, row.options) == (7, True, WANTED)
    capsys.readouterr()
    with pytest.raises(CommandError, match="num_steps: how many steps"):
        call_command("capture", "schedule", "change", "nightly", "--until", "steps")
    with pytest.raises(CommandError, match="no schedule 'nobody'"):
        call_command("capture", "schedule", "pause", "nobody")
    call_command("capture", "schedule", "delete", "nightly", "--json")
    assert json.loads(capsys.readouterr().out) == {"schedules": []}
    other = services.schedule_save(name="b", when="night", server=server)
    assert api(bob).delete(reverse("api-capture-schedule", args=[other.pk])).status_code == 403
    assert api(alice).delete(reverse("api-capture-schedule", args=[other.pk])).status_code == 204
