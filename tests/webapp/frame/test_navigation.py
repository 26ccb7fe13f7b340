"""The bar, its tabs and what a person is offered there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from profiles.models import Profile
from webapp.frame import navigation
from webapp.roles import ENGINEER, VIEWER, role_set

pytestmark = pytest.mark.django_db
NOWHERE = ("/search/", "/share/", "/accounts/log", "/accounts/password/", "/accounts/reset/", "/accounts/reauthenticate/",
           "/accounts/oidc/", "/accounts/invitation/", "/accounts/two-factor/", "/metrics", "/health/", "/api/",
           "/examples/", "/bisect/", "/docs/")


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("alice", password="x"))
    return client


def signed_in(client: Client, role: str) -> Client:
    person = get_user_model().objects.create_user("bob", password="x")
    role_set(person, role)
    client.force_login(person)
    return client


def addresses(patterns: list[Any], before: str = "/") -> Iterator[str]:
    for each in patterns:
        route = str(each.pattern)
        if isinstance(each, URLResolver):
            yield from addresses(each.url_patterns, before + route)
        elif isinstance(each, URLPattern):
            yield before + re.sub(r"<\w+:\w+>|<\w+>", "7", route)


def entries(client: Client) -> list[dict[str, str]]:
    found = re.search(r'<script id="entries" type="application/json">(.*?)</script>', client.get("/").content.decode(), re.S)
    assert found
    return list(json.loads(found[1]))


def test_every_address_has_its_section() -> None:
    found = [path for path in addresses(get_resolver().url_patterns) if not path.startswith(NOWHERE)]
    assert len(found) > 100
    assert [path for path in found if navigation.place_of(path) is None] == []


@pytest.mark.parametrize(("path", "section", "tab"), [
    ("/", "Overview", "Overview"), ("/profiles/upload/", "Profiles", "Profiles"), ("/timelines/1/2/", "Profiles", "Profiles"),
    ("/captures/3/", "Profiles", "Captures"), ("/captures/targets/", "Settings", "Capture targets"),
    ("/occupancy/", "Kernels", "Occupancy"),
    ("/fleet/regressions/3/", "Fleet", "Regressions"), ("/regressions/3/", "Guard", "Regressions"), ("/tune/3/", "Tune", "Jobs"),
    ("/tune/candidates/3/", "Tune", "Candidates"),
    ("/tune/operators/", "Tune", "Kernels"), ("/cache/why/", "Tune", "Configs"), ("/notified/", "Guard", "Channels"),
])
def test_the_longest_prefix_tells_section_and_tab(path: str, section: str, tab: str) -> None:
    place = navigation.place_of(path)
    assert place is not None and (place.section.title, place.page.title) == (section, tab)


def test_a_page_with_tabs_of_its_own_has_no_others() -> None:
    assert navigation.tabs_of("/profiles/3/timeline/") == () == navigation.tabs_of("/fleet/gpus/") == navigation.tabs_of("/")
    assert [page.title for page in navigation.tabs_of("/tune/3/")] == ["Jobs", "Kernels", "Candidates", "Configs"]
    assert navigation.tabs_of("/fleet/regressions/")


def test_the_bar_and_the_tabs_light_one_each(alice: Client) -> None:
    page = alice.get("/cache/").content.decode()
    bar, tabs = (re.search(rf'<nav class="{name}".*?</nav>', page, re.S) for name in ("nav", "tabs"))
    assert bar and re.findall(r"aria-current=\"(\w+)\">(\w+)", bar[0]) == [("true", "Tune")]
    assert tabs and re.findall(r"aria-current=\"(\w+)\">(\w+)", tabs[0]) == [("page", "Configs")]


def test_nobody_is_offered_what_he_may_not_do(client: Client) -> None:
    kinds = {each["title"] for each in entries(signed_in(client, VIEWER)) if each["kind"] == "action"}
    assert "Compare two profiles" in kinds and "Import a profile" not in kinds and "New tune job" not in kinds


def test_an_engineer_is_offered_jobs_and_no_people(client: Client) -> None:
    titles = {each["title"] for each in entries(signed_in(client, ENGINEER))}
    assert {"Import a profile", "New tune job", "Start a gate", "Guard: Gates"} <= titles
    assert not {"People and roles", "Add a channel", "Capture targets"} & titles


def test_activity_names_jobs_and_leads_to_them(alice: Client) -> None:
    assert alice.get(reverse("api-activity")).json() == {"count": 0, "jobs": []}
    row = Profile.objects.create(name="train", status="uploaded", file_name="t.json", upload_key="k")
    answer = alice.get(reverse("api-activity")).json()
    assert answer == {"count": 1, "jobs": [{"kind": "profile", "title": str(row), "url": f"/profiles/{row.pk}/", "waiting": True}]}
