"""The address /mcp: who may come in, and what stands around the tools' server.

It stands before the slots (`webapp.slots`): what a tool asks of the API takes one, as any request does, and a program that is
answered holds none. Each request is served alone; nothing is kept between two.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from webapp.agents.inside import CALLER, Answer, Application, Caller, in_thread, request_api
from webapp.live import is_same_origin
from workers import trail

PATH = "/mcp"
MOST_BYTES = 1 << 20                    # of one message
ME = "/api/agents/me/"
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
UNKNOWN = "send “Authorization: Bearer …” with an API token (your name in the menu → API tokens)"


class Agents:
    """An ASGI wrapper that answers /mcp and passes everything else on; tools ask the same `app`."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.serve: Callable[..., Awaitable[None]] | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/") != PATH:
            await self.app(scope, receive, send)
            return
        try:
            await self._answer(scope, receive, send)
        finally:
            if now := trail.current():
                now.route = PATH.strip("/")         # and not that of the API which was asked last

    async def _answer(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if not validate_host(split_domain_port(host.lower())[0], settings.ALLOWED_HOSTS):
            return await _refuse(send, 421, "this host name is not one of this server", "an owner names it in RIDGEPOINT_HOSTS")
        if "origin" in headers and not is_same_origin(headers["origin"], host):
            return await _refuse(send, 403, "pages of other sites may not use this address", "call it from a program")
        if scope["method"] != "POST":
            return await _refuse(send, 405, "this address takes POST alone", "each request is answered by itself", allow="POST")
        token = _token(headers.get("authorization", ""))
        if not token:
            return await _refuse(send, 401, "no API token came with the request", UNKNOWN)
        who = await request_api(self.app, scope, token, "GET", ME)
        if who.status != 200:
            return await _refuse_as(send, who)
        if self.serve is None:
            self.serve = await in_thread(_load)
        await self.serve({**scope, CALLER: Caller(self.app, scope, token, who.content)}, receive, send)


def _load() -> Callable[..., Awaitable[None]]:
    from webapp.agents.server import make_application  # here: the SDK takes 0.7 s to import, and many never ask

    return make_application(MOST_BYTES)


def _token(given: str) -> str:
    kind, _, token = given.strip().partition(" ")
    token = token.strip()
    return token if kind.lower() in ("bearer", "token") and token.isascii() and token.isprintable() and len(token) < 200 else ""


async def _refuse_as(send: Send, answer: Answer) -> None:
    """Answer as the API did: 401 of a token that is none, 429, 503."""
    content: Mapping[str, Any] = answer.content if isinstance(answer.content, dict) else {}
    status = answer.status if answer.status in (400, 401, 403, 429, 503, 507) else 500
    hint = UNKNOWN if status == 401 else str(content.get("hint", ""))
    await _refuse(send, status, str(content.get("error") or "the server made a mistake"), hint, retry_after=answer.retry_after)


async def _refuse(send: Send, status: int, what: str, hint: str, *, allow: str = "", retry_after: str = "") -> None:
    body = json.dumps({"error": what, "where": PATH, "hint": hint}).encode()
    more = {"allow": allow, "retry-after": retry_after, "www-authenticate": 'Bearer realm="Ridgepoint"' if status == 401 else ""}
    headers = {"content-type": "application/json", "cache-control": "no-store", "content-length": str(len(body)), **more}
    await send({"type": "http.response.start", "status": status,
                "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value]})
    await send({"type": "http.response.body", "body": body})
