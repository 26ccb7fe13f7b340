"""Who is told, in a real browser: a place is added with the keyboard, tested, and what becomes of the message shows by itself."""

from __future__ import annotations

from typing import Any

from tests.browser.visit import WORKED_MS, shows


def test_a_place_is_added_tested_and_its_messages_follow(watched: Any, server_url: str) -> None:
    page = watched
    page.goto(f"{server_url}/gates/")
    page.get_by_role("link", name="Channels", exact=True).click()
    page.get_by_label("How", exact=True).select_option("email")
    page.get_by_label("Address", exact=True).fill("kernels@team.example")
    page.keyboard.press("Enter")
    page.locator("#made", has_text="kernels@team.example will be told").wait_for()
    shows(page.locator(".answer"), "1 mailbox")
    page.get_by_role("button", name="Send a test", exact=True).click()
    page.wait_for_url("**/notified/")
    # a worker of the running product writes it; there is no mail server, and the page says so
    tests = page.locator("#live-messages tr", has_text="a test message")     # what other tests still do may be told as well
    tests.filter(has_text="◻ a file").wait_for(timeout=WORKED_MS)
    shows(page.locator(".notice", has_text="No mail server"), "mails become files")

    page.get_by_label("How", exact=True).select_option("webhook")
    page.get_by_label("Address", exact=True).fill("http://127.0.0.1:9/hook")
    page.get_by_role("button", name="Add", exact=True).click()
    secret = page.locator("#new-secret").inner_text()
    page.get_by_role("button", name="Send a test", exact=True).click()
    failed = tests.filter(has_text="✕ failed")                           # an address inside this network
    failed.wait_for(timeout=WORKED_MS)
    shows(failed, "RIDGEPOINT_WEBHOOK_PRIVATE=1 allows such addresses")
    assert len(secret) > 30 and secret not in page.content()
    for address in ("http://127.0.0.1:9/hook", "kernels@team.example"):
        row = page.locator("#live-places tr", has_text=address)
        row.locator("summary").press("Enter")                            # asked again before it goes
        with page.expect_navigation():      # with its scripts: they draw the table anew, and what has the focus there loses it
            row.get_by_role("button", name=f"Remove {address} and its messages").press("Enter")
        page.locator(".notice", has_text="It is told no more.").wait_for()
    shows(page.locator(".answer"), "No channel yet")
