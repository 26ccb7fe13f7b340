"""Somebody who lost a password gets a link from the owner, sets a new one with it, and signs in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.browser.visit import reads, shows
from tests.ways.conftest import PASSWORD, Team, invite, join, open_setting, sign_in

NEW = "another long phrase 44"


def test_a_new_password_is_set_by_a_link_that_holds_once(team: Team, owner: Any, visitors: Callable[[], Any]) -> None:
    before = visitors()
    join(before, invite(owner, "viewer"), "rita")
    before.close()                                  # a new password ends its session
    open_setting(owner, "People")
    row = owner.locator("tbody tr", has=owner.get_by_role("link", name="rita", exact=True))
    shows(row, "main: viewer")                      # of the one project, and of none that comes later
    row.get_by_role("link", name="rita", exact=True).click()
    owner.get_by_role("button", name="Link for a new password").click()
    link = str(owner.locator("#password-link").inner_text())

    guest = visitors()
    guest.goto(link)
    assert link.rstrip("/").rpartition("/")[2] not in guest.url         # the secret has left the address
    guest.get_by_label("New password", exact=True).fill(NEW)
    guest.get_by_label("New password confirmation").fill(NEW)
    guest.get_by_role("button", name="Set password").click()
    guest.get_by_label("Username").fill("rita")
    guest.get_by_label("Password").fill(PASSWORD)
    guest.get_by_role("button", name="Sign in").click()
    guest.locator(".field-error, .errorlist, [role=alert]").first.wait_for()
    sign_in(guest, "rita", NEW)

    late = visitors()
    late.goto(link)
    reads(late.locator(".answer"), "This link was used or has ended")
