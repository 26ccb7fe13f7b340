"""The upload page in a real browser: several files at once, live ingest, errors per file, drag and drop, remembered fields."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, fits, poll, shows

DROP = """(name) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array([1, 2, 3, 4])], name));
  const zone = document.querySelector("[data-dropzone]");
  for (const type of ["dragenter", "dragover", "drop"]) {
    zone.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }
}"""


def rows(page: Any) -> list[str]:
    return [" ".join(text.split()) for text in page.locator("[data-files] > li").all_inner_texts()]


def settled(page: Any, count: int) -> list[str]:
    poll(page, f"""[...document.querySelectorAll("[data-files] > li")].filter(
        (row) => /ready|failed/.test(row.textContent)).length === {count}""", within_ms=90_000)
    return rows(page)


def test_several_files_are_uploaded_read_and_opened(watched: Any, tmp_path: Path) -> None:
    page = watched
    broken = tmp_path / "broken.json"
    broken.write_bytes(b"this is no trace")
    cut = tmp_path / "cut.json"
    cut.write_bytes(gzip.decompress((H200 / "kineto_layer.json.gz").read_bytes())[:200_000])
    page.goto("/profiles/upload/")
    page.fill("#u-build", "4f2c1e")
    page.fill("#u-tags", "ci nightly")
    page.set_input_files("#file", [H200 / "kineto_train.json.gz", broken, cut])
    page.click("[data-submit]")
    ready, failed, lossy = settled(page, 3)
    assert "✓ ready 948 launches, 10.9 ms of kernel time Open" in ready
    assert "✕ failed" in failed and "line 1" in failed and "Formats read" in failed
    assert "ready" in lossy
    page.reload()
    expect(page.locator("#u-build").first).to_have_value("4f2c1e")
    expect(page.locator("#u-tags").first).to_have_value("ci nightly")
    page.goto("/profiles/?build=4f2c1e")
    page.click("text=kineto_train.json.gz")
    shows(page.locator(".answer").first, "The host launches work too slowly, 2.38 ms a step, most of it in aten::copy_: 26 %")
    page.goto("/profiles/?build=4f2c1e&status=failed")
    page.click("text=broken.json")
    shows(page.locator("main").first, "what to do")


def test_ranks_of_one_job_become_one_profile_on_one_clock(watched: Any) -> None:
    page = watched
    page.goto("/profiles/upload/")
    expect(page.locator("[data-together]")).to_be_hidden()
    page.set_input_files("#file", [H200 / "ddp_even_rank0.json.gz", H200 / "ddp_even_rank1.json.gz"])
    page.check("[data-together] input")
    page.click("[data-submit]")
    row, = settled(page, 1)
    assert "ddp_even_rank0.json.gz and 1 more: one job" in row and "✓ ready" in row
    page.click("[data-files] a:has-text('Open')")
    integrity = page.inner_text("#integrity")
    assert "Clocks aligned by the base time that every file states; the ends of 50 matched collectives" in integrity


def test_files_are_dropped_and_a_file_without_sense_is_named(watched: Any) -> None:
    page = watched
    page.goto("/profiles/upload/")
    page.evaluate(DROP, "dropped.bin")
    row, = settled(page, 1)
    assert "dropped.bin" in row and "✕ failed" in row and "Formats read" in row


def test_an_empty_file_is_refused_before_it_is_sent(watched: Any, tmp_path: Path) -> None:
    page = watched
    empty = tmp_path / "empty.json"
    empty.touch()
    page.goto("/profiles/upload/")
    page.set_input_files("#file", [empty])
    page.click("[data-submit]")
    row, = settled(page, 1)
    assert "empty (0 bytes)" in row


def test_the_page_of_a_waiting_profile_opens_it_when_it_is_ready(watched: Any, product: Any) -> None:
    page = watched
    page.goto("/profiles/upload/")
    page.set_input_files("#file", [H200 / "full.ncu-rep.gz"])
    page.click("[data-submit]")
    poll(page, "!!document.querySelector('[data-files] a')")
    page.goto(page.get_attribute("[data-files] a", "href"))
    page.locator(".answer", has_text="11 launches of").wait_for(timeout=60_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_at_1000_px(watched: Any, scheme: str) -> None:
    page = watched
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 1000, "height": 800})
    for url in ("/profiles/", "/profiles/upload/", "/kernels/", "/builds/", "/compare/"):
        page.goto(url)
        fits(page)
