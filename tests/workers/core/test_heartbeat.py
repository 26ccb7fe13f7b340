"""A row beats while its block runs, and only while it is this worker's."""

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from profiles.models import Profile
from workers.core import periodic

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "BEAT_EVERY_S", 0.05)


def row(worker: str) -> Profile:
    return Profile.objects.create(name="p", status="ingesting", worker=worker, heartbeat=timezone.now() - timedelta(hours=1))


def beats(profile: Profile) -> bool:
    profile.refresh_from_db()
    return profile.heartbeat is not None and timezone.now() - profile.heartbeat < timedelta(seconds=5)


def test_it_beats_while_the_block_runs() -> None:
    profile = row("me")
    with periodic.keep_heartbeat(Profile.leases, profile.pk, "me"):
        time.sleep(0.3)
    assert beats(profile)
    Profile.objects.update(heartbeat=timezone.now() - timedelta(hours=1))
    time.sleep(0.2)
    assert not beats(profile)


def test_it_leaves_another_workers_row_and_an_ended_row_alone() -> None:
    taken, ended = row("other"), row("me")
    Profile.objects.filter(pk=ended.pk).update(heartbeat=None)
    for profile in (taken, ended):
        with periodic.keep_heartbeat(Profile.leases, profile.pk, "me"):
            time.sleep(0.2)
        assert not beats(profile)


def test_an_error_of_the_block_stops_it_and_passes() -> None:
    profile = row("me")
    with pytest.raises(KeyError), periodic.keep_heartbeat(Profile.leases, profile.pk, "me"):
        raise KeyError
    time.sleep(0.2)
    assert not beats(profile)
