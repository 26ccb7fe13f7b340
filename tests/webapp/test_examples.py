"""The example recordings: real files, created once, labelled as recorded."""

from __future__ import annotations

import hashlib

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.files.storage import default_storage
from django.test import Client, override_settings

from profiles.models import Profile
from webapp.examples import profiles

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice() -> User:
    return get_user_model().objects.create_superuser("alice", password="x")


def test_repository_holds_every_example() -> None:
    assert profiles.missing_files() == []


def test_one_click_creates_all_and_a_second_none(client: Client, alice: User) -> None:
    client.force_login(alice)
    for _ in range(2):
        assert client.post("/examples/").headers["Location"] == "/"
        assert Profile.objects.count() == len(profiles.EXAMPLES)
    assert Profile.objects.first().name == profiles.EXAMPLES[0].name
    assert {row.build for row in Profile.objects.exclude(build="")} == {"buildA", "buildB"}
    for row in Profile.objects.all():
        assert row.recorded.startswith("recorded on NVIDIA H200") and row.owner == alice and row.status == "uploaded"


def test_stored_bytes_are_the_recording(alice: User) -> None:
    profiles.load(alice)
    row = Profile.objects.get(build="buildA")
    with default_storage.open(row.upload_key) as stored:
        assert (
            hashlib.sha256(stored.read()).hexdigest()
            == hashlib.sha256((profiles.FOLDER / "buildA.ncu-rep.zst").read_bytes()).hexdigest()
        )


def test_a_deleted_example_comes_back_alone(alice: User) -> None:
    profiles.load(alice)
    Profile.objects.get(build="buildB").delete()
    assert [row.build for row in profiles.load(alice)] == ["buildB"]


@override_settings(LOCAL_MODE=False)
def test_viewers_and_get_may_not(client: Client) -> None:
    client.force_login(get_user_model().objects.create_user("vera", password="x"))
    assert client.post("/examples/").status_code == 403
    assert client.get("/examples/").url == "/"
    assert not Profile.objects.exists()
