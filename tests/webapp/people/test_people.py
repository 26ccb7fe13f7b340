"""People in the app: roles, deactivation, sessions, invitations, second factors; by page, API and command."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from webapp.models import ApiToken, AuditEntry, Invitation, Membership, Project
from webapp.projects.selectors import access_of
from webapp.roles import role_of, role_set
from webapp.sign_in import FAILURES
from workers.secret import digest_of, unseal

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sign_in_mode"), pytest.mark.servers]
PASSWORD, NEW = "correct horse battery", "a long new phrase 77"
PEOPLE = "/people/"


def signed_in(name: str, address: str = "10.0.0.9", agent: str = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0") -> Client:
    browser = Client(REMOTE_ADDR=address, HTTP_USER_AGENT=agent)
    answer = browser.post("/accounts/login/", {"username": name, "password": PASSWORD})
    assert answer.status_code == 302, answer.content.decode()[:500]
    return browser


def is_in(browser: Client) -> bool:
    return browser.get("/accounts/tokens/").status_code == 200


def test_owners_see_everybody_and_nobody_else_does(alice: Any, olga: Any) -> None:
    ApiToken.objects.create(alice, name="ci")
    page = signed_in("olga").get(PEOPLE).content.decode()
    assert "2 people" in page and "alice@example.org" in page and "engineer" in page
    assert signed_in("alice").get(PEOPLE).status_code == 403 == signed_in("alice").get(f"/people/{olga.pk}/").status_code
    assert signed_in("alice").post(f"/people/{olga.pk}/change/", {"do": "deactivate"}).status_code == 403


def test_the_list_takes_the_same_queries_for_one_and_for_many(olga: Any, django_user_model: Any,
                                                              django_assert_num_queries: Any) -> None:
    browser = signed_in("olga")
    browser.get(PEOPLE)
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as few:
        browser.get(PEOPLE)
    for number in range(8):
        role_set(django_user_model.objects.create_user(f"p{number}"), "viewer")
    with django_assert_num_queries(len(few)):
        browser.get(PEOPLE)


def test_an_owner_gives_a_role_and_the_log_tells_it(alice: Any, olga: Any) -> None:
    signed_in("olga").post(f"/people/{alice.pk}/change/", {"do": "role", "role": "viewer"})
    assert role_of(alice) == "viewer"
    told = [(line.action, line.changes["role"]) for line in AuditEntry.objects.filter(
        target="alice", actor_name="olga", action__startswith="role")]
    assert sorted(told) == [("role given", [None, "viewer"]), ("role taken", ["engineer", None])]


def test_only_a_superuser_changes_a_superuser(olga: Any, django_user_model: Any) -> None:
    root = django_user_model.objects.create_superuser("root", password=PASSWORD)
    browser = signed_in("olga")
    for what in ("deactivate", "password", "role", "second-factor", "sign-out"):
        assert browser.post(f"/people/{root.pk}/change/", {"do": what, "role": "viewer"}).status_code == 403
    assert signed_in("root").post(f"/people/{olga.pk}/change/", {"do": "role", "role": "engineer"}).status_code == 302


@pytest.mark.parametrize("asked", [{"do": "deactivate"}, {"do": "role", "role": "viewer"}, {"do": "role", "role": ""}])
def test_the_last_owner_stays(olga: Any, asked: dict[str, str]) -> None:
    answer = signed_in("olga").post(f"/people/{olga.pk}/change/", asked)
    assert answer.status_code == 400 and "somebody must remain" in answer.content.decode()
    olga.refresh_from_db()
    assert olga.is_active and role_of(olga) == "owner"


def test_a_deactivated_person_is_out_at_once_and_can_be_let_in_again(alice: Any, olga: Any, api: Any) -> None:
    hers, program, owner = signed_in("alice"), api(alice), signed_in("olga")
    assert is_in(hers) and program.get("/api/profiles/").status_code == 200
    owner.post(f"/people/{alice.pk}/change/", {"do": "deactivate"})
    assert not is_in(hers) and program.get("/api/profiles/").status_code == 401
    assert Client().post("/accounts/login/", {"username": "alice", "password": PASSWORD}).status_code == 200
    owner.post(f"/people/{alice.pk}/change/", {"do": "activate"})
    assert is_in(signed_in("alice"))


def test_an_owner_hands_over_a_link_for_a_new_password(alice: Any, olga: Any) -> None:
    page = signed_in("olga").post(f"/people/{alice.pk}/change/", {"do": "password"}).content.decode()
    path = re.search(r'id="password-link">http://testserver(/[^<]+)<', page)
    assert path is not None
    stranger = Client()
    form = stranger.get(path[1], follow=True)
    assert stranger.post(form.redirect_chain[-1][0], {"new_password1": NEW, "new_password2": NEW}).status_code == 302
    assert Client().login(username="alice", password=NEW) and Client().get(path[1]).status_code == 200
    assert Client().get(path[1]).context["validlink"] is False


# ---- sessions ----

def test_one_sees_and_ends_one_s_sessions(alice: Any, bob: Any) -> None:
    here, bobs = signed_in("alice"), signed_in("bob")
    there = signed_in("alice", "10.0.0.7", "Mozilla/5.0 (Windows NT) Chrome/150.0")
    page = here.get("/accounts/sessions/").content.decode()
    assert "Signed in at 2 places" in page and "Chrome on Windows" in page and "10.0.0.7" in page and "this one" in page
    theirs = UserSession.objects.get(user=bob)
    assert here.post("/accounts/sessions/end/", {"session": theirs.pk}).status_code == 404 and is_in(bobs)
    here.post("/accounts/sessions/end/", {"session": UserSession.objects.get(ip="10.0.0.7").pk})
    assert is_in(here) and not is_in(there)


def test_all_others_end_also_those_that_are_in_no_list(alice: Any, bob: Any) -> None:
    here, there, older, bobs = signed_in("alice"), signed_in("alice"), signed_in("alice"), signed_in("bob")
    UserSession.objects.filter(session_key=older.session.session_key).delete()      # from before sessions were listed
    here.post("/accounts/sessions/end/")
    assert is_in(here) and not is_in(there) and not is_in(older) and is_in(bobs)
    assert Session.objects.count() == 2


def test_sessions_over_the_api(alice: Any, bob: Any, api: Any) -> None:
    here, theirs = signed_in("alice"), signed_in("bob")
    listed = api(alice).get("/api/sessions/").json()
    assert [each["address"] for each in listed] == ["10.0.0.9"]
    bobs = UserSession.objects.get(user=bob)
    assert api(alice).delete(f"/api/sessions/{bobs.pk}/").status_code == 404 and is_in(theirs)
    assert api(alice).delete(f"/api/sessions/{listed[0]['id']}/").status_code == 204 and not is_in(here)


# ---- invitations ----

def invite(browser: Client, **given: Any) -> str:
    page = browser.post("/people/invite/", {"role": "engineer", "days": 7, **given}).content.decode()
    link = re.search(r'id="invitation-link">http://testserver(/[^<]+)<', page)
    assert link is not None, page
    return link[1]


def test_an_invitation_makes_one_account_once(olga: Any, django_user_model: Any) -> None:
    path = invite(signed_in("olga"), email="new@example.org", project="*")
    secret = path.split("/")[-2]
    assert not Invitation.objects.filter(digest__contains=secret[4:]).exists() and len(Invitation.objects.get().digest) == 64
    browser = Client()
    shown = browser.get(path)
    assert shown.status_code == 200 and shown["Referrer-Policy"] == "strict-origin" and 'value="new"' in shown.content.decode()
    answer = browser.post(path, {"username": "nina", "password": NEW, "again": NEW})
    assert answer.status_code == 302 and is_in(browser)
    nina = django_user_model.objects.get(username="nina")
    assert role_of(nina) == "engineer" and nina.email == "new@example.org" and not nina.is_superuser
    assert Client().get(path).status_code == 403
    assert Client().post(path, {"username": "other", "password": NEW, "again": NEW}).status_code == 403
    assert AuditEntry.objects.filter(kind="invitation", action="changed", changes__has_key="used").exists()


def test_an_invitation_into_a_project_gives_nothing_elsewhere(olga: Any, django_user_model: Any) -> None:
    Project.objects.create(slug="llm", name="LLM")
    path = invite(signed_in("olga"), project="llm", role="owner")
    Client().post(path, {"username": "nina", "password": NEW, "again": NEW})
    nina = django_user_model.objects.get(username="nina")
    assert role_of(nina) == ""
    assert [(each.project.slug, each.role) for each in Membership.objects.filter(user=nina)] == [("llm", "owner")]


def test_an_invitation_from_before_a_second_project_gives_a_role_in_the_first_alone(olga: Any, django_user_model: Any) -> None:
    owner = signed_in("olga")
    assert 'value="*">All projects' in owner.get("/people/").content.decode()        # a role everywhere is chosen by that name
    paths = {"nina": invite(owner), "otto": invite(owner, project="*")}
    for name, path in paths.items():
        Client().post(path, {"username": name, "password": NEW, "again": NEW})
    nina, otto = (django_user_model.objects.get(username=name) for name in paths)
    assert access_of(nina).alone and role_of(nina) == "" and role_of(otto) == "engineer"
    later = Project.objects.create(slug="later", name="Later")
    assert [seat.slug for seat in access_of(nina).seats] == ["main"]
    assert access_of(otto).seat(later.slug) is not None
    answer = owner.post("/people/invite/", {"role": "viewer", "project": "nowhere"})
    assert answer.status_code == 400 and "there is no project nowhere" in answer.content.decode()


def test_an_invitation_over_the_api_is_into_the_token_s_project(olga: Any, api: Any) -> None:
    for given, project in (({}, "main"), ({"project": "*"}, "*"), ({"project": "main"}, "main")):
        made = api(olga).post("/api/invitations/", {"role": "viewer", **given}, format="json")
        assert made.status_code == 201 and made.json()["project"] == project


@pytest.mark.parametrize(("given", "told"), [
    ({"username": "olga"}, "somebody is called"), ({"password": "123", "again": "123"}, "too short"),
    ({"again": "something else"}, "the two differ"), ({"username": "a b"}, "Enter a valid username"),
])
def test_what_an_invitation_refuses(olga: Any, given: dict[str, str], told: str, django_user_model: Any) -> None:
    path = invite(signed_in("olga"))
    answer = Client().post(path, {"username": "nina", "password": NEW, "again": NEW, **given})
    assert answer.status_code == 400 and told in answer.content.decode()
    assert django_user_model.objects.count() == 1 and Client().get(path).status_code == 200


def test_an_invitation_ends_with_its_time_and_when_it_is_revoked(olga: Any) -> None:
    owner = signed_in("olga")
    late, revoked = invite(owner), invite(owner)
    Invitation.objects.filter(digest=digest_of(late.split("/")[-2])).update(expires=timezone.now() - timedelta(seconds=1))
    owner.post(f"/people/invitations/{Invitation.objects.get(digest=digest_of(revoked.split('/')[-2])).pk}/revoke/")
    for path in (late, revoked, "/accounts/invitation/inv_guess/"):
        assert Client().get(path).status_code == 403


def test_invitations_cannot_be_guessed_for_ever(olga: Any) -> None:
    browser = Client(REMOTE_ADDR="192.0.2.77")
    answers = [browser.get(f"/accounts/invitation/inv_{number}/").content.decode() for number in range(FAILURES + 1)]
    assert "Too many tries" not in answers[0] and "Too many tries" in answers[-1]


def test_people_and_invitations_over_the_api(alice: Any, olga: Any, api: Any) -> None:
    owner = api(olga)
    rows = {row["name"]: row for row in owner.get("/api/people/").json()}
    assert rows["alice"]["role"] == "engineer" and rows["alice"]["ways"] == ["password"]
    assert api(alice).get("/api/people/").status_code == 403 == api(alice).get("/api/invitations/").status_code
    changed = owner.patch(f"/api/people/{alice.pk}/", {"role": "viewer"}, format="json")
    assert changed.status_code == 200 and changed.json()["role"] == "viewer"
    assert owner.patch(f"/api/people/{olga.pk}/", {"active": False}, format="json").status_code == 400
    made = owner.post("/api/invitations/", {"role": "viewer", "email": "x@example.org"}, format="json")
    assert made.status_code == 201 and made.json()["link"].startswith("http://testserver/accounts/invitation/inv_")
    listed = owner.get("/api/invitations/").json()
    assert [each["email"] for each in listed] == ["x@example.org"] and "link" not in listed[0]
    assert owner.delete(f"/api/invitations/{listed[0]['id']}/").status_code == 204
    assert owner.post("/api/invitations/", {"role": "viewer", "project": "none"}, format="json").status_code == 400
    signed_in("alice")
    assert owner.post(f"/api/people/{alice.pk}/sign-out/").json() == {"ended": 1}


def test_people_by_command(alice: Any, olga: Any, settings: Any) -> None:
    settings.PUBLIC_URL = "https://guard.example"

    def run(*words: str) -> str:
        out = StringIO()
        call_command("people", *words, stdout=out)
        return out.getvalue()

    assert "alice\tengineer" in run()
    link = run("invite", "viewer", "--email", "x@example.org").strip()
    assert link.startswith("https://guard.example/accounts/invitation/") and Client().get(link[21:]).status_code == 200
    run("role", "alice", "viewer")
    assert role_of(alice) == "viewer"
    hers = signed_in("alice")
    assert run("sign-out", "alice") == "1 sessions ended\n" and not is_in(hers)
    run("deactivate", "alice")
    assert "deactivated" in run("list")
    assert "/accounts/reset/" in run("password", "alice")
    with pytest.raises(CommandError, match="nobody is called"):
        run("role", "nobody", "viewer")
    with pytest.raises(CommandError, match="somebody must remain"):
        run("deactivate", "olga")


# ---- second factors ----

def code_of(person: Any, steps: int = 0) -> str:
    secret = unseal(Authenticator.objects.get(user=person, type="totp").data["secret"])
    return code_at(secret, steps)


def code_at(secret: str, steps: int = 0) -> str:
    counter = next(iter(yield_hotp_counters_from_time())) + steps
    return str(format_hotp_value(hotp_value(secret, counter)))


def set_up(browser: Client, person: Any) -> list[str]:
    """Turn the second factor on, as the page does; return the recovery codes."""
    page = browser.get("/accounts/two-factor/activate/", follow=True)
    if page.redirect_chain:
        page = browser.post(page.redirect_chain[-1][0], {"password": PASSWORD}, follow=True)
    secret = re.search(r'id="id_secret" class="mono" value="([^"]+)"', page.content.decode())
    assert secret is not None, page.content.decode()
    codes = browser.post("/accounts/two-factor/activate/", {"code": code_at(secret[1])}, follow=True)
    shown = re.search(r'id="recovery-codes">([^<]+)<', codes.content.decode())
    assert shown is not None, codes.content.decode()
    return shown[1].split()


def test_a_second_factor_is_asked_for_after_the_password_and_a_code_counts_once(alice: Any) -> None:
    recovery = set_up(signed_in("alice"), alice)
    assert len(recovery) == 10
    stored = Authenticator.objects.get(user=alice, type="totp").data["secret"]
    assert stored.startswith("gAAAA")           # sealed, not in the clear
    browser = Client()
    answer = browser.post("/accounts/login/", {"username": "alice", "password": PASSWORD, "next": "/tune/"})
    assert answer["Location"] == "/accounts/two-factor/sign-in/" and not is_in(browser)
    assert "Incorrect code" in browser.post(answer["Location"], {"code": "000000"}).content.decode() and not is_in(browser)
    code = code_of(alice, 1)
    answer = browser.post("/accounts/two-factor/sign-in/", {"code": code})
    assert answer["Location"] == "/tune/" and is_in(browser)
    again = Client()
    again.post("/accounts/login/", {"username": "alice", "password": PASSWORD})
    assert again.post("/accounts/two-factor/sign-in/", {"code": code}).status_code == 200 and not is_in(again)
    assert again.post("/accounts/two-factor/sign-in/", {"code": recovery[0]}).status_code == 302 and is_in(again)
    third = Client()
    third.post("/accounts/login/", {"username": "alice", "password": PASSWORD})
    third.post("/accounts/two-factor/sign-in/", {"code": recovery[0]})
    assert not is_in(third)


def test_codes_cannot_be_guessed_for_ever(alice: Any) -> None:
    set_up(signed_in("alice"), alice)
    browser = Client(REMOTE_ADDR="192.0.2.55")
    browser.post("/accounts/login/", {"username": "alice", "password": PASSWORD})
    for _ in range(FAILURES):
        browser.post("/accounts/two-factor/sign-in/", {"code": "000000"})
    assert "Too many failures" in browser.post("/accounts/two-factor/sign-in/", {"code": code_of(alice)}).content.decode()
    assert not is_in(browser)


def test_it_is_turned_off_only_with_the_password_or_a_code_and_the_log_tells_it(alice: Any, olga: Any) -> None:
    browser = signed_in("alice")
    recovery = set_up(browser, alice)
    fresh = Client()
    fresh.post("/accounts/login/", {"username": "alice", "password": PASSWORD})
    fresh.post("/accounts/two-factor/sign-in/", {"code": recovery[1]})
    assert fresh.get("/accounts/two-factor/deactivate/").status_code == 302        # who came just now says again who they are
    browser.post("/accounts/two-factor/deactivate/")
    assert not Authenticator.objects.filter(user=alice).exists()
    assert AuditEntry.objects.filter(kind="authenticator", action="deleted").exists()


def test_an_owner_takes_it_away_from_who_lost_the_phone(alice: Any, olga: Any) -> None:
    set_up(signed_in("alice"), alice)
    signed_in("olga").post(f"/people/{alice.pk}/change/", {"do": "second-factor"})
    assert is_in(signed_in("alice"))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("who", "alice_must", "olga_must"), [("", False, False), ("owners", False, True), ("all", True, True)])
def test_it_can_be_required(who: str, alice_must: bool, olga_must: bool, alice: Any, olga: Any, settings: Any, api: Any) -> None:
    settings.TWO_FACTOR = who
    for name, must in (("alice", alice_must), ("olga", olga_must)):
        browser = signed_in(name)
        assert (browser.get("/profiles/").status_code == 302) == must, name
        assert browser.get("/api/profiles/").status_code == (403 if must else 200)
        if must:
            set_up(browser, None)
            assert browser.get("/profiles/").status_code == 200
            assert "cannot deactivate" in browser.get("/accounts/two-factor/deactivate/").content.decode()
    assert api(alice).get("/api/profiles/").status_code == 200         # tokens have no second factor
