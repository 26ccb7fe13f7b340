"""A suite in a real browser: made on a page, warned about before anything is run, measured live, and what its runs are worth."""

from __future__ import annotations

from typing import Any

from tests.browser.visit import poll

KERNELS = """\
softmax R=8192 C=4096 fp16 {STEPS=3 PER_SM=32 num_warps=8}
layernorm R=8192 C=4096 fp16 {BLOCK=1024 num_warps=4 num_stages=2}"""


def test_from_a_new_suite_to_what_its_verdicts_are_worth(watched: Any, server_url: str) -> None:
    page = watched
    page.goto(f"{server_url}/suites/")
    page.get_by_role("link", name="New suite").click()
    page.get_by_label("Name").fill("browser-suite")
    page.get_by_label("Kernels, one a line").fill(KERNELS)
    page.get_by_label("Where", exact=True).fill("replay:timing_runs")
    page.get_by_label("Fresh runs of a build").fill("1")
    poll(page, "document.getElementById('plan-says').textContent.includes('too few')")
    page.get_by_label("Fresh runs of a build").fill("5")
    poll(page, "document.getElementById('plan-says').textContent.includes('are enough')")
    page.get_by_label("The kernels that a capture target launches").check()
    assert page.get_by_label("Kernels, one a line").is_hidden() and page.get_by_label("Capture target", exact=True).is_visible()
    page.get_by_label("Operators at shapes").check()
    page.locator("#save").click()
    page.locator(".notice", has_text="browser-suite: made; 2 kernels added").wait_for()

    page.get_by_label("Build", exact=True).first.fill("browser-1")
    page.get_by_label("Fresh runs of each").fill("6")
    page.locator("#measure-now").click()
    page.locator(".notice", has_text="6 fresh runs of browser-1").wait_for()
    poll(page, "document.getElementById('suite-jobs').textContent.includes('12 of 12 kernel runs')", within_ms=60_000)
    poll(page, "document.querySelectorAll('#suite-runs .run-dot.newest').length === 12")
    assert page.locator(".answer").inner_text().startswith("browser-suite watches 2 kernels: build browser-1 was measured last")
    assert "recorded on NVIDIA H200" in page.locator(".facts .recorded").or_(page.locator("#suite-jobs .recorded")).first.evaluate(
        "node => node.title || node.textContent")

    page.get_by_role("link", name="softmax R=8192 C=4096 fp16").last.click()
    page.get_by_role("heading", name="Fresh runs by build").wait_for()
    assert page.locator("tbody tr").count() == 6
    page.go_back()
    page.get_by_role("link", name="Calibration").click()
    page.locator(".tabulator-row").first.wait_for()
    assert "slowdown seen" in page.locator(".tabulator-header").inner_text()
    rows = page.locator(".tabulator-row").all_inner_texts()
    assert rows and all(row.count("%") == 5 for row in rows), "each kernel: how its runs vary, its error rates, what it would show"
