"""What follows when rights or a password change, and how often a password may be guessed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.contrib.auth.signals import user_login_failed
from django.core import mail
from django.db import connection
from django.test import Client, RequestFactory

from tests.socket_visitor import SocketVisitor
from webapp import sign_in
from webapp.asgi import application
from webapp.live import TRY_AGAIN_LATER
from webapp.models import ApiToken, Membership
from webapp.roles import ENGINEER, role_set
from workers.scope import FIRST_PROJECT

pytestmark = [pytest.mark.servers, pytest.mark.django_db(transaction=True)]
NEW = "a long new phrase 77"


def opened(person: Any) -> SocketVisitor:
    browser = Client()
    browser.force_login(person)
    cookie = f"{django_settings.SESSION_COOKIE_NAME}={browser.cookies[django_settings.SESSION_COOKIE_NAME].value}"
    return SocketVisitor(application, "/ws/live/", [
        (b"host", b"localhost:8000"), (b"origin", b"http://localhost:8000"), (b"cookie", cookie.encode())], ("10.0.0.9", 50000))


def deactivate(person: Any) -> None:
    person.is_active = False
    person.save()


def set_password(person: Any) -> None:
    person.set_password(NEW)
    person.save()


CHANGES = {
    "deactivated": deactivate, "another password": set_password, "a role": lambda person: role_set(person, ENGINEER),
    "a membership": lambda person: Membership.objects.create(user=person, project_id=FIRST_PROJECT, role=ENGINEER),
    "deleted": lambda person: person.delete()}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_closes_the_person_s_connections_and_nobody_else_s(
        change: str, sign_in_mode: None, alice: Any, bob: Any) -> None:
    left, stays = await sync_to_async(opened)(bob), await sync_to_async(opened)(alice)
    for page in (left, stays):
        assert await page.connect()
        await page.watch("home")
    await sync_to_async(CHANGES[change])(bob)
    assert (await left.receive_output(5))["code"] == TRY_AGAIN_LATER
    assert await stays.receive_nothing()
    await stays.close()


async def test_who_was_deactivated_does_not_come_back(sign_in_mode: None, bob: Any) -> None:
    page = await sync_to_async(opened)(bob)
    await sync_to_async(deactivate)(bob)
    assert not await page.connect()


def test_seeing_a_person_again_closes_nothing(bob: Any, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr("webapp.changes.connections_renew", told.append)
    client.force_login(bob)                 # writes last_login
    assert told == []


def test_tokens_end_with_the_password_unless_they_are_kept(client: Client, sign_in_mode: None, bob: Any) -> None:
    bob.set_password("the first phrase 11")
    bob.save()
    client.force_login(bob)
    for keep, left in (({"keep_tokens": "on"}, 1), ({}, 0)):
        ApiToken.objects.filter(user=bob).delete()
        ApiToken.objects.create(bob, name="CI")
        old = "the first phrase 11" if keep else NEW
        new = NEW if keep else f"{NEW}!"
        given = {"old_password": old, "new_password1": new, "new_password2": new, **keep}
        assert client.post("/accounts/password/", given).status_code == 302
        assert ApiToken.objects.filter(user=bob).count() == left


def test_a_hash_that_is_made_anew_ends_no_token(bob: Any) -> None:
    ApiToken.objects.create(bob, name="CI")
    bob.set_password(NEW)
    bob.save(update_fields=["password"])        # as Django does at sign-in when the hash's cost has risen
    assert ApiToken.objects.filter(user=bob).count() == 1


def test_a_password_is_reset_by_mail_once(client: Client, sign_in_mode: None, bob: Any) -> None:
    bob.email = "bob@example.com"
    bob.set_password("the first phrase 11")
    bob.save()
    ApiToken.objects.create(bob, name="CI")
    assert client.post("/accounts/reset/", {"email": "BOB@example.com"}).status_code == 302
    assert client.post("/accounts/reset/", {"email": "nobody@example.com"}).status_code == 302     # who is known is not said
    assert len(mail.outbox) == 1
    link = next(line for line in mail.outbox[0].body.splitlines() if "/accounts/reset/" in line).partition("testserver")[2]
    form = client.get(link, follow=True)
    assert client.post(form.redirect_chain[-1][0], {"new_password1": NEW, "new_password2": NEW}).status_code == 302
    assert client.login(username=bob.username, password=NEW) and not ApiToken.objects.filter(user=bob).exists()
    client.logout()
    assert "was used or has ended" in client.get(link, follow=True).content.decode()


def test_mails_to_one_address_are_few(client: Client, sign_in_mode: None, bob: Any) -> None:
    bob.email = "often@example.com"
    bob.save()
    statuses = [client.post("/accounts/reset/", {"email": bob.email}).status_code for _ in range(sign_in.RESETS + 2)]
    assert statuses == [302] * sign_in.RESETS + [200] * 2 and len(mail.outbox) == sign_in.RESETS


def test_no_more_passwords_are_looked_at_than_may_fail_however_many_come_at_once(bob: Any) -> None:
    bob.set_password(NEW)
    bob.save()
    looked: list[str] = []
    refused: list[str] = []

    def count(**signal: Any) -> None:
        looked.append(signal["credentials"]["username"])

    def guess(number: int) -> None:
        request = RequestFactory().post("/accounts/login/", REMOTE_ADDR="10.7.7.7")
        form = sign_in.SignInForm(request, {"username": bob.username, "password": f"guess {number}"})
        assert not form.is_valid()
        refused.extend(error.code for error in form.non_field_errors().as_data() if error.code == "throttled")
        connection.close()

    user_login_failed.connect(count)
    try:
        guesses = [threading.Thread(target=guess, args=(number,)) for number in range(60)]
        for each in guesses:
            each.start()
        for each in guesses:
            each.join()
    finally:
        user_login_failed.disconnect(count)
    assert len(looked) == sign_in.FAILURES and len(refused) == 60 - sign_in.FAILURES


def test_who_comes_through_no_named_proxy_cannot_say_another_address(settings: Any) -> None:
    """The web server reads X-Forwarded-For of RIDGEPOINT_PROXIES alone."""
    from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])

    told = [(b"x-forwarded-for", b"198.51.100.7, 10.0.0.5")]
    for peer in ("10.0.0.5", "203.0.113.9"):
        scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": told}
        asyncio.run(ProxyHeadersMiddleware(app, "10.0.0.5,10.1.0.0/16")(scope, None, None))      # type: ignore[arg-type]
    assert seen == ["198.51.100.7", "203.0.113.9"] and settings.PROXIES == ""
