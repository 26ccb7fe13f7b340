"""A request to the API from within: through the same wrappers as any other, in the name of a token. Without the SDK of MCP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from django.db import close_old_connections

Application = Callable[..., Awaitable[None]]
CALLER = "ridgepoint.caller"        # in the scope of a request
MOST_BYTES = 16 << 20               # of one answer of the API
MOST_WHY_CHARS = 1000
# what the API's own wrappers look at: who asks, from where, which request it belongs to
PASSED_ON = {b"host", b"user-agent", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"forwarded",
             b"via", b"traceparent", b"x-request-id"}


class TooLarge(Exception):
    """The API answered with more than MOST_BYTES."""


@dataclass(frozen=True)
class Answer:
    """What the API said: `content` is its JSON, None where it said none."""

    status: int
    content: Any
    retry_after: str = ""

    @property
    def why(self) -> str:
        """Return why it refused, and what to do, in one line."""
        content = self.content if isinstance(self.content, dict) else {}
        what = str(content.get("error") or content.get("detail") or f"the server answered {self.status}")
        wait = f"try again in {self.retry_after} s" if self.retry_after else ""
        return "; ".join(filter(None, (what, str(content.get("hint") or ""), wait)))[:MOST_WHY_CHARS]


@dataclass
class Caller:
    """One request of a program: its token and project, and what its call led to."""

    app: Application
    scope: Mapping[str, Any]
    token: str
    who: Mapping[str, Any]              # of api/agents/me/
    call_id: int | None = None          # of the row that was made before the call ran
    led_to: tuple[str, int] | None = None
    refused: bool = False               # the API refused the change that was asked for: nothing began

    async def ask(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Answer:
        """Return the API's answer to one request, whatever its status. Raises TooLarge."""
        return await request_api(self.app, self.scope, self.token, method, path, query, body)


async def request_api(app: Application, outer: Mapping[str, Any], token: str, method: str, path: str,
                      query: Mapping[str, Any] | None = None, body: Any = None) -> Answer:
    """Send one request to `app` as the client of the request `outer`, with this token. Raises TooLarge."""
    sent = b"" if body is None else json.dumps(body, allow_nan=False).encode()
    query_text = urlencode({name: value for name, value in (query or {}).items() if value not in (None, "")}, quote_via=quote)
    headers = [pair for pair in outer["headers"] if pair[0].lower() in PASSED_ON]
    headers += [(b"authorization", b"Token " + token.encode()), (b"accept", b"application/json")]
    if body is not None:
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(sent)).encode())]
    scope = {**{name: outer[name] for name in ("type", "asgi", "http_version", "scheme", "server", "client", "root_path")
                if name in outer},
             "method": method, "path": path, "raw_path": path.encode(), "query_string": query_text.encode(), "headers": headers}
    inbox = iter([{"type": "http.request", "body": sent, "more_body": False}])
    status, told, parts, received = 500, {}, [], 0

    async def receive() -> Mapping[str, Any]:
        for message in inbox:
            return message
        await asyncio.Event().wait()        # the connection stays until the answer is there
        raise AssertionError

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status, told, received
        if message["type"] == "http.response.start":
            status, told = message["status"], {name.lower(): value for name, value in message.get("headers", ())}
        else:
            received += len(message.get("body", b""))
            if received > MOST_BYTES:
                raise TooLarge(f"the answer has more than {MOST_BYTES:,} bytes: ask for less")
            parts.append(message.get("body", b""))

    # a task of its own: what the request says of its project and person stays in it
    await asyncio.create_task(app(scope, receive, send))        # type: ignore[arg-type]    # of a coroutine function
    try:
        content = json.loads(b"".join(parts)) if parts else None
    except ValueError:
        content = None
    return Answer(status, content, told.get(b"retry-after", b"").decode("latin-1"))


# ---- threads in which the log and the budgets are read and written ----

Result = TypeVar("Result")
_pool = ThreadPoolExecutor(4, thread_name_prefix="agents")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run work over the database in a thread of its own kind, which keeps its connection."""
    def run() -> Result:
        close_old_connections()
        try:
            return work()
        finally:
            close_old_connections()
    return await asyncio.get_running_loop().run_in_executor(_pool, run)
