"""The way of a person from the home page to a launch: a kernel worth fixing, its family, its shapes, its place in time."""

from __future__ import annotations

import gzip
import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, fits, poll, reads, shows, uploaded


@pytest.fixture(scope="module")
def layer(playwright: Any, server_url: str, tmp_path_factory: pytest.TempPathFactory) -> int:
    """A recording whose matrix multiplications are said to be fp64: no other file of these tests has such a family."""
    recording = tmp_path_factory.mktemp("families") / "kineto_layer.json.gz"
    content = gzip.decompress((H200 / "kineto_layer.json.gz").read_bytes())
    recording.write_bytes(gzip.compress(content.replace(b"nvjet_sm90_hsh_", b"nvjet_sm90_ddd_")))
    return uploaded(playwright, server_url, recording, model="families")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.deep_only)])
def test_from_all_kernels_to_a_launch_on_the_timeline(watched: Any, layer: int, scheme: str) -> None:
    """Keyboard and mouse, at 1000 px: nothing is cut off from reach, no console error, the picture has its words."""
    page = watched
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 1000, "height": 800})
    for _ in range(200):                                 # a worker makes the shapes after the profile is ready
        page.goto("/kernels/?model=families")
        page.get_by_role("link", name="cuBLAS GEMM · fp64").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/kernels/\d+/$"))
        if page.locator("#shapes").count():
            break
    answer = page.locator(".answer").inner_text()
    assert re.search(r"cuBLAS GEMM · fp64: 4.28 ms in 20 launches of 1 trace: [\d.]+ % of all kernel time", answer)
    assert "An estimate from its shapes" in answer
    eventually(lambda: "is without counters" in page.locator(".worth").get_attribute("aria-label"))
    fits(page)          # tables scroll by themselves
    poll(page, "document.querySelectorAll('#shapes tbody tr').length >= 4")
    page.locator("#shapes").get_by_role("link", name="launches").first.click()
    page.wait_for_url(re.compile(r"/kernels/shapes/\d+/$"))
    shows(page.locator(".answer"), "8 launches with grid 2×66×1")
    shows(page.locator("#content"), "2048×4096, 4096×11008")
    poll(page, "document.querySelector('[data-figure]').dataset.state === 'ready'")
    page.get_by_role("link", name="Longest launch on the timeline").click()
    page.wait_for_url(re.compile(rf"/profiles/{layer}/timeline/\?s=\d+"))
    poll(page, "document.querySelector('.tl')?.dataset.ready === '1'")
    poll(page, "document.querySelector('.tl').innerText.includes('nvjet_sm90_ddd_192x192')")


def test_a_family_is_renamed_and_renamed_back_and_a_note_is_kept(watched: Any, layer: int) -> None:
    page = watched
    page.goto("/kernels/?model=families&q=layer_norm")
    page.locator("a[href^='/kernels/']", has_text="layer_norm").first.click()
    page.wait_for_url(re.compile(r"/kernels/\d+/$"))
    page.get_by_label("Rename", exact=True).fill("Our layer norm")
    page.get_by_role("button", name="Rename").click()
    shows(page.locator(".answer"), "Our layer norm")
    page.get_by_label("New note").fill("rows of 4096: <b>see #12</b>")
    page.get_by_role("button", name="Save", exact=True).click()
    reads(page.locator(".note-text"), "rows of 4096: <b>see #12</b>")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".answer")).not_to_contain_text("Our layer norm", use_inner_text=True)
    shows(page.locator("#members"), "undone by")
