"""Pages of browser tests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.visit import WITHIN_MS

_OURS = re.compile(r"(http|ws)://127\.0\.0\.1|blob:|data:")


# RIDGEPOINT_SLOW_BROWSER=6 makes every page that many times slower: a test that races with its page then loses here, not elsewhere
_SLOWER = float(os.environ.get("RIDGEPOINT_SLOW_BROWSER", "1"))


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
