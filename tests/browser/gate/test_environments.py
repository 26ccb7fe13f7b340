"""Runs of two toolkits come in over the API, and the page says in a real browser which of build and toolkit did it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import fits, poll, reads, shows
from tests.public_timing import samples

A4000, LABEL = "NVIDIA RTX A4000", "recorded on NVIDIA RTX A4000, clock locked"


@pytest.fixture(scope="module")
def gemm(playwright: Any, server_url: str) -> str:
    """A suite of CI's own runs: nvcc and CuPy under CUDA 11.2, both and NVRTC under 12.3, ten fresh runs each."""
    client = playwright.request.new_context(base_url=server_url)
    client.get("/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")
    headers = {"X-CSRFToken": token, "Referer": server_url}
    made = client.put("/api/suites/gemm/", headers={**headers, "Content-Type": "application/toml"},
                      data=b'name = "gemm"\nkind = "uploaded"\n')
    assert made.ok, made.text()
    for name, rows in sorted(samples().items(), key=lambda item: item[0][-4:]):
        front, cuda = name.split("_CUDA-")
        stored = client.post("/api/runs/", headers=headers, data={
            "suite": "gemm", "build": "paper", "gpu": A4000, "toolkit": f"cuda {cuda}", "recorded": LABEL, "runs": [
                {"run": f"{cuda} {number}", "op": f"gemm {front}", "shape": {"M": 4096, "N": 4096, "K": 4096},
                 "us": [float(us) for us in row]} for number, row in enumerate(rows[:10])]})
        assert stored.status == 201, stored.text()
    client.dispose()
    return server_url


def test_the_toolkit_is_named_and_the_build_is_not(page: Any, gemm: str) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.goto(f"{gemm}/environments/?suite=gemm")
    shows(page.locator("p.answer").first, "Build paper from cuda 11.2 to cuda 12.3: 1 of 2 kernels changed, 1 by the environment.")
    reads(page.locator(".recorded").first, LABEL)
    matrix = page.locator("#matrix tbody tr")
    expect(matrix.locator("th")).to_have_text([f"{A4000}, cuda 11.2", f"{A4000}, cuda 12.3"], use_inner_text=True)
    shows(matrix.nth(1), "−1.7\u00a0%")
    effect = page.locator("#effects tbody tr")
    expect(effect).to_have_count(1)
    shows(effect, "−1.71 %")
    shows(effect, "−2.76 %")
    assert poll(page, "document.querySelectorAll('svg.intervals circle.iv-dot').length === 1")
    assert poll(page, "document.body.innerText.includes('The build is the same')")

    page.set_viewport_size({"width": 1000, "height": 800})          # nothing makes the page itself scroll sideways
    fits(page)
    page.focus("#f-kernel")                                          # by keyboard: one kernel
    page.keyboard.type("gemm CUDA")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Show").press("Enter")
    page.wait_for_url("**kernel=gemm+CUDA**")
    shows(page.locator("p.answer").first, "of it")
    shows(page.locator("p.answer").first, "−2.76 %")
    page.get_by_role("button", name="Auto-revalidate").click()
    assert poll(page, "document.body.innerText.includes('Auto-revalidate is on')")
    page.get_by_role("button", name="Switch off").click()
    assert poll(page, "document.body.innerText.includes('Auto-revalidate is off')")
    assert said == []
