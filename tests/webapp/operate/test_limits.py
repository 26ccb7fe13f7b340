"""How often somebody may ask: counted for all web processes, said with when to come again, lifted where a limit would harm."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from webapp.operate import limits
from workers import jobs

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


@pytest.fixture(autouse=True)
def counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was counted, and no minute ends in the middle of a test."""
    monkeypatch.setattr(limits, "time", SimpleNamespace(time=lambda: 1_800_000_010.0, monotonic=time.monotonic))
    for key in jobs.connection().scan_iter("ridgepoint:rate:*"):
        jobs.connection().delete(key)


def test_one_token_is_told_to_come_again_and_others_are_served(
        alice: Any, bob: Any, api: Any, sign_in_mode: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.LIMITS = "search=3/h"
    first, second = api(alice), api(bob)
    assert [first.get("/api/search/?q=x").status_code for _ in range(4)] == [200, 200, 200, 429]
    answer = first.get("/api/search/?q=x")
    assert 0 < int(answer.headers["Retry-After"]) <= 3600
    assert "search 3/h" in answer.json()["error"] and "RIDGEPOINT_LIMITS" in answer.json()["hint"]
    assert second.get("/api/search/?q=x").status_code == 200 and first.get("/api/workers/").status_code == 200
    again = api(alice)                                                      # another token of hers
    assert again.get("/api/search/?q=x").status_code == 200


def test_an_address_has_a_limit_of_its_own(alice: Any, api: Any, sign_in_mode: None, settings: Any) -> None:
    settings.LIMITS = "search=2/h"
    said = [api(alice).get("/api/search/?q=x", REMOTE_ADDR="10.0.0.9").status_code for _ in range(9)]
    assert said == [200] * 8 + [429]
    assert api(alice).get("/api/search/?q=x", REMOTE_ADDR="10.0.0.8").status_code == 200


def test_pages_say_it_in_the_frame(alice: Any, sign_in_mode: None, settings: Any) -> None:
    settings.LIMITS = "search=1/min upload=1/min"
    client = Client()
    client.force_login(alice)
    assert client.get("/search/?q=x").status_code == 200
    answer = client.get("/search/?q=x")
    assert answer.status_code == 429 and 'class="topbar"' in answer.content.decode() and int(answer.headers["Retry-After"]) > 0
    assert client.post("/profiles/upload/", {}).status_code != 429 and client.post("/profiles/upload/", {}).status_code == 429
    assert client.get("/profiles/upload/").status_code == 200


def test_local_mode_and_a_lifted_limit_are_not_counted(alice: Any, api: Any, client: Client, settings: Any) -> None:
    settings.LIMITS = "search=1/h"
    assert {client.get("/api/search/?q=x").status_code for _ in range(3)} == {200}       # loopback, nobody signed in
    settings.LOCAL_MODE, settings.LIMITS = False, "search=0"
    assert {api(alice).get("/api/search/?q=x").status_code for _ in range(3)} == {200}


def test_without_valkey_nobody_is_limited_nor_waits_for_it(
        alice: Any, api: Any, sign_in_mode: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_away_until_s", 0.0)
    own, settings.REDIS_URL, settings.LIMITS = settings.REDIS_URL, f"unix://{tmp_path}/nobody.sock", "search=1/h"
    jobs.connection.cache_clear()
    try:
        assert {api(alice).get("/api/search/?q=x").status_code for _ in range(3)} == {200}
        assert limits._away_until_s > 0
    finally:
        settings.REDIS_URL = own
        jobs.connection.cache_clear()


def test_a_setting_that_is_none_is_refused() -> None:
    assert limits.limits_parse("sql=5/s,upload=0")["sql"] == (5, 1) and limits.limits_parse("upload=0")["upload"][0] == 0
    for text in ("sql", "sql=5/day", "login=5/min", "sql=-1/s"):
        with pytest.raises(ValueError, match="RIDGEPOINT_LIMITS"):
            limits.limits_parse(text)


def test_every_limited_address_is_there() -> None:
    from django.urls import get_resolver

    names = {name for name in get_resolver().reverse_dict if isinstance(name, str)}
    assert {name for name, _ in (*limits.API, *limits.PAGES)} <= names


