"""Who has a link reads one profile, and nothing else."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from django.contrib.auth import get_user_model
from django.core.files.base import File
from django.test import Client
from django.utils import timezone

from profiles.models import KernelStat, Profile, TimelineNote
from profiles.upload.services import profile_create, profile_ingest
from tests.scale import DEEP
from tests.webapp.projects.test_walls import ASKED, HIDDEN, NAME, PK, Filler, other, routes, scoped_models, text_of
from webapp.models import AuditEntry, ShareLink
from webapp.sharing import services
from webapp.sign_in import FAILURES
from workers.retention import run as retention
from workers.scope import within

pytestmark = [pytest.mark.django_db, pytest.mark.servers, pytest.mark.usefixtures("sign_in_mode")]
__all__ = ["other"]
TRACE = Path(__file__).parents[2] / "data" / "h200" / "kineto_layer.json.gz"


@pytest.fixture
def shared(other: Filler) -> Profile:
    """A recorded trace in the project that holds a row of every kind."""
    with within(PK), TRACE.open("rb") as file:
        row = profile_create(owner=None, file=File(file, name="layer.json.gz"), worker="test", name="the shared one", build="b9")
        profile_ingest(row.pk, "test")
        row.refresh_from_db()
        assert row.status == "ready"
        TimelineNote.objects.create(profile=row, start_ns=0, end_ns=5, text="a note of ours")
    return row


def guest(profile: Profile, days: int = 7) -> Client:
    """Somebody with a link and no account."""
    with within(PK):
        _, secret = services.share(profile, None, days)
    browser = Client(REMOTE_ADDR="192.0.2.40")
    answer = browser.get(f"/share/{secret}/")
    assert answer.status_code == 302 and answer["Location"] == f"/profiles/{profile.pk}/"
    assert answer["Referrer-Policy"] == "strict-origin"
    return browser


def own_addresses(pk: int) -> list[str]:
    return [f"/profiles/{pk}/", f"/profiles/{pk}/timeline/", f"/profiles/{pk}/kernels/", f"/profiles/{pk}/roofline/",
            f"/api/profiles/{pk}/", f"/api/profiles/{pk}/kernels/", f"/api/profiles/{pk}/summary/", f"/api/profiles/{pk}/timeline/",
            f"/api/profiles/{pk}/notes/", f"/api/profiles/{pk}/slices/?q=gemm"]


def test_the_profile_can_be_read_without_an_account(shared: Profile) -> None:
    browser = guest(shared)
    for address in own_addresses(shared.pk):
        answer = browser.get(address)
        assert answer.status_code == 200, (address, answer.status_code)
        assert answer["X-Robots-Tag"] == "noindex" and answer["Referrer-Policy"] == "same-origin"
    page = browser.get(f"/profiles/{shared.pk}/").content.decode()
    assert "the shared one" in page and "Shared by a link, read only" in page and "Sign out" not in page
    assert "a note of ours" in str(browser.get(f"/api/profiles/{shared.pk}/notes/").json())


def test_no_name_of_an_account_is_read(shared: Profile, other: Filler) -> None:
    """Neither the uploader's nor that of who wrote a note, saved a query or decided about advice, on any address that opens."""
    writer = get_user_model().objects.create_user("zzuploader", password=None)
    for model in scoped_models():
        for field in model._meta.concrete_fields:
            if field.is_relation and field.related_model is get_user_model():
                model._base_manager.update(**{field.attname: writer.pk})
    kernel, browser, opened = KernelStat._base_manager.filter(profile=shared).first(), guest(shared), 0
    for route, _ in routes():
        of_profile = route.replace(str(PK), str(shared.pk), 1)
        for path in {of_profile, of_profile.replace(str(PK), str(kernel.pk))}:
            if path.startswith((f"/profiles/{shared.pk}/", f"/api/profiles/{shared.pk}/")):
                answer = browser.get(path)
                opened += answer.status_code == 200
                assert writer.username not in text_of(answer), path
    assert opened > 20
    owned = Client()
    owned.force_login(get_user_model().objects.create_superuser("zzboss", password=None))
    assert writer.username in owned.get(f"/p/{NAME}/profiles/{shared.pk}/").content.decode()


def test_every_other_address_asks_for_a_sign_in_and_shows_nothing_of_the_project(shared: Profile) -> None:
    browser, opened = guest(shared), 0
    for path, _ in routes():
        for mine in {path, path.replace(str(PK), str(shared.pk))}:
            queries = ("", f"?{ASKED}", f"?{ASKED}".replace(str(PK), str(shared.pk)))
            for query in queries if DEEP else queries[1:2]:
                answer = browser.get(mine + query)
                told = text_of(answer)
                assert HIDDEN not in told and answer.status_code != 500, (mine + query, answer.status_code, told[:300])
                below = mine.startswith((f"/profiles/{shared.pk}/", f"/api/profiles/{shared.pk}/"))
                opened += below and answer.status_code == 200
                if not below and not mine.startswith(("/accounts/", "/share/", "/health", "/static/", "/forges/")):
                    assert answer.status_code in (301, 302, 401, 403, 404, 405), (mine, answer.status_code)
                    assert "the shared one" not in told, mine
    assert opened > (40 if DEEP else 20)


