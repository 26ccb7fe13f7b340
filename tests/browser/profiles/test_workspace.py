"""A profile's pages in a real browser: what stands on the first screen, nothing that jumps, tabs by keyboard, time by a click."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, fits, poll, read_once

SHIFTS = """window.shifted = 0;
new PerformanceObserver((list) => { for (const each of list.getEntries()) if (!each.hadRecentInput) window.shifted += each.value; })
  .observe({type: "layout-shift", buffered: true});"""


@pytest.fixture(scope="module")
def profile_id(server_url: str, playwright: Any) -> int:
    return read_once(playwright, server_url, H200 / "kineto_train.json.gz")


@pytest.mark.parametrize(("theme", "width"), [pytest.param("light", 1440, marks=pytest.mark.deep_only), ("dark", 1000)])
def test_overview_stands_still_and_leads_with_what_matters(watched: Any, server_url: str, profile_id: int, theme: str,
                                                           width: int) -> None:
    page = watched
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{server_url}/profiles/{profile_id}/analysis/causes/")       # made where no worker has yet
    page.add_init_script(SHIFTS)
    page.goto(f"{server_url}/profiles/{profile_id}/")
    expect(page.locator(".leading-share")).to_have_count(3)
    expect(page.locator(".top-kernels tbody tr")).to_have_count(12)
    poll(page, "document.readyState === 'complete'")
    page.wait_for_timeout(300)                          # what scripts still change would count
    assert page.evaluate("window.shifted") < 0.05
    assert not page.evaluate("performance.getEntriesByType('resource').some((each) => each.name.includes('bokeh'))")
    widths = page.eval_on_selector_all(".top-kernels .kn-f", "all => all.map(each => each.getBoundingClientRect().width)")
    assert min(widths) > 30, "each row says which function it is"
    last = page.locator("#kernels").bounding_box()
    assert last["y"] + last["height"] <= 900
    if width == 1440:
        causes = page.locator("#leading").bounding_box()
        assert causes["x"] > last["x"] + last["width"] and causes["y"] + causes["height"] <= 900
    assert {round(row["height"]) for row in (each.bounding_box() for each in page.locator(".top-kernels tbody tr").all())} == {28}
    fits(page)


def test_a_click_on_the_small_timeline_opens_it_there(watched: Any, server_url: str, profile_id: int) -> None:
    page = watched
    page.goto(f"{server_url}/profiles/{profile_id}/")
    box, whole_ns = page.locator("[data-minimap-picture]").bounding_box(), int(page.get_attribute("[data-minimap]", "data-end-ns"))
    page.mouse.click(box["x"] + box["width"] * 0.75, box["y"] + 5)
    page.wait_for_selector("#timeline[data-ready]")
    start, end = (int(each) for each in page.evaluate("new URLSearchParams(location.search).get('w')").split("-"))
    assert start < 0.75 * whole_ns < end and end - start < 0.2 * whole_ns


def test_tabs_are_reached_by_keyboard_and_scroll_where_they_do_not_fit(watched: Any, server_url: str, profile_id: int) -> None:
    page = watched
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{server_url}/profiles/{profile_id}/report/")
    bar, current = page.locator("nav.workspace-tabs"), page.locator("nav.workspace-tabs [aria-current]")
    expect(current).to_have_text("Report")
    eventually(lambda: bar.evaluate("(bar) => bar.scrollLeft") > 0)          # the last tab was brought into view
    box = current.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    fits(page)
    current.focus()
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.textContent") == "SQL"
    page.keyboard.press("Enter")
    page.wait_for_url("**/sql/?profiles=*")
    expect(page.locator("nav.workspace-tabs [aria-current]")).to_have_text("SQL")
