"""The frame of a profile's pages: the same tabs and header on each of them, only what the profile has, the current one marked."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from profiles.families.follow_services import families_follow
from profiles.models import KernelStat
from profiles.overview import workspace
from profiles.profile.selectors import shape_rows
from profiles.store.topics import topic_write
from profiles.topics.selectors import topics_of
from profiles.topics.services import document_of, topic_make
from profiles.topics.table import TOPICS, topic_of
from tests.profiles.pages.test_pages import page, ready

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]
BAR = re.compile(r'<nav class="tabs workspace-tabs".*?</nav>', re.S)


def bar(markup: str) -> list[tuple[str, bool]]:
    """Titles of the tabs on a page, and which is current."""
    return [(title, "aria-current" in attributes) for attributes, title in
            re.findall(r"<a ([^>]*)>([^<]*)</a>", BAR.search(markup)[0])]


def test_every_page_of_a_trace_has_the_same_tabs_and_marks_its_own(alice):
    profile = ready("kineto_train.json.gz")
    for topic in TOPICS:
        topic_make(profile, topic)
    tabs = workspace.tabs(profile, reverse("profile", args=[profile.pk]))
    titles = [tab.title for tab in tabs]
    assert titles[:4] == ["Overview", "Timeline", "Kernels", "Causes"] and titles[-3:] == ["Roofline", "SQL", "Report"]
    assert "Communication" not in titles and "GPU metrics" not in titles         # one GPU, no sampler: nothing to say
    for tab in tabs:
        address, _, query = tab.url.partition("?")
        shown = page(alice, address, **dict([query.split("=")] if query else []))
        assert bar(shown) == [(title, title == tab.title) for title in titles], tab.url
        assert 'id="profile-actions"' in shown and "all 10,949 records kept" in shown
    kernel = profile.kernels.first()
    assert ("Kernels", True) in bar(page(alice, f"/profiles/{profile.pk}/kernels/{kernel.pk}/"))
    assert ("Communication", True) in bar(page(alice, f"/profiles/{profile.pk}/analysis/communication/"))    # while it is open


def test_tabs_follow_an_analysis_that_is_made(alice):
    profile, topic = ready("kineto_train.json.gz"), topic_of("communication")
    assert topic in topics_of(profile)                  # not made yet: opening it makes it
    topic_make(profile, topic)
    assert topic not in topics_of(profile)
    layer = topic_of("layer")                           # rests on what people type: read each time
    topic_make(profile, layer)
    assert layer in topics_of(profile)
    topic_write(profile.pk, layer.name, {**document_of(profile, layer), "applies": False})
    assert layer not in topics_of(profile)


def test_a_report_of_counters_has_neither_timeline_nor_analyses(alice):
    profile = ready("full.ncu-rep.gz")
    titles = [title for title, _ in bar(page(alice, f"/profiles/{profile.pk}/"))]
    assert titles == ["Overview", "Kernels", "Roofline", "SQL", "Report"]
    assert not bar_of(alice, f"/sql/?profiles={profile.pk},{ready('buildA.ncu-rep.gz').pk}")       # of several profiles: of none
    kernel = KernelStat.objects.filter(profile=profile).first()
    for part in ("", "source/", "sampling/"):
        assert ("Kernels", True) in bar(page(alice, f"/profiles/{profile.pk}/kernels/{kernel.pk}/{part}"))


def bar_of(person, url: str) -> bool:
    address, _, query = url.partition("?")
    return bool(BAR.search(page(person, address, **dict([query.split("=")]))))


def test_kernels_have_a_page_of_their_own(alice):
    profile = ready("kineto_train.json.gz")
    shown = page(alice, f"/profiles/{profile.pk}/kernels/")
    assert shown.count('class="name" data-value') == profile.kernels.count() == 27
    families_follow(profile.pk)
    by_shape = page(alice, f"/profiles/{profile.pk}/kernels/", kernels="shapes")
    assert "Worked on" in by_shape and by_shape.count('class="name" data-value') == shape_rows(profile).count() > 0
