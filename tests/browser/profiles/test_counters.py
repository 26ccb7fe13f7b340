"""The roofline and the kernel page in a real browser over a real report: filters, a tapped dot, every metric."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, fits, follow, poll, read_once, reads, shows

REPORT = H200 / "full.ncu-rep.zst"
DOTS = "Bokeh.documents.flatMap(d => [0, 1, 2, 3].map(i => d.get_model_by_name('points-' + i))).filter(Boolean)"
# where the first dot of a group stands on the page
AT = """() => {
  const view = [...Bokeh.index.roots ?? Object.values(Bokeh.index)][0], source = Bokeh.documents[0].get_model_by_name('points-0');
  const box = view.el.getBoundingClientRect(), {x_scale, y_scale} = view.frame;
  return [box.left + x_scale.compute(source.data.x[0]), box.top + y_scale.compute(source.data.y[0]), source.data.url[0]];
}"""


@pytest.fixture(scope="module")
def report_id(server_url: str, playwright: Any) -> int:
    """The recorded report, uploaded and read."""
    return read_once(playwright, server_url, REPORT)


def test_filters_act_on_dots_rows_and_address(watched: Any, server_url: str, report_id: int) -> None:
    page = watched
    page.goto(f"{server_url}/profiles/{report_id}/roofline/")
    poll(page, f"window.Bokeh && {DOTS}.length === 4 && document.querySelectorAll('#roofline-rows .tabulator-row').length === 9")
    page.fill("#f-q", "nvjet")
    poll(page, f"{DOTS}.reduce((n, s) => n + s.data.x.length, 0) === 2")
    poll(page, "document.querySelectorAll('#roofline-rows .tabulator-row').length === 2")
    reads(page.locator("#roofline-count").first, "2 of 9 dots")
    eventually(lambda: "q=nvjet" in page.url)
    page.reload()
    poll(page, "document.getElementById('roofline-count').textContent === '2 of 9 dots'")


def test_a_tapped_dot_opens_its_kernel(watched: Any, server_url: str, report_id: int) -> None:
    page = watched
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{server_url}/profiles/{report_id}/roofline/")
    poll(page, "window.Bokeh && document.querySelector('#roofline')?.dataset.state === 'ready'")
    poll(page, "document.querySelectorAll('#roofline-rows .tabulator-row').length === 9")
    page.wait_for_timeout(300)
    x, y, address = page.evaluate(AT)
    page.mouse.click(x, y)
    page.wait_for_url(f"{server_url}{address}")
    shows(page.locator(".answer").first, "bound")


def test_every_metric_of_a_launch_is_there_to_search(watched: Any, server_url: str, report_id: int) -> None:
    page = watched
    page.goto(f"{server_url}/profiles/{report_id}/roofline/")
    poll(page, "document.querySelectorAll('#roofline-rows .tabulator-row').length === 9")      # the grid replaces the table
    follow(page, "#roofline-rows .tabulator-row a >> text=nvjet_sm90_tst_256x128", "**/kernels/*/")
    page.click(".kernel-tabs a >> text=Raw")
    page.locator("#metrics").scroll_into_view_if_needed()
    poll(page, "document.querySelectorAll('#metrics-grid .tabulator-row').length > 5")
    page.fill("#metrics-grid input[type=search]", "gpu__time_duration.sum")
    poll(page, "document.querySelectorAll('#metrics-grid .tabulator-row').length === 1")
    row = page.locator("#metrics-grid .tabulator-row").first
    shows(row, "175 µs")
    hover = row.locator("[tabulator-field=metric] span").first.get_attribute("title") or ""
    assert "Time from the start of the launch to its end" in hover and "Unit: ns." in hover and "Less is better" in hover
    names = page.locator("#details dt").evaluate_all("each => each.map(name => name.title)")
    assert len(names) > 80 and all("Unit: " in name and len(name.splitlines()) == 3 for name in names)
    page.set_viewport_size({"width": 1000, "height": 900})
    fits(page)


def test_the_calculator_answers_while_one_types_and_keeps_the_address(watched: Any, server_url: str, report_id: int) -> None:
    page = watched
    page.set_viewport_size({"width": 1000, "height": 900})
    page.goto(f"{server_url}/profiles/{report_id}/")
    poll(page, "document.querySelector('a[href*=\"/kernels/\"]') !== null")
    follow(page, "a[href*='/kernels/'] >> text=nvjet_sm90_tst_256x128", "**/kernels/*/")
    summary = page.url
    page.goto(f"{summary}#memory")                        # an address of the page that had no tabs
    page.reload()
    page.wait_for_url("**/memory/#memory")
    poll(page, "document.querySelectorAll('.memory-chart .box').length >= 8")
    fits(page)
    page.goto(summary)
    page.click("text=Occupancy: what if?")
    page.wait_for_url("**/occupancy/?kernel=*")
    shows(page.locator(".answer").first, "holds 1 block")
    page.fill("#o-registers", "80")
    page.fill("#o-smem", "115712")
    poll(page, "document.querySelector('.answer').textContent.includes('holds 2 blocks')")
    eventually(lambda: "registers=80" in page.url)
    expect(page.locator("svg.curve")).to_have_count(3)
    page.fill("#o-threads", "2000")
    poll(page, "document.querySelector('.field-error')?.textContent.includes('1 to 1,024')")
    page.fill("#o-threads", "128")
    poll(page, "!document.querySelector('.field-error') && document.querySelector('.answer').textContent.startsWith('128 threads')")
    page.reload()
    expect(page.locator("#o-threads").first).to_have_value("128")
    shows(page.locator(".answer").first, "128 threads")
