"""The timeline in a real browser over a real recording: zoom, search, click, arrows, areas, and a URL that restores."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, poll, read_once, reads, shows

RECORDING = H200 / "kineto_train.json.gz"
APP = "document.getElementById('timeline').timeline"
GEMM = "nvjet"                       # the recording's matrix multiplications


@pytest.fixture(scope="session")
def profile_id(server_url: str, playwright: Any) -> int:
    """The recorded training run, uploaded through the API as a browser would, and read."""
    return read_once(playwright, server_url, RECORDING)


@pytest.fixture
def timeline(shared: Callable[[str], Any], profile_id: int) -> Any:
    """The opened timeline without gliding."""
    page = shared(f"/profiles/{profile_id}/timeline/")
    settled(page)
    return page


def settled(page: Any) -> None:
    page.wait_for_selector("#timeline[data-ready]")
    poll(page, f"(({{timeline, tiles, scheduled, motion}}) => "
               f"timeline.names !== null && tiles.pending === 0 && !scheduled && !motion.isMoving)({APP})")


def window(page: Any) -> tuple[float, float]:
    start, end = page.evaluate(f"[{APP}.viewport.start, {APP}.viewport.end]")
    return start, end


def place(page: Any, slice_: dict[str, Any]) -> tuple[float, float]:
    """Where a slice is on the page: its middle."""
    x, y = page.evaluate(f"""(s) => {{
      const {{stage: {{root, ruler, main, overlayTop}}, viewport}} = {APP}, row = main.rows.byTrack.get(s.track);
      const left = ruler.canvas.getBoundingClientRect().left;
      const top = root.getBoundingClientRect().top + overlayTop + main.top;
      return [left + viewport.x(s.start_ns + s.dur_ns / 2), top + row.y + 3 + (s.depth + 0.5) * row.lane - main.scroll];
    }}""", slice_)
    return x, y


def pixels(page: Any, canvas: str) -> dict[str, Any]:
    """Of every fourth pixel of a canvas in both directions: the first as 0xAABBGGRR, how many colours and drawn ones, a hash.

    They are counted in the page: all of them as numbers took three processes half a second.
    """
    found: dict[str, Any] = page.evaluate("""(selector) => {
      const c = document.querySelector(selector), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
      const all = new Uint32Array(d.buffer), colours = new Set();
      let drawn = 0, hash = 0;
      for (let y = 0; y < c.height; y += 4) for (let x = 0; x < c.width; x += 4) {
        const pixel = all[y * c.width + x];
        colours.add(pixel);
        drawn += pixel !== 0;
        hash = (Math.imul(hash, 31) + pixel) | 0;
      }
      return { first: all[0], colours: colours.size, drawn, hash };
    }""", canvas)
    return found


def get_json(page: Any, path: str) -> Any:
    return json.loads(page.request.get(page.url.split("/profiles/")[0] + path).text())


def query(page: Any) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_a_load_asks_for_few_files(timeline: Any) -> None:
    """The page, its scripts, styles and icon: at most 13; what it asks the API comes beside."""
    asked = timeline.evaluate("['navigation', 'resource'].flatMap((type) => performance.getEntriesByType(type)).map((e) => e.name)")
    files = [url for url in asked if "/api/" not in url]
    assert any("/js/timeline/main.js" in url for url in files) and any(".css" in url for url in files)
    assert len(files) <= 13, files
    assert all("/static/bundles/" in url for url in files[1:]), files


def test_a_second_load_asks_for_no_script_again(timeline: Any) -> None:
    """Addresses hold the hash of their files, so a browser keeps them."""
    timeline.reload()
    settled(timeline)
    sizes = timeline.evaluate("performance.getEntriesByType('resource').filter((e) => /\\.(js|css)$/.test(e.name))"
                              ".map((e) => e.transferSize)")
    assert len(sizes) > 6 and set(sizes) == {0}


def test_it_opens_on_all_slices(timeline: Any, profile_id: int) -> None:
    meta = get_json(timeline, f"/api/profiles/{profile_id}/timeline/")
    start, end = window(timeline)
    assert start == 0 and meta["last_ns"] < end <= min(1.03 * meta["last_ns"], meta["end_ns"])     # not up to Record Window End
    names = timeline.locator(".tl-label .tl-name").all_inner_texts()
    assert any("stream 7" in name for name in names) and any("GPU 0" in name for name in names)
    drawn = timeline.evaluate(f"{APP}.stage.entries")
    assert drawn > 500
    eventually(lambda: pixels(timeline, ".tl-main canvas")["colours"] > 20)   # slices in their colours, not an empty canvas
    assert "tracks" in poll(timeline, "document.getElementById('tl-live').textContent")


def test_w_zooms_at_the_pointer_and_zero_returns(timeline: Any) -> None:
    start, end = window(timeline)
    box = timeline.locator(".tl-ruler").bounding_box()
    timeline.mouse.move(box["x"] + box["width"] / 4, 500)
    under = start + (end - start) / 4
    timeline.keyboard.down("w")
    timeline.wait_for_timeout(500)
    timeline.keyboard.up("w")
    settled(timeline)
    a, b = window(timeline)
    assert b - a < 0.7 * (end - start)
    assert abs(a + (b - a) / 4 - under) < 0.01 * (b - a)
    timeline.keyboard.down("d")
    timeline.wait_for_timeout(150)
    timeline.keyboard.up("d")
    settled(timeline)
    assert window(timeline)[0] > a
    timeline.keyboard.press("0")
    settled(timeline)
    assert window(timeline) == (start, end)


def test_search_steps_through_hits(timeline: Any, profile_id: int) -> None:
    found = get_json(timeline, f"/api/profiles/{profile_id}/slices/?q={GEMM}&limit=2")
    timeline.keyboard.press("/")
    timeline.keyboard.type(GEMM)
    poll(timeline, "/\\/ \\d/.test(document.getElementById('tl-hits').textContent)")
    timeline.keyboard.press("Enter")
    timeline.wait_for_selector(".tl-details")
    reads(timeline.locator("#tl-hits").first, f"1 / {found['total']:,}")
    timeline.keyboard.press("Enter")
    poll(timeline, f"{APP}.chosen.slice?.id === {found['slices'][1]['id']}")
    timeline.keyboard.press("Shift+Enter")
    poll(timeline, f"{APP}.chosen.slice?.id === {found['slices'][0]['id']}")
    a, b = window(timeline)
    assert a <= found["slices"][0]["start_ns"] <= b
    assert poll(timeline, f"new URLSearchParams(location.search).get('q') === '{GEMM}'")


def test_a_click_tells_about_the_launch_and_draws_its_arrow(timeline: Any, profile_id: int) -> None:
    kernel = get_json(timeline, f"/api/profiles/{profile_id}/slices/?q={GEMM}&limit=1")["slices"][0]
    timeline.evaluate(f"(s) => {APP}.go(s.start_ns - 30 * s.dur_ns, s.start_ns + 30 * s.dur_ns)", kernel)
    settled(timeline)
    timeline.mouse.click(*place(timeline, kernel))
    timeline.wait_for_selector(".tl-details .tl-links")
    told = timeline.inner_text(".tl-details")
    for word in ("Grid", "Block", "Registers per thread", "Shared memory", "Correlation", "Launch delay",
                 "Launched by"):
        assert word in told, told
    exact = timeline.get_attribute(".tl-details dd .num[title$=' ns'] >> nth=1", "title")
    assert exact == f"{kernel['dur_ns']:,} ns"
    link = timeline.evaluate(f"{APP}.chosen.slice.links.find((l) => l.role === 'launched by')")
    assert link["start_ns"] <= kernel["start_ns"]
    with_arrow = pixels(timeline, ".tl-overlay")["drawn"]
    timeline.evaluate(f"{APP}.chosen.slice.links = {APP}.chosen.slice.arrows = []; {APP}.changed('overlay')")
    settled(timeline)
    assert with_arrow > pixels(timeline, ".tl-overlay")["drawn"] + 50
    timeline.locator(".tl-links .tl-jump").first.click()
    poll(timeline, f"{APP}.chosen.slice?.category && {APP}.chosen.slice.id !== {kernel['id']}")


def test_comma_and_full_stop_go_along_the_track(timeline: Any, profile_id: int) -> None:
    kernels = get_json(timeline, f"/api/profiles/{profile_id}/slices/?q={GEMM}&limit=1")["slices"]
    timeline.evaluate(f"(s) => {APP}.chosen.jump(s)", kernels[0])
    timeline.wait_for_selector(".tl-details")
    timeline.locator(".tl-main").focus()
    timeline.keyboard.press(".")
    first = kernels[0]
    poll(timeline, f"(({{id, track}}) => id !== {first['id']} && track === {first['track']})({APP}.chosen.slice)")
    eventually(lambda: timeline.evaluate(f"{APP}.chosen.slice.start_ns") > kernels[0]["start_ns"])
    timeline.keyboard.press(",")
    poll(timeline, f"{APP}.chosen.slice.id === {kernels[0]['id']}")
    timeline.keyboard.press("f")
    settled(timeline)
    a, b = window(timeline)
    assert a < first["start_ns"] and b > first["start_ns"] + first["dur_ns"] and b - a < 3 * first["dur_ns"]


def test_a_drag_selects_an_area_and_sums_it_up(timeline: Any, profile_id: int) -> None:
    box = timeline.locator(".tl-main").bounding_box()
    left = timeline.locator(".tl-ruler").bounding_box()["x"]
    timeline.mouse.move(left + 100, box["y"] + 30)
    timeline.mouse.down()
    timeline.mouse.move(left + 700, box["y"] + box["height"] - 10, steps=6)
    timeline.mouse.up()
    timeline.wait_for_selector(".tl-groups[data-ready] .tabulator-row")
    area = timeline.evaluate(f"{APP}.chosen.area")
    asked = f"start={area['start']}&end={area['end']}&tracks={','.join(map(str, area['tracks']))}"
    answer = get_json(timeline, f"/api/profiles/{profile_id}/selection/?{asked}")
    reads(timeline.locator(".tl-groups .grid-count").first, f"{len(answer['rows'])} rows")
    largest = max(answer["rows"], key=lambda row: row["total_ns"])
    reads(timeline.locator(".tl-groups .tabulator-row:first-child .tabulator-cell:first-child").first, largest["name"])
    shows(timeline.locator(".tl-chips").first, f"{answer['slices']:,} slices")


def test_the_url_restores_the_view_and_back_returns(timeline: Any, profile_id: int) -> None:
    kernel = get_json(timeline, f"/api/profiles/{profile_id}/slices/?q={GEMM}&limit=1")["slices"][0]
    timeline.hover(f".tl-main [data-track='{kernel['track']}']")
    timeline.click(f".tl-main [data-track='{kernel['track']}'] .tl-pin")
    timeline.click(".tl-label-group .tl-fold >> nth=0")
    timeline.fill("#tl-q", GEMM)
    poll(timeline, "/\\/ \\d/.test(document.getElementById('tl-hits').textContent)")
    timeline.evaluate(f"(s) => {APP}.chosen.jump(s)", kernel)
    timeline.wait_for_selector(".tl-details .tl-links")
    timeline.locator(".tl-main").focus()
    timeline.keyboard.press("m")
    poll(timeline, "/m=/.test(location.search) && /s=/.test(location.search) && /pin=/.test(location.search)")
    timeline.wait_for_timeout(500)
    url, shown = timeline.url, window(timeline)
    assert {"w", "s", "q", "pin", "fold", "m"} <= set(query(timeline))

    timeline.goto("about:blank")
    timeline.goto(url)
    settled(timeline)
    timeline.wait_for_selector(".tl-details .tl-links")
    assert max(abs(a - b) for a, b in zip(window(timeline), shown, strict=True)) < 0.01
    eventually(lambda: timeline.evaluate(f"{APP}.chosen.slice.id") == kernel["id"])
    expect(timeline.locator(".tl-pinned .tl-label")).to_have_count(1)
    expect(timeline.locator("#tl-q").first).to_have_value(GEMM)
    eventually(lambda: timeline.evaluate(f"{APP}.marks.length") == 1)
    eventually(lambda: timeline.evaluate(f"{APP}.view.folded.size") == 1)

    timeline.locator(".tl-main").focus()
    timeline.keyboard.press("0")
    settled(timeline)
    assert "w" not in query(timeline)
    timeline.go_back()
    settled(timeline)
    assert max(abs(a - b) for a, b in zip(window(timeline), shown, strict=True)) < 0.01


def test_filter_fold_keys_and_themes(timeline: Any) -> None:
    tracks = timeline.locator(".tl-main .tl-label").count()
    timeline.fill("#tl-filter", "stream")
    settled(timeline)
    eventually(lambda: 0 < timeline.locator(".tl-main .tl-label").count() < tracks)
    timeline.fill("#tl-filter", "no such track")
    expect(timeline.locator("#tl-none")).to_be_visible()
    timeline.keyboard.press("Escape")
    settled(timeline)
    timeline.keyboard.press("?")
    shows(timeline.locator("dialog[open]").first, "Zoom in and out at the pointer")
    timeline.keyboard.press("Escape")
    light = pixels(timeline, ".tl-main canvas")["first"]
    timeline.click("#theme-switch")
    settled(timeline)
    eventually(lambda: pixels(timeline, ".tl-main canvas")["first"] != light)


def test_zoom_to_nanoseconds_keeps_slices_in_place(timeline: Any, profile_id: int) -> None:
    kernel = get_json(timeline, f"/api/profiles/{profile_id}/slices/?q={GEMM}&limit=1")["slices"][0]
    edge = kernel["start_ns"] + kernel["dur_ns"]
    timeline.evaluate(f"(ns) => {APP}.go(ns - 20, ns + 20)", edge)
    settled(timeline)
    x = timeline.evaluate(f"(ns) => {APP}.viewport.x(ns) / {APP}.viewport.width", edge)
    assert abs(x - 0.5) < 1e-6
    eventually(lambda: "m" not in re.sub(r"ms|µs", "", timeline.inner_text(".tl-base")))


@pytest.mark.deep_only          # tests/js/timeline/tiles.test.js
def test_a_tile_that_cannot_be_had_is_reported_and_tried_again(page: Any, server_url: str, profile_id: int) -> None:
    page.route(re.compile(r"/tiles/[0-3]/"), lambda route: route.abort())
    page.goto(f"{server_url}/profiles/{profile_id}/timeline/?w=2000000-2050000")
    page.wait_for_selector("#tl-error:not([hidden])", timeout=60_000)
    eventually(lambda: page.evaluate(f"{APP}.stage.entries") > 0)                  # the coarser tiles are still drawn
    page.unroute_all()
    page.click("#tl-retry")
    settled(page)
    expect(page.locator("#tl-error")).to_be_hidden()


def test_an_api_that_fails_says_so_and_opens_on_the_second_try(page: Any, server_url: str, profile_id: int) -> None:
    page.route("**/api/**/timeline/", lambda route: route.fulfill(
        status=503, json={"error": "the store is away", "hint": "wait a moment"}))
    page.goto(f"{server_url}/profiles/{profile_id}/timeline/")
    page.wait_for_selector("#tl-state .notice-error")
    shows(page.locator("#tl-state").first, "the store is away")
    shows(page.locator("#tl-state").first, "wait a moment")
    page.unroute_all()
    page.click("#tl-state >> text=Try again")
    settled(page)
