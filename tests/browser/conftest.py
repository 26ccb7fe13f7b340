"""Pages of browser tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

_OURS = re.compile(r"(http|ws)://127\.0\.0\.1|blob:|data:")


@pytest.fixture
def watched(page: Any) -> Iterator[Any]:
    """A page whose console errors (a CSP violation is one), uncaught errors and requests to elsewhere fail the test."""
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if _OURS.match(request.url) else wrong.append(request.url))
    yield page
    assert wrong == []
