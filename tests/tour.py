"""Visit every kind of page of a running Ridgepoint: `python -m tests.tour FOLDER [--widths 1440 1000 390] [--axe] [--pictures]`.

Pages are found by following links from the start page; one of each kind (the address with its numbers taken out, and its tab).
Where no `--at` names a server, one is started in a folder of its own, with the examples loaded. FOLDER/tour.jsonl has a line a
page, width and theme: words a person sees without opening anything, kB that it weighs beside Bokeh, time to the first paint and
until nothing changes any more, layout shift, tasks over 50 ms, whether it scrolls sideways, console errors, and what axe-core
objects to.
`--pictures` keeps a screenshot of each."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import sys
import tempfile
import time
import urllib.parse
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from playwright.sync_api import Browser, Page, sync_playwright

from tests.product import Product

EXAMPLES = ("/examples/", "/examples/environments/", "/examples/guard/")
# a recorded space, searched by a replay worker
JOB = {"operator": "matmul", "shape": {"M": 4096, "N": 4096, "K": 4096}, "dtype": "bf16", "device": "replay:matmul"}
EXAMPLES_WITHIN_S, SETTLED_MS, SETTLES_WITHIN_S = 300.0, 300, 30.0
MOST_PAGES, MOST_KINDS = 1500, 200
HEIGHTS = {1440: 900, 1000: 800, 390: 844}
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync")
_LINK = re.compile(rb'<a\b[^>]*?\bhref="([^"#]+)')
_SKIPPED = re.compile(r"^/(?:api|static|admin|accounts/logout|health|metrics|download|schema|search)\b"
                      r"|/(?:delete|raw|download|export)/?$|\.\w{2,5}$")
# Watches from the first moment on: layout shift, long tasks, the last change of what is shown.
WATCH = """() => {
  const own = window.tourSeen = { shift: 0, tasks: [], changed: 0 };
  new PerformanceObserver((list) => { for (const each of list.getEntries()) if (!each.hadRecentInput) own.shift += each.value; })
    .observe({ type: "layout-shift", buffered: true });
  new PerformanceObserver((list) => { for (const each of list.getEntries()) own.tasks.push(Math.round(each.duration)); })
    .observe({ type: "longtask", buffered: true });
  const note = () => { own.changed = performance.now(); };
  const what = { subtree: true, childList: true, characterData: true, attributeFilter: ["data-state"] };
  new MutationObserver(note).observe(document, what);
}"""
TELL = """() => {
  const own = window.tourSeen, page = performance.getEntriesByType("navigation")[0];
  const files = performance.getEntriesByType("resource"), bokeh = files.filter((each) => /bokeh/i.test(each.name));
  const kb = (list) => Math.round(list.reduce((sum, each) => sum + (each.encodedBodySize || 0), 0) / 1000);
  const words = (document.querySelector("main") || document.body).innerText.match(/[^\\W\\d_][\\w'’-]*/g) || [];
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const ends = files.filter((each) => each.initiatorType !== "other").map((each) => each.responseEnd);
  return {
    words: words.length, first_paint_ms: paint ? Math.round(paint.startTime) : null,
    complete_ms: Math.round(Math.max(own.changed, page.domContentLoadedEventEnd, ...ends)),
    shift: Math.round(own.shift * 1000) / 1000, long_tasks_ms: own.tasks, kb: kb([page, ...files]) - kb(bokeh), bokeh_kb: kb(bokeh),
    height: document.documentElement.scrollHeight, sideways: document.documentElement.scrollWidth > innerWidth };
}"""
# How long nothing has changed or come since the page was painted, and no figure on the screen is about to be drawn.
QUIET_MS = """() => {
  const waits = [...document.querySelectorAll("[data-figure]:not([data-state])")].some((each) => {
    const box = each.getBoundingClientRect();
    return box.width && box.bottom > 0 && box.top < innerHeight;
  });
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  if (waits || !paint || document.querySelector("[data-state=loading]")) return 0;
  return performance.now() - Math.max(paint.startTime, window.tourSeen.changed,
    ...performance.getEntriesByType("resource").map((each) => each.responseEnd));
}"""


def kind(address: str) -> str:
    """Return what pages of one kind share: the path without numbers and long keys, and the tab."""
    parts = urllib.parse.urlsplit(address)
    path = "/".join("N" if re.search(r"\d", word) or len(word) > 24 else word for word in parts.path.split("/"))
    path = re.sub(r"^/docs/(?!$).*", "/docs/N/", path)
    tab = urllib.parse.parse_qs(parts.query).get("tab", [""])[0]
    return f"{path}?tab={tab}" if tab else path


def find_pages(url: str, session: requests.Session) -> dict[str, str]:
    """Return {kind: address} of pages that answer with HTML, in the order in which they are met."""
    found: dict[str, str] = {}
    waiting, seen = deque(["/"]), {"/"}
    for _ in range(MOST_PAGES):
        if not waiting or len(found) >= MOST_KINDS:
            break
        address = waiting.popleft()
        if kind(address) in found:
            continue
        answer = session.get(url + address, timeout=60, stream=True)
        if answer.status_code != 200 or not answer.headers.get("content-type", "").startswith("text/html"):
            answer.close()
            continue
        landed = answer.url.removeprefix(url)
        found.setdefault(kind(landed), landed)
        for raw in _LINK.findall(answer.content):
            link = urllib.parse.urljoin(landed, raw.decode(errors="replace").replace("&amp;", "&"))
            if link not in seen and re.match(r"/(?!/)", link) and not _SKIPPED.search(link.partition("?")[0]):
                seen.add(link)
                waiting.append(link)
    return found


def rows(session: requests.Session, address: str) -> list[dict[str, Any]]:
    """Return the rows of a list of the API."""
    answer = session.get(address, timeout=60).json()
    lists = [answer] if isinstance(answer, list) else [each for each in answer.values() if isinstance(each, list)]
    return lists[0] if lists else []


def load_examples(url: str, session: requests.Session) -> None:
    """Have the examples loaded, and wait until all are read and measured."""
    session.get(url + "/", timeout=60)
    for address in EXAMPLES:
        token = session.cookies.get("csrftoken") or ""
        session.post(url + address, data={"csrfmiddlewaretoken": token}, headers={"Referer": url + "/"}, timeout=300)
    headers = {"Referer": url + "/", "X-CSRFToken": session.cookies["csrftoken"]}
    session.post(url + "/api/tune/", json=JOB, headers=headers, timeout=60).raise_for_status()
    end_s = time.monotonic() + EXAMPLES_WITHIN_S
    while time.monotonic() < end_s:
        waiting = [each for what in ("profiles", "gates", "tune") for each in rows(session, f"{url}/api/{what}/")
                   if each["status"] not in ("ready", "failed", "done", "stopped", "cancelled")]
        if not waiting:
            return
        time.sleep(1)
    raise TimeoutError("the examples were not read in time")


@contextmanager
def chromium() -> Iterator[Browser]:
    found = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def product(at: str) -> Iterator[str]:
    if at:
        yield at.rstrip("/")
        return
    with tempfile.TemporaryDirectory(prefix="ridgepoint-tour-") as folder:
        own = Product(Path(folder))
        try:
            own.wait_until_up()
            load_examples(own.url, requests.Session())
            yield own.url
        finally:
            own.stop()


def settle(page: Page) -> None:
    """Wait until nothing has changed for SETTLED_MS."""
    end_s = time.monotonic() + SETTLES_WITHIN_S
    page.wait_for_load_state("load")
    while time.monotonic() < end_s:
        if page.evaluate(QUIET_MS) > SETTLED_MS:
            return
        page.wait_for_timeout(50)


def visit(browser: Browser, url: str, pages: Iterable[tuple[str, str]], width: int, theme: Any, axe: Any,
          folder: Path | None) -> Iterator[dict[str, Any]]:
    """Open every (kind, address), one after the other in one window; yield what is seen of it. `folder`: where screenshots go."""
    context = browser.new_context(viewport={"width": width, "height": HEIGHTS.get(width, 900)}, color_scheme=theme, base_url=url)
    context.add_init_script(f"({WATCH})()")
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    for name, address in pages:
        errors.clear()
        page.goto(address)
        settle(page)
        line = {"page": name, "address": address, "width": width, "theme": theme, **page.evaluate(TELL), "errors": list(errors)}
        if axe is not None:
            found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
            line["axe"] = [{"rule": each["id"], "count": len(each["nodes"]),
                            "nodes": [node["target"] for node in each["nodes"][:5]]} for each in found]
        if folder is not None:
            page.screenshot(path=str(folder / f"{file_name(name)}-{width}-{theme}.png"))
        yield line
    context.close()


def file_name(page: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", page.lower()).strip("-") or "overview"


def objections(line: dict[str, Any]) -> list[str]:
    """Return what is wrong with a page, in words."""
    return [*line["errors"], *(f"{each['rule']} ×{each['count']} {each['nodes'][0]}" for each in line.get("axe", [])),
            *(["scrolls sideways"] if line["sideways"] else [])]


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(f"{line['width']:5} {line['theme']:5} {line['words']:5} words {line['kb']:5} kB "
                     f"{line['first_paint_ms'] or 0:5} ms {line['complete_ms']:6} ms  shift {line['shift']:.3f}  {line['page']}  "
                     f"{'; '.join(objections(line))}\n")
    sys.stdout.flush()


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--at", default="", help="a server that runs already")
    asked.add_argument("--widths", nargs="*", type=int, default=[1440])
    asked.add_argument("--themes", nargs="*", default=["light"], choices=["light", "dark"])
    asked.add_argument("--only", default="", help="pages whose address holds this")
    asked.add_argument("--axe", action="store_true")
    asked.add_argument("--pictures", action="store_true")
    options = asked.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    axe = None
    if options.axe:
        from axe_playwright_python.sync_playwright import Axe

        axe = Axe()
    wrong = 0
    with product(options.at) as url, chromium() as browser, (options.folder / "tour.jsonl").open("w") as file:
        pages = {name: each for name, each in find_pages(url, requests.Session()).items() if options.only in each}
        for width, theme in itertools.product(options.widths, options.themes):
            for line in visit(browser, url, pages.items(), width, theme, axe, options.folder if options.pictures else None):
                file.write(json.dumps(line) + "\n")
                file.flush()
                wrong += bool(objections(line))
                say(line)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
