"""What can be put side by side: searched, bounded, the likeliest first."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from profiles.compare import choice_selectors
from profiles.models import Profile

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def person(client, bob):
    client.force_login(bob)


def profile(name, build="", gpu="NVIDIA H200", kind="trace", **fields):
    return Profile.objects.create(**{"name": name, "build": build, "gpu": gpu, "kind": kind, "status": "ready", "file_name": "f",
                                     "upload_key": "k", "sha256": name + build, **fields})


def titles(client, **query):
    return [each["title"] for each in client.get(reverse("api-compare-choices"), query).json()["choices"]]


def test_every_word_is_searched_in_name_build_and_gpu_and_answers_are_bounded(client):
    for at in range(40):
        profile(f"step {at}", build=f"b{at}")
    profile("attention", build="4f2c1e", gpu="NVIDIA A100")
    profile("half read", status="ingesting")
    assert titles(client, q="a100 4f2") == ["attention"] and titles(client, q="ATT 4f2c1e nvidia") == ["attention"]
    assert titles(client, q="half") == [] and titles(client, q="step nothing") == []
    assert len(titles(client)) == choice_selectors.FOUND and titles(client)[0] == "attention"
    for hostile in ("%", "_", "'; drop", "x " * 5000):
        assert client.get(reverse("api-compare-choices"), {"q": hostile}).status_code == 200
    assert titles(client, q="%") == []                                      # a letter, not a pattern
    (shown,) = client.get(reverse("api-compare-choices"), {"q": "attention"}).json()["choices"]
    assert re.fullmatch(r"4f2c1e · NVIDIA A100 · trace · \d{4}-\d\d-\d\d \d\d:\d\d", shown["note"])


def test_what_is_most_like_the_other_side_comes_first(client):
    mine = profile("mine", model="llm")
    like, card = profile("like", model="llm"), profile("card", gpu="NVIDIA A100", model="llm")
    kind, newest = profile("kind", kind="counters"), profile("newest")
    assert titles(client, beside=mine.pk) == ["like", "newest", "card", "kind"]
    assert titles(client, beside=mine.pk, kind="counters") == ["kind"]
    assert set(titles(client, beside="9" * 30)) == {"mine", "like", "card", "kind", "newest"}
    assert choice_selectors.likely_pair() == (str(like.pk), str(newest.pk))
    assert {like.name, card.name, kind.name} < set(titles(client))


def test_the_form_stands_filled_in_with_the_likeliest_pair(client):
    old, new = profile("step", build="aaa"), profile("step", build="bbb")
    page = client.get(reverse("compare")).content.decode()
    chosen = re.findall(r'<option value="([^"]*)"[^>]* selected>', page)
    assert chosen == ["aaa", "bbb", str(old.pk), str(new.pk)]
    builds = client.get(reverse("api-compare-choices"), {"of": "builds"}).json()["choices"]
    assert [each["value"] for each in builds] == ["bbb", "aaa"] and builds[0]["note"].startswith("NVIDIA H200 · 1 profile · ")
    assert titles(client, of="builds", beside="bbb") == ["aaa"]


def test_what_was_chosen_stands_in_a_long_list(client):
    first = profile("the first")
    for at in range(choice_selectors.LISTED + 5):
        profile(f"step {at}")
    offered = choice_selectors.form_choices({"a": str(first.pk), "b": "", "build_a": "", "build_b": ""})
    assert len(offered["profiles"]) == choice_selectors.LISTED + 1 and offered["profiles"][-1].title == "the first"
