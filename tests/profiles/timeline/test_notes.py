"""Notes of a timeline: who may write, change and read them, their bounds, and that every page is told."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from profiles.models import Profile, TimelineNote
from profiles.notes import services as note_services
from profiles.store import trace as store
from tests.builders import trace

pytestmark = pytest.mark.django_db

TRACE = """
python (1) / main: aten::mm 5-20
GPU 0 / stream 7: gemm 12-40
"""


@pytest.fixture
def profile(tmp_store: Any) -> Profile:
    made = Profile.objects.create(name="p", status="ready", kind="trace", file_name="f", upload_key="k")
    store.prepare(trace(TRACE)).write(made.pk)
    return made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any) -> list[tuple[str, str, Any]]:
    messages: list[tuple[str, str, Any]] = []
    monkeypatch.setattr(note_services.jobs, "publish", lambda *message: messages.append(message))
    monkeypatch.setattr(note_services.transaction, "on_commit", lambda tell, robust: tell())
    return messages


def address(profile: Profile, note: int | None = None) -> str:
    return reverse("api-note", args=[profile.pk, note]) if note else reverse("api-notes", args=[profile.pk])


def written(client: Any, profile: Profile, **fields: Any) -> Any:
    return client.post(address(profile), {"start_ns": 12_000, "track": 1, "depth": 0, "text": "slow here", **fields}, format="json")


def test_an_engineer_writes_and_everybody_reads(api: Any, alice: Any, bob: Any, profile: Profile, told: Any) -> None:
    answer = written(api(alice), profile, end_ns=40_000)
    assert answer.status_code == 201
    note = answer.json()
    assert (note["author"], note["text"], note["track"]) == ("alice", "slow here", 1)
    assert (note["start_ns"], note["end_ns"]) == (12_000, 40_000)
    assert told == [(f"profile.{profile.pk}", "note", {"saved": note})]
    read = api(bob).get(address(profile)).json()
    assert read["notes"] == [note]
    assert (read["me"], read["may_write"], read["may_moderate"]) == ("bob", False, False)


def test_without_end_track_or_text_it_is_a_bookmark_of_a_moment(api: Any, alice: Any, profile: Profile) -> None:
    note = api(alice).post(address(profile), {"start_ns": 7}, format="json").json()
    assert (note["start_ns"], note["end_ns"], note["track"], note["text"]) == (7, 7, None, "")


def test_a_viewer_only_reads(sign_in_mode: None, api: Any, alice: Any, bob: Any, profile: Profile) -> None:
    note = written(api(alice), profile).json()["id"]
    assert written(api(bob), profile).status_code == 403
    assert api(bob).patch(address(profile, note), {"text": "x"}, format="json").status_code == 403
    assert api(bob).delete(address(profile, note)).status_code == 403
    assert api().get(address(profile)).status_code in (401, 403)
    assert TimelineNote.objects.get().text == "slow here"


def test_ones_own_may_be_changed_and_an_owner_may_change_any(api: Any, alice: Any, olga: Any, profile: Profile, told: Any) -> None:
    carol = type(alice).objects.create_user("carol", "c@example.org", "x")
    carol.groups.set(alice.groups.all())
    note = written(api(alice), profile).json()["id"]
    assert api(carol).patch(address(profile, note), {"text": "mine now"}, format="json").status_code == 403
    assert api(carol).delete(address(profile, note)).status_code == 403
    assert api(alice).patch(address(profile, note), {"text": "  fast\r\nthere "}, format="json").json()["text"] == "fast\nthere"
    assert api(olga).patch(address(profile, note), {"text": "checked"}, format="json").json()["author"] == "alice"
    assert api(olga).delete(address(profile, note)).status_code == 204
    assert told[-1] == (f"profile.{profile.pk}", "note", {"deleted": note})
    assert not TimelineNote.objects.exists()


@pytest.mark.parametrize(("fields", "says"), [
    ({"track": 2}, "tracks 0 to 1"), ({"start_ns": 10**12}, "outside the trace"), ({"end_ns": 1}, "outside the trace"),
    ({"text": "x" * 4001}, "4,001 characters"),
])
def test_what_cannot_be_is_refused_with_a_reason(api: Any, alice: Any, profile: Profile, fields: dict[str, Any], says: str) -> None:
    answer = written(api(alice), profile, **fields)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


@pytest.mark.parametrize("fields", [{"start_ns": -1}, {"start_ns": "x"}, {"track": 2**40}, {"text": {"a": 1}}, {"text": "\x00"}])
def test_nonsense_is_refused(api: Any, alice: Any, profile: Profile, fields: dict[str, Any]) -> None:
    assert written(api(alice), profile, **fields).status_code == 400


def test_text_is_kept_as_text(api: Any, alice: Any, profile: Profile) -> None:
    text = "<script>alert(1)</script>\n<b>ü</b>"
    assert written(api(alice), profile, text=text).json()["text"] == text


def test_notes_have_a_bound(api: Any, alice: Any, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(note_services, "MAX_NOTES", 2)
    assert [written(api(alice), profile).status_code for _ in range(3)] == [201, 201, 400]


def test_a_note_of_another_profile_is_not_found(api: Any, alice: Any, profile: Profile) -> None:
    other = Profile.objects.create(name="q", status="ready", kind="trace", file_name="f", upload_key="k")
    note = written(api(alice), profile).json()["id"]
    assert api(alice).delete(address(other, note)).status_code == 404


def test_a_profile_without_a_timeline_takes_no_notes(api: Any, alice: Any) -> None:
    waiting = Profile.objects.create(name="q", status="uploaded", file_name="f", upload_key="k")
    assert written(api(alice), waiting).status_code == 409


def test_a_read_only_token_writes_nothing(api: Any, alice: Any, profile: Profile) -> None:
    assert written(api(alice, "read"), profile).status_code == 403
