"""The site below a path of its host (RIDGEPOINT_PREFIX): a proxy hands every address on as it came.

What stands around Django (requests, probes, bodies, slots) sees addresses without the prefix, Django sees them whole. An address
without the prefix is answered as well: probes of an orchestrator come past the proxy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

Application = Callable[..., Awaitable[None]]


class Below:
    """Takes the prefix off, and keeps it as `root_path`; of a WebSocket Channels takes it off."""

    def __init__(self, app: Application, prefix: str) -> None:
        self.app, self.prefix = app, prefix

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if self.prefix and scope["type"] in ("http", "websocket"):
            is_below = scope["path"].startswith(f"{self.prefix}/") or scope["path"] == self.prefix
            path = scope["path"].removeprefix(self.prefix) or "/" if is_below and scope["type"] == "http" else scope["path"]
            scope = {**scope, "path": path, "root_path": self.prefix if is_below else ""}
        await self.app(scope, receive, send)


class Whole:
    """Puts the prefix back before the address."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope.get("root_path"):
            scope = {**scope, "path": scope["root_path"] + scope["path"]}
        await self.app(scope, receive, send)
