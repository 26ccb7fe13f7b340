"""The same tools over standard input and output: every message goes to the address /mcp of a running server.

No Django: a program's own machine has the SDK and this file's package, and neither database nor settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent

TIMEOUT_S = 120.0


class NotConnected(Exception):
    """Why the server cannot be used, in words."""


def read_environment(env: Mapping[str, str]) -> tuple[str, str]:
    """Return the address of /mcp and the token. Raises NotConnected."""
    address, token = env.get("RIDGEPOINT_URL", "").strip().rstrip("/"), env.get("RIDGEPOINT_TOKEN", "").strip()
    if not address.startswith(("http://", "https://")):
        raise NotConnected("RIDGEPOINT_URL names no server: set it to its address, for example http://127.0.0.1:8000")
    if not token:
        raise NotConnected("RIDGEPOINT_TOKEN holds no token: make one under your name in the menu → API tokens")
    return f"{address}/mcp", token


async def check(address: str, token: str) -> None:
    """Return where the server answers and knows the token. Raises NotConnected."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    try:
        async with httpx2.AsyncClient(timeout=TIMEOUT_S) as http:
            answer = await http.post(address, json=ping, headers=headers)
    except httpx2.HTTPError as error:
        raise NotConnected(f"{address} does not answer: {error}") from error
    if answer.status_code >= 300:
        raise NotConnected(f"{address} answered {answer.status_code}: {_reason(answer)}")


async def serve(address: str, token: str) -> None:
    """Forward messages until standard input ends. Raises NotConnected."""
    await check(address, token)
    async with (httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S) as http,
                Client(streamable_http_client(address, http_client=http), cache=None) as client,
                stdio_server() as (reader, write)):
        server = forwarding(client)
        await server.run(reader, write, server.create_initialization_options())


def forwarding(client: Client) -> Server[Any]:
    """Return a server that has the tools of another one."""

    async def list_tools(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        return await client.list_tools(cursor=params.cursor if params else None)

    async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            return await client.call_tool(params.name, params.arguments or {})
        except httpx2.HTTPError as error:
            return CallToolResult(content=[TextContent(type="text", text=f"the server does not answer: {error}")], is_error=True)

    info = client.server_info
    title, version = (info.title, info.version) if info else (None, "")
    return Server("ridgepoint", title=title, instructions=client.instructions, version=version, on_list_tools=list_tools,
                  on_call_tool=call_tool)


def run(env: Mapping[str, str]) -> None:
    """Forward until the program that started this one closes its input. Raises NotConnected."""
    address, token = read_environment(env)
    anyio.run(serve, address, token)


def _reason(answer: httpx2.Response) -> str:
    try:
        body = answer.json()
        return f"{body['error']}; {body['hint']}"
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]
