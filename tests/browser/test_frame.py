"""The frame in a real browser: CSP on every page, theme without a flash, keys, search, live connection, tables."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

import pytest

from tests.browser.visit import poll
from tests.product import Product

PAGES = (
    "/",
    "/profiles/",
    "/profiles/upload/",
    "/kernels/",
    "/compare/",
    "/builds/",
    "/gates/",
    "/gates/new/",
    "/suites/",
    "/suites/new/",
    "/regressions/",
    "/environments/",
    "/notified/",
    "/tune/",
    "/tune/new/",
    "/cache/",
    "/cache/revalidations/",
    "/captures/",
    "/captures/new/",
    "/workers/",
    "/search/?q=gemm",
    "/accounts/tokens/",
)


def examples_loaded(product: Product, page: Any) -> None:
    """Once per session: one click on the empty home page, then all is read."""
    page.goto("/")
    button = page.get_by_role("button", name="Load the example recordings")
    if button.count():
        button.click()
    poll(page, "() => !document.querySelector('[data-topic]') && document.querySelector('#live-fixes a')", 120_000)


def test_one_click_fills_home_without_a_reload(product: Product, watched: Any) -> None:
    examples_loaded(product, watched)
    assert "to win back of" in watched.inner_text("#live-fixes")
    assert "▲" in watched.inner_text("#live-slower")
    with urlopen(product.url + "/api/workers/") as answer:
        assert {queue for worker in json.load(answer)["workers"] for queue in worker["queues"]} >= {"ingest", "replay"}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_its_answer_and_breaks_no_rule(product: Product, watched: Any, path: str) -> None:
    examples_loaded(product, watched)
    watched.set_viewport_size({"width": 1000, "height": 800})
    watched.goto(path)
    watched.wait_for_timeout(300)
    assert watched.locator(".answer").count() >= 1
    assert watched.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), "scrolls sideways at 1000 px"


def test_theme_is_right_at_first_paint_and_remembered(product: Product, context: Any) -> None:
    page = context.new_page()
    page.emulate_media(color_scheme="dark")
    page.goto("/workers/", wait_until="commit")
    poll(page, "() => document.body && document.documentElement.dataset.theme === 'dark'")
    page.goto("/workers/")
    page.click("#theme-switch")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "light"
    page.goto("/search/")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "light"


def test_keys_jump_search_and_explain(product: Product, watched: Any) -> None:
    watched.goto("/workers/")
    watched.keyboard.press("?")
    assert watched.locator("dialog[open]").is_visible()
    assert "Go to Profiles" in watched.inner_text("dialog")
    watched.keyboard.press("Escape")
    watched.keyboard.press("g")
    watched.keyboard.press("t")
    watched.wait_for_url("**/tune/")
    watched.keyboard.press("/")
    watched.keyboard.type("g p")
    assert watched.input_value("#search") == "g p"
    watched.keyboard.press("Enter")
    watched.wait_for_url("**/search/?q=g+p")


def test_live_connection_is_shown_and_comes_back(product: Product, page: Any) -> None:
    page.goto("/")
    poll(page, "() => document.querySelector('#live-state').dataset.state === 'live'")
    page.context.set_offline(True)
    page.evaluate("async () => (await import('/static/js/lib/live.js')).reconnect()")
    poll(page, "() => document.querySelector('#live-state').dataset.state === 'lost'")
    page.context.set_offline(False)
    poll(page, "() => document.querySelector('#live-state').dataset.state === 'live'")


def test_a_table_sorts_filters_and_keeps_both_in_the_url(product: Product, watched: Any) -> None:
    examples_loaded(product, watched)
    watched.goto("/kernels/")
    poll(watched, "() => document.querySelector('.tabulator-row')")
    wrap = watched.locator(".grid-wrap").first
    wrap.locator(".tabulator-col.num").first.click()
    poll(watched, "() => location.search.includes('.sort=share')")
    texts = wrap.locator(".tabulator-row .tabulator-cell.num:nth-child(3)").all_inner_texts()
    shares = [float(each.split()[0].lstrip("<")) for each in texts]
    assert len(shares) > 3 and shares == sorted(shares, reverse="desc" in watched.url)
    assert ".sort=" in watched.url
    wrap.locator(".grid-filter").fill("gemm")
    poll(watched, "() => location.search.includes('.q=gemm')")
    shown = wrap.locator(".grid-count").inner_text()
    assert " of " in shown
    watched.reload()
    poll(watched, "() => document.querySelector('.grid-count')?.textContent.includes(' of ')")
    assert watched.locator(".grid-count").first.inner_text() == shown
