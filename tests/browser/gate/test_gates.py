"""A gate in a real browser: asked for on the page, watched live, its evidence walked through, the loop closed with the keyboard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import WORKED_MS, eventually, fits, poll, shows
from tests.public_timing import samples
from tests.tuner.gate.test_gates import H200, records

pytestmark = pytest.mark.browser
SUITE = "browser-gates"
SOFTMAX = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}             # 38.5 µs
SLOWER = {"STEPS": 3, "PER_SM": 8, "num_warps": 8}               # 41.2 µs: recorded, really slower code
LAYERNORM = {"BLOCK": 1024, "num_warps": 4, "num_stages": 2}
KEY = "softmax R=8192 C=4096 fp16"
DEFINITION = {"name": SUITE, "device": "replay:timing_runs", "runs": 5, "baseline_runs": 10, "kernels": [
    {"op": "softmax", "shape": {"R": 8192, "C": 4096}, "dtype": "fp16", "config": SOFTMAX},
    {"op": "layernorm", "shape": {"R": 8192, "C": 4096}, "dtype": "fp16", "config": LAYERNORM}]}


@pytest.fixture
def send(playwright: Any, server_url: str) -> Iterator[Any]:
    """To the API with the cookies that a browser would have."""
    client = playwright.request.new_context(base_url=server_url)
    client.get("/gates/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")

    def call(method: str, path: str, data: Any = None) -> Any:
        answer = client.fetch(path, method=method, headers={"X-CSRFToken": token, "Referer": server_url}, data=data)
        assert answer.ok, answer.text()
        return answer.json()

    yield call
    client.dispose()


def decided(send: Any, pk: int) -> dict[str, Any]:
    """The gate once it has ended; its API waits so long."""
    for _ in range(6):
        gate: dict[str, Any] = send("GET", f"/api/gates/{pk}/?wait=20")
        if gate["status"] in ("done", "failed", "stopped"):
            return gate
    raise TimeoutError(gate)


def test_a_slower_build_is_caught_and_its_evidence_leads_on(watched: Any, server_url: str, send: Any) -> None:
    page = watched
    send("PUT", f"/api/suites/{SUITE}/", DEFINITION)
    # the first build has nothing to be compared with; it becomes the baseline, and the page says so live
    page.goto(f"{server_url}/gates/new/?suite={SUITE}")
    expect(page.get_by_label("Suite", exact=True)).to_have_value(SUITE)
    shows(page.locator("tr", has_text=SUITE), "yes")
    page.get_by_label("Build", exact=True).fill("first-build")
    page.get_by_label("Fresh runs").fill("10")
    page.keyboard.press("Enter")
    page.wait_for_url("**/gates/*/")
    first = int(page.url.rstrip("/").rsplit("/", 1)[1])
    page.locator("[data-state-of-gate]", has_text="NO DATA").wait_for(timeout=WORKED_MS)        # the page is made anew when it ends
    assert decided(send, first)["exit_code"] == 0, "a first build is no failure"

    # CI asks for the next one, which is slower: measured again in turn, then told
    pk = send("POST", "/api/gates/", {
        "suite": SUITE, "build": "second-build", "parent": "first-build", "configs": {KEY: SLOWER}})["id"]
    page.goto(f"{server_url}/gates/{pk}/")
    page.locator(".answer", has_text="is ▲ slower").wait_for(timeout=WORKED_MS)
    gate = decided(send, pk)
    assert (gate["verdict"], gate["exit_code"], gate["rounds"]) == ("SLOWER", 1, 2)
    worst = gate["kernels"][0]
    assert worst["key"] == KEY and worst["ratio_p50"] > 1.05
    picture = page.locator("svg.intervals")
    eventually(lambda: KEY in picture.get_attribute("aria-label"))
    expect(picture.locator(".iv-row")).to_have_count(2)
    shows(page.locator(".answer"), f"+{(worst['ratio_p50'] - 1) * 100:.1f} %")
    # the dot of the slower kernel lies right of the target, the other between the floors
    across = picture.evaluate("""svg => Object.fromEntries(['.v-slower .iv-dot', '.v-pass .iv-dot', '.iv-target'].map(
        what => [what, svg.querySelector(what).getBoundingClientRect().x]))""")
    assert across[".v-slower .iv-dot"] > across[".iv-target"] > across[".v-pass .iv-dot"]

    # beside the plot stands the evidence of the worst; pointing at another row shows that row's, and the address says which
    shows(page.locator("#evidence"), KEY)
    picture.locator(".iv-row").nth(1).hover()
    other = picture.locator(".iv-row").nth(1).get_attribute("href").rstrip("/").rsplit("/", 1)[1]
    expect(page.locator("#evidence")).to_have_attribute("data-kernel", other)
    assert f"at={other}" in page.url
    # on a phone the whole axis is in view, each row's name above it
    page.set_viewport_size({"width": 390, "height": 844})
    fits(page)
    seen = picture.evaluate("""svg => [...svg.querySelectorAll('.iv-tick, .iv-dot, .iv-name, .iv-number')].map(
        each => each.getBoundingClientRect()).every(box => box.left >= -6 && box.right <= innerWidth + 6)""")
    assert seen
    page.set_viewport_size({"width": 1440, "height": 900})

    # by keyboard from the picture to the evidence, from a dot to its run
    picture.locator(".iv-row").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/kernels/*/")
    expect(page.locator("svg.strips .sp-candidate .sp-dot")).to_have_count(len(
        page.locator("tbody tr[id^=run-]", has_text="second-build").all()))
    dot = page.locator("svg.strips .sp-candidate a").first
    row = dot.get_attribute("href")
    dot.focus()
    page.keyboard.press("Enter")
    poll(page, f"location.hash === '{row}'")
    expect(page.locator(row)).to_be_visible()
    poll(page, "document.querySelectorAll('.figure[data-state=ready]').length === 2")
    for width in (1000, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        fits(page)

    # the closed loop: a tune job that is filled in, and the home page
    page.get_by_role("link", name="Tune this kernel").click()
    page.wait_for_url("**/tune/new/?*")
    eventually(lambda: sorted(page.locator("[name=shape]").input_value().split()) == ["C=4096", "R=8192"])
    page.goto(f"{server_url}/")
    slower = page.locator("#live-slower li", has_text=KEY)
    shows(slower, "▲")
    shows(slower, "second-build")
    slower.get_by_role("link", name="evidence").click()
    page.wait_for_url(f"**/gates/{pk}/kernels/{worst['id']}/")
    # somebody looks at it: the note stands with the regression
    page.locator("#decide summary").click()
    page.get_by_label("why").fill("looking at PER_SM")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_role("link", name="regression acknowledged").wait_for()


def looked_at(page: Any, name: str) -> None:
    """In light and dark, wide and narrow; a folder in RIDGEPOINT_SHOTS keeps what was seen."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (1440, 1000):
            page.set_viewport_size({"width": width, "height": 1000})
            fits(page)
            if folder := os.environ.get("RIDGEPOINT_SHOTS"):
                page.screenshot(path=str(Path(folder) / f"{name}-{scheme}-{width}.png"), full_page=True)


