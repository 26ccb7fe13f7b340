"""Selections in a real browser: the grouped table, the histogram, flame graphs, a slice's panel, exports; by mouse and by keys."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from profiles import ingest
from profiles.ingest.trace import Trace
from tests.browser.timeline.test_timeline import APP, GEMM, RECORDING, get_json, pixels, settled, window
from tests.browser.visit import H200, eventually, poll, read_once, reads, shows

PANEL = f"{APP}.chosen.areaPanel"
ROWS = ".tl-groups .tabulator-row"


@pytest.fixture(scope="session")
def selection_id(server_url: str, playwright: Any) -> int:
    return read_once(playwright, server_url, RECORDING)


@pytest.fixture(scope="session")
def stacks_id(server_url: str, playwright: Any) -> int:
    """A recording with Python stacks."""
    return read_once(playwright, server_url, H200 / "kineto_layer_stack.json.gz")


def opened(page: Any, server_url: str, pk: int, query: str = "") -> Any:
    page.emulate_media(reduced_motion="reduce")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{server_url}/profiles/{pk}/timeline/{query}")
    settled(page)
    return page


@pytest.fixture
def page_of(shared: Callable[[str], Any], selection_id: int) -> Any:
    page = shared(f"/profiles/{selection_id}/timeline/")
    settled(page)
    return page


def table(page: Any) -> None:
    page.wait_for_selector(".tl-groups[data-ready]")


def select_by_mouse(page: Any) -> dict[str, Any]:
    """Drag over all tracks; returns the area."""
    box = page.locator(".tl-main").bounding_box()
    left = page.locator(".tl-ruler").bounding_box()["x"]
    page.mouse.move(left + 100, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(left + 700, box["y"] + box["height"] - 10, steps=6)
    page.mouse.up()
    table(page)
    return dict(page.evaluate(f"{APP}.chosen.area"))


def select_all(page: Any) -> None:
    page.locator(".tl-main").focus()
    page.keyboard.press("Control+a")
    table(page)


def answer(page: Any, pk: int, area: dict[str, Any], path: str = "", more: str = "") -> Any:
    tracks = ",".join(map(str, area["tracks"]))
    return get_json(page, f"/api/profiles/{pk}/selection/{path}?start={area['start']}&end={area['end']}&tracks={tracks}{more}")


def cells(page: Any, row: int = 0) -> list[str]:
    return [text.strip() for text in page.locator(ROWS).nth(row).locator(".tabulator-cell").all_inner_texts()]


def test_a_table_of_the_area_grouped_by_any_column(page_of: Any, selection_id: int) -> None:
    page = page_of
    area = select_by_mouse(page)
    found = answer(page, selection_id, area)
    eventually(lambda: page.inner_text(".tl-groups .grid-count").split()[0] == str(len(found["rows"])))
    assert cells(page)[0] == found["rows"][0]["name"]
    shows(page.locator(".tl-area-table .tl-tab-bar").first, f"{found['slices']:,}")
    page.select_option(".tl-by-add", "grid")
    poll(page, f"{PANEL}.state.by.includes('grid')")
    poll(page, "document.querySelectorAll('.tabulator-col-title')[2]?.textContent === 'Grid'")
    table(page)
    by_grid = answer(page, selection_id, area, more="&by=name,category,grid")
    eventually(lambda: page.inner_text(".tl-groups .grid-count").split()[0] == str(len(by_grid["rows"])))
    assert len(by_grid["rows"]) > len(found["rows"])
    for title in ("Do not group by Category", "Do not group by Name"):
        page.click(f"[aria-label='{title}']")
        poll(page, f"!document.querySelector(\"[aria-label='{title}']\")")
    page.select_option("[aria-label='Group by another column']", "category")
    poll(page, f"{PANEL}.state.by.join() === 'category' && document.querySelector('.tl-groups')?.dataset.ready")
    categories = answer(page, selection_id, area, more="&by=category")
    eventually(lambda: page.inner_text(".tl-groups .grid-count").split()[0] == str(len(categories["rows"])))
    poll(page, "new URLSearchParams(location.search).get('by') === 'category'")


def test_the_table_sorts_filters_copies_and_exports(page_of: Any, selection_id: int) -> None:
    page = page_of
    select_all(page)
    area = dict(page.evaluate(f"{APP}.chosen.area"))
    found = answer(page, selection_id, area)
    page.click(".tl-groups .tabulator-col-title >> text=Count")
    most = max(row["count"] for row in found["rows"])
    poll(page, f"document.querySelector('{ROWS} .tabulator-cell:nth-child(3)').textContent === '{most:,}'")
    page.fill(".tl-groups .grid-filter", "nvjet")
    poll(page, "/ of /.test(document.querySelector('.tl-groups .grid-count').textContent)")
    eventually(lambda: all("nvjet" in name for name in page.locator(f"{ROWS} .tabulator-cell:first-child").all_inner_texts()))
    kept = [row for row in found["rows"] if "nvjet" in row["name"]]
    for kind in ("CSV", "Parquet", "Arrow"):
        page.click(".tl-groups summary >> text=Export")
        with page.expect_download() as download:
            page.click(f".tl-groups .menu-body button >> text={kind}")
        file = Path(download.value.path())
        assert download.value.suggested_filename == f"selection.{kind.lower()}"
        if kind == "CSV":
            rows = list(csv.DictReader(file.read_text().splitlines()))
        else:
            rows = (pq.read_table(file) if kind == "Parquet" else pa.ipc.open_file(file.read_bytes()).read_all()).to_pylist()
        assert sorted(int(row["Total (ns)"]) for row in rows) == sorted(row["total_ns"] for row in kept), kind
        assert sorted(float(row["p95 (ns)"]) for row in rows) == pytest.approx(sorted(row["p95_ns"] for row in kept))
        page.keyboard.press("Escape")


def test_a_row_is_highlighted_and_stepped_through(page_of: Any, selection_id: int) -> None:
    page = page_of
    select_all(page)
    area = dict(page.evaluate(f"{APP}.chosen.area"))
    row = next(row for row in answer(page, selection_id, area)["rows"] if GEMM in row["name"])
    listed = answer(page, selection_id, area, "slices/", "".join(f"&where={key}" for key in row["key"]))
    before = pixels(page, ".tl-overlay")
    page.fill(".tl-groups .grid-filter", row["name"])
    poll(page, f"document.querySelectorAll('{ROWS}').length === 1")
    page.click(ROWS)
    poll(page, f"{APP}.chosen.highlights.length === {min(listed['total'], 200)}")
    settled(page)
    eventually(lambda: pixels(page, ".tl-overlay") != before)
    reads(page.locator(".tl-row-at").first, f"– / {listed['total']:,}")
    page.locator(".tl-main").focus()
    for step in (0, 1):
        page.keyboard.press("x")
        poll(page, f"{APP}.chosen.highlights.find((h) => h.current)?.id === {listed['slices'][step]['id']}")
    settled(page)
    start, end = window(page)
    assert start <= listed["slices"][1]["start_ns"] <= end
    page.keyboard.press("z")
    poll(page, f"{APP}.chosen.highlights.find((h) => h.current)?.id === {listed['slices'][0]['id']}")
    page.click(".tl-row-bar >> text=▶")
    assert poll(page, f"document.querySelector('.tl-row-at').textContent === '2 / {listed['total']:,}'")
    url = poll(page, "/row=/.test(location.search) && location.href")
    page.goto("about:blank")
    page.goto(url)
    settled(page)
    poll(page, f"{APP}.chosen.highlights.length === {min(listed['total'], 200)}")        # a link restores the row
    page.click(".tl-row-bar >> text=Let go")
    poll(page, f"{APP}.chosen.highlights.length === 0")


def test_keys_reach_into_the_table(page_of: Any) -> None:
    page = page_of
    select_all(page)
    page.keyboard.press("i")
    eventually(lambda: page.evaluate("document.activeElement.classList.contains('tabulator-tableholder')"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    poll(page, f"{PANEL}.state.row.length > 0 && {APP}.chosen.highlights.length > 0")
    page.locator(".tl-main").focus()
    page.keyboard.press("t")
    page.wait_for_selector(".tl-histogram")
    page.keyboard.press("t")
    page.wait_for_selector(".tl-flame-view")
    page.keyboard.press("Shift+T")
    page.wait_for_selector(".tl-histogram")
    page.focus("[role=tab][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".tl-flame-view")


@pytest.mark.deep_only          # tests/js/timeline/selection.test.js: a brush means durations
def test_brushing_the_histogram_chooses_slices(page_of: Any, selection_id: int) -> None:
    page = page_of
    select_all(page)
    area = dict(page.evaluate(f"{APP}.chosen.area"))
    page.click("[role=tab] >> text=Histogram")
    page.wait_for_selector(".tl-histogram")
    classes = answer(page, selection_id, area, "histogram/")["histogram"]
    eventually(lambda: pixels(page, ".tl-histogram")["colours"] > 2)
    box = page.locator(".tl-histogram").bounding_box()
    at = lambda i: box["x"] + (i + 0.5) * box["width"] / len(classes)  # noqa: E731
    first, last = len(classes) // 3, len(classes) // 2
    page.mouse.move(at(first), box["y"] + 40)
    page.mouse.down()
    page.mouse.move(at(last), box["y"] + 40, steps=4)
    page.mouse.up()
    inside = sum(each["count"] for each in classes[first:last + 1])
    shows(page.locator(".tl-told").first, f": {inside:,} slices")
    page.click("text=Choose these slices")
    poll(page, f"document.querySelector('.tl-row-at')?.textContent === '– / {inside:,}'")
    lit = page.evaluate(f"{APP}.chosen.highlights.map((h) => h.dur_ns)")
    assert lit and all(classes[first]["from_ns"] <= dur < classes[last]["to_ns"] for dur in lit)
    page.click("[role=tab] >> text=Table")
    table(page)
    shows(page.locator(".tl-area-table > .tl-tab-bar > .muted").first, f"{inside:,}")
    page.click("[role=tab] >> text=Histogram")
    page.focus(".tl-histogram")
    page.keyboard.press("Escape")                   # the brush goes, by keys another is made
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    kept = sum(each["count"] for each in classes[:2])
    poll(page, f"{PANEL}.state.range?.join() === '{classes[0]['from_ns']},{classes[1]['to_ns']}'")
    poll(page, f"document.querySelector('.tl-row-at').textContent === '– / {kept:,}'")


@pytest.mark.deep_only          # boxes, zoom, search: tests/js/timeline/selection.test.js; drawn: the test below
def test_flame_graphs_of_the_selection(page_of: Any, selection_id: int) -> None:
    page = page_of
    select_all(page)
    area = dict(page.evaluate(f"{APP}.chosen.area"))
    page.click("[role=tab] >> text=Flame graph")
    page.wait_for_selector(".tl-flame")
    found = answer(page, selection_id, area, "flame/", "&mode=cpu")
    poll(page, f"{PANEL}.drawn?.graphs?.[0]?.boxes?.length > 5")
    shows(page.locator(".tl-told").first, f"{found['total_ns']:,} ns")
    eventually(lambda: pixels(page, ".tl-flame")["colours"] > 5)
    page.focus(".tl-flame")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    told = page.inner_text(".tl-told")
    widest = max((t, i) for i, (t, p) in enumerate(zip(found["tree"]["total"], found["tree"]["parent"], strict=True)) if p == 0)
    assert told.startswith(found["names"][str(found["tree"]["label"][widest[1]])]) and f"{widest[0]:,} ns" in told
    page.keyboard.press("Enter")                    # zoom: the box fills the width
    eventually(lambda: page.evaluate(f"{PANEL}.drawn.graphs[0].focus.total") == widest[0])
    page.keyboard.press("Escape")
    eventually(lambda: page.evaluate(f"{PANEL}.drawn.graphs[0].focus.total") == found["total_ns"])
    page.fill(".tl-flame-search", "aten::mm")
    eventually(lambda: re.search(r"\d+ box(es)?, [\d.]+ % of the time", page.inner_text(".tl-flame-view .tl-tab-bar")))
    box = page.locator(".tl-flame").bounding_box()
    page.mouse.move(box["x"] + 30, box["y"] + 27)
    shows(page.locator(".tl-told").first, "itself")
    page.mouse.click(box["x"] + 30, box["y"] + 27)
    eventually(lambda: page.evaluate(f"{PANEL}.drawn.graphs[0].focus.depth") == 1)


def test_gpu_time_under_stacks_and_the_sandwich(page_of: Any, selection_id: int) -> None:
    page = page_of
    select_all(page)
    area = dict(page.evaluate(f"{APP}.chosen.area"))
    page.click("[role=tab] >> text=Flame graph")
    page.wait_for_selector(".tl-flame")
    page.select_option("[aria-label=Stacks]", "gpu")
    found = answer(page, selection_id, area, "flame/", "&mode=gpu")
    poll(page, f"document.querySelector('.tl-told')?.textContent.includes('{found['total_ns']:,} ns of GPU time')")
    page.select_option("[aria-label=Order]", "sandwich")
    page.wait_for_selector(".tl-hot tbody tr")
    row = found["hot"][0]
    reads(page.locator(".tl-hot tbody tr:first-child td:first-child").first, found["names"][str(row["label"])])
    page.click(".tl-hot tbody tr:first-child button")
    poll(page, f"{PANEL}.drawn.graphs?.length === 2")
    both = answer(page, selection_id, area, "flame/", f"&mode=gpu&focus={row['label']}")
    roots = page.evaluate(f"{PANEL}.drawn.graphs.map((g) => g.root.total)")
    assert roots == [both["callers"]["total"][0], both["callees"]["total"][0]]
    url = poll(page, r"/flame=gpu\.sandwich\.\w*\.\d/.test(location.search) && location.href")
    page.goto("about:blank")
    page.goto(url)
    settled(page)
    poll(page, f"{PANEL}.drawn?.graphs?.length === 2")
    page.click("text=All names")
    page.wait_for_selector(".tl-hot tbody tr")


def test_python_stacks_nest_and_are_named(watched: Any, server_url: str, stacks_id: int) -> None:
    page = opened(watched, server_url, stacks_id)
    select_all(page)
    area = dict(page.evaluate(f"{APP}.chosen.area"))
    found = answer(page, stacks_id, area, "flame/", "&mode=cpu")
    python = {int(label) for label, category in found["categories"].items() if category == 6}
    depth = [0] * len(found["tree"]["label"])
    for at, parent in enumerate(found["tree"]["parent"]):
        depth[at] = depth[parent] + 1 if parent >= 0 else 0
    deepest = max(d for d, label in zip(depth, found["tree"]["label"], strict=True) if label in python)
    assert deepest >= 4 and any(".py(" in found["names"][str(label)] for label in python)
    page.click("[role=tab] >> text=Flame graph")
    page.wait_for_selector(".tl-flame")
    eventually(lambda: pixels(page, ".tl-flame")["colours"] > 5)


def test_long_work_shows_progress_and_is_cancelled(watched: Any, server_url: str, selection_id: int) -> None:
    page = opened(watched, server_url, selection_id)
    page.route(re.compile(r"/selection/\?"), lambda route: None)           # a server that takes its time
    page.locator(".tl-main").focus()
    page.keyboard.press("Control+a")
    page.wait_for_selector(".tl-working progress")
    shows(page.locator(".tl-working").first, "Summing up the selection")
    page.click(".tl-working >> text=Cancel")
    page.wait_for_selector("text=Stopped: nothing was computed")
    page.unroute_all()
    page.click(".tl-working >> text=Start again")
    table(page)


def test_the_panel_of_a_launch_leads_on(page_of: Any, selection_id: int, server_url: str) -> None:
    page = page_of
    kernel = get_json(page, f"/api/profiles/{selection_id}/slices/?q={GEMM}&limit=1")["slices"][0]
    page.evaluate(f"(s) => {APP}.chosen.jump(s)", kernel)
    page.wait_for_selector(".tl-launch-list li.current")
    page.wait_for_selector(".tl-actions")
    told = get_json(page, f"/api/profiles/{selection_id}/slices/{kernel['id']}/kernel/")
    stack = page.locator(".tl-stack .tl-links .mono").all_inner_texts()
    assert stack[0].startswith("cu") and any(name.startswith("aten::") for name in stack)
    expect(page.locator(".tl-actions a").first).to_have_attribute("href", told["capture"])
    tune = parse_qs(urlsplit(page.locator(".tl-actions a").nth(1).get_attribute("href")).query)
    assert tune["operator"] == ["matmul"] and tune["M"] and tune["dtype"] == ["bf16"]
    page.locator(".tl-launch-list .tl-jump").nth(1).click()
    poll(page, f"{APP}.chosen.slice?.id !== {kernel['id']} && {APP}.chosen.slice?.name === {json.dumps(kernel['name'])}")
    page.wait_for_selector(".tl-launch-list")
    page.click("text=Select them all")
    page.wait_for_selector(".tl-histogram")
    poll(page, f"{PANEL}.state.row.length === 1 && {APP}.chosen.highlights.length > 1")
    page.goto(server_url + told["capture"])
    eventually(lambda: page.input_value("[name=ncu-kernel]"))
    expect(page.locator("[name=ncu-launch_skip]").first).to_have_value(str(told["matching"]))
    page.goto(server_url + told["tune"]["url"])
    eventually(lambda: page.input_value("[name=shape]").startswith(f"M={tune['M'][0]}"))


@pytest.mark.deep_only          # what a file holds: tests/profiles/pages/test_exports.py
def test_exports_are_files_that_are_read_again(page_of: Any, selection_id: int, tmp_path: Path) -> None:
    page = page_of
    page.locator(".tl-main").focus()
    page.keyboard.press("o")
    page.wait_for_selector("#tl-data[open] select")
    page.select_option("#tl-data select", "whole")
    with page.expect_download() as download:
        page.click("text=Trace for Perfetto and others")
    again = ingest.read(download.value.path())
    first = ingest.read(RECORDING)
    assert isinstance(again, Trace) and isinstance(first, Trace)
    assert sorted(again.slices["start_ns"].to_pylist()) == sorted(first.slices["start_ns"].to_pylist())
    page.keyboard.press("Escape")
    expect(page.locator("#tl-data[open]")).to_have_count(0)
    select_all(page)
    page.click("#tl-data summary")
    page.wait_for_selector("#tl-data[open] select")
    page.select_option("#tl-data select", "selection")
    area = dict(page.evaluate(f"{APP}.chosen.area"))
    with page.expect_download() as download:
        page.click(".tl-export-files >> text=CSV")
    assert len(Path(download.value.path()).read_text().splitlines()) == answer(page, selection_id, area)["slices"] + 1
    page.select_option("#tl-data select", "whole")
    with page.expect_download() as download:
        page.click(".tl-export-files >> text=Parquet")
    assert pq.read_table(download.value.path()).num_rows == first.slices.num_rows


PERFETTO = """<!doctype html><title>viewer</title><script>
addEventListener("message", (event) => {
  if (event.data === "PING") event.source.postMessage("PONG", event.origin);
  else if (event.data.perfetto) window.got = event.data.perfetto;
});</script>"""

BASE64 = """new Promise((read) => {
  const reader = new FileReader();
  reader.onload = () => read(reader.result);
  reader.readAsDataURL(new Blob([window.got.buffer]));
})"""


def test_open_in_perfetto_hands_over_the_window(page: Any, server_url: str, selection_id: int) -> None:
    page.context.route("https://ui.perfetto.dev/**", lambda route: route.fulfill(body=PERFETTO, content_type="text/html"))
    opened(page, server_url, selection_id)
    page.click("#tl-data summary")
    page.wait_for_selector("#tl-data[open] select")
    shows(page.locator("#tl-export").first, "Nothing is uploaded")
    with page.context.expect_page() as other:
        page.click("text=Open in Perfetto")
    viewer = other.value
    poll(page, "document.querySelector('#tl-export [role=status]').textContent.startsWith('Handed over')")
    packed = base64.b64decode(viewer.evaluate(BASE64).rpartition(",")[2])
    events = json.loads(gzip.decompress(packed))["traceEvents"]
    assert sum(event["ph"] in "Xi" for event in events) > 5000
    eventually(lambda: viewer.evaluate("window.got.title").startswith(RECORDING.name))
