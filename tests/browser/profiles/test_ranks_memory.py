"""Communication and memory in a real browser: bars that are the numbers, figures within the CSP, links into the timeline."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, fits, poll, shows, uploaded

RANKS = H200.parent / "ranks"


@pytest.fixture(scope="module")
def straggling(server_url: str, playwright: Any, tmp_path_factory: pytest.TempPathFactory) -> int:
    job: Path = tmp_path_factory.mktemp("job") / "job.zip"
    with zipfile.ZipFile(job, "w") as archive:
        for rank in (0, 1):
            archive.write(RANKS / f"straggler_host_rank{rank}.json.gz", f"rank{rank}.json.gz")
    return uploaded(playwright, server_url, job, name="straggling")


@pytest.fixture(scope="module")
def training(server_url: str, playwright: Any) -> int:
    return uploaded(playwright, server_url, RANKS / "memory_train.json.gz", name="training")


def fills_its_bar(page: Any, selector: str, share: float = 1.0) -> None:
    widths = page.evaluate(f"[...document.querySelectorAll('{selector} .bar')].map((bar) => bar.getBoundingClientRect().width)")
    whole = page.evaluate(f"document.querySelector('{selector} .bars').clientWidth")
    assert abs(sum(widths) - share * whole) < 3 + 2 * len(widths)           # a bar is at least 1 px wide


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.deep_only)])
def test_from_the_late_rank_to_its_longest_wait(watched: Any, server_url: str, straggling: int, theme: str) -> None:
    page = watched
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 1000, "height": 900})
    page.goto(f"{server_url}/profiles/{straggling}/analysis/communication/")
    answer = page.locator(".answer").inner_text()
    assert answer.startswith("Rank 1 comes last in 4 of 4 collectives") and "load the batch" in answer
    shows(page.locator("#findings"), "keeps the other ranks waiting")
    for figure in ("waits-figure", "bandwidth-figure"):
        poll(page, f"document.querySelector('#{figure} canvas, #{figure} .bk-Figure') !== null")
    fills_its_bar(page, "#causes .rank-bar:first-of-type")
    eventually(lambda: "its host launched late" in page.locator("#causes .bars").first.get_attribute("aria-label"))
    expect(page.locator("#matrix td.heat-cell")).to_have_count(1)
    fits(page)
    link = page.get_by_role("link", name="▸ longest").first
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/timeline/?w=*")
    start, end = page.url.rsplit("w=", 1)[1].split("&")[0].split("-")
    assert 4_400_000 < int(end) - int(start) < 4_700_000                    # it slept 4 ms, then transferred for 0.13 ms


def test_from_the_peak_to_the_timeline(watched: Any, server_url: str, training: int) -> None:
    page = watched
    page.goto(f"{server_url}/profiles/{training}/analysis/memory/")
    eventually(lambda: page.locator(".answer").inner_text().startswith("GPU 0 has 941 MB allocated at the peak"))
    poll(page, "document.querySelector('#figure-1 canvas, #figure-1 .bk-Figure') !== null")
    fills_its_bar(page, "#peaks .rank-bar")
    eventually(lambda: "activations 42.8" in page.locator("#peaks .bars").get_attribute("aria-label"))
    page.keyboard.press("?")
    expect(page.locator(".keys-dialog")).to_contain_text("How a category is told")
    expect(page.get_by_text("kept beyond it", exact=False).first).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="▸ peak").first.click()
    page.wait_for_url("**/timeline/?w=*")
    poll(page, "document.querySelector('#tl-canvas, .tl-body canvas, canvas') !== null")
