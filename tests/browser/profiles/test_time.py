"""The topic of time in a real browser: from the profile's page to the classes, the steps' figure and the longest gap."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, fits, poll, read_once, shows


@pytest.fixture(scope="module")
def profile_id(server_url: str, playwright: Any) -> int:
    return read_once(playwright, server_url, H200 / "kineto_train.json.gz")


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.deep_only)])
def test_from_the_profile_to_the_step_and_the_gap(watched: Any, server_url: str, profile_id: int, theme: str) -> None:
    page = watched
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 1000, "height": 900})
    page.goto(f"{server_url}/profiles/{profile_id}/analysis/time/")         # makes the document where no worker has yet
    page.goto(f"{server_url}/profiles/{profile_id}/")
    shows(page.locator("#causes .leads").nth(1), "host launches too slowly")
    page.get_by_role("link", name="steps, phases, ranges").click()
    page.wait_for_url("**/analysis/time/")
    shows(page.locator("#class-overhead"), "holds the GPU back")
    expect(page.locator(".class-card")).to_have_count(3)
    eventually(lambda: page.locator(".answer").inner_text().startswith("Overhead holds the GPU back: 79 %"))
    poll(page, "document.querySelector('#steps-figure canvas, #steps-figure .bk-Figure') !== null")
    label = page.locator("#gpus .bars").get_attribute("aria-label")
    assert "idle, host too slow 63.6 %" in label
    widths = page.evaluate("[...document.querySelectorAll('#gpus .bar')].map((bar) => bar.getBoundingClientRect().width)")
    whole = page.evaluate("document.querySelector('#gpus .bars').clientWidth")
    assert abs(sum(widths) - whole) < 3                                     # the picture is the numbers
    fits(page)
    gap = page.get_by_role("link", name="▸ Longest gap")
    gap.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/timeline/?w=*")
    start, end = page.url.rsplit("w=", 1)[1].split("&")[0].split("-")
    assert 2_000_000 < int(end) - int(start) < 2_300_000                    # 2.19 ms until backward's first kernel
