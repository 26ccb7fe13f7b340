"""Two profiles on one page with linked time axes, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.timeline.test_timeline import GEMM, RECORDING
from tests.browser.visit import eventually, fits, poll, reads, shows, uploaded

A, B = "document.getElementById('timeline').timeline", "document.getElementById('timeline-b').timeline"


@pytest.fixture(scope="session")
def runs(server_url: str, playwright: Any) -> tuple[int, int]:
    first, second = (uploaded(playwright, server_url, RECORDING, name=name, build=build)
                     for name, build in (("before", "aaa"), ("after", "bbb")))
    return first, second


@pytest.fixture
def pair(shared: Callable[[str], Any], runs: tuple[int, int]) -> Any:
    page = shared(f"/timelines/{runs[0]}/{runs[1]}/")
    settled(page)
    return page


def settled(page: Any) -> None:
    page.wait_for_selector("#tl-pair[data-ready]")
    for app in (A, B):
        poll(page, f"(({{timeline, tiles, scheduled, motion}}) => "
                   f"timeline.names !== null && tiles.pending === 0 && !scheduled && !motion.isMoving)({app})")


def windows(page: Any) -> tuple[list[float], list[float]]:
    a, b = page.evaluate(f"[{A}, {B}].map(({{viewport}}) => [viewport.start, viewport.end])")
    return a, b


def zoomed(page: Any, app: str, start: int, end: int) -> None:
    page.evaluate(f"([start, end]) => {app}.go(start, end)", [start, end])
    settled(page)


def selected(page: Any, app: str, profile: int, index: int) -> dict[str, Any]:
    """Select the n-th matrix multiplication."""
    found = page.request.get(f"{page.url.split('/timelines/')[0]}/api/profiles/{profile}/slices/?q={GEMM}&limit=50").json()
    kernel: dict[str, Any] = found["slices"][index]
    page.evaluate(f"(s) => {app}.chosen.jump(s, false)", kernel)
    poll(page, f"{app}.chosen.slice?.links && {app}.chosen.slice.id === {kernel['id']}")
    settled(page)
    return kernel


def test_both_go_together_until_they_are_unlinked(pair: Any) -> None:
    zoomed(pair, A, 2_000_000, 5_000_000)
    a, b = windows(pair)
    assert a == b == [2_000_000, 5_000_000]
    pair.locator("#timeline-b .tl-main").focus()
    pair.keyboard.press("d")
    settled(pair)
    a, b = windows(pair)
    assert a == pytest.approx(b) and a[0] > 2_000_000
    pair.keyboard.press("u")
    reads(pair.locator("#tl-link-on").first, "Not linked")
    pair.keyboard.press("0")
    settled(pair)
    after_a, after_b = windows(pair)
    assert after_a == pytest.approx(a) and after_b[0] == 0
    pair.click("#tl-link-on")
    settled(pair)
    a, b = windows(pair)
    assert a == pytest.approx(b)


def test_the_ruler_of_both_lies_over_each_other(pair: Any) -> None:
    boxes = [pair.locator(f"#{root} .tl-ruler").bounding_box() for root in ("timeline", "timeline-b")]
    assert boxes[0]["x"] == boxes[1]["x"] and boxes[0]["width"] == boxes[1]["width"]
    pair.locator("#tl-resizer").focus()
    pair.keyboard.press("ArrowRight")
    settled(pair)
    wider = [pair.locator(f"#{root} .tl-ruler").bounding_box()["x"] for root in ("timeline", "timeline-b")]
    assert wider[0] == wider[1] > boxes[0]["x"]
    pair.locator("#tl-resizer").focus()
    pair.keyboard.press("ArrowLeft")


def test_two_selected_slices_are_laid_over_each_other_and_the_address_keeps_it(pair: Any, runs: tuple[int, int]) -> None:
    pair.keyboard.press("y")
    shows(pair.locator("#tl-said").first, "Select a slice in each")
    first, second = selected(pair, A, runs[0], 2), selected(pair, B, runs[1], 30)
    pair.click("#tl-align-here")
    settled(pair)
    offset = second["start_ns"] - first["start_ns"]
    expect(pair.locator("#tl-offset").first).to_have_attribute("title", f"{offset:,} ns")
    x = pair.evaluate(f"([a, b]) => [{A}.viewport.x(a), {B}.viewport.x(b)]", [first["start_ns"], second["start_ns"]])
    assert x[0] == pytest.approx(x[1], abs=0.01)
    pair.wait_for_timeout(450)
    before, url = windows(pair), pair.url
    assert f"off={offset}" in url and f"a.s={first['id']}" in url and f"b.s={second['id']}" in url
    pair.goto("about:blank")
    pair.goto(url)
    settled(pair)
    poll(pair, f"{A}.chosen.slice?.links && {B}.chosen.slice?.links")
    assert windows(pair)[0] == pytest.approx(before[0]) and windows(pair)[1] == pytest.approx(before[1])


def test_a_step_of_one_is_laid_over_that_of_the_other(pair: Any) -> None:
    steps = pair.evaluate(f"{A}.timeline.steps")
    pair.select_option("#tl-align", "step1")
    settled(pair)
    expect(pair.locator("#tl-offset").first).to_have_attribute("title", "0 ns")                     # the same recording twice
    expect(pair.locator("#tl-align option", has_text=steps[1]["name"])).to_have_count(1)
    pair.select_option("#tl-align", "start")
    reads(pair.locator("#tl-offset").first, "shifted by 0 ns")


def test_keys_are_for_the_timeline_that_has_the_focus(pair: Any, runs: tuple[int, int]) -> None:
    expect(pair.locator(".tl[data-active]")).to_have_attribute("id", "timeline")
    pair.keyboard.press("v")
    expect(pair.locator(".tl[data-active]")).to_have_attribute("id", "timeline-b")
    pair.keyboard.press("/")
    eventually(lambda: pair.evaluate("document.activeElement.id") == "tl-q-b")
    pair.keyboard.type(GEMM)
    poll(pair, "/\\/ \\d/.test(document.getElementById('tl-hits-b').textContent)")
    pair.keyboard.press("Enter")
    poll(pair, f"{B}.chosen.slice?.links")
    eventually(lambda: pair.evaluate(f"{A}.chosen.slice") is None)
    eventually(lambda: pair.evaluate(f"{A}.search.query") == "")
    expect(pair.locator("#tl-panel-b")).to_be_visible()
    expect(pair.locator("#tl-panel")).to_be_hidden()
    pair.locator("#timeline-b .tl-main").focus()
    before = pair.evaluate(f"{B}.chosen.slice.start_ns")
    pair.keyboard.press("ArrowRight")
    poll(pair, f"{B}.chosen.slice.start_ns > {before}")
    eventually(lambda: pair.evaluate(f"{A}.chosen.slice") is None)


@pytest.mark.parametrize("width", [1000, pytest.param(1440, marks=pytest.mark.deep_only)])
def test_it_fits_below_each_other_and_side_by_side(pair: Any, width: int) -> None:
    pair.set_viewport_size({"width": width, "height": 800})
    for columns in (False, True):
        if columns:
            pair.click("#tl-columns")
        settled(pair)
        fits(pair)
        boxes = [pair.locator(f"#{root} .tl-main").bounding_box() for root in ("timeline", "timeline-b")]
        assert min(box["height"] for box in boxes) > 90
        assert (boxes[0]["x"] < boxes[1]["x"]) == columns
    a, b = windows(pair)
    assert a == pytest.approx(b)
    pair.wait_for_timeout(450)
    eventually(lambda: "cols=1" in pair.url)


def test_the_way_there(pair: Any, server_url: str, runs: tuple[int, int]) -> None:
    pair.goto(f"{server_url}/profiles/{runs[0]}/timeline/")
    pair.wait_for_selector("#timeline[data-ready]")
    pair.click("#tl-compare summary")
    pair.get_by_role("combobox", name="Another timeline").click()
    pair.locator("#tl-compare [role=option]").filter(has_text="bbb").first.click()
    assert pair.evaluate("document.querySelector('#tl-other').value") == str(runs[1])
    pair.click("#tl-compare >> text=Open both")
    pair.wait_for_url(f"**/timelines/{runs[0]}/{runs[1]}/**")
    settled(pair)
    pair.goto(f"{server_url}/profiles/{runs[0]}/timeline/?with={runs[1]}")
    pair.wait_for_url(f"**/timelines/{runs[0]}/{runs[1]}/**")
    pair.goto(f"{server_url}/compare/?a={runs[0]}&b={runs[1]}")
    pair.get_by_role("link", name="Timelines").first.click()
    pair.wait_for_url(f"**/timelines/{runs[0]}/{runs[1]}/**")
    pair.goto(f"{server_url}/builds/")
    pair.check("input[name=build_a][value=aaa]")
    pair.check("input[name=build_b][value=bbb]")
    pair.get_by_role("button", name="Timelines", exact=True).click()
    pair.wait_for_url(f"**/timelines/{runs[0]}/{runs[1]}/**")
