"""Pages of browser tests."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.visit import WITHIN_MS
from tests.scale import DEEP

_OURS = re.compile(r"(http|ws)://127\.0\.0\.1|blob:|data:")


# RIDGEPOINT_SLOW_BROWSER=6 makes every page that many times slower: a test that races with its page then loses here, not elsewhere
_SLOWER = float(os.environ.get("RIDGEPOINT_SLOW_BROWSER", "1"))


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Chromium without a window around its pages, where it is: 40 % less processor time. `make test-deep` asks the whole one."""
    shell = None if DEEP or os.environ.get("RIDGEPOINT_CHROMIUM") else shutil.which("chromium-headless-shell")
    return {**browser_type_launch_args, "executable_path": shell} if shell else browser_type_launch_args


@pytest.fixture(scope="session")
def _kept_context(browser: Any, browser_context_args: dict[str, Any], server_url: str) -> Iterator[Any]:
    context = browser.new_context(**browser_context_args)
    context.new_page().goto(f"{server_url}/health/")        # one page stays: its process and scripts serve every later one
    yield context
    context.close()


@pytest.fixture
def context(_kept_context: Any, server_url: str) -> Iterator[Any]:
    """A browser that knows the site's files already, and nothing else of what other tests did.

    Reading and compiling every script anew took a third of a page's time.
    """
    context = _kept_context
    yield context
    context.set_offline(False)
    context.unroute_all(behavior="ignoreErrors")
    kept, *pages = context.pages
    for page in pages:
        page.close()
    context.new_cdp_session(kept).send("Storage.clearDataForOrigin", {
        "origin": server_url, "storageTypes": "local_storage,indexeddb,cache_storage,service_workers"})
    context.clear_cookies()
    context.clear_permissions()


@pytest.fixture
def page(page: Any) -> Any:
    page.set_default_timeout(WITHIN_MS)
    if _SLOWER > 1:
        page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": _SLOWER})
    return page


@pytest.fixture
def watched(page: Any) -> Iterator[Any]:
    """A page whose console errors (a CSP violation is one), uncaught errors and requests to elsewhere fail the test."""
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if _OURS.match(request.url) else wrong.append(request.url))
    yield page
    assert wrong == []
