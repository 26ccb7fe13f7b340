"""Source and SASS in a real browser: the hottest line is chosen, line and instruction lead to each other, by mouse and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.visit import poll, uploaded

REPORT = Path(__file__).parents[1] / "data" / "captured" / "matmul_full.ncu-rep.gz"
READY = "document.getElementById('source-view')?.dataset.state === 'ready'"
CHOSEN = """[...document.querySelectorAll('.source-pane')].map(
    pane => pane.querySelector('[aria-selected=true] .code-text')?.textContent ?? '')"""


@pytest.fixture(scope="module")
def address(server_url: str, playwright: Any) -> str:
    """The source page of the one kernel of a report."""
    pk = uploaded(playwright, server_url, REPORT, name="one product")
    client = playwright.request.new_context(base_url=server_url)
    kernel = client.get(f"/api/profiles/{pk}/kernels/").json()["kernels"][0]["id"]
    client.dispose()
    return f"{server_url}/profiles/{pk}/kernels/{kernel}"


def test_line_and_instruction_lead_to_each_other(watched: Any, address: str) -> None:
    page = watched
    page.goto(f"{address}/source/")
    poll(page, READY)
    line, instruction = page.evaluate(CHOSEN)
    assert page.inner_text(".answer b") in page.inner_text("#source-detail h3")        # the hottest line, as the answer says
    assert "tl." in line or "range" in line
    assert instruction == "" and page.locator(".code-row.is-linked").count() > 0
    assert "line=" in page.url and "metric=samples" in page.url

    page.keyboard.press("n")                                                           # the next hottest line
    poll(page, f"{CHOSEN}[0] !== {line!r}")
    page.keyboard.press("p")
    poll(page, f"{CHOSEN}[0] === {line!r}")
    sass = page.locator(".code-list").nth(1)
    sass.press("n")                                                                    # the hottest instruction
    poll(page, f"{CHOSEN}[1] !== ''")
    first = page.evaluate(CHOSEN)[1]
    assert first.split("  ◀")[0] in page.inner_text("#source-detail h3") and "at=" in page.url
    sass.press("ArrowDown")
    poll(page, f"{CHOSEN}[1] !== {first!r}")
    page.reload()
    poll(page, READY)
    assert page.evaluate(CHOSEN)[1] not in ("", first)                                 # the address holds what was chosen

    page.select_option("#source-metric", "inst_executed")
    poll(page, "location.search.includes('metric=inst_executed')")
    assert "executed it" in page.inner_text("#source-hint")
    page.locator(".code-list").nth(0).press("n")
    poll(page, "location.search.includes('line=')")
    assert page.locator("#source-detail .kv dt").first.inner_text() == "Stall samples"


def test_the_course_of_the_kernel_is_drawn(watched: Any, address: str) -> None:
    page = watched
    page.goto(f"{address}/sampling/")
    poll(page, "window.Bokeh && document.querySelector('#sampling')?.dataset.state === 'ready'")
    assert page.locator("#sampling .bk-Figure").count() >= 3
    poll(page, "document.querySelectorAll('.tabulator-row').length > 10")
    assert "Tensor pipe" in page.inner_text(".answer")
