"""What browser tests share: waiting within the CSP, and a recording that is uploaded and read before the first page opens."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from playwright.sync_api import Error, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

H200 = Path(__file__).parents[1] / "data" / "h200"
READ_WITHIN_S = 60
READ = ("ready", "failed")
LOADING = ("of null", "of undefined", "context was destroyed")     # what a script says that meets a page still loading
WITHIN_MS = 60_000         # the machine may have other work: only a test that fails waits so long
WORKED_MS = 180_000        # until a worker has done what was asked: it runs at a lower priority, after what was asked before
expect.set_options(timeout=WITHIN_MS)


# asked within the page: a question from without costs three processes as much as a page that is drawn
ASKED = """(async () => {
  for (const until = performance.now() + %d; performance.now() < until; await new Promise((again) => setTimeout(again, 50))) {
    let found = (%s);
    if (typeof found === "function") found = found();
    if (found = await found) return found;
  }
})()"""
STRETCH_MS = 5_000


def poll(page: Any, script: str, within_ms: int = WITHIN_MS) -> Any:
    """`page.wait_for_function` needs eval, which the CSP forbids. A script that meets a page still loading is asked again."""
    last: Error | None = None
    until = time.monotonic() + within_ms / 1000
    while time.monotonic() < until:
        try:
            if found := page.evaluate(ASKED % (STRETCH_MS, script)):
                return found
        except Error as error:
            if not any(words in error.message for words in LOADING):
                raise
            last = error
            page.wait_for_timeout(50)
    raise TimeoutError(script) from last


def follow(page: Any, link: str, address: str) -> None:
    """Click a link until the page is there: a table that is drawn anew takes the link from under the pointer."""
    for _ in range(WITHIN_MS // 5_000):
        page.click(link)
        try:
            page.wait_for_url(address, timeout=5_000)
            return
        except PlaywrightTimeoutError:
            continue
    raise TimeoutError(f"{link} did not lead to {address}")


def eventually(seen: Callable[[], Any], within_s: float = WITHIN_MS / 1000, every_s: float = 0.05) -> None:
    """What a page shows is so, or becomes so: it is asked until then. Playwright's `expect` does it for a single locator."""
    until = time.monotonic() + within_s
    while not _sees(seen):
        assert time.monotonic() < until, "the page did not come to show this"
        time.sleep(every_s)


def _sees(seen: Callable[[], Any]) -> bool:
    try:
        return bool(seen())
    except Error as error:
        if any(words in error.message for words in LOADING):
            return False
        raise


def shows(where: Any, text: str) -> None:
    """The locator's visible text holds this, or comes to."""
    expect(where).to_contain_text(text, use_inner_text=True)


def reads(where: Any, text: str) -> None:
    """The locator's visible text is this, or comes to be."""
    expect(where).to_have_text(text, use_inner_text=True)


def fits(page: Any) -> None:
    """Nothing scrolls sideways, once figures and tables follow the window's new width."""
    poll(page, "document.documentElement.scrollWidth <= innerWidth")


def uploaded(playwright: Any, server_url: str, recording: Path, **fields: str) -> int:
    """The profile's id once it is ready; through the API, with the cookies that a browser would have."""
    with requests.Session() as client:
        client.get(f"{server_url}/profiles/upload/", timeout=READ_WITHIN_S)
        client.headers.update({"X-CSRFToken": client.cookies["csrftoken"], "Referer": server_url})
        answer = client.post(f"{server_url}/api/profiles/", data=fields, timeout=READ_WITHIN_S,
                             files={"file": (recording.name, recording.read_bytes(), "application/gzip")})
        assert answer.status_code == 201, answer.text
        pk = int(answer.json()["id"])
        until = time.monotonic() + READ_WITHIN_S
        while (profile := client.get(f"{server_url}/api/profiles/{pk}/", timeout=READ_WITHIN_S).json())["status"] not in READ:
            assert time.monotonic() < until, profile
            time.sleep(0.5)             # each look costs the server as much as a page's part
    assert profile["status"] == "ready", profile["error"]
    return pk


def read_once(playwright: Any, server_url: str, recording: Path) -> int:
    """The profile of a recording that tests only look at: those of all files look at the same one, under the file's name."""
    if (server_url, recording) not in _READ:
        _READ[server_url, recording] = uploaded(playwright, server_url, recording)
    return _READ[server_url, recording]


_READ: dict[tuple[str, Path], int] = {}
