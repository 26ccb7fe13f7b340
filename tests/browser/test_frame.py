"""The frame in a real browser: theme without a flash, keys, search, live connection."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from tests.browser.visit import eventually, poll, shows
from tests.product import Product


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
