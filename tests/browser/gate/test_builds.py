"""Builds come in over the API, a worker finds where a kernel got slower, and a person finds and answers it in a real browser."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import eventually, fits, poll, reads, shows
from tests.public_timing import samples

GPU, LABEL = "NVIDIA RTX A4000", "recorded on NVIDIA RTX A4000, clock locked"
BUILDS, STEP_AT, STEP, RUNS = 12, 7, 1.08, 5
FIRST = datetime(2026, 10, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def series(playwright: Any, server_url: str) -> str:
    """Twelve builds of five recorded runs of one and the same code; from the eighth on one of two kernels has 8 % put on."""
    client = playwright.request.new_context(base_url=server_url)
    client.get("/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")
    headers = {"X-CSRFToken": token, "Referer": server_url}
    made = client.put("/api/suites/builds-browser/", headers={**headers, "Content-Type": "application/toml"},
                      data=b'name = "builds-browser"\nkind = "uploaded"\n')
    assert made.ok, made.text()
    files = sorted(samples().items())[:2]
    for at in range(BUILDS):
        told = client.post("/api/builds/", headers=headers, data={
            "name": f"br{at:02d}", "branch": "main", "title": f"Change {at}", "at": (FIRST + timedelta(days=at)).isoformat()})
        assert told.status == 201, told.text()
        runs = [{"run": f"{at}-{number}", "op": f"gemm {kernel}", "shape": {"M": 4096},
                 "us": [float(ns) / 1000 * (STEP if kernel == 0 and at >= STEP_AT else 1.0) for ns in rows[at * RUNS + number]]}
                for kernel, (_, rows) in enumerate(files) for number in range(RUNS)]
        stored = client.post("/api/runs/", headers=headers, data={
            "suite": "builds-browser", "build": f"br{at:02d}", "gpu": GPU, "toolkit": "cuda 11.2", "recorded": LABEL, "runs": runs})
        assert stored.status == 201, stored.text()
    for _ in range(180):            # an ingest worker works it out when it has nothing better to do
        found = client.get("/api/regressions/?suite=builds-browser").json()["results"]
        if found and found[0]["build"] == f"br{STEP_AT:02d}":
            break
        time.sleep(0.5)
    assert found[0]["build"] == f"br{STEP_AT:02d}", found
    client.dispose()
    return server_url


def test_from_the_answer_to_the_build_and_back(watched: Any, series: str) -> None:
    """At 1000 px in the dark: the answer, the picture with its words, the other kernel by keyboard, the build behind it."""
    page = watched
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 1000, "height": 800})
    page.goto(f"{series}/builds/?suite=builds-browser")
    answer = page.inner_text("p.answer")
    assert re.search(r"Yes: gemm 0 is [78]\.\d % slower \([\d.]+ to [\d.]+ %\) since build br07; looked at 2 kernels", answer)
    reads(page.locator(".facts .recorded").first, LABEL)
    poll(page, "document.querySelector('#series [data-figure]').dataset.state === 'ready'")
    eventually(lambda: "% slower with build br07" in page.locator("#series [role=img]").get_attribute("aria-label"))
    shows(page.locator("#bisect").first, "Found: br07 is slower, and br06, the build before it, is not.")
    expect(page.locator("#kernels .small-series .at-slower")).to_have_count(1)
    fits(page)

    page.locator("#of-kernel").focus()                               # by keyboard: the choice shows at once
    page.locator("#of-kernel").select_option(label=page.locator("#of-kernel option").nth(1).inner_text())
    page.wait_for_url(re.compile(r"kernel=gemm"))
    shows(page.locator("#series").first, "No change of level")
    page.go_back()
    page.locator("#series tbody").get_by_role("link", name="both builds").click()
    page.wait_for_url(re.compile(r"/builds/br07/\?against=br06"))
    shows(page.locator("#kernels tbody tr").first, "gemm 0")
    shows(page.locator("#regressions").first, "New")
    page.locator("#against").select_option("baseline")
    page.wait_for_url(re.compile("against=baseline"))
    reads(page.locator("#kernels tbody tr").first.locator(".chip"), "▲ SLOWER")


def test_a_regression_is_answered_and_the_page_of_builds_follows(watched: Any, series: str) -> None:
    page = watched
    page.goto(f"{series}/regressions/?suite=builds-browser")
    shows(page.locator("p.answer").first, "1 open")
    page.get_by_role("link", name="gemm 0").first.click()
    page.wait_for_url(re.compile(r"/regressions/\d+/$"))
    page.get_by_label("Note").fill("<b>more accurate</b>")
    page.get_by_role("button", name="Intended").press("Enter")
    poll(page, "document.querySelector('p.answer').innerText.includes('intended')")
    shows(page.locator(".history").first, "<b>more accurate</b>")
    page.get_by_role("link", name="Trend", exact=True).click()
    page.wait_for_url(re.compile("/builds/"))
    shows(page.locator("p.answer").first, "No regression is open")
    poll(page, "document.querySelector('#series [data-figure]').dataset.state === 'ready'")


def test_runs_that_arrive_show_without_a_reload(watched: Any, series: str, playwright: Any) -> None:
    """Another build is sent while the page is open: the answer, the figure and the tables hold it, and the page is the same one."""
    page = watched
    page.goto(f"{series}/builds/?suite=builds-browser")
    poll(page, "document.querySelector('#series [data-figure]').dataset.state === 'ready'")
    shows(page.locator("p.answer").first, "over 12 builds")
    page.evaluate("document.body.dataset.opened = 'once'")
    poll(page, "document.getElementById('live-state').dataset.state === 'live'")
    client = playwright.request.new_context(base_url=series)
    client.get("/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")
    (_, rows), *_ = sorted(samples().items())
    runs = [{"run": f"late-{number}", "op": "gemm 0", "shape": {"M": 4096},
             "us": [float(ns) / 1000 * STEP for ns in rows[90 + number]]} for number in range(RUNS)]
    stored = client.post("/api/runs/", headers={"X-CSRFToken": token, "Referer": series}, data={
        "suite": "builds-browser", "build": "late", "gpu": GPU, "toolkit": "cuda 11.2", "recorded": LABEL, "runs": runs})
    assert stored.status == 201, stored.text()
    poll(page, "document.querySelector('p.answer').innerText.includes('over 13 builds')")
    poll(page, "document.querySelector('#series [role=img]').getAttribute('aria-label').includes('to late')")
    poll(page, "document.querySelector('#series [data-figure]').dataset.state === 'ready'")
    expect(page.locator("#heat thead", has_text="late")).to_have_count(1)
    eventually(lambda: page.evaluate("document.body.dataset.opened") == "once")
    client.dispose()
