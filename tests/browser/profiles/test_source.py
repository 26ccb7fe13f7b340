"""Source and SASS in a real browser: the hottest line is chosen, line and instruction lead to each other, by mouse and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.visit import eventually, poll, reads, shows, uploaded

REPORT = Path(__file__).parents[2] / "data" / "captured" / "matmul_full.ncu-rep.gz"
READY = "document.getElementById('source-view')?.dataset.state !== undefined"
WHOLE = "document.getElementById('source-view')?.dataset.state === 'whole'"
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


def test_columns_are_chosen_and_remembered(watched: Any, address: str) -> None:
    page = watched
    page.goto(f"{address}/source/")
    poll(page, WHOLE)
    names = page.locator(".source-pane").nth(1).locator(".code-name")
    assert names.all_inner_texts() == ["Samples", "Live regs", "Warp inst", "Offset"]
    page.click("#source-columns > summary")
    page.check("#source-columns input[value=threads_per_warp]")
    page.uncheck("#source-columns input[value=inst_executed]")
    eventually(lambda: names.all_inner_texts() == ["Samples", "Live regs", "Threads", "Offset"])
    eventually(lambda: "columns=live%2Cthreads_per_warp" in page.url)
    page.goto(f"{address}/source/")                                        # an address without columns: those remembered
    poll(page, WHOLE)
    assert names.all_inner_texts() == ["Samples", "Live regs", "Threads", "Offset"]


def test_dependencies_and_jumps_of_an_instruction_are_shown(watched: Any, address: str) -> None:
    page = watched
    page.set_viewport_size({"width": 1440, "height": 1000})
    profile = address.split("/profiles/")[1].split("/")[0]
    program = page.request.get(f"{address.split('/profiles/')[0]}/api/profiles/{profile}/source/0/program/").json()
    row = next(row for row, each in enumerate(program["writers"]) if any(2 < row - other < 8 for other in each))
    page.goto(f"{address}/source/?at={16 * row}")
    poll(page, WHOLE)
    sass = page.locator(".source-pane").nth(1)
    near = [other for other in program["writers"][row] if 0 < row - other < 8]
    row_of = "document.querySelectorAll('.source-pane')[1].querySelector"
    for other in near:
        poll(page, f"""{row_of}('[data-index="{other}"]').classList.contains('is-writer')""")
    shows(page.locator("#source-detail").first, f"{program['general'][row]} registers live")
    sass.locator(f'[data-index="{near[0]}"]').hover()                      # now those of the one under the pointer
    poll(page, f"""{row_of}('[data-index="{row}"]').classList.contains('is-reader')""")
    jump = next(row for row, to in enumerate(program["targets"]) if to is not None and to != row)
    page.goto(f"{address}/source/?at={16 * jump}")
    poll(page, WHOLE)
    poll(page, "document.querySelectorAll('.code-margin .jump.is-chosen').length === 1")
