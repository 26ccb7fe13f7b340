"""The timeline of a long trace in a real browser: what it holds stays bounded, and what is drawn says what it is."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from bench import generator
from tests.browser.visit import eventually, poll, shows, uploaded
from tests.scale import DEEP

APP = "document.querySelector('.tl').timeline"
QUIET = (f"(({{timeline, tiles, scheduled, motion}}) => "
         f"timeline.names !== null && tiles.pending === 0 && !scheduled && !motion.isMoving)({APP})")
MB = 2**20


@pytest.fixture(scope="session")
def long_trace(server_url: str, playwright: Any, tmp_path_factory: Any) -> int:
    """Four ranks, 300,000 slices (in `make test` a quarter), 14 tracks."""
    file = tmp_path_factory.mktemp("long") / "long.json.gz"
    generator.write(file, slices=300_000 if DEEP else 70_000, ranks=4)
    return uploaded(playwright, server_url, file, name="long")


@pytest.fixture(scope="session")
def overlapping(server_url: str, playwright: Any, tmp_path_factory: Any) -> int:
    """Two kernels that overlap in part, as PDL makes them, a copy, and a mark of the profiler's long after all."""
    call = {"ph": "X", "cat": "cuda_runtime", "pid": 5, "tid": 5, "dur": 4}
    work = {"ph": "X", "pid": 0, "tid": 7}
    kernel = {"device": 0, "stream": 7}
    events = [
        {**call, "name": "cudaLaunchKernel", "ts": 1000, "args": {"correlation": 1}},
        {**call, "name": "cudaLaunchKernel", "ts": 1010, "args": {"correlation": 2}},
        {**call, "name": "cudaMemcpyAsync", "ts": 1020, "args": {"correlation": 3}},
        {**work, "cat": "kernel", "name": "first", "ts": 1050, "dur": 100, "args": {**kernel, "correlation": 1}},
        {**work, "cat": "kernel", "name": "second", "ts": 1120, "dur": 100, "args": {**kernel, "correlation": 2}},
        {**work, "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 1230, "dur": 50,
         "args": {**kernel, "correlation": 3, "bytes": 1_000_000}},
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9000},
    ]
    file = tmp_path_factory.mktemp("overlap") / "overlap.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}).encode()))
    return uploaded(playwright, server_url, file, name="overlap")


@pytest.fixture
def opened(shared: Callable[[str], Any]) -> Callable[[int], Any]:
    def call(pk: int) -> Any:
        page = shared(f"/profiles/{pk}/timeline/")
        page.wait_for_selector(".tl[data-ready]")
        poll(page, QUIET)
        return page
    return call


def test_a_page_of_scripts_is_light(opened: Any, long_trace: int) -> None:
    page = opened(long_trace)
    static = page.evaluate("performance.getEntriesByType('resource').filter((e) => e.name.includes('/static/'))"
                           ".reduce((sum, e) => sum + e.encodedBodySize, 0)")
    assert 0 < static < 300_000


def test_requests_are_small_and_the_server_says_how_long_each_took(opened: Any, long_trace: int) -> None:
    page = opened(long_trace)
    tiles = page.evaluate("performance.getEntriesByType('resource').filter((e) => e.name.includes('/tiles/'))"
                          ".map((e) => [e.encodedBodySize, e.serverTiming.length])")
    assert tiles and max(size for size, _ in tiles) <= 100_000 and all(timing == 1 for _, timing in tiles)


def test_a_deep_stack_asks_for_the_depths_in_view(opened: Any, long_trace: int) -> None:
    page = opened(long_trace)
    deep = page.evaluate(f"[...{APP}.timeline.tracks.values()].sort((a, b) => b.depths - a.depths)[0]")
    assert deep["depths"] > 20
    page.evaluate(f"{APP}.stage.main.element.scrollTop = {APP}.stage.main.rows.byTrack.get({deep['id']}).y + 10 * 18")
    asked = f"""performance.getEntriesByType('resource').map((e) => new URL(e.name).searchParams.get('lanes'))
      .filter(Boolean).flatMap((text) => text.split(',')).filter((lane) => lane.startsWith('{deep["id"]}:'))"""
    poll(page, f"({asked}).length > 0")
    poll(page, QUIET)
    lanes = page.evaluate(asked)
    assert all(int(lane.split(":")[1].split("-")[1]) - int(lane.split(":")[1].split("-")[0]) == 3 for lane in lanes)


def test_the_overview_shows_how_busy_each_gpu_is(opened: Any, long_trace: int) -> None:
    page = opened(long_trace)
    poll(page, f"{APP}.timeline.density !== null && {APP}.stage.overview.lines > 0")
    lines = page.evaluate(f"{APP}.stage.overview.lines")
    assert lines >= 5                                             # four GPUs, and the processes
    colours = page.evaluate("""() => { const c = document.querySelector('.tl-overview');
      return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size; }""")
    assert colours > 20


