"""Threads: who may do what, what is kept, and which subject they stay with."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.models import Finding
from tests.webapp.threads.conftest import make_profile
from tuner.models import Regression
from webapp.models import Comment, Follow, Membership, Notice, Project, Thread
from webapp.threads import services, subjects
from workers.scope import within

pytestmark = [pytest.mark.servers, pytest.mark.django_db]


def thread_about(finding: Finding) -> Thread:
    subject = subjects.find("finding", str(finding.pk))
    assert subject is not None
    return services.thread_ensure(subject)


def test_a_finding_keeps_its_thread_when_it_is_found_anew(finding: Finding, alice: Any, client: Client, sign_in_mode: None) -> None:
    client.force_login(alice)
    asked = {"kind": "finding", "of": finding.pk}
    assert client.get("/threads/about/", asked).status_code == 200 and not Thread.objects.exists()        # looking makes nothing
    assert client.post("/threads/write/", {**asked, "text": "who **takes** this?"}).status_code == 302
    thread = Thread.objects.get()
    finding.delete()
    again = Finding.objects.create(profile=make_profile(name="next"), rule="time.idle", severity="high", title="GPU idle 40 %")
    other = Finding.objects.create(profile=make_profile(gpu="B200"), rule="time.idle", severity="high", title="GPU idle 40 %")
    found = client.get("/threads/about/", {"kind": "finding", "of": again.pk})
    assert found.headers["location"] == f"/threads/{thread.pk}/"
    assert client.get("/threads/about/", {"kind": "finding", "of": other.pk}).status_code == 200        # of another GPU: none yet
    page = client.get(f"/threads/{thread.pk}/").content.decode()
    assert "who <strong>takes</strong> this?" in page


def test_only_engineers_write_and_only_authors_change(finding: Finding, alice: Any, bob: Any, olga: Any, client: Client,
                                                      sign_in_mode: None) -> None:
    thread = thread_about(finding)
    comment = services.comment_add(thread, "first", by=alice)
    client.force_login(bob)         # a viewer
    for path in (f"/threads/{thread.pk}/comment/", f"/threads/{thread.pk}/status/", f"/threads/{thread.pk}/assign/",
                 f"/comments/{comment.pk}/edit/", f"/comments/{comment.pk}/delete/"):
        assert client.post(path, {"text": "x", "status": "resolved", "assignee": "bob"}).status_code == 403, path
    client.force_login(olga)
    assert client.post(f"/comments/{comment.pk}/edit/", {"text": "not mine"}).status_code == 403
    client.force_login(alice)
    assert client.post(f"/comments/{comment.pk}/edit/", {"text": "second"}).status_code == 302
    comment.refresh_from_db()
    assert comment.text == "second" and len(comment.edits) == 1
    assert "edited" in client.get(f"/threads/{thread.pk}/").content.decode()
    client.force_login(olga)        # owners may take away what another wrote
    assert client.post(f"/comments/{comment.pk}/delete/").status_code == 302
    comment.refresh_from_db()
    assert comment.text == "" and comment.deleted
    with pytest.raises(PermissionDenied):
        services.comment_edit(comment, "back", by=alice)


def test_length_and_rate_are_bounded(finding: Finding, alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    thread = thread_about(finding)
    for text in ("", " \n ", "x" * 10_001):
        with pytest.raises(Refused):
            services.comment_add(thread, text, by=alice)
    for number in range(services.MOST_A_MINUTE):
        services.comment_add(thread, f"comment {number}", by=alice)
    with pytest.raises(Refused, match="a minute"):
        services.comment_add(thread, "one more", by=alice)
    Comment.objects.update(created=timezone.now() + timedelta(hours=1))        # the clock was set back
    services.comment_add(thread, "one more", by=alice).delete()
    Comment.objects.update(created="2026-01-01T00:00Z")
    monkeypatch.setattr(services, "MOST_COMMENTS", services.MOST_A_MINUTE)
    with pytest.raises(Refused, match="the most"):
        services.comment_add(thread, "one more", by=alice)
    assert Comment.objects.count() == services.MOST_A_MINUTE


def test_what_was_typed_is_kept_when_it_is_refused(finding: Finding, alice: Any, client: Client, sign_in_mode: None) -> None:
    client.force_login(alice)
    thread = thread_about(finding)
    answer = client.post(f"/threads/{thread.pk}/comment/", {"text": "y" * 10_001})
    assert answer.status_code == 400 and "y" * 10_001 in answer.content.decode() and "at most 10,000" in answer.content.decode()


def test_the_status_of_a_regression_is_its_state(regression: Regression, alice: Any, olga: Any) -> None:
    subject = subjects.find("regression", str(regression.pk))
    assert subject is not None
    thread = services.thread_ensure(subject)
    services.status_set(thread, "acknowledged", by=alice)
    regression.refresh_from_db()
    assert regression.state == "acknowledged" and regression.changed_by == alice
    with pytest.raises(Refused, match="why the new speed is meant"):
        services.status_set(Thread.objects.get(), "intended", by=alice)
    regression.state, regression.changed_by = "fixed", olga             # on the regression's own page, or by a gate
    regression.save()
    thread.refresh_from_db()
    assert (thread.status, thread.is_open) == ("fixed", False)
    assert [(line.author_name, line.event) for line in thread.comments.all()] == [
        ("alice", "status: acknowledged"), ("olga", "status: fixed")]


def test_mentions_and_assignments_reach_people_of_the_project_alone(finding: Finding, alice: Any, olga: Any) -> None:
    outside = get_user_model().objects.create_user("zoe", "zoe@example.org", "x")
    elsewhere = Project.objects.create(slug="other", name="Other")
    Membership.objects.create(project=elsewhere, user=outside, role="engineer")
    thread = thread_about(finding)
    services.comment_add(thread, "@olga and @zoe, look", by=alice)
    assert [(each.user, each.why) for each in Notice.objects.all()] == [(olga, "mention")]
    with pytest.raises(Refused, match="nobody in this project"):
        services.assign(thread, "zoe", by=alice)
    services.assign(thread, "olga", by=alice)
    assert Notice.objects.filter(user=olga, why="assigned").count() == 1
    with within(elsewhere.pk):
        assert not Thread.objects.exists() and not Comment.objects.exists() and not Notice.objects.exists()


def test_a_regression_is_owned_and_due_before_anybody_wrote(regression: Regression, alice: Any, bob: Any, olga: Any,
                                                            client: Client, sign_in_mode: None) -> None:
    page, field = f"/regressions/{regression.pk}/", {"kind": "regression", "of": str(regression.pk), "assignee": "olga"}
    client.force_login(alice)
    shown = client.get(page).content.decode()
    assert 'action="/threads/own/"' in shown and 'name="due"' in shown and not Thread.objects.exists()
    assert client.post("/threads/own/", {**field, "due": "2026-12-24", "next": page}).headers["Location"] == page
    thread = Thread.objects.get()
    assert (thread.assignee, str(thread.due), thread.comments.exclude(text="").count()) == (olga, "2026-12-24", 0)
    assert [line.event for line in thread.comments.all()] == ["assigned to olga", "due 2026-12-24"]
    assert "due 2026-12-24" in client.get(page).content.decode()
    assert client.post(f"/threads/{thread.pk}/assign/", {"assignee": "olga", "due": "tomorrow"}).status_code == 400
    client.post(f"/threads/{thread.pk}/assign/", {"assignee": "olga", "due": ""})
    thread.refresh_from_db()
    assert thread.due is None and thread.assignee == olga
    client.force_login(bob)
    assert client.post("/threads/own/", field).status_code == 403


def test_who_follows_hears_and_who_left_does_not(regression: Regression, alice: Any, bob: Any, olga: Any) -> None:
    services.follow_set(bob, "suite", "nightly", True)
    services.follow_set(olga, "project", "", True)
    subject = subjects.find("regression", str(regression.pk))
    assert subject is not None
    thread = services.thread_ensure(subject)
    services.comment_add(thread, "slower", by=alice)
    assert {each.user for each in Notice.objects.all()} == {bob, olga}
    services.follow_set(olga, "thread", str(thread.pk), False)
    services.comment_add(thread, "still", by=alice)
    assert Notice.objects.filter(user=olga).count() == 1 and Notice.objects.filter(user=bob).count() == 2
    services.comment_add(thread, "@olga!", by=alice)
    assert Notice.objects.filter(user=olga).count() == 2            # named: told, and still left
    assert not Follow.objects.get(user=olga, kind="thread").on


def test_a_new_regression_is_told_to_who_follows_its_suite(regression: Regression, bob: Any) -> None:
    services.follow_set(bob, "suite", "nightly", True)
    other = Regression.objects.create(suite=regression.suite, family="matmul", build=regression.build, found_by="series")
    notice = Notice.objects.get()
    assert (notice.user, notice.why, notice.thread.key) == (bob, "found", str(other.pk))


def test_over_the_api(regression: Regression, alice: Any, bob: Any, api: Any, sign_in_mode: None) -> None:
    program, reader = api(alice), api(bob, scope="read")
    made = program.post("/api/threads/", {"kind": "regression", "of": str(regression.pk), "text": "hm @bob"}, format="json")
    assert made.status_code == 201 and made.json()["comments"][0]["text"] == "hm @bob"
    pk = made.json()["id"]
    assert program.post("/api/threads/", {"kind": "regression", "of": "999999", "text": "x"}, format="json").status_code == 404
    change = {"assignee": "bob", "status": "acknowledged"}
    assert program.patch(f"/api/threads/{pk}/", change, format="json").json()["assignee"] == "bob"
    assert program.patch(f"/api/threads/{pk}/", {"status": "nonsense"}, format="json").status_code == 400
    assert api(bob).post(f"/api/threads/{pk}/comments/", {"text": "I may only read"}, format="json").status_code == 403
    assert [line["why"] for line in reader.get("/api/inbox/").json()["results"]] == ["assigned", "change", "mention"]
    assert reader.post("/api/inbox/", {}, format="json").status_code == 403          # a token that only reads
    assert api(bob).post("/api/inbox/", {}, format="json").json() == {"read": 3, "unread": 0}
    assert program.get("/api/threads/people/", {"q": "bo"}).json() == {"people": ["bob"]}
    due = program.post("/api/threads/", {"kind": "regression", "of": str(regression.pk), "due": "2026-12-24"}, format="json")
    assert (due.json()["id"], due.json()["due"]) == (pk, "2026-12-24")
    assert program.patch(f"/api/threads/{pk}/", {"due": None}, format="json").json()["due"] is None
