"""Searching again under a new toolkit: what is due, one at a time, within hours and bounds; page, API, command, sweep."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from profiles.base.refused import Refused
from tests.tuner.cache.test_config_cache import ENVIRONMENT, FAST, GPU, SHAPE, put
from tests.tuner.gate.builds.test_environments import NEWER, client_of  # noqa: F401
from tuner.cache import rules
from tuner.cache.entries.services import notice_environment
from tuner.models import RevalidationPolicy, TuneGroup, TuneJob
from tuner.revalidation import search_services
from tuner.revalidation.search_services import due_searches, is_in_hours, wake_searches
from workers import jobs, sweep

pytestmark = pytest.mark.django_db
TOOLKIT = rules.toolkit_text(NEWER)


def on(alice, **fields) -> RevalidationPolicy:
    return RevalidationPolicy.objects.create(searches=True, by=alice, **fields)


def test_a_new_toolkit_makes_searches_due_and_a_new_driver_does_not(alice):
    cold, hot = put(ms=0.29), put(shape={**SHAPE, "M": 2048}, ms=0.15)
    put(shape={**SHAPE, "M": 64}, recorded="recorded on NVIDIA H200")
    assert due_searches() == []
    notice_environment(GPU, rules.toolkit_text(ENVIRONMENT), "999.1")
    assert due_searches() == []
    notice_environment(GPU, TOOLKIT, "999.1")
    due = due_searches()
    assert [one.entry.pk for one in due] == [hot.pk, cold.pk] and due[0].environment.toolkit == TOOLKIT
    assert due[0].gain_pct == pytest.approx(50) and due[1].gain_pct == pytest.approx(100 * (1 - 0.29 / 0.3))


def test_they_are_queued_one_after_the_other_within_the_bound(alice):
    put(ms=0.29), put(shape={**SHAPE, "M": 2048}, ms=0.15), put(shape={**SHAPE, "M": 1024}, ms=0.2)
    notice_environment(GPU, TOOLKIT, "")
    assert wake_searches() == []                                          # nobody switched it on
    on(alice, most_searches=2, search_seconds=90)
    (first,) = wake_searches()
    job = TuneJob.objects.get(pk=first)
    assert (job.shape["M"], job.device, job.owner, job.budget_seconds, job.first) == (2048, f"gpu:{GPU}", alice, 90, [FAST])
    assert job.group.source["toolkit"] == TOOLKIT and GPU in job.group.name
    assert wake_searches() == []                                          # it waits still
    TuneJob.objects.filter(pk=first).update(status="failed")
    (second,) = wake_searches()                                           # what failed is not tried again: the next one
    assert TuneJob.objects.get(pk=second).shape["M"] == 1024 and TuneJob.objects.get(pk=second).group_id == job.group_id
    TuneJob.objects.filter(pk=second).update(status="done")
    assert wake_searches() == [] and [one.entry.shape for one in due_searches()] == [SHAPE]         # the bound holds
    RevalidationPolicy.objects.update(most_searches=3)
    assert len(wake_searches()) == 1 and due_searches() == [] and TuneGroup.objects.count() == 1


def test_what_somebody_searched_under_the_new_toolkit_is_not_due(alice):
    put()
    notice_environment(GPU, TOOLKIT, "")
    TuneJob.objects.create(operator="matmul", shape=SHAPE, dtype="bf16", device=f"gpu:{GPU}", strategy="default", budget_trials=9,
                           budget_seconds=9, only=[FAST])
    TuneJob.objects.create(operator="matmul", shape=SHAPE, dtype="bf16", device=f"gpu:{GPU}", strategy="default", budget_trials=9,
                           budget_seconds=9, space={"parameters": {"BM": [128]}, "constraints": [], "own": {}})
    assert len(due_searches()) == 1                       # one searched nothing, the other a part
    TuneJob.objects.create(operator="matmul", shape=SHAPE, dtype="bf16", device=f"gpu:{GPU}", strategy="default", budget_trials=9,
                           budget_seconds=9)
    assert due_searches() == []


@pytest.mark.parametrize(("hours", "inside", "outside"), [((0, 24), (0, 12, 23), ()), ((22, 6), (22, 23, 0, 5), (6, 12, 21)),
                                                          ((9, 17), (9, 16), (8, 17, 23))])
def test_hours_may_go_over_midnight(hours, inside, outside):
    policy = RevalidationPolicy(from_hour=hours[0], until_hour=hours[1])
    assert all(is_in_hours(policy, datetime(2026, 11, 27, hour, 59, tzinfo=UTC)) for hour in inside)
    assert not any(is_in_hours(policy, datetime(2026, 11, 27, hour, 0, tzinfo=UTC)) for hour in outside)


def test_outside_the_hours_nothing_begins(alice):
    put()
    notice_environment(GPU, TOOLKIT, "")
    on(alice, from_hour=22, until_hour=6)
    assert wake_searches(datetime(2026, 11, 27, 12, tzinfo=UTC)) == []
    assert len(wake_searches(datetime(2026, 11, 27, 23, tzinfo=UTC))) == 1


def test_what_cannot_be_searched_leaves_the_next_its_turn(alice, monkeypatch):
    put(shape={**SHAPE, "M": 2048}, ms=0.1)
    put(ms=0.29)
    notice_environment(GPU, TOOLKIT, "")
    on(alice)
    real = search_services.tune_create

    def refuses(**asked):
        if asked["shape"]["M"] == 2048:
            raise Refused({"operator": "its package is disabled"})
        return real(**asked)

    monkeypatch.setattr(search_services, "tune_create", refuses)
    (made,) = wake_searches()
    assert TuneJob.objects.get(pk=made).shape == SHAPE
    TuneJob.objects.filter(pk=made).delete()
    TuneGroup.objects.all().delete()
    monkeypatch.setattr(search_services, "tune_create", lambda **asked: refuses(shape={"M": 2048}))
    assert wake_searches() == [] and not TuneGroup.objects.exists()


def test_page_api_and_command_switch_it(client_of, django_capture_on_commit_callbacks):  # noqa: F811
    put()
    notice_environment(GPU, TOOLKIT, "")
    alice, olga = client_of("alice"), client_of("olga")
    page = alice.get(reverse("environments")).content.decode()
    assert "<b>1 due</b>" in page and "By itself off" in page and "Search by itself" not in page
    assert alice.post(reverse("environments-searches"), {"searches": "1"}).status_code == 403
    with django_capture_on_commit_callbacks(execute=True):
        olga.post(reverse("environments-searches"), {"searches": "1", "most_searches": "3", "search_seconds": "120",
                                                     "from_hour": "0", "until_hour": "24"})
    job = TuneJob.objects.get(group__isnull=False)
    page = alice.get(reverse("environments")).content.decode()
    assert "1 search on NVIDIA H200" in page and "at any hour" in page and reverse("tune-group", args=[job.group_id]) in page
    told = alice.get(reverse("api-environments")).json()["searches"]
    assert told["by_itself"] and told["most_searches"] == 3 and told["due"] == 0 and told["groups"][0]["live"] == 1
    put_api = olga.put(reverse("api-environments-searches"), json.dumps({"searches": False}), content_type="application/json")
    assert put_api.status_code == 200 and not put_api.json()["by_itself"]
    out = StringIO()
    call_command("environments", "--searches", "on", "--from-hour", "22", "--until-hour", "6", "--json", stdout=out)
    assert json.loads(out.getvalue())["searches"]["from_hour"] == 22
    out = StringIO()
    call_command("environments", stdout=out)
    assert "searched again by themselves, from 22 to 6 h UTC" in out.getvalue()
    with pytest.raises(CommandError, match="until_hour"):
        call_command("environments", "--searches", "on", "--until-hour", "22")


@pytest.mark.parametrize("body", [{}, {"searches": "perhaps"}, {"searches": True, "most_searches": 0},
                                  {"searches": True, "search_seconds": 1}, {"searches": True, "from_hour": 24},
                                  {"searches": True, "from_hour": 5, "until_hour": 5}, {"searches": True, "search_seconds": 1e308}])
def test_the_switch_refuses_what_makes_no_sense(client_of, body):  # noqa: F811
    answer = client_of("olga").put(reverse("api-environments-searches"), json.dumps(body), content_type="application/json")
    assert answer.status_code == 400 and answer.json()["fields"]
    assert not RevalidationPolicy.objects.exists()


def test_the_sweep_begins_the_next_one(alice):
    put()
    notice_environment(GPU, TOOLKIT, "")
    on(alice)
    jobs.connection().delete(sweep._TURN_KEY, sweep._DOUBT_KEY)
    assert len(sweep.sweep()["search"]) == 1
