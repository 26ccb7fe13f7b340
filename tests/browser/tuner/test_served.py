"""What launches were served and whose kernels may run, in a real browser: from the counts to the form that is filled in."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.visit import eventually, shows

ROW = {"operator": "matmul", "dtype": "bf16", "rule": "default", "entry": None, "bucket": "K=2048 M=2048 N=2048", "launches": 1234}


def report(playwright: Any, server_url: str) -> None:
    """As a client tells it; with the cookies that a browser would have."""
    client = playwright.request.new_context(base_url=server_url)
    client.get("/cache/served/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")
    answer = client.post("/api/configs/served/", headers={"X-CSRFToken": token, "Referer": server_url}, data={
        "snapshot": "", "gpu": "NVIDIA H200", "toolkit": "", "host": "node-1", "served": [ROW]})
    assert answer.status == 200, answer.text()
    client.dispose()


def test_from_what_was_served_to_a_job_that_is_filled_in(watched: Any, playwright: Any, server_url: str) -> None:
    report(playwright, server_url)
    page = watched
    page.goto(f"{server_url}/cache/")
    page.get_by_role("link", name="Served").click()
    shows(page.locator(".answer"), "default")
    shares = {each["rule"]: each["share_pct"] for each in page.request.get(f"{server_url}/api/configs/served/").json()["shares"]}
    assert sum(shares.values()) == pytest.approx(100)           # of all that tests of this product told: alone 100 % default
    eventually(lambda: f"default {shares['default']:.1f} %" in page.locator("[data-save=served-rules]").get_attribute("aria-label"))
    page.get_by_role("link", name="Tune matmul K=2048 M=2048 N=2048").click()
    page.wait_for_url("**/tune/new/?*")
    shape = page.locator("[name=shape]").input_value()
    assert sorted(shape.split()) == ["K=2048", "M=2048", "N=2048"]


def test_an_owner_enables_and_disables_a_package_with_the_keyboard(watched: Any, server_url: str) -> None:
    page = watched
    page.goto(f"{server_url}/tune/")
    page.locator("nav.tabs").get_by_role("link", name="Kernels", exact=True).click()
    page.get_by_role("textbox", name="Package").fill("Acme_Other")
    page.keyboard.press("Enter")
    page.locator(".notice", has_text="no living gpu or compile worker").wait_for()
    page.get_by_role("button", name="Disable").focus()
    page.keyboard.press("Enter")
    page.locator("td", has_text="disabled").first.wait_for()
    page.get_by_role("button", name="Remove").click()
    page.locator("td", has_text="removed").first.wait_for()
