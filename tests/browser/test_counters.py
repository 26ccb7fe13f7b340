"""The roofline and the kernel page in a real browser over a real report: filters, a tapped dot, every metric."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

REPORT = Path(__file__).parents[1] / "data" / "h200" / "full.ncu-rep.gz"
DOTS = "Bokeh.documents.flatMap(d => [0, 1, 2].map(i => d.get_model_by_name('points-' + i))).filter(Boolean)"
# where the first dot of a group stands on the page
AT = """() => {
  const view = [...Bokeh.index.roots ?? Object.values(Bokeh.index)][0], source = Bokeh.documents[0].get_model_by_name('points-0');
  const box = view.el.getBoundingClientRect(), {x_scale, y_scale} = view.frame;
  return [box.left + x_scale.compute(source.data.x[0]), box.top + y_scale.compute(source.data.y[0]), source.data.url[0]];
}"""


def poll(page: Any, script: str, within_ms: int = 20_000) -> Any:
    """`page.wait_for_function` needs eval, which the CSP forbids."""
    for _ in range(within_ms // 50):
        if found := page.evaluate(script):
            return found
        page.wait_for_timeout(50)
    raise TimeoutError(script)


@pytest.fixture(scope="module")
def report_id(server_url: str, playwright: Any) -> int:
    """The recorded report, uploaded and read."""
    client = playwright.request.new_context(base_url=server_url)
    client.get("/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")
    answer = client.post("/api/profiles/", headers={"X-CSRFToken": token, "Referer": server_url}, multipart={
        "file": {"name": REPORT.name, "mimeType": "application/gzip", "buffer": REPORT.read_bytes()}, "name": "eleven kernels"})
    assert answer.status == 201, answer.text()
    pk = answer.json()["id"]
    for _ in range(300):
        profile = client.get(f"/api/profiles/{pk}/").json()
        if profile["status"] in ("ready", "failed"):
            break
        time.sleep(0.2)
    assert profile["status"] == "ready", profile["error"]
    client.dispose()
    return int(pk)


@pytest.fixture
def quiet_page(page: Any) -> Any:
    """Console errors (a CSP violation is one) fail the test."""
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    assert not wrong


def test_filters_act_on_dots_rows_and_address(quiet_page: Any, server_url: str, report_id: int) -> None:
    page = quiet_page
    page.goto(f"{server_url}/profiles/{report_id}/roofline/")
    poll(page, f"window.Bokeh && {DOTS}.length === 3 && document.querySelectorAll('#roofline-rows .tabulator-row').length === 10")
    page.fill("#f-q", "nvjet")
    poll(page, f"{DOTS}.reduce((n, s) => n + s.data.x.length, 0) === 2")
    poll(page, "document.querySelectorAll('#roofline-rows .tabulator-row').length === 2")
    assert page.inner_text("#roofline-count") == "2 of 10 dots"
    assert "q=nvjet" in page.url
    page.reload()
    poll(page, "document.getElementById('roofline-count').textContent === '2 of 10 dots'")


def test_a_tapped_dot_opens_its_kernel(quiet_page: Any, server_url: str, report_id: int) -> None:
    page = quiet_page
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{server_url}/profiles/{report_id}/roofline/")
    poll(page, "window.Bokeh && document.querySelector('#roofline')?.dataset.state === 'ready'")
    poll(page, "document.querySelectorAll('#roofline-rows .tabulator-row').length === 10")
    page.wait_for_timeout(300)
    x, y, address = page.evaluate(AT)
    page.mouse.click(x, y)
    page.wait_for_url(f"{server_url}{address}")
    assert "bound" in page.inner_text(".answer")


def test_every_metric_of_a_launch_is_there_to_search(quiet_page: Any, server_url: str, report_id: int) -> None:
    page = quiet_page
    page.goto(f"{server_url}/profiles/{report_id}/roofline/")
    poll(page, "document.querySelectorAll('#roofline-rows .tabulator-row').length === 10")      # the grid replaces the table
    page.click("#roofline-rows .tabulator-row a >> text=nvjet_sm90_tst_256x128")
    page.wait_for_url("**/kernels/*/")
    page.locator("#metrics").scroll_into_view_if_needed()
    poll(page, "document.querySelectorAll('#metrics-grid .tabulator-row').length > 5")
    page.fill("#metrics-grid input[type=search]", "gpu__time_duration.sum")
    poll(page, "document.querySelectorAll('#metrics-grid .tabulator-row').length === 1")
    assert "175 µs" in page.inner_text("#metrics-grid .tabulator-row")
