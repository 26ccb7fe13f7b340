"""Threads in a real browser: written with the keyboard, a name completed, seen on another page without a reload."""

from __future__ import annotations

from typing import Any

from tests.browser.visit import shows

PROBLEM = "/kernels/problem/?operator=softmax&dtype=fp16&R=4096&C=1024&gpu=NVIDIA+H200"


def test_a_comment_is_written_by_keys_and_follows_elsewhere(watched: Any, server_url: str) -> None:
    page = watched
    page.goto(server_url + PROBLEM)
    box = page.get_by_label("Comment", exact=True)
    box.press_sequentially("**Rows** of 1024: ask @loc")
    page.get_by_role("option", name="local", exact=True).wait_for()
    box.press("Enter")
    assert box.input_value() == "**Rows** of 1024: ask @local "
    box.press("Control+Enter")
    said = page.locator(".comment", has_text="of 1024: ask @local")
    said.locator("strong", has_text="Rows").wait_for()

    page.get_by_role("link", name="▸ thread").click()
    page.wait_for_url("**/threads/*/")
    address = page.url
    other = page.context.new_page()
    other.goto(address)
    shows(other.locator("#live-thread"), "Rows")
    page.get_by_label("Comment", exact=True).fill("seen **elsewhere**")
    page.get_by_role("button", name="Comment", exact=True).press("Enter")
    shows(other.locator("#live-thread"), "seen elsewhere")              # nobody reloaded it
    page.get_by_label("Status", exact=True).select_option("resolved")
    page.get_by_role("button", name="Set", exact=True).press("Enter")
    shows(other.locator("#live-thread-status"), "resolved")
    other.close()
    page.goto(f"{server_url}/threads/?status=ended")
    shows(page.locator("#live-threads"), "softmax fp16")
