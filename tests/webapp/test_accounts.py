"""Sign-in, local mode, roles, tokens: who is let in, and who is not."""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webapp.accounts import LOCAL_USER
from webapp.models import ApiToken
from webapp.roles import owner_exists, role_of
from webapp.sign_in import FAILURES

pytestmark = pytest.mark.django_db


def test_local_mode_lets_loopback_in_as_the_owner_and_writes_no_session(client: Client) -> None:
    answer = client.get(reverse("tokens"))
    assert answer.status_code == 200
    assert answer.wsgi_request.user.username == LOCAL_USER and answer.wsgi_request.user.is_superuser
    assert not Session.objects.exists() and settings.SESSION_COOKIE_NAME not in answer.cookies


@pytest.mark.parametrize("where", [
    {"REMOTE_ADDR": "10.0.0.9"},
    {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},      # a proxy on this machine, speaking for anybody
    {"HTTP_FORWARDED": "for=127.0.0.1"},
])
def test_local_mode_lets_nobody_else_in(client: Client, where: dict[str, str]) -> None:
    answer = client.get(reverse("tokens"), **where)
    assert answer.status_code == 302 and answer["Location"].startswith(reverse("login"))


def test_local_mode_has_no_usable_password(client: Client, settings: Any) -> None:
    client.get(reverse("tokens"))
    settings.LOCAL_MODE = False
    assert not client.login(username=LOCAL_USER, password="!") and not client.login(username=LOCAL_USER, password="")
    assert not owner_exists()


def test_a_foreign_host_name_is_refused(client: Client) -> None:
    assert client.get(reverse("tokens"), HTTP_HOST="rebound.example").status_code == 400


def test_a_cross_site_post_is_refused_in_local_mode() -> None:
    strict = Client(enforce_csrf_checks=True)
    for headers in ({}, {"HTTP_ORIGIN": "http://evil.example"}):
        assert strict.post(reverse("token-create"), {"name": "x", "scope": "write"}, **headers).status_code == 403
    assert not ApiToken.objects.exists()


def test_a_session_wins_over_local_mode(client: Client, bob: Any) -> None:
    client.force_login(bob)
    assert client.get(reverse("tokens")).wsgi_request.user == bob


def test_sign_in_and_out(client: Client, sign_in_mode: None, alice: Any) -> None:
    assert client.get(reverse("tokens")).status_code == 302
    page = client.get(reverse("login"))
    assert page.status_code == 200 and b"password" in page.content
    assert client.post(reverse("login"), {"username": "alice", "password": "wrong"}).status_code == 200
    assert client.post(reverse("login"), {"username": "alice", "password": "correct horse battery"}).status_code == 302
    assert client.get(reverse("tokens")).status_code == 200
    client.post(reverse("logout"))
    assert client.get(reverse("tokens")).status_code == 302


def test_roles_hold_what_the_table_says(alice: Any, bob: Any, olga: Any) -> None:
    assert [role_of(person) for person in (bob, alice, olga)] == ["viewer", "engineer", "owner"]
    for person, may in ((bob, []), (alice, ["profiles.add_profile", "tuner.add_tunejob", "profiles.add_capture"]),
                        (olga, ["profiles.add_profile", "profiles.add_capturetarget", "auth.change_user"])):
        assert person.has_perms(["profiles.view_profile", "tuner.view_tunejob", "profiles.view_capture", *may])
    assert not bob.has_perm("profiles.add_profile")
    assert not alice.has_perm("profiles.add_capturetarget") and not alice.has_perm("auth.change_user")


def test_a_token_is_shown_once_and_stored_hashed(client: Client, alice: Any) -> None:
    client.force_login(alice)
    page = client.post(reverse("token-create"), {"name": "CI of model X", "scope": "write", "days": "30"})
    token = page.context["new_token"]
    assert token.startswith("rp_") and token.encode() in page.content
    row = ApiToken.objects.get()
    assert token not in "".join(str(value) for value in vars(row).values())
    assert timedelta(days=29) < row.expiry - timezone.now() < timedelta(days=31)
    again = client.get(reverse("tokens"))
    assert token.encode() not in again.content and b"CI of model X" in again.content


def test_a_token_form_says_what_is_wrong(client: Client, alice: Any) -> None:
    client.force_login(alice)
    page = client.post(reverse("token-create"), {"name": "", "scope": "everything", "days": "0"})
    assert page.status_code == 400 and set(page.context["form"].errors) == {"name", "scope", "days"}


def test_tokens_open_the_api(api: Any, sign_in_mode: None, bob: Any) -> None:
    assert api().get(reverse("api-workers")).status_code == 401
    assert api(bob).get(reverse("api-workers")).status_code == 200
    refused = api()
    refused.credentials(HTTP_AUTHORIZATION="Token rp_wrong")
    answer = refused.get(reverse("api-workers"))
    assert answer.status_code == 401 and set(answer.json()) == {"error", "where", "hint"}


def test_an_ended_token_is_refused(api: Any, sign_in_mode: None, bob: Any) -> None:
    client = api(bob)
    ApiToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
    assert client.get(reverse("api-workers")).status_code == 401


def test_writing_needs_the_permission_and_a_writing_token(api: Any, alice: Any, bob: Any, sign_in_mode: None) -> None:
    assert api(bob).post(reverse("api-profiles")).status_code == 403
    refused = api(alice, scope="read").post(reverse("api-profiles"))
    assert refused.status_code == 403 and "This token is read only" in refused.json()["error"]
    assert api(alice).post(reverse("api-profiles")).status_code == 400      # let in; the file is missing


def test_revoking(client: Client, alice: Any, bob: Any, olga: Any) -> None:
    row, _ = ApiToken.objects.create(alice, name="x")
    client.force_login(bob)
    assert client.post(reverse("token-revoke", args=[row.digest])).status_code == 403
    client.force_login(olga)
    assert client.post(reverse("token-revoke", args=[row.digest])).status_code == 302
    assert not ApiToken.objects.exists()


def test_the_first_owner(monkeypatch: pytest.MonkeyPatch, client: Client, sign_in_mode: None) -> None:
    assert not owner_exists()
    monkeypatch.setenv("RIDGEPOINT_PASSWORD", "correct horse battery")
    call_command("createowner", "olga")
    assert owner_exists() and client.login(username="olga", password="correct horse battery")
    assert client.get(reverse("people")).status_code == 200


def test_the_first_owner_needs_a_password_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGEPOINT_PASSWORD", "123")
    with pytest.raises(CommandError, match="too short"):
        call_command("createowner", "olga")


def test_guessing_passwords_comes_to_rest(client: Client, sign_in_mode: None, olga: Any) -> None:
    here = {"REMOTE_ADDR": "192.0.2.5"}          # failures are counted per name and address, in Redis
    right = {"username": "olga", "password": "correct horse battery"}
    for _ in range(FAILURES):
        assert b"Too many" not in client.post(reverse("login"), {**right, "password": "wrong"}, **here).content
    assert b"Too many failed sign-ins" in client.post(reverse("login"), right, **here).content
    assert client.post(reverse("login"), {**right, "next": "/tune/"}, REMOTE_ADDR="192.0.2.99").status_code == 302


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example/", "/\\\\evil.example", "javascript:alert(1)",
                                    "https:evil.example", "///evil.example"])
def test_sign_in_leads_nowhere_else(target: str, client: Client, sign_in_mode: None, alice: Any) -> None:
    answer = client.post(reverse("login"), {"username": "alice", "password": "correct horse battery", "next": target})
    assert answer["Location"] == "/"
