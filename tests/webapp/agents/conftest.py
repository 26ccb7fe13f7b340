"""The whole ASGI application behind a real socket, tokens, and the SDK's own client."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import wait
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from webapp.models import ApiToken
from webapp.operate.bodies import Bodies
from workers.scope import FIRST_PROJECT

if TYPE_CHECKING:                   # importing it takes a second of every process that collects these tests
    from mcp.client.client import Client


class Site:
    """`url` of a server over `webapp.asgi`, and of its /mcp."""

    def __init__(self) -> None:
        import uvicorn

        from webapp.asgi import application

        self.application = application
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        self.url = "http://{}:{}".format(*listener.getsockname())
        self.mcp = f"{self.url}/mcp"
        self.server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_level="error", log_config=None))
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([listener])), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        self._close_connections()

    def _close_connections(self) -> None:
        """Those that the threads of `webapp.operate.bodies` keep: else the test's database could not be dropped."""
        app: Any = self.application.application_mapping["http"]
        while not isinstance(app, Bodies):
            app = app.app
        threads = len(app.pool._threads)
        together = threading.Barrier(threads) if threads else None

        def close() -> None:
            assert together is not None
            together.wait(20)           # each in a thread of its own
            connection.close()

        wait([app.pool.submit(close) for _ in range(threads)])


@pytest.fixture
def site(sign_in_mode: None, transactional_db: None) -> Iterator[Site]:
    """As on a shared server: nobody is let in without signing in."""
    made = Site()
    yield made
    made.stop()


@pytest.fixture
def token_of() -> Callable[..., str]:
    """`token_of(alice)`: a token of hers."""
    def make(person: Any, scope: str = "write", project: int = FIRST_PROJECT, name: str = "kernel agent") -> str:
        _, token = ApiToken.objects.create(person, name=name, scope=scope, project_id=project)      # type: ignore[no-untyped-call]
        return str(token)
    return make


@asynccontextmanager
async def connected(address: str, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    """The SDK's client at an address, with a token."""
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
                Client(streamable_http_client(address, http_client=http), mode=mode) as client):
        yield client


def call(address: str, token: str, tool: str, arguments: dict[str, Any] | None = None, mode: str = "auto") -> Any:
    """What one call of a tool answers: its content, or the text of its error as a `Told`."""
    async def ask() -> Any:
        async with connected(address, token, mode) as client:
            return await client.call_tool(tool, arguments or {})
    result = asyncio.run(ask())
    if result.is_error:
        return Told(result.content[0].text)
    return result.structured_content


class Told(str):
    """What a refused call was told."""
