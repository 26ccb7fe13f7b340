"""The table of every page: the server's rows in their place, sorted, filtered, driven by keys; long ones draw what is in view."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, fits, poll, read_once

SHIFTS = """window.shifts = []; new PerformanceObserver((list) => { for (const entry of list.getEntries())
  if (!entry.hadRecentInput) window.shifts.push(entry.value); }).observe({ type: 'layout-shift', buffered: true });"""
ROWS = "#table-kernels tbody tr:not(.grid-space)"


@pytest.fixture(scope="module")
def kernels(server_url: str, playwright: Any) -> str:
    return f"{server_url}/profiles/{read_once(playwright, server_url, H200 / 'kineto_train.json.gz')}/kernels/"


def _of_many(page: Any, address: str, times: int) -> None:
    """The page as a profile of so many times the kernels would have it: its rows repeated, numbers and all."""
    def many(route: Any) -> None:
        answer = route.fetch()
        text = re.sub(r"(<tbody>)(.*?)(</tbody>)", lambda found: found[1] + found[2] * times + found[3], answer.text(), count=1,
                      flags=re.S)
        route.fulfill(response=answer, body=text)
    page.route(address, many)


def test_nothing_moves_and_few_rows_are_drawn_of_many(watched: Any, kernels: str) -> None:
    page = watched
    page.add_init_script(SHIFTS)
    page.goto(kernels)
    few = poll(page, f"document.querySelectorAll('{ROWS}').length")      # the page may still be computing its table
    _of_many(page, kernels, 600 // few + 1)
    page.goto(kernels)
    poll(page, "document.querySelector('.grid-space')")
    page.wait_for_timeout(300)
    assert sum(page.evaluate("window.shifts")) < 0.05
    count = int(page.locator(".grid-count").inner_text().split()[0].replace(",", ""))
    assert count >= 600 and page.locator(ROWS).count() < 150
    height = page.evaluate("document.querySelector('#table-kernels .table-scroll').scrollHeight")
    assert height > count * 28
    page.evaluate("(e => { e.scrollTop = e.scrollHeight; })(document.querySelector('#table-kernels .table-scroll'))")
    eventually(lambda: page.locator("#table-kernels tbody > :last-child:not(.grid-space)").count() == 1)
    assert page.evaluate("document.querySelector('#table-kernels .table-scroll').scrollHeight") == height

    page.locator("#table-kernels th", has_text="Mean").locator("button").click()
    poll(page, "location.search.includes('kernels.sort=mean%3Adesc')")
    page.locator(".grid-filter").fill("nvjet")
    poll(page, "/ of /.test(document.querySelector('.grid-count').textContent)")
    eventually(lambda: all("nvjet" in (each.get_attribute("data-value") or "")
                           for each in page.locator(f"{ROWS} td:first-child").all()))
    fits(page)


def test_keys_walk_the_rows_open_one_and_copy(watched: Any, kernels: str) -> None:
    page = watched
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(kernels)
    poll(page, "document.querySelector('#table-kernels table[data-enhanced]')")
    page.keyboard.press("j")                 # nowhere in particular: the first table takes it
    page.keyboard.press("j")
    expect(page.locator(f"{ROWS}.current")).to_have_count(1)
    assert page.locator(ROWS).nth(1).get_attribute("aria-selected") == "true"
    page.keyboard.press("Shift+j")
    expect(page.locator(f"{ROWS}[aria-selected]")).to_have_count(2)
    page.keyboard.press("Control+c")
    copied = eventually_text(page)
    assert len(copied) == 3 and copied[0].split("\t")[0] == "Kernel" and "(ns)" in copied[0]
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/kernels/\d+/$"))


def eventually_text(page: Any) -> list[str]:
    poll(page, "navigator.clipboard.readText().then((text) => text.length > 0)")
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text.splitlines()


def test_columns_are_chosen_and_remembered(watched: Any, kernels: str) -> None:
    page = watched
    page.goto(kernels)
    page.locator(".grid-tools summary", has_text="Columns").click()
    page.get_by_role("checkbox", name="p95").uncheck()
    expect(page.locator("#table-kernels th", has_text="p95")).to_be_hidden()
    page.reload()
    expect(page.locator("#table-kernels th", has_text="p95")).to_be_hidden()
    expect(page.locator("#table-kernels th", has_text="p50")).to_be_visible()
    page.locator(".grid-each").click()
    page.get_by_role("searchbox", name="Filter by Launches").fill("> 10")
    poll(page, "/ of /.test(document.querySelector('.grid-count').textContent)")
    assert all(int(each.get_attribute("data-value") or 0) > 10 for each in page.locator(f"{ROWS} td:nth-child(3)").all())


def test_columns_are_widened_by_hand_and_by_keys_and_stay_so(watched: Any, kernels: str) -> None:
    page = watched
    page.set_viewport_size({"width": 1440, "height": 900})
    page.add_init_script(SHIFTS)
    page.goto(kernels)
    heads = page.locator("#table-kernels thead th")

    def widths() -> list[int]:
        return [round(each.bounding_box()["width"]) for each in heads.all() if each.is_visible()]

    expect(page.locator("#table-kernels .grid-edge").first).to_be_attached()
    before = widths()
    edge = heads.nth(0).locator(".grid-edge").bounding_box()
    page.mouse.move(edge["x"] + 3, edge["y"] + 8)
    page.mouse.down()
    page.mouse.move(edge["x"] - 97, edge["y"] + 8, steps=4)
    page.mouse.up()
    eventually(lambda: widths()[0] == before[0] - 100)
    assert widths()[1:] == before[1:]                                   # the others stay, nothing is sorted
    assert "sort" not in page.url
    heads.nth(1).locator("button").focus()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    eventually(lambda: widths()[1] == before[1] + 32)
    chosen = widths()
    assert {round(row.bounding_box()["height"]) for row in page.locator(ROWS).all()[:5]} == {28}
    page.reload()
    expect(page.locator("#table-kernels .grid-edge").first).to_be_attached()
    page.wait_for_timeout(300)
    assert widths() == chosen and sum(page.evaluate("window.shifts")) < 0.05
    heads.nth(0).locator(".grid-edge").dblclick()
    eventually(lambda: widths() == before)
    page.reload()
    expect(page.locator("#table-kernels .grid-edge").first).to_be_attached()
    assert widths() == before
