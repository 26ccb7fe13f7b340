"""The upload page in a real browser: several files at once, live ingest, errors per file, drag and drop, remembered fields."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, WORKED_MS, fits, poll, reads, shows
from tests.product import Product

CASES = H200.parent / "cases"
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
        (row) => /ready|failed/.test(row.textContent)).length === {count}""", within_ms=WORKED_MS)
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
    shows(page.locator(".answer").first, "The host cannot feed the GPU: idle for it 60 % of the time, 5.61 ms a step")
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


@pytest.mark.deep_only          # dropped: tests/ways/test_drop_trace.py; what a failed row says: the first test
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
    page.set_input_files("#file", [H200 / "full_raw.csv.gz"])
    page.click("[data-submit]")
    poll(page, "!!document.querySelector('[data-files] a')")
    page.goto(page.get_attribute("[data-files] a", "href"))
    page.locator(".answer", has_text="11 launches of").wait_for(timeout=WORKED_MS)


@pytest.mark.deep_only          # these and others, as wide: test_frame.py, test_user_path.py
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_at_1000_px(watched: Any, scheme: str) -> None:
    page = watched
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 1000, "height": 800})
    for url in ("/profiles/", "/profiles/upload/", "/kernels/", "/builds/", "/compare/"):
        page.goto(url)
        fits(page)


DROP_FILES = """([files]) => {
  const held = new DataTransfer();
  for (const [name, text] of files) held.items.add(new File([Uint8Array.from(atob(text), (each) => each.charCodeAt(0))], name));
  const event = (kind) => new DragEvent(kind, { dataTransfer: held, bubbles: true, cancelable: true });
  for (const kind of ["dragenter", "dragover", "drop"]) document.body.dispatchEvent(event(kind));
}"""


def drop(page: Any, *files: tuple[str, bytes]) -> None:
    page.evaluate(DROP_FILES, [[[name, base64.b64encode(held).decode()] for name, held in files]])


@pytest.mark.deep_only          # tests/ways/test_drop_trace.py
def test_a_file_dropped_on_any_page_opens_its_timeline(product: Product, watched: Any) -> None:
    watched.goto("/workers/")
    drop(watched, ("dropped.json.gz", (H200 / "kineto_train.json.gz").read_bytes()))
    watched.wait_for_url("**/timeline/**")
    shows(watched.locator(".crumbs"), "dropped.json.gz")


def test_dropped_ranks_are_asked_for_once_and_named_for_the_job(product: Product, watched: Any) -> None:
    watched.goto("/tune/")
    ranks = [(f"pretrain_rank{rank}.json.gz", (H200 / f"ddp_even_rank{rank}.json.gz").read_bytes()) for rank in (0, 1)]
    drop(watched, *ranks)
    expect(watched.get_by_role("button", name="Ranks of one job")).to_be_focused()
    reads(watched.locator(".drop-dialog h2"), "2 files: pretrain")
    watched.keyboard.press("Enter")
    watched.wait_for_url("**/timeline/**")
    reads(watched.locator(".crumbs a").last, "pretrain")


def test_dropped_files_of_different_jobs_say_why_and_can_be_loaded_apart(product: Product, watched: Any) -> None:
    watched.goto("/workers/")
    held = (H200 / "ddp_even_rank0.json.gz").read_bytes()
    drop(watched, ("one.json.gz", held), ("two.json.gz", held))
    expect(watched.get_by_role("button", name="Profiles of their own")).to_be_focused()
    watched.get_by_role("button", name="Ranks of one job").click()
    shows(watched.locator(".drop-dialog [role=alert]"), "two.json.gz: not a rank of the same job: it is rank 0, as one.json.gz is")
    watched.get_by_role("button", name="Load as profiles of their own").click()
    watched.wait_for_url("**/profiles/")
    shows(watched.locator("main"), "two.json.gz")
    expect(watched.locator("main tr", has_text="not a rank of the same job")).to_have_count(0)
    expect(watched.locator("main tr", has_text="one.json.gz")).to_have_count(1)         # not the refused one beside it


def test_a_failure_of_another_kind_offers_no_profiles_of_their_own(product: Product, watched: Any) -> None:
    watched.goto("/workers/")
    drop(watched, ("p_rank0.json", b"this is no trace"), ("p_rank1.json", b"nor is this"))
    watched.get_by_role("button", name="Ranks of one job").click()
    shows(watched.locator(".drop-dialog [role=alert]"), "unknown text content")
    expect(watched.get_by_role("button", name="Load as profiles of their own")).to_have_count(0)
    expect(watched.get_by_role("button", name="Close")).to_be_focused()


def test_a_drop_waits_until_the_open_dialog_is_closed(product: Product, watched: Any) -> None:
    watched.goto("/workers/")
    drop(watched, ("empty.json", b""))                  # this loads what takes drops
    expect(watched.locator(".drop-dialog")).to_be_visible()
    watched.keyboard.press("Escape")
    expect(watched.locator("dialog[open]")).to_have_count(0)
    watched.keyboard.press("Control+k")
    expect(watched.locator("dialog[open]")).to_have_count(1)
    drop(watched, ("a.json", b"1"), ("b.json", b"2"))
    reads(watched.locator(".drop-note"), "2 files: imported when this dialog is closed")
    expect(watched.locator(".drop-note")).to_be_visible()
    watched.keyboard.press("Escape")
    expect(watched.locator(".drop-dialog h2")).to_have_text("2 files")
    expect(watched.locator(".drop-note")).to_be_hidden()
    drop(watched, ("empty.json", b""))                  # the question is answered by another drop
    shows(watched.locator(".drop-dialog [role=alert]"), "empty.json: the file is empty (0 bytes)")


def test_an_empty_file_that_is_dropped_says_so_and_keeps_the_page(product: Product, watched: Any) -> None:
    watched.goto("/workers/")
    drop(watched, ("empty.json", b""))
    shows(watched.locator(".drop-dialog [role=alert]"), "empty.json: the file is empty (0 bytes)")
    watched.keyboard.press("Escape")
    expect(watched.locator(".drop-dialog")).to_have_count(0)
    assert watched.url.endswith("/workers/")


def test_ranks_are_ticked_by_what_files_say_and_engines_numbered_by_file(watched: Any, tmp_path: Path) -> None:
    page = watched
    engines = [CASES / f"dp{number}_rank0.pt.trace.json" for number in range(2)]
    other = tmp_path / "b.json"
    other.write_text(engines[1].read_text().replace('"rank": 0', '"rank": 1'))
    page.goto("/profiles/upload/")
    tick = page.locator("[data-together] input")
    page.set_input_files("#file", engines)
    expect(tick).to_be_visible()
    expect(tick).not_to_be_checked()
    page.set_input_files("#file", [engines[0], other])
    expect(tick).to_be_checked()
    fits(page)
    page.set_input_files("#file", engines)                 # what is ticked stays
    page.click("[data-submit]")
    failed, = settled(page, 1)
    assert "Number the ranks by file" in failed
    page.goto("/profiles/?status=failed")
    page.locator("main table a[href^='/profiles/']").first.click()
    fits(page)
    page.click("button:has-text('Number the ranks by file')")
    expect(page.locator(".answer").first).to_contain_text("GPU", timeout=WORKED_MS)
