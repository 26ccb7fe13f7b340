"""Below a path of the host: what stands around Django sees addresses without it, Django and WebSockets see them whole."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.operate.below import Below, Whole


async def seen(prefix: str, kind: str, path: str) -> tuple[str, str, str]:
    """Return the path around Django, the path in Django, and the folder the site is served from."""
    found: list[dict[str, Any]] = []

    async def django(scope: dict[str, Any], receive: Any, send: Any) -> None:
        found.append(scope)

    async def around(scope: dict[str, Any], receive: Any, send: Any) -> None:
        found.append(scope)
        await Whole(django)(scope, receive, send)

    await Below(around, prefix)({"type": kind, "path": path, "root_path": ""}, None, None)
    return found[0]["path"], found[1]["path"], found[1]["root_path"]


@pytest.mark.parametrize(("prefix", "path", "expected"), [
    ("", "/tune/", ("/tune/", "/tune/", "")), ("/perf", "/perf/tune/", ("/tune/", "/perf/tune/", "/perf")),
    ("/perf", "/perf", ("/", "/perf/", "/perf")), ("/perf", "/perfect/", ("/perfect/", "/perfect/", "")),
    ("/perf", "/health/live", ("/health/live", "/health/live", ""))])
async def test_http(prefix: str, path: str, expected: tuple[str, str, str]) -> None:
    assert await seen(prefix, "http", path) == expected


async def test_a_websocket_keeps_its_path_for_channels() -> None:
    assert await seen("/perf", "websocket", "/perf/ws/live/") == ("/perf/ws/live/", "/perf/ws/live/", "/perf")
