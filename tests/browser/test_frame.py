"""The frame in a real browser: theme without a flash, keys, search, live connection."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, fits, poll, read_once, shows, uploaded
from tests.product import Product
from tests.scale import DEEP

PAGES = (
    "/", "/profiles/", "/kernels/", "/fleet/", "/fleet/agents/", "/tune/", "/tune/new/", "/captures/new/", "/gates/new/", "/cache/",
    "/workers/", "/status/", "/docs/formats/", "/profiles/{trace}/", "/profiles/{trace}/kernels/",
    "/profiles/{trace}/analysis/causes/", "/profiles/{trace}/timeline/", "/profiles/{report}/", "/profiles/{report}/roofline/")
# a second each: `make test` leaves out those that others look at as wide, and short ones (answers: tests/webapp/test_pages.py)
SHOWN = PAGES if DEEP else tuple(each for each in PAGES if each not in (
    "/kernels/", "/fleet/", "/fleet/agents/", "/tune/", "/cache/", "/status/", "/profiles/{trace}/timeline/",
    "/profiles/{report}/"))
# axe takes seconds a page: in `make test` the frame, a long form, a table, figures; all in `make test-deep`
JUDGED = PAGES if DEEP else ("/", "/tune/new/", "/profiles/{trace}/kernels/", "/profiles/{report}/roofline/")


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
    watched.keyboard.type("no such thing")
    watched.keyboard.press("Enter")
    watched.wait_for_url("**/search/?q=no%20such%20thing")


def test_palette_finds_pages_at_once_and_objects_from_the_server(
        product: Product, watched: Any, playwright: Any, server_url: str) -> None:
    run = uploaded(playwright, server_url, H200.parent / "causes/serial_copies.json.gz", name="palette-run-42")
    watched.goto("/workers/")
    watched.keyboard.press("Control+k")
    box, options = watched.get_by_role("combobox", name="Search or jump"), watched.locator(".palette [role=option]")
    expect(box).to_be_focused()
    shows(watched.locator(".palette"), "Import a profile")
    box.fill("guard gates")
    expect(options.first).to_have_attribute("aria-selected", "true")
    shows(options.first, "Guard: Gates")
    expect(box).to_have_attribute("aria-activedescendant", "palette-option-0")
    watched.keyboard.press("Escape")
    expect(watched.locator(".palette")).to_be_hidden()

    watched.locator("#search-open").click()
    box.fill("palette-run")
    found = options.filter(has_text="palette-run-42")
    expect(found).to_have_count(1)
    while found.get_attribute("aria-selected") != "true":
        watched.keyboard.press("ArrowDown")
    watched.keyboard.press("Enter")
    watched.wait_for_url(f"**/profiles/{run}/")

    watched.goto("/workers/")
    watched.keyboard.press("Control+k")
    shows(options.first, "palette-run-42")          # what was opened last comes first
    watched.keyboard.press("Control+k")
    expect(watched.locator(".palette")).to_be_hidden()


def test_palette_runs_actions_and_keeps_its_size(product: Product, watched: Any) -> None:
    watched.goto("/workers/")
    before = watched.evaluate("() => document.documentElement.dataset.theme")
    watched.keyboard.press("Control+k")
    box, frame = watched.get_by_role("combobox", name="Search or jump"), watched.locator(".palette")
    size = frame.bounding_box()
    box.fill("switch light")
    assert frame.bounding_box() == size
    watched.keyboard.press("Enter")
    eventually(lambda: watched.evaluate("() => document.documentElement.dataset.theme") != before)


def test_palette_shows_the_answer_to_the_last_question(product: Product, page: Any) -> None:
    def late(route: Any) -> None:
        answer = {"groups": [{"kind": "profiles", "more": False, "hits": [
            {"title": f"answer to {route.request.url.rpartition('=')[2]}", "detail": "", "url": "/profiles/1/"}]}]}
        page.wait_for_timeout(600 if route.request.url.endswith("=a") else 10)
        route.fulfill(json=answer)
    page.goto("/workers/")
    page.route("**/api/search/**", late)
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Search or jump")
    with page.expect_request("**/api/search/?q=a"):
        box.fill("a")
    box.fill("ab")
    shows(page.locator(".palette"), "answer to ab")
    page.wait_for_timeout(700)
    shows(page.locator(".palette"), "answer to ab")
    expect(page.locator(".palette").get_by_text("answer to a", exact=True)).to_have_count(0)


def test_activity_names_the_jobs_in_progress(product: Product, watched: Any) -> None:
    watched.goto("/workers/")
    poll(watched, "() => document.querySelector('#activity-count').textContent !== ''")
    watched.locator("#activity > summary").click()
    watched.locator("#activity").get_by_role("link", name="All jobs").click()
    watched.wait_for_url("**/workers/#live-busy")


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


def test_help_explains_the_page_and_leads_to_its_documents(product: Product, watched: Any) -> None:
    watched.goto("/gates/")
    watched.locator("#keys-help").click()
    panel = watched.locator("dialog[open]")
    shows(panel, "a slowdown of the target is ruled out")
    shows(panel, "Search or jump")
    panel.get_by_role("link", name="The gate: how a verdict comes about").click()
    watched.wait_for_url("**/docs/gate/")
    shows(watched.locator("article"), "exact rank test")


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.deep_only)])
def test_axe_objects_to_nothing(product: Product, watched: Any, playwright: Any, server_url: str, theme: str) -> None:
    """Nor is a list without its answer, or a page wider than the window. `python -m tests.tour --axe` visits all pages."""
    page, axe, found = watched, Axe(), []
    ids = {"trace": read_once(playwright, server_url, H200 / "kineto_train.json.gz"),
           "report": read_once(playwright, server_url, H200 / "full.ncu-rep.zst")}
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 1000, "height": 800})
    for each in SHOWN:
        address = each.format(**ids)
        page.goto(address)
        page.wait_for_load_state("networkidle")
        assert address != each or "/docs/" in address or page.locator(".answer").count(), address         # of every list
        fits(page)
        if each not in JUDGED:
            continue
        answer = axe.run(page, options={"resultTypes": ["violations"]}).response
        found += [(address, rule["id"], rule["nodes"][0]["target"]) for rule in answer["violations"]]
    assert found == []
