"""Pictures saved under the CSP, the report on one sheet of paper, and the way from an analysis to a filled-in form."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.browser.visit import H200, eventually, poll, read_once, shows, uploaded

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def trace_id(server_url: str, playwright: Any) -> int:
    return read_once(playwright, server_url, H200 / "kineto_layer_stack.json.gz")


@pytest.fixture(scope="module")
def counters_id(server_url: str, playwright: Any) -> int:
    return uploaded(playwright, server_url, H200 / "buildA_raw.csv.gz", name="build A")


def saved(page: Any, button: str) -> tuple[str, bytes]:
    """What a click on the first such button downloads: its name and bytes."""
    with page.expect_download() as waiting:
        page.locator(button).first.click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def test_every_figure_saves_as_png_and_svg(watched: Any, server_url: str, counters_id: int) -> None:
    """Under the pages' Content-Security-Policy; the SVG holds the words that the figure shows."""
    page = watched
    page.goto(f"{server_url}/profiles/{counters_id}/roofline/")
    poll(page, "document.querySelectorAll('.save-figure').length >= 1")
    name, raw = saved(page, ".save-figure button[aria-label$='as PNG']")
    assert name.endswith(".png") and raw[:8] == b"\x89PNG\r\n\x1a\n" and len(raw) > 10_000
    name, raw = saved(page, ".save-figure button[aria-label$='as SVG']")
    drawing = ElementTree.fromstring(raw)
    assert name.endswith(".svg") and drawing.tag == f"{SVG}svg" and drawing[0].tag == f"{SVG}rect"
    assert "arithmetic intensity" in " ".join(drawing.itertext()) and "matmul" in " ".join(drawing.itertext())


def test_an_inline_drawing_saves_with_its_styles(watched: Any, server_url: str, counters_id: int) -> None:
    page = watched
    page.goto(f"{server_url}/profiles/{counters_id}/roofline/")
    poll(page, "document.querySelectorAll('.save-figure').length >= 1")
    page.evaluate("""async () => {
      const host = document.createElement("div");
      host.innerHTML = '<style>.probe { fill: rgb(1, 2, 3); }</style><svg data-save="probe" width="80" height="40"><rect class="probe" width="10" height="10"/><text y="30">words</text></svg>';
      document.querySelector("main").prepend(host);
      (await import("/static/js/lib/save.js")).offerDrawings(host);
    }""")                                                                                       # noqa: E501
    _, raw = saved(page, "button[aria-label='Save probe as SVG']")
    drawing = ElementTree.fromstring(raw)
    assert drawing.findall(f"{SVG}rect")[1].get("fill") == "rgb(1, 2, 3)" and "words" in " ".join(drawing.itertext())
    assert saved(page, "button[aria-label='Save probe as PNG']")[1][:4] == b"\x89PNG"


@pytest.mark.parametrize(("scheme", "kind"), [("light", "trace"), ("dark", "counters")])
def test_the_report_prints_on_one_sheet(watched: Any, server_url: str, trace_id: int, counters_id: int, scheme: str,
                                        kind: str) -> None:
    page = watched
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{server_url}/profiles/{trace_id if kind == 'trace' else counters_id}/report/")
    poll(page, "document.querySelectorAll('.sheet section').length >= 2")
    page.emulate_media(media="print", color_scheme=scheme)
    eventually(lambda: page.evaluate("getComputedStyle(document.querySelector('.sheet')).backgroundColor") == "rgb(255, 255, 255)")
    eventually(lambda: page.evaluate("getComputedStyle(document.querySelector('.sheet .muted')).color") == "rgb(68, 68, 68)")
    raw = page.pdf(prefer_css_page_size=True)
    page.emulate_media(media="screen", color_scheme=scheme)
    assert len(re.findall(rb"/Type\s*/Page\b", raw)) == 1


def test_a_picture_of_boxes_saves_as_it_is_laid_out(watched: Any, server_url: str, trace_id: int) -> None:
    page = watched
    page.goto(f"{server_url}/profiles/{trace_id}/analysis/operators/")
    poll(page, "document.querySelectorAll('.save-figure').length >= 2")
    _, raw = saved(page, "button[aria-label='Save operators as SVG']")
    drawing = ElementTree.fromstring(raw)
    bars = page.locator(".owner-bar > span")
    wide = [float(each.get("width", "0")) for each in drawing.findall(f"{SVG}rect") if "%" not in each.get("width", "%")]
    for at in range(bars.count()):
        assert min(abs(bars.nth(at).bounding_box()["width"] - each) for each in wide) < 0.02
    assert "aten::addmm" in list(drawing.itertext())
    assert saved(page, "button[aria-label='Save tree as PNG']")[1][:4] == b"\x89PNG"


def test_from_an_analysis_to_a_filled_in_form(watched: Any, server_url: str, trace_id: int) -> None:
    """With the keyboard: the tree's first box, then a kernel's tune link."""
    page = watched
    page.goto(f"{server_url}/profiles/{trace_id}/analysis/operators/")
    poll(page, "document.querySelectorAll('table[data-enhanced] tbody tr').length > 10")
    eventually(lambda: page.locator(".icicle .box").count() >= 5)
    eventually(lambda: page.locator(".owner-bars").get_attribute("aria-label"))
    page.locator(".icicle .box").first.focus()
    eventually(lambda: "/timeline/?q=" in (page.evaluate("document.activeElement.href") or ""))
    page.locator("#table-0 .kernel-actions a:has-text('tune')").first.click()
    page.wait_for_url("**/tune/new/**")
    eventually(lambda: re.search(r"M=2048 N=\d+ K=\d+", page.input_value("[name=shape]")))
    shows(page.locator(".notice").first, "Filled in for nvjet")
