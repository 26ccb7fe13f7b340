"""What is in doubt stands first wherever a profile is told of: page, list, API, report, SQL; and no finding is built on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import File
from django.test import Client
from django.urls import reverse

from profiles.models import Finding, Profile
from profiles.profile.finding_selectors import integrity_card, integrity_mark
from profiles.report.markdown import markdown, sentence
from profiles.report.selectors import summary
from profiles.sql.views import prepare
from profiles.topics.services import topics_make
from profiles.upload.services import profile_ingest
from tests.profiles.pages.test_services import create
from webapp.overview import jobs_to_fix

CASES = Path(__file__).parents[2] / "data" / "cases"
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "reads_anew")]


def ready(name: str) -> Profile:
    with (CASES / name).open("rb") as file:
        profile = profile_ingest(create(File(file, name=name)).pk, "test")
    assert profile is not None
    topics_make(profile.pk)
    profile.refresh_from_db()
    return profile


@pytest.mark.parametrize(("name", "first", "kind", "count", "finds"), [
    ("first20_missing.json", "40 % of the launches have no GPU record (20 of 50)", "launch_without_work", 20, False),
    ("no_kernels.json", "50 launch calls and no GPU record of them", "launch_without_work", 50, False),
    ("overflow.json", "1 kernel (`Cijk_Ailk_1`) covers 14 others of the same stream", "kernel_inside_kernel", 14, False),
    ("two_docs_concatenated.json", "The file holds a second trace of 3 records behind the first", "second_document", 3, True),
])
def test_doubt_stands_first_and_findings_do_not_rest_on_it(name: str, first: str, kind: str, count: int, finds: bool, api: Any,
                                                           alice: Any, tmp_path: Path) -> None:
    profile = ready(name)
    plain = first.replace("`", "")
    assert integrity_mark(profile)[0] == "warn" and integrity_mark(profile)[1].startswith(plain)
    assert bool(Finding.objects.filter(profile=profile)) == finds
    assert finds or not jobs_to_fix()                                   # home
    document = summary(profile)
    assert document["answer"].startswith(first) and document["integrity"]["plausibility"][0]["count"] == count
    assert "nothing was launched" not in str(document) and "win back" not in str(document)
    text = markdown(document)
    assert f"**{sentence(first)}" in text and "## Plausibility" in text and text.index(sentence(first)) < text.index("Integrity")
    body = api(alice).get(f"/api/profiles/{profile.pk}/").json()
    [doubt] = body["integrity"]["plausibility"]
    assert (doubt["kind"], doubt["count"], doubt["touches"]) == (kind, count, True) and doubt["last_ns"] > doubt["first_ns"] >= 0
    assert body["integrity_mark"][1].startswith(plain)
    client = Client()
    client.force_login(alice)
    page = client.get(reverse("profile", args=[profile.pk])).content.decode()
    answer = page[page.index('<p class="answer">'):].split("</p>")[0].replace("<code>", "").replace("</code>", "")
    assert answer.removeprefix('<p class="answer">').startswith(plain) and "<h3" in page and "Plausibility" in page
    assert ("leading-findings" in page) == finds and "✓ whole" not in page
    assert any("plausibility" in statement for statement in prepare([profile], tmp_path).statements)


def test_a_kernel_whose_time_cannot_be_is_ranked_nowhere() -> None:
    profile = ready("overflow.json")
    families = dict(profile.kernels.values_list("name", "family"))
    assert families["Cijk_Ailk_1"] is None and families["Cijk_Ailk_0"] is not None


def test_profiles_that_were_stored_before_say_what_they_said() -> None:
    profile = ready("two_docs_concatenated.json")
    del profile.integrity["plausibility"]
    card = integrity_card(profile)
    assert card is not None and card.plausibility == [] and integrity_mark(profile)[1] == "3 of 6 records are not kept"
    assert not summary(profile)["answer"].startswith("The file holds")
