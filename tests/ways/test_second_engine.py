"""The ways with a secret in the address, walked in WebKit too: what a browser sends along with a form differs between engines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from playwright.sync_api import expect

from tests.browser.visit import H200
from tests.ways.conftest import PASSWORD, Team, import_files, invite, open_setting
from tests.ways.webkit import Browser, find_browser, open_browsers

pytestmark = [pytest.mark.deep_only, pytest.mark.skipif(
    not find_browser(), reason="no WebKit with its driver and a display: apt-get install webkit2gtk-driver xvfb")]
NEW = "another long phrase 44"


@pytest.fixture
def webkit(tmp_path: Path) -> Iterator[Callable[[], Browser]]:
    with open_browsers(tmp_path) as open_browser:
        yield open_browser


def secret_of(link: str) -> str:
    return link.rstrip("/").rpartition("/")[2]


def test_an_invitation_and_a_new_password(team: Team, owner: Any, webkit: Callable[[], Browser]) -> None:
    guest = webkit()
    print(guest.engine)                             # told with -s: which engine was walked
    guest.goto(invite(owner, "viewer"))
    guest.shows("h1", "Join as viewer")
    for field, text in (("#id_username", "vera"), ("#id_password", PASSWORD), ("#id_again", PASSWORD)):
        guest.fill(field, text)
    guest.click("main button.btn-primary")
    guest.shows("#user-menu summary", "vera")       # the form was taken, and who sent it is in

    open_setting(owner, "People")
    owner.get_by_role("link", name="vera", exact=True).click()
    owner.get_by_role("button", name="Link for a new password").click()
    link = str(owner.locator("#password-link").inner_text())
    late = webkit()
    late.goto(link)
    assert secret_of(link) not in late.url          # the secret has left the address
    for field in ("#id_new_password1", "#id_new_password2"):
        late.fill(field, NEW)
    late.click("main button.btn-primary")
    late.fill("#id_username", "vera")
    late.fill("#id_password", NEW)
    late.click("main button.btn-primary")
    late.shows("#user-menu summary", "vera")
    late.goto(link)
    late.shows(".answer", "This link was used or has ended")
    guest.reload()
    assert "/accounts/login/" in guest.url          # the new password ended the sessions of before


def test_a_shared_profile(team: Team, owner: Any, webkit: Callable[[], Browser]) -> None:
    import_files(owner, H200 / "kineto_layer.json.gz", build="second", model="engine")
    owner.locator("[data-files] li").first.get_by_role("link", name="Open").click()
    owner.wait_for_url("**/profiles/*/")
    expect(owner.locator("#analysis")).to_have_count(0)                 # the page opens anew once its analyses are there
    owner.locator("#profile-actions summary").click()
    owner.get_by_role("link", name="Share by link").click()
    owner.get_by_role("button", name="Make a link").click()
    link = str(owner.locator("#share-link").inner_text())

    guest = webkit()
    guest.goto(link)
    guest.shows("nav[aria-label=Main]", "Shared by a link, read only")
    assert secret_of(link) not in guest.url and re.search(r"/profiles/\d+/$", guest.url)
    kernels = int(guest.ask("return document.querySelectorAll('table.top-kernels tbody tr').length"))
    assert kernels > 0
    here = guest.url
    guest.goto(team.url + "/profiles/")
    assert "/accounts/login/" in guest.url

    owner.get_by_role("button", name=re.compile("^End the link")).click()
    owner.locator(".answer", has_text="Not shared").wait_for()
    guest.goto(here)
    assert "/accounts/login/" in guest.url
    assert requests.get(link, timeout=60).status_code == 403
