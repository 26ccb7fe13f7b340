"""Pages in a headless Chromium, the examples loaded: when something is painted, when all is there, what it weighs and moves.

A server of its own is started as `make run` does. Every kind of page is opened once, which warms the server and the browser, then
VISITS times; medians count. "Complete" is the last change of the page or the last file, figures on the screen
or near it drawn; what is further down waits until the page rests (static/js/lib/near.js)."""

from __future__ import annotations

import statistics
import time
from typing import Any

import requests
from playwright.sync_api import Browser

from tests.tour import chromium, find_pages, product, visit

VISITS, REQUESTS = 3, 20
SERVER_MS = 100.0
# over all kinds of pages: what, as tests.tour says it, its unit, its budget
OVER_ALL = (("first paint", "first_paint_ms", "ms", 400.0), ("weight beside Bokeh", "kb", "kB", 300.0),
            ("layout shift", "shift", "", 0.05))
# kinds of pages (tests.tour.kind) -> how long they may take until complete, in ms
COMPLETE_MS = {
    "/": 500.0, "/profiles/N/": 800.0, "/profiles/N/kernels/N/": 800.0, "/profiles/N/roofline/": 800.0, "/tune/N/": 800.0,
    "/compare/": 800.0, "/sql/": 600.0, "/profiles/N/timeline/": 800.0}


def run() -> list[dict[str, Any]]:
    with product("") as url, chromium() as browser:
        session = requests.Session()
        pages = find_pages(url, session)
        seen = _visits(browser, url, pages)
        server = {kind: _server_ms(session, url + address) for kind, address in pages.items()}
        reference_ms = _server_ms(session, url + "/health/")
    rows = [_row(f"{kind} complete, median of {VISITS}", f"{_median(seen[kind], 'complete_ms'):.0f} ms",
                 f"first paint {_median(seen[kind], 'first_paint_ms'):.0f} ms",
                 _median(seen[kind], "complete_ms") / max(1.0, _median(seen[kind], "first_paint_ms")), f"< {most:.0f} ms",
                 _median(seen[kind], "complete_ms") < most) for kind, most in COMPLETE_MS.items() if kind in seen]
    missing = sorted(set(COMPLETE_MS) - set(seen))
    if missing:
        rows.append(_row("pages that no link leads to", ", ".join(missing), "", None, "none", False))
    for words, name, unit, most in OVER_ALL:
        rows.append(_worst(words, {kind: _median(lines, name) for kind, lines in seen.items()}, unit, most, None))
    return [*rows, _worst(f"the server's p95 of {REQUESTS}", server, "ms", SERVER_MS, reference_ms)]


def _visits(browser: Browser, url: str, pages: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    seen: dict[str, list[dict[str, Any]]] = {kind: [] for kind in pages}
    for number, line in enumerate(visit(browser, url, list(pages.items()) * (1 + VISITS), 1440, "light", None, None)):
        if number >= len(pages):
            seen[line["page"]].append(line)
    return seen


def _median(lines: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(each[name] or 0 for each in lines))


def _worst(words: str, values: dict[str, float], unit: str, most: float, reference_ms: float | None) -> dict[str, Any]:
    """Return one row over all kinds of pages: the largest value, and which other pages are above the budget."""
    kind, *others = sorted(values, key=lambda each: -values[each])
    above = [f"{each} {values[each]:.3g}" for each in others if values[each] >= most][:8]
    told = f"{values[kind]:.3g} {unit} ({kind})" + (f"; also {', '.join(above)}" if above else "")
    usual = f"health check {reference_ms:.1f} ms" if reference_ms else f"median {statistics.median(values.values()):.3g} {unit}"
    return _row(f"{words}, the most of {len(values)} kinds of pages", told, usual.strip(),
                values[kind] / reference_ms if reference_ms else None, f"< {most:g} {unit}".strip(), values[kind] < most)


def _row(what: str, measured: str, reference: str, ratio: float | None, budget: str, ok: bool) -> dict[str, Any]:
    return {"what": what, "measured": measured, "reference": reference, "ratio": ratio, "budget": budget, "ok": ok}


def _server_ms(session: requests.Session, address: str) -> float:
    times = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        session.get(address, timeout=60)
        times.append((time.perf_counter() - began) * 1e3)
    return sorted(times)[int(0.95 * (REQUESTS - 1))]