def test_a_weaker_retry_stays_red_and_says_what_makes_it_green(watched: Any, server_url: str, send: Any) -> None:
    send("PUT", "/api/suites/fooled/", {"kind": "uploaded"})

    def ask(build: str, **given: Any) -> Any:
        return send("POST", "/api/gates/", {"suite": "fooled", "build": build, "environment": H200, **given})
    ask("fooled-1", at="2026-11-01T00:00:00Z", runs=records(range(1, 11)))
    first = ask("fooled-2", at="2026-11-02T00:00:00Z", runs=records(range(11, 16), {"softmax": 1.08}))
    assert (first["verdict"], first["exit_code"]) == ("SLOWER", 1)
    ask("fooled-slow", at="2026-11-03T00:00:00Z", runs=records(range(15, 25), {"softmax": 1.081}))
    retry = ask("fooled-2", against="fooled-slow")
    assert (retry["verdict"], retry["exit_code"]) == ("SLOWER", 1)
    watched.goto(f"{server_url}/gates/{retry['id']}/")
    answer = watched.locator(".answer")
    expect(answer).to_contain_text("stays ▲ slower")
    expect(answer).to_contain_text("against fooled-slow instead of fooled-1")
    watched.get_by_text("What makes it green").click()
    expect(watched.get_by_text("Green again by")).to_be_visible()
    looked_at(watched, "retry")


def test_a_drift_has_its_page(watched: Any, server_url: str, send: Any) -> None:
    send("PUT", "/api/suites/drifting/", {"kind": "uploaded"})
    times = samples()["CUDA_CUDA-12.3"]
    for n in range(42):
        runs = [{"run": run, "op": "gemm", "shape": {"M": 4096}, "us": [us * 1.001 ** n for us in times[5 * n + run].tolist()]}
                for run in range(5)]
        send("POST", "/api/runs/", {"suite": "drifting", "build": f"drift-{n:02}", "gpu": "NVIDIA RTX A4000", "runs": runs})
    for _ in range(60):
        found = [row for row in send("GET", "/api/regressions/?suite=drifting")["results"] if row["kind"] == "drift"]
        if found:
            break
        watched.wait_for_timeout(1000)
    watched.goto(f"{server_url}{found[0]['links']['page']}")
    expect(watched.locator(".answer")).to_contain_text("drifted")
    expect(watched.locator(".answer")).to_contain_text("drift-00")
    looked_at(watched, "drift")
