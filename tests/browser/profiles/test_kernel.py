"""A kernel's page in a real browser: the header stays, tabs lead, a searched baseline lies over bars and metrics."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, fits, poll, uploaded


@pytest.fixture(scope="module")
def address(server_url: str, playwright: Any) -> str:
    """The softmax of build B; build A is there to be its baseline."""
    uploaded(playwright, server_url, H200 / "buildA.ncu-rep.zst", name="softmax before", build="A")
    pk = uploaded(playwright, server_url, H200 / "buildB.ncu-rep.zst", name="softmax after", build="B")
    client = playwright.request.new_context(base_url=server_url)
    rows = client.get(f"/api/profiles/{pk}/kernels/").json()["kernels"]
    client.dispose()
    return f"{server_url}/profiles/{pk}/kernels/{next(row['id'] for row in rows if row['short_name'] == 'softmax_row')}/"


@pytest.mark.parametrize("width", [pytest.param(1440, marks=pytest.mark.deep_only), 1000])
def test_the_header_stays_and_the_first_screen_decides(watched: Any, address: str, width: int) -> None:
    page = watched
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address)
    poll(page, "document.readyState === 'complete'")
    for part in ("#speed", "#leading-rules") if width == 1440 else ("#speed",):
        box = page.locator(part).bounding_box()
        assert box["y"] + box["height"] <= 900, part
    page.mouse.wheel(0, 1500)
    eventually(lambda: page.evaluate("scrollY") > 300)
    for part in (".kernel-head-name", ".kernel-tabs"):
        assert 0 <= page.locator(part).bounding_box()["y"] < 140, part
    fits(page)


def test_a_searched_baseline_lies_over_every_tab(watched: Any, address: str) -> None:
    page = watched
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(address)
    expect(page.locator(".sol-ghost")).to_have_count(0)
    find = page.get_by_role("combobox", name="Baseline")
    find.fill("softmax_row before")
    expect(page.locator("#baseline [role=option]")).to_have_count(1)
    expect(page.locator("#baseline [role=option] small")).to_contain_text("NVIDIA H200")
    find.press("Enter")
    page.wait_for_url("**?baseline=*")
    expect(find).to_have_value("softmax before")
    expect(page.locator("#speed .sol-ghost")).to_have_count(5)
    for tab, inside in (("Memory", ".memory-chart text.base"), ("Warps", "#pipes .sol-ghost"), ("Raw", "#details .versus")):
        page.click(f".kernel-tabs a >> text={tab}")
        expect(page.locator(".kernel-tabs [aria-current]")).to_have_text(tab)
        expect(page.locator(inside).first).to_be_attached()
        assert "baseline=" in page.url
    page.locator("#metrics").scroll_into_view_if_needed()
    poll(page, "document.querySelectorAll('#metrics-grid .tabulator-row').length > 5")
    page.fill("#metrics-grid input[type=search]", "gpu__time_duration.sum")
    poll(page, "document.querySelectorAll('#metrics-grid .tabulator-row').length === 1")
    row = page.locator("#metrics-grid .tabulator-row")
    expect(row.locator("[tabulator-field=baseline]")).to_contain_text("s")
    expect(row.locator("[tabulator-field=change]")).to_contain_text("%")
