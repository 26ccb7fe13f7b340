"""Traces that an earlier version read: the page says so, and a command has them read again."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.core.management.base import CommandError

from profiles.families.follow_services import families_follow
from profiles.models import KernelShape, Profile
from profiles.profile.finding_selectors import integrity_card
from profiles.store.trace import READING
from profiles.upload import services

pytestmark = pytest.mark.django_db
CASES = Path(__file__).parents[1] / "data" / "cases"


def _ready(name: str) -> Profile:
    profile = services.profile_create(owner=None, file=ContentFile((CASES / name).read_bytes(), name), worker="w")
    services.profile_ingest(profile.pk, "w")
    families_follow(profile.pk)
    profile.refresh_from_db()
    return profile


def _command(*arguments: str) -> list[dict]:
    out = io.StringIO()
    call_command("reread", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())["profiles"]


def test_what_an_earlier_version_read_is_said_and_read_again():
    profile, fresh = _ready("merged.json"), _ready("operator_without_shapes.json")
    assert profile.summary["reading"] == READING and not integrity_card(profile).is_outdated
    # as a version stored it that knew one GPU and one rank
    summary = {key: value for key, value in profile.summary.items() if key != "reading"}
    Profile.objects.filter(pk=profile.pk).update(summary={**summary, "devices": summary["devices"][:1]})
    KernelShape.objects.filter(kernel__profile=profile).update(operator="aten::mm_r1")
    profile.refresh_from_db()
    assert integrity_card(profile).is_outdated
    assert [each["id"] for each in _command("--outdated")] == [profile.pk] and fresh.pk
    profile.refresh_from_db()
    assert (profile.status, profile.attempts, profile.error) == (Profile.Status.UPLOADED, 0, None)
    services.profile_ingest(profile.pk, "w2")
    families_follow(profile.pk)
    profile.refresh_from_db()
    assert profile.status == Profile.Status.READY and not integrity_card(profile).is_outdated
    assert [device["busy_ns"] for device in profile.summary["devices"]] == [500_000, 500_000]
    shapes = KernelShape.objects.filter(kernel__profile=profile).values_list("kernel__name", "operator")
    assert set(shapes) == {("kernel_r0", "aten::mm_r0"), ("kernel_r1", "aten::mm_r1")}
    assert _command("--outdated") == []


def test_the_page_and_the_api_read_again(admin_client, api, alice, bob, sign_in_mode):
    profile = _ready("merged.json")
    Profile.objects.filter(pk=profile.pk).update(summary={key: value for key, value in profile.summary.items() if key != "reading"})
    page = admin_client.get(f"/profiles/{profile.pk}/").content.decode()
    assert f'action="/profiles/{profile.pk}/reread/"' in page
    assert admin_client.post(f"/profiles/{profile.pk}/reread/").status_code == 302
    profile.refresh_from_db()
    assert profile.status == Profile.Status.UPLOADED
    again = api(alice).post(f"/api/profiles/{profile.pk}/reread/")
    assert (again.status_code, again.json()["error"]) == (409, "it is being read")
    services.profile_ingest(profile.pk, "w")
    assert api(bob).post(f"/api/profiles/{profile.pk}/reread/").status_code == 403
    again = api(alice).post(f"/api/profiles/{profile.pk}/reread/")
    assert (again.status_code, again.json()["status"]) == (202, "uploaded")


def test_what_cannot_be_read_again_stays():
    profile = _ready("corr0.json")
    Profile.objects.filter(pk=profile.pk).update(status=Profile.Status.INGESTING)
    assert _command(str(profile.pk))[0]["left"] == "it is being read"
    Profile.objects.filter(pk=profile.pk).update(status=Profile.Status.READY, upload_key="uploads/none/there.json", metadata={})
    assert _command(str(profile.pk))[0]["left"] == "its upload is not stored any more"
    profile.refresh_from_db()
    assert profile.status == Profile.Status.READY
    with pytest.raises(CommandError, match="No profile 99999999"):
        _command("99999999")
    with pytest.raises(CommandError, match="--outdated"):
        _command()
