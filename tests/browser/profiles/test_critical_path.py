"""The critical path from its page to the timeline, in a real browser: drawn, by mouse and by keys, and part of the URL."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import expect

from tests.browser.timeline.test_timeline import APP, settled
from tests.browser.visit import H200, eventually, poll, read_once, shows

# pixels of the overlay that are nearly the colour of the path
RED = """(() => { const canvas = document.querySelector(".tl-overlay"); if (canvas.hidden) return 0;
    const bad = getComputedStyle(document.documentElement).getPropertyValue("--bad").trim();
    const wanted = bad.match(/[0-9a-f]{2}/gi).map((x) => parseInt(x, 16));
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height); let count = 0;
    for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] > 200 && wanted.every((each, c) => Math.abs(data[i + c] - each) < 12)) count++;
    }
    return count; })()"""


def test_the_path_is_drawn_from_its_page_and_by_keys(watched: Any, server_url: str, playwright: Any):
    page, pk = watched, read_once(playwright, server_url, H200 / "kineto_train.json.gz")
    page.emulate_media(reduced_motion="reduce")
    page.set_viewport_size({"width": 1440, "height": 900})
    for name in ("launches", "sequences"):
        page.goto(f"{server_url}/profiles/{pk}/analysis/{name}/")
        eventually(lambda: page.locator(".bars[role=img], .figure[role=img]").first.get_attribute("aria-label"))
    page.goto(f"{server_url}/profiles/{pk}/analysis/critical-path/")
    label = page.locator(".bars[role=img]").first.get_attribute("aria-label")
    assert "CPU operators" in label and "GPU compute" in label
    page.get_by_role("link", name="Draw it on the timeline").click()
    settled(page)
    drawn = poll(page, f"{APP}.critical.answer && {RED}")
    assert drawn > 1000
    button = page.get_by_role("button", name="Critical path")
    expect(button).to_have_attribute("aria-pressed", "true")
    told = json.loads(poll(page, f"JSON.stringify({APP}.critical.answer.path)"))
    assert told["key"] == "whole"
    page.locator(".tl-main").focus()
    page.keyboard.press("v")
    poll(page, f"!{APP}.critical.key && {RED} === 0")
    poll(page, "!location.search.includes('path=')")
    page.keyboard.press("v")
    poll(page, f"{APP}.critical.answer")
    page.keyboard.press("r")
    poll(page, f"{APP}.critical.answer?.path.key === 'step-0' && location.search.includes('path=step-0')")
    shows(page.locator(".tl-said"), "Critical path of ProfilerStep#0")
    shown = json.loads(page.evaluate(f"JSON.stringify([{APP}.viewport.start, {APP}.viewport.end, {APP}.critical.answer.path])"))
    assert shown[0] < shown[2]["start_ns"] < shown[2]["end_ns"] < shown[1]
    page.reload()
    settled(page)
    assert poll(page, f"{APP}.critical.answer && {RED}") > 1000
    button.click()
    poll(page, f"!{APP}.critical.key && {RED} === 0")
    expect(button).to_have_attribute("aria-pressed", "false")