def test_memory_stays_bounded_however_long_one_scrolls(opened: Any, long_trace: int) -> None:
    page = opened(long_trace)
    limit, steps = (2 * MB, 36) if DEEP else (MB // 2, 9)
    page.evaluate(f"{APP}.tiles.maxBytes = {limit}; performance.clearResourceTimings(); "
                  "performance.setResourceTimingBufferSize(5000)")
    for step in range(4 * steps):                                 # tiles that are no longer looked at may never be fetched
        page.evaluate(f"""(step) => {{
          const app = {APP}, {{ viewport, stage }} = app, whole = viewport.max - viewport.min;
          const span = whole / [4, 40, 400][step % 3];
          const from = viewport.min + (whole - span) * ((step * 0.618034) % 1);
          stage.main.element.scrollTop = (step * 0.381966 % 1) * stage.main.rows.height;
          app.moved(() => viewport.set(from, from + span));
        }}""", step)
        poll(page, QUIET)
        held, cells, cached = page.evaluate(f"[{APP}.tiles.bytes, {APP}.tiles.cells.size, {APP}.tiles.runCache.size]")
        assert held <= limit + 600_000 and cells < 400 and cached < 2000
        fetched = page.evaluate("performance.getEntriesByType('resource').filter((e) => e.name.includes('/tiles/'))"
                                ".reduce((sum, e) => sum + e.decodedBodySize, 0)")
        if step + 1 >= steps and fetched > 1.5 * limit:
            break
    assert fetched > 1.5 * limit                                  # more went through than is held
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    assert heap < 100 * MB
    eventually(lambda: page.locator(".tl-label").count() < 60)                 # rows far away are not in the page


def test_names_say_how_busy_their_tracks_are_in_the_window(opened: Any, overlapping: int) -> None:
    page = opened(overlapping)
    page.evaluate(f"{APP}.go({APP}.timeline.startNs + 50_000, {APP}.timeline.startNs + 250_000)")
    stream = page.evaluate(f"[...{APP}.timeline.tracks.values()].find((t) => t.kind === 'stream').id")
    poll(page, f"document.querySelector('[data-use=\"{stream}\"]').textContent === '95 %'")      # 170 + 20 of 200 µs
    page.evaluate(f"{APP}.go({APP}.timeline.startNs + 230_000, {APP}.timeline.startNs + 330_000)")
    poll(page, f"document.querySelector('[data-use=\"{stream}\"]').textContent === '50 %'")


def test_it_opens_on_the_slices_not_on_the_end_of_the_record(opened: Any, overlapping: int) -> None:
    page = opened(overlapping)
    start, end = page.evaluate(f"[{APP}.viewport.start, {APP}.viewport.end]")
    whole = page.evaluate(f"{APP}.viewport.max")
    assert start == 0 and 280_000 <= end < 300_000 and whole >= 8_000_000
    eventually(lambda: "w=" not in page.url)
    page.locator(".tl-main").focus()
    page.keyboard.press("0")
    poll(page, f"{APP}.viewport.end === {APP}.viewport.max")
    poll(page, "location.search.includes('w=')")
    page.keyboard.press("0")
    poll(page, f"{APP}.viewport.end < 300_000")
    poll(page, "!location.search.includes('w=')")


def test_overlapping_slices_are_marked_as_overlapping(opened: Any, overlapping: int) -> None:
    page = opened(overlapping)
    hatched = page.evaluate(f"(({{overflow, count}}) => [...overflow.slice(0, count)])({APP}.stage.main.painter.hatches)")
    assert hatched == [1]


def test_derived_counters_are_drawn_with_their_scale(opened: Any, overlapping: int) -> None:
    page = opened(overlapping)
    names = page.locator(".tl-label-counter .tl-name").all_inner_texts()
    assert any("launches" in name and "derived" in name for name in names) and any("bandwidth" in name for name in names)
    track = page.evaluate(f"[...{APP}.timeline.tracks.values()].find((t) => t.unit === 'launches')")
    assert track["greatest"] == 3
    x, y = page.evaluate(f"""(id) => {{
      const {{ stage, viewport }} = {APP}, row = stage.main.rows.byTrack.get(id), box = stage.main.element.getBoundingClientRect();
      return [box.left + stage.labelPx + viewport.x(60_000), box.top + row.y - stage.main.scroll + row.height / 2];
    }}""", track["id"])
    page.mouse.move(x, y)
    page.wait_for_selector(".tl-tip:not([hidden])")
    shows(page.locator(".tl-tip").first, "3 launches")
