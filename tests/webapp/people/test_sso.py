"""Single sign-on against a provider that runs here (oidc-provider-mock): groups give roles, nobody gets another's account."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from allauth.socialaccount.models import SocialAccount
from django.test import Client
from oidc_provider_mock._app import app as provider_app
from oidc_provider_mock._server import _threaded_server

from webapp.models import AuditEntry, Membership, Project
from webapp.people import services, sso
from webapp.roles import ROLES, role_of

pytestmark = [pytest.mark.django_db, pytest.mark.servers, pytest.mark.usefixtures("sign_in_mode")]
RULES = "leads=owner, gpu=engineer, llm-team=llm:engineer"
LOGIN = "/accounts/oidc/sso/login/"


class Provider:
    """The provider's server, whom it knows, and what its token endpoint was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, list[str]]] = []
        self.app = provider_app()
        inner = self.app.wsgi_app

        def note(environ: Any, start: Any) -> Any:
            if environ["PATH_INFO"].endswith("/token"):
                body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                self.asked.append(parse_qs(body.decode()))
                environ["wsgi.input"] = io.BytesIO(body)
            return inner(environ, start)

        self.app.wsgi_app = note
        self.url = ""

    def know(self, sub: str, **claims: Any) -> None:
        requests.put(f"{self.url}/users/{sub}", json=claims, timeout=10).raise_for_status()

    def go(self, browser: Client, sub: str = "", *, next_page: str = "") -> Any:
        """Sign in as a browser does: there, as `sub` ("" refuses), and back."""
        away = browser.get(LOGIN + (f"?next={next_page}" if next_page else ""))
        assert away.status_code == 302, away.content
        form = {"sub": sub} if sub else {"action": "deny"}
        back = requests.post(away["Location"], data=form, allow_redirects=False, timeout=10)
        self.away, self.back = away["Location"], back.headers["Location"]
        return browser.get(self.back.removeprefix("http://testserver"))


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    own = Provider()
    with _threaded_server(own.app, poll_interval=0.02) as server:
        own.url = f"http://localhost:{server.server_port}"
        configure(settings, own.url)
        yield own


def configure(settings: Any, issuer: str, **more: str) -> None:
    env = {"RIDGEPOINT_OIDC_ISSUER": issuer, "RIDGEPOINT_OIDC_CLIENT_ID": "ridgepoint", "RIDGEPOINT_OIDC_CLIENT_SECRET": "s3cret",
           "RIDGEPOINT_OIDC_NAME": "Example SSO", "RIDGEPOINT_OIDC_ROLES": RULES, **more}
    settings.OIDC = sso.read(env, ROLES)
    settings.SOCIALACCOUNT_PROVIDERS = sso.provider_settings(settings.OIDC)


def is_in(browser: Client) -> bool:
    return browser.get("/accounts/tokens/").status_code == 200


def test_the_first_sign_in_makes_an_account_with_the_role_of_its_groups(provider: Provider, django_user_model: Any) -> None:
    provider.know("u1", email="ana@example.org", email_verified=True, preferred_username="ana", name="Ana Lee", groups=["gpu"])
    browser = Client()
    assert "Sign in with Example SSO" in browser.get("/accounts/login/").content.decode()
    answer = provider.go(browser, "u1", next_page="/tune/")
    assert answer.status_code == 302 and answer["Location"] == "/tune/" and is_in(browser)
    ana = django_user_model.objects.get(username="ana")
    assert (role_of(ana), ana.email, ana.first_name, ana.has_usable_password()) == ("engineer", "ana@example.org", "Ana", False)
    assert ana.is_superuser is False


def test_the_code_is_bound_to_this_browser(provider: Provider) -> None:
    """PKCE (RFC 7636): the token endpoint gets what hashes to what was asked with before; the state is this session's."""
    provider.know("u1", email="ana@example.org", preferred_username="ana", groups=["gpu"])
    provider.go(Client(), "u1")
    asked = parse_qs(urlsplit(provider.away).query)
    verifier = provider.asked[-1]["code_verifier"][0]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    assert asked["code_challenge_method"] == ["S256"] and asked["code_challenge"] == [challenge]
    stranger = Client()
    answer = stranger.get(provider.back.removeprefix("http://testserver"))
    assert answer.status_code == 403 and not is_in(stranger)


