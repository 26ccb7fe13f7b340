"""The timeline of a very large trace in a browser: 50 million slices on 92 tracks, brought in through the ordinary ingest.

With cold caches (the web process is new, the stored files are out of the system's cache): time to the first painted
slices; then 10 s of keys and wheel as a person would use them over tiles that nobody asked for before: times between
animation frames, times of tiles at the server and their bytes; then a long scroll through the whole trace, with the
memory of the page's process. The reference is an empty canvas of the same size in the same browser: on a busy machine
neither keeps 60 frames a second, and the ratio says whose doing it is.

RIDGEPOINT_BENCH_SLICES=… for a smaller trace, RIDGEPOINT_BENCH_PROFILE=… for one that is already there.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings

from bench import generator
from bench.browser import EMPTY, RECORD, Browser, browser, chromium, poll, server

SLICES = int(os.environ.get("RIDGEPOINT_BENCH_SLICES", "50_000_000"))
APP = "document.querySelector('.tl').timeline"
PAINTED = f"performance.now() && {APP}?.frames.find((frame) => frame.entries > 100)?.time"
# of each tile the page had: ms at the server, bytes as sent
SERVED = """performance.getEntriesByType('resource').filter((e) => e.name.includes('/tiles/') && e.serverTiming.length)
  .map((e) => [e.serverTiming[0].duration, e.encodedBodySize])"""
SCROLL_STEPS, EMPTY_MS = 240, 5000
FIRST_PAINT_S, FRAME_P95_MS, FRAME_MAX_MS, TILE_P95_MS, TILE_KB, MEMORY_MB = 2.0, 20.0, 50.0, 50.0, 100.0, 400.0
# key or wheel, seconds: into the trace, along it, out, elsewhere, down the tracks
SCRIPT = (("w", 1.6), ("d", 1.2), ("w", 0.8), ("a", 0.8), ("s", 0.7), ("wheel", 1.2), ("d", 0.9), ("w", 0.7), ("wheel", 0.8),
          ("s", 1.3))


def run() -> list[dict[str, Any]]:
    if chromium() is None:
        return [{"what": "timeline in a browser", "measured": "no chromium here", "reference": "", "ratio": None, "budget": "",
                 "ok": None}]
    pk, slices, made = _profile()
    try:
        with server(Path(settings.HOME)) as address, browser() as shown:
            _forget_files(pk)
            return _rows(shown, address, pk, slices)
    finally:
        if made:
            from profiles.models import Profile
            from profiles.upload.services import profile_delete

            profile_delete(Profile.objects.get(pk=pk))


def _profile() -> tuple[int, int, bool]:
    """The trace in the bench's own store: its id, its slices, and whether we made it now."""
    from django.core.files import File

    from profiles.models import Profile
    from profiles.store.timeline import timeline
    from profiles.upload.services import profile_create, profile_ingest
    from webapp import accounts

    if known := os.environ.get("RIDGEPOINT_BENCH_PROFILE"):
        return int(known), timeline(int(known)).slices.rows, False
    with tempfile.TemporaryDirectory(prefix="ridgepoint-bench-") as folder:
        file = Path(folder) / "trace.json.gz"
        written, slices = generator.write(file, slices=SLICES)
        sys.stderr.write(f"  {written / 1e9:.1f} GB of JSON, {slices:,} slices written; reading …\n")
        with file.open("rb") as opened:
            profile = profile_create(owner=accounts.local_user(), file=File(opened, file.name), name=f"bench {slices:,}",
                                     build="", model="", tags=[], notes="")
    began = time.perf_counter()
    profile = profile_ingest(profile.pk, "bench")
    if profile.status != Profile.Status.READY:
        raise RuntimeError(f"the trace could not be read: {profile.error}")
    sys.stderr.write(f"  read in {time.perf_counter() - began:.0f} s\n")
    return profile.pk, slices, True


