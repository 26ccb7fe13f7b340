"""What hosts compare comes from the database's clock: a host whose own is minutes off agrees with the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from profiles.models import Profile
from webapp.models import ApiToken
from workers import clock, jobs
from workers.metrics.facts import queue_states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers]


@pytest.fixture(params=[-600, 600], ids=["10 min behind", "10 min ahead"])
def wrong_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """This process as one of a host whose clock is wrong; its connection is new."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + request.param)
    connection.close()
    connection.ensure_connection()
    yield float(request.param)
    monkeypatch.undo()
    connection.close()


def off_s(moment: Any) -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp() - %s)", [moment])
        return abs(float(cursor.fetchone()[0]))


def test_django_and_our_code_are_told_the_time_of_the_database(wrong_host: float) -> None:
    assert off_s(timezone.now()) < 5 and abs(time.time() - timezone.now().timestamp()) > 500
    row = Profile.objects.create(name="made here")
    assert off_s(row.created) < 5
    assert Profile.objects.filter(pk=row.pk, created__lte=Now() + timedelta(seconds=5)).exists()


def test_a_token_ends_when_it_ends_everywhere(wrong_host: float) -> None:
    person = get_user_model().objects.create_user("clara")
    row, _ = ApiToken.objects.create(person, name="an hour", expiry=timedelta(hours=1))
    assert off_s(row.expiry - timedelta(hours=1)) < 5


def test_an_entry_of_a_host_whose_clock_is_wrong_has_its_age(wrong_host: float) -> None:
    jobs.connection().flushdb()
    jobs.enqueue("replay", "tune", 1)
    (state,) = [each for each in queue_states() if each.waiting]
    assert state.oldest_s is not None and state.oldest_s < 60
    jobs.connection().flushdb()


def test_setting_the_clock_of_a_host_changes_nothing_between_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    connection.ensure_connection()
    before, right = clock.now(), time.time
    monkeypatch.setattr(time, "time", lambda: right() - 86_400)
    assert timedelta() <= clock.now() - before < timedelta(minutes=5)