def test_groups_give_the_roles_at_every_sign_in_anew(provider: Provider, django_user_model: Any, olga: Any) -> None:
    llm, other = Project.objects.create(slug="llm", name="LLM"), Project.objects.create(slug="other", name="Other")
    provider.know("u1", email="ana@example.org", preferred_username="ana", groups=["leads", "llm-team"])
    provider.go(Client(), "u1")
    ana = django_user_model.objects.get(username="ana")
    Membership.objects.create(project=other, user=ana, role="viewer")           # by an owner here: no group manages this project
    assert role_of(ana) == "owner" and set(ana.memberships.values_list("project__slug", "role")) == {
        ("llm", "engineer"), ("other", "viewer")}
    provider.know("u1", email="ana@example.org", preferred_username="ana", groups=["gpu"])
    provider.go(Client(), "u1")
    assert role_of(ana) == "engineer" and set(ana.memberships.values_list("project", flat=True)) == {other.pk}
    assert llm.pk not in ana.memberships.values_list("project", flat=True)
    assert AuditEntry.objects.filter(action="role taken", target="ana").exists()
    assert django_user_model.objects.count() == 2


def test_who_is_in_no_group_with_a_role_stays_outside(provider: Provider, django_user_model: Any) -> None:
    provider.know("u1", email="ana@example.org", preferred_username="ana", groups=["sales"])
    browser = Client()
    answer = provider.go(browser, "u1")
    assert answer.status_code == 403 and "None of your groups has a role here" in answer.content.decode()
    assert not is_in(browser) and not django_user_model.objects.exists()
    assert AuditEntry.objects.filter(action="refused", target="ana@example.org").exists()


@pytest.mark.parametrize(("link", "verified", "is_linked"), [("", True, False), ("1", False, False), ("1", True, True)])
def test_an_account_is_linked_only_where_the_owner_allows_it_and_the_address_is_verified(
        link: str, verified: bool, is_linked: bool, provider: Provider, settings: Any, alice: Any, django_user_model: Any) -> None:
    configure(settings, provider.url, RIDGEPOINT_OIDC_LINK=link)
    provider.know("u1", email="ALICE@example.org", email_verified=verified, preferred_username="alice", groups=["gpu"])
    browser = Client()
    answer = provider.go(browser, "u1")
    assert is_in(browser) == is_linked and django_user_model.objects.count() == 1
    assert SocialAccount.objects.filter(user=alice).exists() == is_linked
    assert is_linked or "Another account here has your e-mail address" in answer.content.decode()


def test_a_superuser_is_never_taken_over(provider: Provider, settings: Any, django_user_model: Any) -> None:
    configure(settings, provider.url, RIDGEPOINT_OIDC_LINK="1")
    django_user_model.objects.create_superuser("root", "root@example.org", "correct horse battery")
    provider.know("u1", email="root@example.org", email_verified=True, preferred_username="root", groups=["gpu"])
    browser = Client()
    assert provider.go(browser, "u1").status_code == 403 and not is_in(browser)


def test_a_name_that_is_taken_is_not_taken_over(provider: Provider, alice: Any, django_user_model: Any) -> None:
    provider.know("u1", email="other@example.org", preferred_username="alice", groups=["gpu"])
    provider.go(Client(), "u1")
    assert sorted(django_user_model.objects.values_list("email", flat=True)) == ["alice@example.org", "other@example.org"]
    assert django_user_model.objects.get(email="other@example.org").username != "alice"


def test_a_deactivated_account_does_not_come_back_through_the_provider(provider: Provider, django_user_model: Any) -> None:
    provider.know("u1", email="ana@example.org", preferred_username="ana", groups=["gpu"])
    provider.go(Client(), "u1")
    django_user_model.objects.update(is_active=False)
    browser = Client()
    assert "deactivated" in provider.go(browser, "u1").content.decode() and not is_in(browser)


