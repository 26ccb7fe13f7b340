"""A suite in a real browser: made on a page, warned about before anything is run, measured live, and what its runs are worth."""

from __future__ import annotations

import io
import tarfile
from typing import Any

from playwright.sync_api import expect

from tests.browser.visit import WORKED_MS, eventually, poll, shows

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
    expect(page.get_by_label("Kernels, one a line")).to_be_hidden()
    expect(page.get_by_label("Capture target", exact=True)).to_be_visible()
    page.get_by_label("Operators at shapes").check()
    page.locator("#save").click()
    page.locator(".notice", has_text="browser-suite: made; 2 kernels added").wait_for()

    page.get_by_label("Build", exact=True).first.fill("browser-1")
    page.get_by_label("Fresh runs", exact=True).fill("6")
    page.locator("#measure-now").click()
    page.locator(".notice", has_text="6 fresh runs of browser-1").wait_for()
    poll(page, "document.getElementById('suite-jobs').textContent.includes('12 of 12 kernel runs')", within_ms=WORKED_MS)
    poll(page, "document.querySelectorAll('#suite-runs .run-dot.newest').length === 12")
    shows(page.locator(".answer"), "2 kernels · newest build browser-1")
    recorded = page.locator(".facts .recorded").or_(page.locator("#suite-jobs .recorded")).first
    eventually(lambda: "recorded on NVIDIA H200" in recorded.evaluate("node => node.title || node.textContent"))

    page.get_by_role("link", name="softmax R=8192 C=4096 fp16").last.click()
    page.get_by_role("heading", name="Runs by build").wait_for()
    expect(page.locator("tbody tr")).to_have_count(6)
    page.go_back()
    page.get_by_role("link", name="Calibration").click()
    page.locator("table[data-enhanced] tbody tr").first.wait_for()
    shows(page.locator("table[data-enhanced] thead"), "detectable")
    rows = page.locator("table[data-enhanced] tbody tr").all_inner_texts()
    assert rows and all(row.count("%") == 5 for row in rows)


def test_the_source_of_builds_is_allowed_and_tried(watched: Any, server_url: str) -> None:
    page = watched
    page.goto(f"{server_url}/suites/new/")
    page.get_by_label("Name").fill("browser-code")
    page.get_by_label("Kernels, one a line").fill(KERNELS)
    page.get_by_label("Where", exact=True).fill("replay:timing_runs")
    page.locator("#save").click()
    page.get_by_role("link", name="Source of builds").click()
    page.get_by_label("Archives").check()
    page.get_by_role("button", name="Allow").click()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("kernels.py"), io.BytesIO())
    page.locator("#archive-build").fill("v1")
    page.set_input_files("#archive-file", {"name": "v1.tar.gz", "mimeType": "application/gzip", "buffer": packed.getvalue()})
    page.get_by_role("button", name="Upload").click()
    for build, words in (("v1", "1 file"), ("v2", "no archive of build v2 was uploaded")):      # a worker says so, the page follows
        page.locator("#try-build").fill(build)
        page.get_by_role("button", name="Try", exact=True).click()
        poll(page, f"document.querySelector('#live-tries li').textContent.includes('{words}')", within_ms=WORKED_MS)
