"""A capture is deleted with the files that were kept of it: the store's bytes go down, its profiles stay."""

import os
from io import StringIO

import pytest
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import CommandError, call_command
from django.urls import reverse

from profiles.base.refused import Refused
from profiles.capture import services
from profiles.models import Capture, CaptureFile, CaptureTarget, Profile
from profiles.store.objects import bytes_store, capture_prefix
from tests.profiles.pages.test_services import create
from tuner.models import Suite, SuiteCapture, SuiteJob

pytestmark = [pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS), pytest.mark.usefixtures("tmp_store")]
BYTES = 300_000


@pytest.fixture
def capture(alice, sign_in_mode):
    target = CaptureTarget.objects.create(name="train", argv=["{python}", "-m", "train"])

    def make(**fields):
        profile = create(ContentFile(b'{"traceEvents": []}', name="trace.json"))
        row = Capture.objects.create(target=target, tool="nsys", owner=alice, **{"status": "done", "profile": profile, **fields})
        for number, role in enumerate(("kept", "owners")):
            stored = bytes_store(capture_prefix(row.pk), ContentFile(bytes(BYTES), name=f"report{number}.nsys-rep"))
            CaptureFile.objects.create(capture=row, role=role, **stored)
        CaptureFile.objects.create(capture=row, role="profile", name="trace.json", profile=profile, bytes=19)
        return row
    return make


def test_the_page_asks_and_the_bytes_go(client, alice, bob, capture):
    row, other = capture(), capture()
    before, url = held(), reverse("capture-delete", args=[row.pk])
    client.force_login(bob)
    assert client.get(url).status_code == 403 == client.post(url).status_code
    assert url not in client.get(reverse("capture", args=[row.pk])).content.decode()
    client.force_login(alice)
    assert url in client.get(reverse("capture", args=[row.pk])).content.decode()
    asked = client.get(url).content.decode()
    assert "2 kept files" in asked and "1 profile that it made stays" in asked and Capture.objects.count() == 2
    answer = client.post(url, follow=True)
    assert f"Deleted capture {row.pk}" in answer.content.decode()
    assert held() == before - 2 * BYTES and not Capture.objects.filter(pk=row.pk).exists()
    assert Profile.objects.count() == 2 and CaptureFile.objects.filter(capture=other).count() == 3
    assert default_storage.exists(other.files.first().key) and CaptureFile.objects.count() == 3


def held():
    """Return the bytes of everything in the store."""
    def below(folder):
        folders, files = default_storage.listdir(folder)
        return (sum(default_storage.size(os.path.join(folder, name)) for name in files)
                + sum(below(os.path.join(folder, name)) for name in folders))
    return below("")


def test_api_and_command(api, alice, bob, capture):
    first, second = capture(), capture()
    before, url = held(), reverse("api-capture", args=[first.pk])
    assert api(bob).delete(url).status_code == 403
    assert api(alice).delete(url).status_code == 204 and api(alice).get(url).status_code == 404
    out = StringIO()
    call_command("capture", "delete", str(second.pk), stdout=out)
    assert out.getvalue() == f"deleted capture {second.pk}\n" and held() == before - 4 * BYTES
    with pytest.raises(CommandError, match="there is no capture"):
        call_command("capture", "delete", str(second.pk))


@pytest.mark.parametrize("status", ["queued", "running"])
def test_one_under_way_is_stopped_first(api, client, alice, capture, status):
    row = capture(status=status, profile=None)
    before = held()
    answer = api(alice).delete(reverse("api-capture", args=[row.pk]))
    assert answer.status_code == 409 and answer.json()["error"] == f"it is {status}: stop it first"
    client.force_login(alice)
    assert f"Not deleted: it is {status}" in client.post(reverse("capture-delete", args=[row.pk]), follow=True).content.decode()
    assert held() == before and Capture.objects.filter(pk=row.pk).exists()


HOLDS = {"holds": {"report0.nsys-rep": "66 nodes <b>"}}


@pytest.mark.parametrize("facts", [
    HOLDS, {"holds": 7}, {"holds": {"report0.nsys-rep": [1]}}, {"holds": ["report0.nsys-rep"]}, {"plain": 3}, {"plain": {"s": "x"}},
    {"gpu": [1], "whole": True}])
def test_what_a_kept_file_holds_is_said(client, alice, capture, facts):
    row = capture(facts=facts)
    client.force_login(alice)
    page = client.get(reverse("capture", args=[row.pk]))
    assert page.status_code == 200
    assert ("66 nodes &lt;b&gt;" in page.content.decode()) == (facts == HOLDS)


def test_one_that_runs_of_a_suite_rest_on_stays(capture, alice):
    row = capture()
    suite = Suite.objects.create(name="s", kind="target")
    SuiteCapture.objects.create(job=SuiteJob.objects.create(suite=suite, builds=["b"], runs=1), build="b", number=0, capture=row)
    with pytest.raises(Refused, match="runs of a benchmark suite"):
        services.capture_delete(row)
    assert row.files.count() == 3


def test_the_files_stay_where_the_row_does(capture, monkeypatch):
    """As for profiles: objects go when the rows are gone for good."""
    row = capture()
    before = held()
    monkeypatch.setattr(Capture, "delete", lambda self: (_ for _ in ()).throw(RuntimeError("the database went away")))
    with pytest.raises(RuntimeError):
        services.capture_delete(row)
    assert held() == before and row.files.count() == 3
