"""The frame of a profile's pages: the same tabs and header on each of them, only what the profile has, the current one marked."""

from __future__ import annotations

import re

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse

from profiles.analysis.core.tiles import busy_lane
from profiles.analysis.trace.account.causes import CAUSES
from profiles.charts.strip import GROUPS, lane_pictures, trace_strip
from profiles.families.follow_services import families_follow
from profiles.models import KernelStat
from profiles.overview import workspace
from profiles.profile.busy import busy_lanes
from profiles.profile.selectors import shape_rows, sort_columns
from profiles.store.objects import topic_write
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
    profile = ready("full.ncu-rep.zst")
    titles = [title for title, _ in bar(page(alice, f"/profiles/{profile.pk}/"))]
    assert titles == ["Overview", "Kernels", "Roofline", "SQL", "Report"]
    assert not bar_of(alice, f"/sql/?profiles={profile.pk},{ready('buildA.ncu-rep.zst').pk}")       # of several profiles: of none
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
    assert ">Shape</th>" in by_shape and by_shape.count('class="name" data-value') == shape_rows(profile).count() > 0


def test_overview_says_the_run_in_numbers_that_agree(alice):
    profile = ready("kineto_train.json.gz")
    topic_make(profile, topic_of("causes"))
    shown = page(alice, f"/profiles/{profile.pk}/")
    account = document_of(profile, topic_of("causes"))["numbers"]
    made = trace_strip(profile.summary, account, profile.steps)
    assert [share.label for share in made.shares] == ["GPU busy", "compute", "memory", "small kernels", "waiting for the host"]
    of_cause = {cause: sum(row["wall_ns"] for row in account["causes"] if row["cause"] == cause) for cause in CAUSES}
    grouped = {label: sum(of_cause[cause] for cause in causes) for label, (_, causes) in GROUPS.items()}
    assert [share.ns for share in made.shares[1:]] == [ns for ns in grouped.values() if ns]       # the account's own sums
    assert sum(share.ns for share in made.shares[1:]) <= profile.wall_ns
    assert made.step_count == len(made.steps) == profile.steps == 4
    strip = shown.split('class="strip"')[1].split("</section>")[0]
    assert all(f"{share.ns} ns" in strip for share in made.shares) and strip.count("?w=") == 4
    assert shown.split('id="leading"')[1].split("</section>")[0].count('class="leading-share"') == 3
    top = shown.split('id="kernels"')[1].split("</section>")[0]
    assert top.count('<td class="name">') == 12 and f'href="/profiles/{profile.pk}/kernels/"' in top
    for part in ('id="causes"', 'id="time"', 'id="topics"', 'id="findings"', 'id="integrity"', 'id="about"'):     # still below
        assert part in shown
    assert client_get(alice, f"/profiles/{profile.pk}/?kernels=shapes")["Location"].endswith("/kernels/?kernels=shapes")


def client_get(person, url: str):
    client = Client()
    client.force_login(person)
    return client.get(url)


def test_every_group_of_the_strip_is_of_known_causes_and_none_is_counted_twice():
    named = [cause for _, causes in GROUPS.values() for cause in causes]
    assert len(named) == len(set(named)) and set(named) <= set(CAUSES)
    left_out = {cause: CAUSES[cause].side for cause in CAUSES if cause not in named}
    assert set(left_out) == {"stream_wait", "launch_latency", "profiler", "unknown", "outside"}


def test_a_strip_of_ranks_draws_each_step_once():
    steps = [{"name": f"step {number}", "start_ns": 100 * number, "end_ns": 100 * number + length}
             for number in range(2) for length in (40, 80)]
    device = {"wall_ns": 200, "busy_ns": 50, "compute_ns": 50, "memory_ns": 0, "communication_ns": 0}
    made = trace_strip({"wall_ns": 200, "devices": [device, device], "steps": steps}, {}, 2)
    assert [(step.name, step.dur_ns, step.css) for step in made.steps] == [("step 0", 80, "100.00"), ("step 1", 80, "100.00")]
    assert (made.step_mean_ns, made.label) == (60, "wall time, 2 GPUs")
    assert [(share.label, share.pct) for share in made.shares] == [("GPU busy", 25.0), ("compute", 25.0)]


def test_kernels_of_the_overview_are_sorted_over_all(alice):
    profile = ready("kineto_train.json.gz")

    def first(sort: str) -> str:
        shown = page(alice, f"/profiles/{profile.pk}/", sort=sort)
        return re.search(r'/kernels/(\d+)/">', shown.split('id="kernels"')[1])[1]

    by = {name: list(profile.kernels.order_by(name, "pk").values_list("pk", flat=True)) for name in ("mean_ns", "launches")}
    assert first("-mean") == str(by["mean_ns"][0]) and first("mean") == str(profile.kernels.order_by("-mean_ns", "pk").first().pk)
    assert first("-launches") == str(by["launches"][0])
    assert first("nonsense; DROP") == first("") == str(profile.kernels.order_by("-share_pct", "pk").first().pk)
    columns = {column.title: column for column in sort_columns("mean")}
    assert (columns["Mean"].order, columns["Mean"].next, columns["Share"].next) == ("descending", "-mean", "share")


def test_lanes_of_the_timeline_say_how_busy_each_gpu_was(alice):
    profile = ready("kineto_train.json.gz")
    lanes = busy_lanes(profile)
    lane = lanes.lanes[0]
    assert [each.label for each in lanes.lanes] == ["GPU 0"] and len(lane.shares) <= 480 and not lanes.more
    picture = lane_pictures(lanes.lanes)[0]
    busy_pct = 100 * profile.summary["devices"][0]["busy_ns"] / lanes.end_ns
    assert picture.busy_pct == pytest.approx(busy_pct, rel=0.05)            # columns round up
    assert {look for look, _ in picture.paths} <= {"compute", "memory"}
    assert f'data-end-ns="{lanes.end_ns}"' in page(alice, f"/profiles/{profile.pk}/")


def test_columns_of_a_lane_take_the_mean_and_the_busiest_category():
    share = np.array([[255, 0, 100, 100], [255, 0, 0, 200]], np.uint8)
    category = np.array([[0, 0, 1, 1], [2, 2, 2, 2]], np.uint8)
    lane = busy_lane("GPU 0", share, category, 2)
    assert (lane.shares, lane.categories) == ([128, 178], ["compute", "memory"])        # two streams fill a column at most once
    assert busy_lane("GPU 0", share, category, 100).shares == [255, 0, 100, 255]
