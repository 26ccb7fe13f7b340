"""A retry that was asked in a weaker way, and a drift, on their pages in a real browser: uploads against a running product."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.test_gates import send
from tests.browser.visit import fits
from tests.public_timing import samples
from tests.tuner.gate.test_gates import H200, records

__all__ = ["send"]
pytestmark = pytest.mark.browser


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
