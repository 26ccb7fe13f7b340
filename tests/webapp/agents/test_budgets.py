"""What a token may begin in a day: taken before the work begins, given back, changed by owners, read on the page."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from profiles.base.refused import Refused
from tests.webapp.agents.conftest import Site, Told, call
from tuner.models import TuneJob
from webapp.agents import services
from webapp.agents.models import GPU_S_PER_DAY, WRITES_PER_DAY, AgentBudget, AgentCall
from webapp.models import ApiToken, AuditEntry, Project
from workers import jobs
from workers.scope import FIRST_PROJECT

pytestmark = [pytest.mark.servers, pytest.mark.django_db(transaction=True)]
REPLAY = {"operator": "softmax", "shape": {"R": 8192, "C": 4096}, "device": "replay:softmax"}
ON_GPU = {"operator": "softmax", "shape": {"R": 8192, "C": 4096}, "device": "gpu"}


WORKER = "gpu@node7"
SERVES = {"queues": ["gpu"], "host": "node7", "gpus": [{"name": "NVIDIA H200"}], "tools": {}}


@pytest.fixture
def gpu_worker() -> Iterator[None]:
    jobs.announce(WORKER, SERVES)
    yield
    jobs.retire(WORKER)


def words_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def budget(writes: int, gpu_s: int, token: ApiToken | None = None) -> AgentBudget:
    return services.budget_set(FIRST_PROJECT, token, writes, gpu_s)


def who(token: ApiToken) -> dict[str, Any]:
    return {"token": {"id": token.pk, "name": token.name}, "person": {"id": token.user_id, "name": token.user.username},
            "project": {"id": token.project_id}}


def test_starts_of_a_day_are_counted_and_the_next_is_refused(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    budget(2, 1000)
    token = token_of(alice)
    for _ in range(2):
        assert call(site.mcp, token, "start_tune_job", REPLAY)["status"] == "queued"
    told = call(site.mcp, token, "start_tune_job", REPLAY)
    assert isinstance(told, Told) and "2 of the 2 jobs" in told and "UTC" in told
    assert TuneJob.objects.count() == 2 and call(site.mcp, token, "get_budget")["writes_today"] == 2
    another = token_of(alice, name="another")           # each token has its own
    assert call(site.mcp, another, "start_tune_job", REPLAY)["status"] == "queued"
    AgentCall.objects.update(created=timezone.now() - timedelta(days=1))
    assert call(site.mcp, token, "start_tune_job", REPLAY)["status"] == "queued"


@pytest.mark.usefixtures("gpu_worker")
def test_gpu_seconds_are_what_a_job_may_take_until_it_ended(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    budget(9, 500)
    token = token_of(alice)
    made = call(site.mcp, token, "start_tune_job", {**ON_GPU, "budget_seconds": 400})
    assert call(site.mcp, token, "get_budget")["gpu_s_today"] == 400
    told = call(site.mcp, token, "start_tune_job", {**ON_GPU, "budget_seconds": 101})
    assert isinstance(told, Told) and "101 GPU-seconds" in told and "400 of the 500" in told
    assert call(site.mcp, token, "start_tune_job", REPLAY)["status"] == "queued"         # a replay takes none
    TuneJob.objects.filter(pk=made["job"]).update(status="done", finished=timezone.now(), elapsed_s=30.0)
    assert call(site.mcp, token, "get_budget")["gpu_s_today"] == 30
    assert call(site.mcp, token, "start_tune_job", {**ON_GPU, "budget_seconds": 470})["status"] == "queued"


@pytest.mark.usefixtures("gpu_worker")
def test_what_began_nothing_takes_nothing(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    budget(1, 500)
    token = token_of(alice)
    for _ in range(2):
        assert "operator: choose one of" in call(site.mcp, token, "start_tune_job", {**ON_GPU, "operator": "nothing"})
    assert call(site.mcp, token, "get_budget")["gpu_s_today"] == 0
    assert call(site.mcp, token, "start_tune_job", ON_GPU)["status"] == "queued"


def test_a_gpu_that_no_worker_has_is_said_and_takes_nothing(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    budget(1, 500)
    token = token_of(alice)
    assert "no worker serves 'gpu' now (none has a GPU)" in call(site.mcp, token, "start_tune_job", ON_GPU)
    jobs.announce(WORKER, SERVES)
    another = call(site.mcp, token, "start_tune_job", {**ON_GPU, "device": "gpu:NVIDIA B200"})
    assert isinstance(another, Told) and "workers have NVIDIA H200" in another and TuneJob.objects.count() == 0
    assert call(site.mcp, token, "get_budget")["writes_today"] == 0
    assert call(site.mcp, token, "start_tune_job", {**ON_GPU, "device": "gpu:NVIDIA H200"})["status"] == "queued"
    jobs.retire(WORKER)


@pytest.mark.usefixtures("gpu_worker")
def test_where_nobody_knows_whether_it_began_it_stays_taken(
        site: Site, alice: Any, token_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.jobs import create_services

    def fail(job: TuneJob) -> None:
        raise RuntimeError("after the job was stored")

    monkeypatch.setattr(create_services, "publish_status", fail)
    token = token_of(alice)
    told = call(site.mcp, token, "start_tune_job", {**ON_GPU, "budget_seconds": 40})
    assert isinstance(told, Told) and "after the job" not in told and TuneJob.objects.count() == 1
    left = call(site.mcp, token, "get_budget")
    assert (left["writes_today"], left["gpu_s_today"]) == (1, 40)


def test_calls_at_once_never_take_more_than_there_is(alice: Any, token_of: Callable[..., str]) -> None:
    budget(3, 1000)
    token_of(alice)
    token, begun, refused = ApiToken.objects.select_related("user").get(), list[int](), list[str]()

    def begin() -> None:
        try:
            begun.append(services.call_begin(who(token), "start_tune_job", {}, 10.0))
        except services.OverBudget as over:
            refused.append(str(over))
        finally:
            connection.close()

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(begun), len(refused), AgentCall.objects.filter(writes=True).count()) == (3, 5, 3)


def test_a_token_s_own_budget_goes_before_the_project_s(alice: Any, token_of: Callable[..., str]) -> None:
    token_of(alice)
    token = ApiToken.objects.get()
    assert (services.budget_of(token).writes_per_day, services.budget_of(token).gpu_s_per_day) == (WRITES_PER_DAY, GPU_S_PER_DAY)
    budget(7, 70)
    assert services.budget_of(token).writes_per_day == 7
    budget(0, 0, token)
    assert services.budget_of(token).writes_per_day == 0 and AgentBudget.objects.count() == 2
    with pytest.raises(services.OverBudget, match="0 of the 0"):
        services.call_begin(who(token), "start_tune_job", {}, 0)
    for wrong in ("", "-1", "x", "1.5", "9" * 12, "١"):
        with pytest.raises(Refused):
            services.budget_set(FIRST_PROJECT, token, wrong, 1)


def test_owners_change_it_on_the_page_and_it_is_told(
        alice: Any, olga: Any, token_of: Callable[..., str], client: Client, sign_in_mode: None) -> None:
    token_of(alice)
    token = ApiToken.objects.get()
    client.force_login(alice)
    given = {"token": token.pk, "writes_per_day": "3", "gpu_s_per_day": "60"}
    assert client.post("/agents/budget/", given).status_code == 403 and not AgentBudget.objects.exists()
    assert "agents/budget" not in client.get("/agents/").content.decode()
    client.force_login(olga)
    assert client.post("/agents/budget/", given).status_code == 302
    assert client.post("/agents/budget/", {"writes_per_day": "8", "gpu_s_per_day": "90"}).status_code == 302
    page = client.get("/agents/").content.decode()
    assert {"0 of 3", "0 of 60"} <= set(re.findall(r"0 of \d+", words_of(page))) and 'value="8"' in page and "its own" in page
    assert client.post("/agents/budget/", {**given, "writes_per_day": "-4"}).status_code == 400
    lines = list(AuditEntry.objects.filter(kind="agent budget").order_by("id"))
    assert [line.actor_name for line in lines] == ["olga", "olga"] and lines[0].changes["writes_per_day"] == [None, 3]


def test_another_project_s_token_has_no_budget_here(
        olga: Any, token_of: Callable[..., str], client: Client, sign_in_mode: None) -> None:
    other = Project.objects.create(name="other", slug="other")
    token_of(olga, project=other.pk)
    client.force_login(olga)
    given = {"token": ApiToken.objects.get().pk, "writes_per_day": "3", "gpu_s_per_day": "60"}
    assert client.post("/p/main/agents/budget/", given).status_code == 404 and not AgentBudget.objects.exists()


def test_the_page_lists_calls_by_token_and_tool_and_says_how_to_connect(
        alice: Any, bob: Any, olga: Any, token_of: Callable[..., str], client: Client, sign_in_mode: None) -> None:
    token_of(alice, name="hers")
    token_of(bob, name="his")
    for token in ApiToken.objects.select_related("user"):
        for tool in ("list_jobs", "get_job"):
            led_to = ("tune", 41) if tool == "get_job" else None
            services.call_end(who(token), tool, {"job": 5}, ms=3.5, outcome="ok", led_to=led_to)
    client.force_login(olga)
    page = client.get("/agents/").content.decode()
    assert "4 calls of" in words_of(page) and page.count("hers") > 2 and page.count('/tune/41/') == 2
    assert "http://testserver/mcp" in page and "RIDGEPOINT_TOKEN" in page and "/docs/agents/" in page
    one = client.get("/agents/?token=hers&tool=get_job").content.decode()
    assert "1 call of" in words_of(one) and '<td class="mono">list_jobs</td>' not in one
    client.force_login(bob)
    mine = client.get("/agents/").content.decode()
    assert "2 calls of" in words_of(mine) and "hers" not in mine


def test_the_log_outlives_its_token_and_holds_any_text(alice: Any, token_of: Callable[..., str]) -> None:
    token_of(alice)
    token = ApiToken.objects.select_related("user").get()
    of = who(token)
    token.delete()
    services.call_end(of, "x\0y", {"q": "\ud800\0"}, ms=1.0, outcome="refused", answer="no\0")
    row = AgentCall.objects.get()
    assert (row.token, row.token_name, row.tool, row.answer) == (None, "kernel agent", "xy", "no") and "\0" not in row.arguments