def test_who_refuses_there_is_not_in_here(provider: Provider) -> None:
    browser = Client()
    answer = provider.go(browser)
    assert answer.status_code == 403 and not is_in(browser)
    assert "You did not sign in" in answer.content.decode(), (provider.back, answer.context["what"])


def test_a_provider_that_is_away_is_said_and_passwords_go_on(settings: Any, alice: Any) -> None:
    configure(settings, "http://127.0.0.1:9")
    browser = Client()
    answer = browser.get(LOGIN)
    assert answer.status_code == 503 and answer["Retry-After"] and "Example SSO does not answer" in answer.content.decode()
    browser.post("/accounts/login/", {"username": "alice", "password": "correct horse battery"})
    assert is_in(browser)


def test_passwords_can_be_for_superusers_alone(settings: Any, alice: Any, django_user_model: Any) -> None:
    configure(settings, "http://127.0.0.1:9", RIDGEPOINT_OIDC_ONLY="1")
    django_user_model.objects.create_superuser("root", password="correct horse battery")
    for name, is_let_in in (("alice", False), ("root", True)):
        browser = Client()
        browser.post("/accounts/login/", {"username": name, "password": "correct horse battery"})
        assert is_in(browser) == is_let_in


def test_without_a_provider_there_is_no_such_address(settings: Any) -> None:
    assert settings.OIDC is None
    assert Client().get(LOGIN).status_code == 404 == Client().get(f"{LOGIN}callback/").status_code
    assert "Sign in with" not in Client().get("/accounts/login/").content.decode()


@pytest.mark.parametrize(("env", "told"), [
    ({"RIDGEPOINT_OIDC_ISSUER": "sso.example"}, "an address like"),
    ({"RIDGEPOINT_OIDC_CLIENT_SECRET": ""}, "as registered"),
    ({"RIDGEPOINT_OIDC_ROLES": ""}, "which group has which role"),
    ({"RIDGEPOINT_OIDC_ROLES": "leads=admin"}, "'leads=admin' is none"),
])
def test_a_wrong_setting_is_said_with_what_would_be_right(env: dict[str, str], told: str) -> None:
    right = {"RIDGEPOINT_OIDC_ISSUER": "https://sso.example", "RIDGEPOINT_OIDC_CLIENT_ID": "a",
             "RIDGEPOINT_OIDC_CLIENT_SECRET": "b", "RIDGEPOINT_OIDC_ROLES": "*=viewer"}
    assert sso.read(right, ROLES) is not None
    with pytest.raises(ValueError, match=told):
        sso.read({**right, **env}, ROLES)


def test_groups_within_a_claim_and_of_strange_kinds() -> None:
    env = {"RIDGEPOINT_OIDC_ISSUER": "https://sso.example", "RIDGEPOINT_OIDC_CLIENT_ID": "a", "RIDGEPOINT_OIDC_CLIENT_SECRET": "b",
           "RIDGEPOINT_OIDC_ROLES": "a=viewer, a=owner, *=llm:viewer", "RIDGEPOINT_OIDC_GROUPS": "realm_access.roles"}
    provider = sso.read(env, ROLES)
    assert provider is not None
    assert provider.groups_of({"realm_access": {"roles": ["/a", 3, None]}}) == ["a"]
    assert provider.groups_of({"realm_access": "x"}) == [] == provider.groups_of({})
    order = tuple(ROLES)
    assert provider.grants(["a"], order) == sso.Grants("owner", {"llm": "viewer"}) and provider.grants([], order).role == ""


def test_where_accounts_come_from_the_provider_an_invitation_makes_none(settings: Any, django_user_model: Any) -> None:
    configure(settings, "http://127.0.0.1:9", RIDGEPOINT_OIDC_ONLY="1")
    _, secret = services.invite(None, role="viewer", project=None)
    answer = Client().post(f"/accounts/invitation/{secret}/", {"username": "nina", "password": "a long new phrase 77",
                                                               "again": "a long new phrase 77"})
    assert answer.status_code == 403 and not django_user_model.objects.exists()
