"""Source and SASS in a real browser: the hottest line is chosen, line and instruction lead to each other, by mouse and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.visit import eventually, poll, reads, shows, uploaded

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
    shows(page.locator("#source-detail h3").first, page.inner_text(".answer b"))        # the hottest line, as the answer says
    assert "tl." in line or "range" in line
    assert instruction == ""
    eventually(lambda: page.locator(".code-row.is-linked").count() > 0)
    eventually(lambda: "line=" in page.url)
    eventually(lambda: "metric=samples" in page.url)

    page.keyboard.press("n")                                                           # the next hottest line
    poll(page, f"{CHOSEN}[0] !== {line!r}")
    page.keyboard.press("p")
    poll(page, f"{CHOSEN}[0] === {line!r}")
    sass = page.locator(".code-list").nth(1)
    sass.press("n")                                                                    # the hottest instruction
    poll(page, f"{CHOSEN}[1] !== ''")
    first = page.evaluate(CHOSEN)[1]
    shows(page.locator("#source-detail h3").first, first.split("  ◀")[0])
    eventually(lambda: "at=" in page.url)
    sass.press("ArrowDown")
    poll(page, f"{CHOSEN}[1] !== {first!r}")
    page.reload()
    poll(page, READY)
    eventually(lambda: page.evaluate(CHOSEN)[1] not in ("", first))     # the address holds what was chosen

    page.select_option("#source-metric", "inst_executed")
    poll(page, "location.search.includes('metric=inst_executed')")
    shows(page.locator("#source-hint").first, "executed it")
    page.locator(".code-list").nth(0).press("n")
    poll(page, "location.search.includes('line=')")
    reads(page.locator("#source-detail .kv dt").first, "Stall samples")


def test_the_course_of_the_kernel_is_drawn(watched: Any, address: str) -> None:
    page = watched
    page.goto(f"{address}/sampling/")
    poll(page, "window.Bokeh && document.querySelector('#sampling')?.dataset.state === 'ready'")
    eventually(lambda: page.locator("#sampling .bk-Figure").count() >= 3)
    poll(page, "document.querySelectorAll('table[data-enhanced] tbody tr').length > 10")
    shows(page.locator(".answer").first, "Tensor pipe")