def test_nothing_can_be_changed(shared: Profile) -> None:
    browser, count = guest(shared), {model: model._base_manager.count() for model in scoped_models()}
    for path, _ in routes():
        if path.startswith("/accounts/"):
            continue            # signing in and out, as for anybody
        for mine in {path, path.replace(str(PK), str(shared.pk))}:
            methods = ("post", "put", "patch", "delete") if path.startswith("/api/") or DEEP else ("post",)
            for method in methods if DEEP else [methods[crc32(mine.encode()) % len(methods)]]:
                answer = getattr(browser, method)(mine, {"name": "mine now", "text": "mine now"}, content_type="application/json")
                assert answer.status_code in (302, 400, 401, 403, 404, 405, 429), (method, mine, answer.status_code)
    assert {model: model._base_manager.count() for model in scoped_models()} == count
    shared.refresh_from_db()
    assert shared.name == "the shared one"


def test_a_link_ends_with_its_time_when_it_is_ended_and_with_the_profile(shared: Profile) -> None:
    late, ended, gone = guest(shared), guest(shared), guest(shared)
    rows = list(ShareLink._base_manager.order_by("pk"))
    ShareLink._base_manager.filter(pk=rows[0].pk).update(expires=timezone.now() - timedelta(seconds=1))
    rows[1].delete()
    for browser in (late, ended):
        assert browser.get(f"/profiles/{shared.pk}/").status_code == 302
    assert gone.get(f"/profiles/{shared.pk}/").status_code == 200
    Profile._base_manager.filter(pk=shared.pk).delete()
    assert gone.get(f"/profiles/{shared.pk}/").status_code in (302, 404)


def test_a_secret_is_stored_nowhere_and_cannot_be_guessed_for_ever(shared: Profile) -> None:
    with within(PK):
        row, secret = services.share(shared, None, 7)
    assert len(row.digest) == 64 and secret not in str(ShareLink._base_manager.values())
    browser = Client(REMOTE_ADDR="192.0.2.41")
    told = [browser.get(f"/share/share_{number}/").content.decode() for number in range(FAILURES + 1)]
    assert "Too many tries" not in told[0] and "Too many tries" in told[-1]


def test_who_is_signed_in_is_who_they_are(shared: Profile, alice: Any) -> None:
    """An engineer of the installation with a guest's cookie keeps their own rights."""
    browser = guest(shared)
    browser.force_login(alice)
    page = browser.get(f"/p/{NAME}/profiles/{shared.pk}/").content.decode()
    assert "Shared by a link" not in page and "the shared one" in page


def test_engineers_share_by_page_and_api_and_viewers_do_not(shared: Profile, alice: Any, bob: Any, api: Any) -> None:
    browser = Client()
    browser.force_login(alice)
    page = browser.post(f"/p/{NAME}/sharing/{shared.pk}/create/", {"days": "3"}).content.decode()
    link = re.search(r'id="share-link">http://testserver(/share/[^<]+)<', page)
    assert link is not None and Client(REMOTE_ADDR="192.0.2.42").get(link[1]).status_code == 302
    assert AuditEntry._base_manager.filter(kind="share link", action="made").exists()
    assert "1 to 365 days" in browser.post(f"/p/{NAME}/sharing/{shared.pk}/create/", {"days": "999"}).content.decode()
    assert "opens this profile" in browser.get(f"/p/{NAME}/sharing/{shared.pk}/").content.decode()
    viewer = Client()
    viewer.force_login(bob)
    assert viewer.post(f"/p/{NAME}/sharing/{shared.pk}/create/", {"days": "3"}).status_code == 403


def test_a_shared_profile_is_kept(shared: Profile) -> None:
    guest(shared)
    with within(PK):
        TimelineNote.objects.filter(profile=shared).delete()
        Profile.objects.filter(pk=shared.pk).update(created=timezone.now() - timedelta(days=99))
        assert retention.look({"traces": 30})["traces"]["kept"].get("is shared by a link") == 1


def test_no_page_offers_a_guest_what_asks_for_a_sign_in(shared: Profile) -> None:
    """Every page of the profile that its links lead to, and every link, form and script's address of theirs; members have more."""
    browser, here = guest(shared), (f"/profiles/{shared.pk}/", f"/api/profiles/{shared.pk}/")
    wait, seen, away = [here[0]], set[str](), set[tuple[str, str]]()
    while wait:
        address = wait.pop()
        page = browser.get(address)
        if page.status_code in (301, 302) and not page["Location"].startswith(here):
            away.add((address, page["Location"]))
        if page.status_code != 200 or not page["Content-Type"].startswith("text/html"):
            continue
        for kind, link in re.findall(r'\b(href|action|data-(?!root)[a-z-]*)="(/(?!static/)[^"]*)"', page.content.decode()):
            path = unescape(link).partition("?")[0].partition("#")[0]
            if not path.startswith(here):
                away.add((address, path))
            elif kind == "href" and path.startswith(here[0]) and (name := re.sub(r"\d+", "N", path)) not in seen:
                seen.add(name)
                wait.append(path)
    assert len(seen) > 12 and not away, "\n".join(map(str, sorted(away)))


def test_what_members_are_offered_is_not_kept_for_a_guest_nor_the_other_way(shared: Profile, alice: Any) -> None:
    """Parts of a page are kept by the values they are made of; whose page it is counts as well."""
    address, members = f"/profiles/{shared.pk}/analysis/operators/", Client()
    members.force_login(alice)                  # who looks after the installation
    for _ in range(2):
        assert "/kernels/problem/" in members.get(f"/p/{NAME}{address}", follow=True).content.decode()
        assert "/kernels/problem/" not in guest(shared).get(address).content.decode()
