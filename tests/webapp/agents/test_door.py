"""Who may come in at /mcp: tokens, hosts, origins, methods, sizes; what a role or another project may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import requests
from django.conf import settings as django_settings
from django.test import Client

from profiles.models import Profile
from tests.webapp.agents.conftest import Site, Told, call
from tuner.models import TuneJob
from webapp.agents.models import AgentCall
from webapp.models import Membership, Project
from webapp.operate import limits
from workers import jobs
from workers.scope import within

pytestmark = [pytest.mark.servers, pytest.mark.django_db(transaction=True)]
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
START = {"operator": "softmax", "shape": {"R": 8192, "C": 4096}, "device": "replay:softmax"}


def post(site: Site, body: Any = LIST, **headers: str) -> requests.Response:
    sent = {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return requests.post(site.mcp, data=body if isinstance(body, bytes) else json.dumps(body), headers=sent, timeout=60)


@pytest.mark.parametrize("given", ["", "Bearer rp_wrong", "Token ", "Basic YTpi", "Bearer " + "x" * 5000, "Bearer rp_ü"])
def test_without_a_token_that_is_known_nothing_is_said(site: Site, given: str) -> None:
    answer = post(site, **{"Authorization": given.encode("latin-1").decode("latin-1")} if given else {})
    assert answer.status_code == 401 and answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert "API token" in answer.json()["hint"] and not AgentCall.objects.exists()


def test_a_token_comes_in_under_either_name_and_ends_with_its_person(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    token = token_of(alice)
    for kind in ("Bearer", "Token", "bearer"):
        answer = post(site, Authorization=f"{kind} {token}")
        assert answer.status_code == 200 and answer.json()["result"]["tools"]
    alice.is_active = False
    alice.save()
    assert post(site, Authorization=f"Bearer {token}").status_code == 401


def test_a_session_is_no_token(site: Site, alice: Any, settings: Any) -> None:
    browser = Client()
    browser.force_login(alice)
    settings.LOCAL_MODE = True          # loopback alone is none either
    cookie = f"{django_settings.SESSION_COOKIE_NAME}={browser.cookies[django_settings.SESSION_COOKIE_NAME].value}"
    assert post(site, Cookie=cookie).status_code == 401 == post(site).status_code


def test_foreign_hosts_and_origins_are_refused(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    known = {"Authorization": f"Bearer {token_of(alice)}"}
    own = site.url.removeprefix("http://")
    assert post(site, **known, Host="rebound.example").status_code == 421
    assert post(site, **known, Host=own, Origin="http://evil.example").status_code == 403
    assert post(site, **known, Host=own, Origin="null").status_code == 403
    assert post(site, **known, Host=own, Origin=site.url).status_code == 200


def test_only_post_is_taken_and_other_addresses_are_the_site_s(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    known = {**HEADERS, "Authorization": f"Bearer {token_of(alice)}"}
    for method in ("GET", "DELETE", "PUT", "OPTIONS"):
        answer = requests.request(method, site.mcp, headers=known, timeout=60)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert requests.post(f"{site.mcp}/", json=LIST, headers=known, timeout=60).status_code == 200
    assert requests.get(f"{site.url}/mcpx", headers=known, timeout=60, allow_redirects=False).status_code in (302, 404)


def test_a_body_is_bounded(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    known = {"Authorization": f"Bearer {token_of(alice)}"}
    assert post(site, b" " * (2 << 20), **known).status_code == 413
    assert post(site, b" " * (200 << 10)).status_code == 401          # of somebody unknown 64 kB are read
    assert post(site, b"{not json", **known).status_code == 400
    assert post(site, b"[" * 100_000, **known).status_code == 400
    assert post(site, [LIST, LIST], **known).status_code == 400
    assert post(site, **known).status_code == 200


def test_below_a_path_of_the_host(site: Site, alice: Any, token_of: Callable[..., str], settings: Any,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.asgi import application

    monkeypatch.setattr(application.application_mapping["http"], "prefix", "/perf")
    settings.FORCE_SCRIPT_NAME = "/perf"
    headers = {**HEADERS, "Authorization": f"Bearer {token_of(alice)}"}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_profiles", "arguments": {}}}
    answer = requests.post(f"{site.url}/perf/mcp", json=asked, headers=headers, timeout=60)
    assert answer.status_code == 200 and answer.json()["result"]["structuredContent"] == {"total": 0, "profiles": []}


def test_readers_read_and_writers_write(site: Site, alice: Any, bob: Any, token_of: Callable[..., str]) -> None:
    refused = call(site.mcp, token_of(bob), "start_tune_job", START)
    assert isinstance(refused, Told) and "permission" in refused and "owner for the role" in refused
    assert call(site.mcp, token_of(bob), "list_jobs")["jobs"] == []
    refused = call(site.mcp, token_of(alice, "read"), "start_tune_job", START)
    assert isinstance(refused, Told) and "read only" in refused
    assert not TuneJob.objects.exists() and not AgentCall.objects.filter(writes=True).exists()
    assert {row.outcome for row in AgentCall.objects.filter(tool="start_tune_job")} == {"refused"}
    made = call(site.mcp, token_of(alice), "start_tune_job", START)
    assert isinstance(call(site.mcp, token_of(bob), "stop_job", {"job": made["job"]}), Told)
    assert TuneJob.objects.get(pk=made["job"]).status == "queued"


def test_a_token_sees_its_project_alone(site: Site, token_of: Callable[..., str], django_user_model: Any) -> None:
    mine, other = (Project.objects.create(name=name, slug=name) for name in ("mine", "other"))
    person = django_user_model.objects.create_user("pat", password="x")
    Membership.objects.create(user=person, project=mine, role="engineer")
    Membership.objects.create(user=person, project=other, role="engineer")
    with within(other.pk):
        hidden = Profile.objects.create(name="hidden", status="ready", kind="trace", file_name="f", upload_key="k")
        job = TuneJob.objects.create(operator="softmax", shape={"R": 1, "C": 1}, dtype="fp16", device="gpu", strategy="default",
                                     budget_trials=1, budget_seconds=1)
    token = token_of(person, project=mine.pk)
    assert call(site.mcp, token, "list_profiles") == {"total": 0, "profiles": []}
    for tool, asked in (("list_worst_kernels", {"profile": hidden.pk}), ("get_kernel", {"profile": hidden.pk, "kernel": 1}),
                        ("get_job", {"job": job.pk}), ("stop_job", {"job": job.pk})):
        found = call(site.mcp, token, tool, asked)
        assert isinstance(found, Told) and "there is no such" in found, tool
    job.refresh_from_db()
    assert job.status == "queued" and {row.project_id for row in AgentCall.objects.all()} == {mine.pk}
    assert call(site.mcp, token_of(person, project=other.pk), "list_profiles")["total"] == 1


def test_limits_are_those_of_the_api(site: Site, alice: Any, token_of: Callable[..., str], settings: Any) -> None:
    for key in jobs.connection().scan_iter("ridgepoint:rate:*"):
        jobs.connection().delete(key)
    settings.LIMITS = "search=2/h"
    token = token_of(alice)
    for _ in range(2):
        assert call(site.mcp, token, "search", {"q": "x"}) == {"groups": []}
    told = call(site.mcp, token, "search", {"q": "x"})
    assert isinstance(told, Told) and "search 2/h" in told and "try again in" in told
    headers = {"Authorization": f"Token {token}"}
    assert requests.get(f"{site.url}/api/search/?q=x", headers=headers, timeout=60).status_code == 429       # one count
    settings.LIMITS = "agents=1/h"
    assert post(site, Authorization=f"Bearer {token}").status_code == 200
    over = post(site, Authorization=f"Bearer {token}")
    assert over.status_code == 429 and int(over.headers["Retry-After"]) > 0 and "agents 1/h" in over.json()["error"]
    assert limits.limits_parse("")["agents"][0] > 0
