"""What two analyses say of the same work stands once: with its gain, where one is known."""

from __future__ import annotations

import pytest
from django.test import Client

from profiles.models import Finding
from profiles.topics.services import topics_make
from tests.profiles.compare.test_compare_steps import ingested
from tests.profiles.pages.test_pages import page, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]


def test_casts_and_fusion_are_said_by_the_work_that_need_not_be(bob):
    profile = ingested("natural/scores_written_out.json.gz")
    topics_make(profile.pk)
    stored = set(Finding.objects.filter(profile=profile).values_list("rule", flat=True))
    assert {"scores_in_memory", "passes", "fusion", "casts_and_copies"} <= stored
    client = Client()
    client.force_login(bob)
    rules = {row["rule"] for row in client.get(f"/api/profiles/{profile.pk}/").json()["findings"]}
    assert rules == stored - {"fusion", "casts_and_copies"}
    overview = text(page(bob, f"/profiles/{profile.pk}/"))
    assert "Attention's scores are written to memory" in overview and "casts between types" not in overview
    assert "casts between types" in text(page(bob, f"/profiles/{profile.pk}/analysis/operators/"))
