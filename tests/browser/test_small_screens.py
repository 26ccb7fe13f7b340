"""The sheets on a phone: a menu opens within the screen wherever its button stands, and a finger sees what a table can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.product import PROJECT

CSS = PROJECT / "static" / "css" / "base"
PAGE = """<!doctype html><meta name="viewport" content="width=device-width"><style>{css}</style><main id="content">
<div class="row"><a class="btn">One action</a><details class="menu" id="a"><summary class="btn">Measure again</summary>
<form class="menu-body to-right stack"><p>runs of each of the two builds, in turn</p>
<button class="btn">Measure again</button></form></details>
<a class="btn">Another one</a><details class="menu" id="b"><summary class="btn">Menu</summary>
<div class="menu-body" style="width: 300px"><a>A long entry of this menu</a></div></details></div>
<div class="grid-wrap"><details class="menu grid-corner"><summary class="btn">Tools</summary></details>
<table data-grid data-enhanced><thead><tr><th><button class="grid-sort">Kernel</button>
<span class="grid-edge"></span></th></tr></thead><tbody><tr><td>a</td></tr></tbody></table></div></main>"""
SEEN = """() => ["grid-corner", "grid-sort", "grid-edge"].map((name) => {
  const element = document.querySelector("." + name);
  return Number(getComputedStyle(element, name === "grid-corner" ? null : "::after").opacity);
})"""


@pytest.fixture
def open_on(browser: Any) -> Iterator[Any]:
    sheets = "".join(path.read_text() for path in sorted(CSS.glob("*.css")))
    contexts: list[Any] = []

    def open_page(**device: Any) -> Any:
        contexts.append(browser.new_context(**device))
        page = contexts[-1].new_page()
        page.set_content(PAGE.replace("{css}", sheets))
        return page

    yield open_page
    for context in contexts:
        with closing(context):
            pass


def test_menus_open_within_a_phone_s_screen(open_on: Any) -> None:
    page = open_on(viewport={"width": 390, "height": 844})
    for name in ("a", "b"):
        page.locator(f"#{name} > summary").click()
        box = page.locator(f"#{name} > .menu-body").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390, (name, box)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_finger_sees_what_a_table_can_do_and_a_mouse_when_it_is_there(open_on: Any) -> None:
    phone = open_on(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert all(opacity >= 0.6 for opacity in phone.evaluate(SEEN))
    desk = open_on(viewport={"width": 1440, "height": 900})
    assert desk.evaluate(SEEN) == [0, 0, 0]
