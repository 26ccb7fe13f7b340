"""`/health/live` and `/health/ready` for load balancers and orchestrators: no sign-in, no detail, no redirect, any Host header.

Answered before Django and without a slot (`webapp.slots`), so that a busy server is told from a dead one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import DatabaseError, connection
from redis.exceptions import RedisError

from webapp import schema
from webapp.outage import RETRY_AFTER_S
from workers import jobs

LIVE, READY = "/health/live", "/health/ready"
KEPT_S = 1.0            # an answer is good that long: many probes ask as much as one
WITHIN_S = 3.0


def is_ready() -> bool:
    """Return whether database and Valkey answer and the tables are up to date."""
    try:
        jobs.connection().ping()
        return not schema.pending()
    except (DatabaseError, RedisError):
        return False
    finally:
        connection.close()          # this thread serves no request


class Probes:
    """An ASGI wrapper that answers the two addresses and passes on everything else."""

    def __init__(self, app: Callable[..., Awaitable[None]], check: Callable[[], bool] = is_ready) -> None:
        self.app, self.check = app, check
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="ready")
        self.asking: asyncio.Future[bool] | None = None
        self.kept, self.kept_s = False, float("-inf")

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Callable[..., Awaitable[None]]) -> None:
        path = scope["path"].rstrip("/")
        if path not in (LIVE, READY):
            await self.app(scope, receive, send)
        elif scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, [(b"allow", b"GET, HEAD")])
        elif path == LIVE:
            await _answer(send, 204)
        elif await self.is_ready():
            await _answer(send, 200)
        else:
            await _answer(send, 503, [(b"retry-after", str(RETRY_AFTER_S).encode())])

    async def is_ready(self) -> bool:
        """Return the last answer where it is fresh, else ask, once for all who wait; False where nothing answers in time."""
        if time.monotonic() - self.kept_s < KEPT_S:
            return self.kept
        if self.asking is None or self.asking.done():
            self.asking = asyncio.get_running_loop().run_in_executor(self.pool, self.check)
        try:
            self.kept = await asyncio.wait_for(asyncio.shield(self.asking), WITHIN_S)
        except TimeoutError:
            self.kept = False
        self.kept_s = time.monotonic()
        return self.kept


async def _answer(send: Callable[..., Awaitable[None]], status: int, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    length = [] if status == 204 else [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status,
                "headers": [(b"cache-control", b"no-store"), *length, *(headers or [])]})
    await send({"type": "http.response.body", "body": b""})
