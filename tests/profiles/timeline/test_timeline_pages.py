"""The pages of one and of two timelines, and the ways to them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import reverse

from profiles.models import Profile

pytestmark = pytest.mark.django_db


def ready(**fields: Any) -> Profile:
    known = {"name": "p", "status": "ready", "kind": "trace", "file_name": "f", "upload_key": "k"}
    return Profile.objects.create(**known | fields)


def test_two_timelines_stand_on_one_page_with_ids_of_their_own(client: Any) -> None:
    a, b = ready(name="old <run>", build="aaa"), ready(name="new run", gpu="NVIDIA H200")
    page = client.get(reverse("timelines", args=[a.pk, b.pk])).content.decode()
    ids = [part.split('"')[0] for part in page.split(' id="')[1:]]
    assert len(ids) == len(set(ids))
    assert f'data-api="/api/profiles/{a.pk}/"' in page and f'data-api="/api/profiles/{b.pk}/"' in page
    assert "old &lt;run&gt;" in page and "<b>unknown</b> and <b>NVIDIA H200</b>" in page
    assert 'data-prefix="a."' in page and 'data-prefix="b."' in page


def test_what_has_no_timeline_cannot_be_set_beside_another(client: Any) -> None:
    a, b = ready(), ready(kind="counters")
    answer = client.get(reverse("timelines", args=[a.pk, b.pk]), follow=True)
    assert answer.redirect_chain[-1][0] == reverse("profile", args=[b.pk])
    assert "has no timeline" in answer.content.decode()
    assert client.get(reverse("timelines", args=[a.pk, 999999])).status_code == 404


def test_forms_lead_to_the_pair(client: Any) -> None:
    a, b = ready(build="aaa"), ready(build="bbb")
    newer = ready(build="bbb")
    choose = reverse("timelines-choose")
    assert client.get(choose, {"a": a.pk, "b": b.pk}).url == reverse("timelines", args=[a.pk, b.pk])
    assert client.get(choose, {"build_a": "aaa", "build_b": "bbb"}).url == reverse("timelines", args=[a.pk, newer.pk])
    assert client.get(choose, {"build_a": "aaa", "build_b": "none"}).url == reverse("build-list")
    assert client.get(choose, {"a": "x", "b": "9" * 30}).url == reverse("compare")
    assert client.get(reverse("timeline", args=[a.pk]), {"with": b.pk}).url == reverse("timelines", args=[a.pk, b.pk])


def test_a_timeline_offers_others_and_takes_results_of_queries(client: Any) -> None:
    a, b = ready(), ready(name="another")
    page = client.get(reverse("timeline", args=[a.pk])).content.decode()
    options = re.findall(rf'<option value="{b.pk}"[^>]*>', page)
    assert [option.endswith(" selected>") for option in options if 'data-title="another"' in option] == [True], options
    page = client.get(reverse("timeline", args=[a.pk]), {"sql": "3,5"}).content.decode()
    assert f'data-api="/api/profiles/{a.pk}/sql/3,5/"' in page
    for wrong in ("3,", "../x", "3;5", "1" * 50):
        assert f'data-api="/api/profiles/{a.pk}/"' in client.get(reverse("timeline", args=[a.pk]), {"sql": wrong}).content.decode()
