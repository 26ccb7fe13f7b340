"""Mails of the inbox: to who wants them, gathered, tried again, and not of what was read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tuner.models import Regression
from webapp.models import Notice, TalkPreference
from webapp.threads import notices, services, subjects

pytestmark = [pytest.mark.servers, pytest.mark.django_db]


@pytest.fixture
def told(regression: Regression, alice: Any, bob: Any, olga: Any) -> None:
    """Two mentions of olga, who follows from then on; bob follows the project and wants everything."""
    TalkPreference.objects.create(user=bob, mail="all")
    services.follow_set(bob, "project", "", True)
    subject = subjects.find("regression", str(regression.pk))
    assert subject is not None
    thread = services.thread_ensure(subject)
    services.comment_add(thread, "@olga one", by=alice)
    services.comment_add(thread, "@olga two", by=alice)
    services.comment_add(thread, "three, to nobody", by=alice)


def test_one_mail_a_person_holds_what_waited(told: None) -> None:
    assert notices.send_due() == 0                  # gathered first
    Notice.objects.filter(mail="waiting").update(due=timezone.now())
    assert notices.send_due() == 2 and notices.send_due() == 0
    by_person = {each.to[0]: each.body for each in mail.outbox}
    assert "one" in by_person["olga@example.org"] and "two" in by_person["olga@example.org"]
    assert "three" not in by_person["olga@example.org"] and "three" in by_person["bob@example.org"]


def test_what_was_read_is_not_mailed(told: None, olga: Any, client: Client, sign_in_mode: None) -> None:
    client.force_login(olga)
    page = client.get("/inbox/")
    assert 'id="inbox-count"' in page.content.decode() and page.context["page"].paginator.count == 3
    assert client.post("/inbox/read/").status_code == 302
    assert 'id="inbox-count"' not in client.get("/inbox/").content.decode()
    Notice.objects.filter(mail="waiting").update(due=timezone.now())
    notices.send_due()
    assert [each.to for each in mail.outbox] == [["bob@example.org"]]


def test_a_mail_server_that_is_away_is_asked_again(told: None, bob: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: Any, messages: Any) -> int:
        raise ConnectionRefusedError("nobody listens")

    monkeypatch.setattr(EmailBackend, "send_messages", away)
    Notice.objects.filter(mail="waiting").update(due=timezone.now())
    notices.send_due()
    row = Notice.objects.filter(user=bob).first()
    assert row is not None and row.mail == "waiting" and "nobody listens" in row.error and row.due > timezone.now()
    Notice.objects.filter(mail="waiting").update(due=timezone.now() - timedelta(seconds=1), tries=9)
    notices.send_due()
    assert set(Notice.objects.exclude(mail="").values_list("mail", flat=True)) == {"failed"}


def test_the_unread_count_is_one_query(told: None, olga: Any) -> None:
    with CaptureQueriesContext(connection) as asked:
        assert notices.unread_count(olga) == 3
    assert len(asked) == 1
