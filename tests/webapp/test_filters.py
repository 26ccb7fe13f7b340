"""Pages that filter take any characters: a build, a model, a tag, a kernel named so is found alone, and links lead back to it."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urlencode
from zlib import crc32

import pytest
from django.test import Client
from django.urls import reverse

from profiles.models import Profile
from tests.scale import DEEP

pytestmark = [pytest.mark.django_db, pytest.mark.servers]

ODD = ["a+b&c=d", "50%", "%2F#1", "x/y z", "ä—✓", "q\"uote'", "back\\slash;", "<b>{{ x }}", "?x=1(*"]
HARDEST = ["a+b&c=d", "%2F#1", "q\"uote'", "<b>{{ x }}"]
WRONG = ["\0", "a\0b", "\udcff", "9" * 40, "-1", "1e999", "NaN", "x" * 5000, "".join(ODD)]
# address name -> parameters that its forms and links have
PAGES = {
    "profile-list": "q build model tag gpu status kind format sort page", "home": "build model tag gpu",
    "advice": "show state build", "kernel-list": "q build model tag gpu kernel category bound sort page",
    "rooflines": "profiles before after per colour family q",
    "compare": "a b build_a build_b per kind rows", "progress": "profiles model build", "occupancy": "kernel launch gpu threads",
    "timelines-choose": "a b q", "sql": "profiles q", "search": "q", "problem": "operator dtype gpu M shape kernel family",
    "fleet": "kernel job build model gpu_model host window from to group by signature simulated page",
    "fleet-gpus": "job build model gpu_model host window from to", "fleet-utilisation": "job build model gpu_model host window",
    "fleet-captures": "job host", "production-list": "state gpu_model build q simulated page",
    "capture-list": "status tool target page", "capture-new": "target tool profile kernel build model",
    "build-list": "suite on branch kernel build gpu", "regression-list": "state suite build kernel gpu page",
    "gate-list": "suite build gpu verdict status page", "suite-list": "q", "environments": "suite gpu build",
    "tune-list": "status operator page", "tune-new": "operator dtype M profile device space_of", "tune-compare": "a b over",
    "quarantine-list": "operator reason gpu", "candidate-list": "operator state page",
    "cache-list": "operator gpu dtype state origin q page", "cache-why": "operator gpu dtype shape toolkit driver policy recorded",
    "cache-served": "operator gpu", "cache-portability": "operator gpu", "audit": "q action kind person page",
    "thread-list": "q state page", "inbox": "page show", "workers": "queue",
}


@pytest.fixture
def visitor(client: Client, olga: Any) -> Client:
    client.force_login(olga)
    client.raise_request_exception = False
    return client


def listed(page: Any) -> set[str]:
    """Return the names of the profiles in a page's table."""
    return {name for name in ("the odd one", "another") if f">{name}<" in page.content.decode()}


@pytest.mark.parametrize("name", PAGES)
def test_no_character_breaks_a_page_that_filters(visitor: Client, name: str) -> None:
    """Each wrong value in all of its filters at once, and in each alone where one might hide another.

    In `make test` a third of the values for each page, so that each value is asked of a third of the pages.
    """
    parameters, broken = PAGES[name].split(), []
    together = [dict.fromkeys(parameters, value) for at, value in enumerate(WRONG) if DEEP or (crc32(name.encode()) + at) % 3 == 0]
    alone = [{parameter: value} for parameter in parameters for value in (WRONG if DEEP else WRONG[:1])]
    for asked in (*together, *alone):
        status = visitor.get(f"{reverse(name)}?{urlencode(asked, errors='surrogateescape')}").status_code
        if status >= 500:
            broken.append((asked, status))
    assert not broken, broken[:10]


@pytest.mark.parametrize("value", [pytest.param(value, marks=[] if value in HARDEST else [pytest.mark.deep_only]) for value in ODD])
def test_what_is_named_with_odd_characters_is_found_alone_and_its_links_lead_back(visitor: Client, value: str) -> None:
    for name, text in (("the odd one", value), ("another", "plain")):
        Profile.objects.create(
            name=name, file_name="f", upload_key="k", status="ready", kind="summary", format="proton", build=text, model=text,
            tags=[text], summary={"tables": []}, integrity={"records_read": 1, "records_kept": 1})
    for parameter in ("build", "model", "tag"):
        page = visitor.get(reverse("profile-list"), {parameter: value})
        assert page.status_code == 200 and listed(page) == {"the odd one"}, parameter
    # the field shows what was asked, and every link of the profile's page that filters leads to a list with it
    shown = visitor.get(reverse("profile", args=[Profile.objects.get(name="the odd one").pk])).content.decode()
    links = {unescape(link) for link in re.findall(r'href="(/profiles/\?[^"]*)"', shown)}
    assert any("build=" in link for link in links) and any("model=" in link for link in links)
    for link in links:
        assert listed(visitor.get(link)) == {"the odd one"}, link
