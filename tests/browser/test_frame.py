"""The frame in a real browser: CSP on every page, theme without a flash, keys, search, live connection, tables."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

from tests.browser.visit import eventually, fits, poll, reads, shows
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


_with_examples: set[str] = set()          # addresses of products that have them


def examples_loaded(product: Product, page: Any) -> None:
    """Once per product: one click on the home page, then all is read."""
    if product.url in _with_examples:
        return
    page.goto("/")
    button = page.get_by_role("button", name="Load the example recordings")
    if button.count():
        button.click()
    poll(page, "() => !document.querySelector('[data-topic]') && document.querySelector('#live-fixes a')", 600_000)
    _with_examples.add(product.url)


@pytest.mark.timeout(900)           # eleven recordings are read: half a minute when idle
def test_one_click_fills_home_without_a_reload(product: Product, watched: Any) -> None:
    examples_loaded(product, watched)
    if watched.url == "about:blank":          # an earlier test clicked
        watched.goto("/")
    shows(watched.locator("#live-fixes").first, "to win back of")
    shows(watched.locator("#live-slower").first, "▲")
    with urlopen(product.url + "/api/workers/") as answer:
        assert {queue for worker in json.load(answer)["workers"] for queue in worker["queues"]} >= {"ingest", "replay"}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_its_answer_and_breaks_no_rule(product: Product, watched: Any, path: str) -> None:
    examples_loaded(product, watched)
    watched.set_viewport_size({"width": 1000, "height": 800})
    watched.goto(path)
    watched.wait_for_timeout(300)
    eventually(lambda: watched.locator(".answer").count() >= 1)
    fits(watched)


def test_theme_is_right_at_first_paint_and_remembered(product: Product, context: Any) -> None:
    page = context.new_page()
    page.emulate_media(color_scheme="dark")
    page.goto("/workers/", wait_until="commit")
    poll(page, "() => document.body && document.documentElement.dataset.theme === 'dark'")
    page.goto("/workers/")
    page.click("#theme-switch")
    eventually(lambda: page.evaluate("() => document.documentElement.dataset.theme") == "light")
    page.goto("/search/")
    eventually(lambda: page.evaluate("() => document.documentElement.dataset.theme") == "light")


def test_keys_jump_search_and_explain(product: Product, watched: Any) -> None:
    watched.goto("/workers/")
    watched.keyboard.press("?")
    expect(watched.locator("dialog[open]")).to_be_visible()
    shows(watched.locator("dialog").first, "Go to Profiles")
    watched.keyboard.press("Escape")
    watched.keyboard.press("g")
    watched.keyboard.press("t")
    watched.wait_for_url("**/tune/")
    watched.keyboard.press("/")
    watched.keyboard.type("g p")
    expect(watched.locator("#search").first).to_have_value("g p")
    watched.keyboard.press("Enter")
    watched.wait_for_url("**/search/?q=g+p")


def test_live_connection_is_shown_and_comes_back(product: Product, page: Any) -> None:
    page.goto("/")
    poll(page, "() => document.querySelector('#live-state').dataset.state === 'live'")
    page.context.set_offline(True)
    page.evaluate("""async () => {      // the page's own connection: the module of the bundle that it loaded
      const loaded = performance.getEntriesByType('resource').map((entry) => entry.name);
      const bundle = loaded.find((name) => name.endsWith('/js/lib.js'));
      (await import(bundle)).$lib_live().reconnect();
    }""")
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
    eventually(lambda: ".sort=" in watched.url)
    wrap.locator(".grid-filter").fill("gemm")
    poll(watched, "() => location.search.includes('.q=gemm')")
    shown = wrap.locator(".grid-count").inner_text()
    assert " of " in shown
    watched.reload()
    poll(watched, "() => document.querySelector('.grid-count')?.textContent.includes(' of ')")
    reads(watched.locator(".grid-count").first, shown)