def _forget_files(pk: int) -> None:
    """Stored files leave the system's cache, as after a restart of the machine."""
    from profiles.store import trace as store

    for path in store.local_path(store.key(pk, "timeline.json")).parent.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _rows(shown: Browser, address: str, pk: int, slices: int) -> list[dict[str, Any]]:
    page, what = shown.page, f"timeline of {slices / 1e6:.3g} M slices"
    before = _empty(shown, address)
    page.goto(f"{address}/profiles/{pk}/timeline/")
    painted_s = float(poll(page, PAINTED)) / 1e3
    poll(page, f"{APP}.tiles.pending === 0")
    page.evaluate("performance.clearResourceTimings(); performance.setResourceTimingBufferSize(20000)")
    frames = _moved(shown)
    tiles = page.evaluate(SERVED)
    served = np.array(tiles or [[0.0, 0.0]])
    heap, memory = _long_scroll(shown)
    empty = np.concatenate((before, _empty(shown, address)))
    p95, longest, limit = _p(frames, 95), float(frames.max()), f"empty canvas {_p(empty, 95):.1f} ms"
    tile_ms, tile_kb = _p(served[:, 0], 95), float(served[:, 1].max()) / 1e3
    return [
        _row(f"{what}: first paint, cold", f"{painted_s:.2f} s", "", None, f"< {FIRST_PAINT_S:g} s", painted_s < FIRST_PAINT_S),
        _row(f"{what}: frame while moving, p95 of {frames.size}", f"{p95:.1f} ms", limit, p95 / _p(empty, 95),
             f"≤ {FRAME_P95_MS:g} ms", p95 <= FRAME_P95_MS),
        _row(f"{what}: longest frame", f"{longest:.1f} ms", f"empty canvas {empty.max():.1f} ms", longest / float(empty.max()),
             f"≤ {FRAME_MAX_MS:g} ms", longest <= FRAME_MAX_MS),
        _row(f"{what}: tile at the server, cold, p95 of {len(tiles)}", f"{tile_ms:.1f} ms", "", None, f"< {TILE_P95_MS:g} ms",
             tile_ms < TILE_P95_MS),
        _row(f"{what}: largest tile", f"{tile_kb:.0f} kB", "", None, f"≤ {TILE_KB:g} kB", tile_kb <= TILE_KB),
        _row(f"{what}: page's memory while scrolling {SCROLL_STEPS} screens", f"{memory / 1e6:.0f} MB",
             f"of it JavaScript {heap / 1e6:.0f} MB", None, f"< {MEMORY_MB:g} MB", memory / 1e6 < MEMORY_MB),
    ]


def _empty(shown: Browser, address: str) -> np.ndarray[Any, Any]:
    """The reference, before and after: other work on the machine comes and goes."""
    shown.page.goto(f"{address}/health/")
    return np.array(shown.page.evaluate(EMPTY, EMPTY_MS))


def _row(what: str, measured: str, reference: str, ratio: float | None, budget: str, ok: bool) -> dict[str, Any]:
    return {"what": what, "measured": measured, "reference": reference, "ratio": ratio, "budget": budget, "ok": ok}


def _moved(shown: Browser) -> np.ndarray[Any, Any]:
    """Times between frames while the script's keys are held and its wheel turns."""
    page = shown.page
    page.mouse.move(900, 500)
    page.locator(".tl-main").focus()
    page.evaluate(RECORD)
    for what, seconds in SCRIPT:
        if what != "wheel":
            page.keyboard.down(what)
            page.wait_for_timeout(seconds * 1e3)
            page.keyboard.up(what)
            continue
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            page.mouse.wheel(0, 60)
            page.wait_for_timeout(16)
    return np.array(page.evaluate("benchFrames()"))


def _long_scroll(shown: Browser) -> tuple[int, int]:
    """Screen after screen through the trace at three zooms and down the tracks: the most memory seen on the way."""
    page, heap, memory = shown.page, 0, 0
    for step in range(SCROLL_STEPS):
        page.evaluate(f"""(step) => {{
          const app = {APP}, {{ viewport, stage }} = app, whole = viewport.max - viewport.min;
          const span = whole / [40, 400, 4000][step % 3];
          const from = viewport.min + (whole - span) * ((step * 0.618034) % 1);
          stage.main.element.scrollTop = (step * 0.381966 % 1) * stage.main.rows.height;
          app.moved(() => viewport.set(from, from + span));
        }}""", step)
        poll(page, f"{APP}.tiles.wanted && {APP}.tiles.inflight.size + {APP}.tiles.queue.length < 4 && !{APP}.scheduled", 20)
        if step % 20 == 19:
            heap, memory = max(heap, shown.heap_bytes()), max(memory, shown.renderer_bytes())
    return heap, memory


def _p(values: np.ndarray[Any, Any], percent: float) -> float:
    return float(np.percentile(values, percent))
