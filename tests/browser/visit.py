"""What browser tests share: waiting within the CSP, and a recording that is uploaded and read before the first page opens."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Error, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

H200 = Path(__file__).parents[1] / "data" / "h200"
READ_WITHIN_S = 60
LOADING = ("of null", "of undefined", "context was destroyed")     # what a script says that meets a page still loading
WITHIN_MS = 60_000         # the machine may have other work: only a test that fails waits so long
WORKED_MS = 180_000        # until a worker has done what was asked: it runs at a lower priority, after what was asked before
expect.set_options(timeout=WITHIN_MS)


def poll(page: Any, script: str, within_ms: int = WITHIN_MS) -> Any:
    """`page.wait_for_function` needs eval, which the CSP forbids. A script that meets a page still loading is asked again."""
    last: Error | None = None
    for _ in range(within_ms // 50):
        try:
            if found := page.evaluate(script):
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


def eventually(seen: Callable[[], Any], within_s: float = WITHIN_MS / 1000) -> None:
    """What a page shows is so, or becomes so: it is asked until then. Playwright's `expect` does it for a single locator."""
    until = time.monotonic() + within_s
    while not _sees(seen):
        assert time.monotonic() < until, "the page did not come to show this"
        time.sleep(0.05)


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
    client = playwright.request.new_context(base_url=server_url)
    client.get("/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")
    answer = client.post("/api/profiles/", headers={"X-CSRFToken": token, "Referer": server_url}, multipart={
        "file": {"name": recording.name, "mimeType": "application/gzip", "buffer": recording.read_bytes()}, **fields})
    assert answer.status == 201, answer.text()
    pk = int(answer.json()["id"])
    for _ in range(READ_WITHIN_S * 5):
        profile = client.get(f"/api/profiles/{pk}/").json()
        if profile["status"] in ("ready", "failed"):
            break
        time.sleep(0.2)
    assert profile["status"] == "ready", profile["error"]
    client.dispose()
    return pk
