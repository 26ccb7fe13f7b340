"""The server of the tools, and the log of their calls."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from django.db import DatabaseError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import ToolAnnotations

from webapp.agents import caller, services
from webapp.agents.inside import CALLER, Caller, in_thread
from webapp.agents.models import AgentCall
from webapp.agents.tools import TOOLS, AgentTool

log = logging.getLogger(__name__)
MOST_CHARS = 200_000            # of one answer
INSTRUCTIONS = """\
Ridgepoint profiles, ranks, tunes, caches and guards GPU kernels. Begin with list_profiles and list_worst_kernels, look at one
with get_kernel, see with get_problem what is known of its operator, shape and type, and start a search with start_tune_job where
one would help. A kernel that you write yourself goes from get_kernel_source through submit_candidate to get_candidate; look into
list_candidates before. Times carry their unit in their name (ns, us, ms, s). A number that is null is unknown; where the reason is
known, it stands beside it. Jobs and captures that you start count against the token's budget of the day (get_budget)."""


def make_server() -> MCPServer:
    """Return a server with every tool of TOOLS."""
    server: MCPServer = MCPServer("ridgepoint", title="Ridgepoint", instructions=INSTRUCTIONS, version="1", log_level="WARNING",
                                  subscriptions=False, middleware=[write_down])
    for tool in TOOLS:
        server.add_tool(_bounded(tool), title=tool.title, structured_output=True, annotations=ToolAnnotations(
            title=tool.title, read_only_hint=not tool.writes, destructive_hint=tool.destroys, idempotent_hint=not tool.writes,
            open_world_hint=False))
    return server


def make_application(most_bytes: int) -> Callable[..., Awaitable[None]]:
    """Return the ASGI application that answers one message a request, each by itself, of at most `most_bytes` bytes."""
    server = make_server()

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        # a manager runs once, in one loop: one a request needs neither a start nor an end of the process
        manager = StreamableHTTPSessionManager(server._lowlevel_server, json_response=True, stateless=True,
                                               max_request_body_size=most_bytes)
        async with manager.run():
            await manager.handle_request(scope, receive, send)
    return serve


def _bounded(tool: AgentTool) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Return the tool's function with an answer of at most MOST_CHARS characters."""
    @functools.wraps(tool.run)
    async def run(**arguments: Any) -> dict[str, Any]:
        answer = await tool.run(**arguments)
        if len(json.dumps(answer)) > MOST_CHARS:
            raise ToolError(f"the answer is longer than {MOST_CHARS:,} characters: ask for less (limit)")
        return answer
    return run


async def write_down(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Let a message be answered, and write down what a call of a tool was and led to."""
    if ctx.method != "tools/call" or ctx.request_id is None or ctx.request is None:
        return await call_next(ctx)
    who: Caller = ctx.request.scope[CALLER]
    caller.enter(who)
    params = ctx.params or {}
    name, arguments = str(params.get("name", "")), params.get("arguments")
    began_s, outcome, answer = time.perf_counter(), AgentCall.Outcome.FAILED, "the server made a mistake"
    try:
        result = await call_next(ctx)
        answer = _error_text(result)
        if answer != f"Error executing tool {name}":        # what the SDK says of a crash, and no more
            outcome = AgentCall.Outcome.REFUSED if answer else AgentCall.Outcome.OK
        return result
    except asyncio.CancelledError:
        answer = "the program left before it was answered"
        raise
    except Exception as error:
        answer, outcome = str(error), AgentCall.Outcome.REFUSED
        raise
    finally:
        ms = (time.perf_counter() - began_s) * 1e3
        await asyncio.shield(in_thread(lambda: _end(who, name, arguments, ms=ms, outcome=outcome, answer=answer)))


def _end(who: Caller, name: str, arguments: Any, **ended: Any) -> None:
    try:
        services.call_end(who.who, name, arguments, call_id=who.call_id, led_to=who.led_to, refused=who.refused, **ended)
    except DatabaseError as error:          # the program is told what became of its call, and by the API that it is away
        log.warning("a call of %s was not written down: %s", name[:60], error)


def _error_text(result: HandlerResult) -> str:
    """Return what a refused call was told; "" where it was not refused."""
    if not isinstance(result, dict) or not result.get("isError"):       # after the SDK made it ready to send
        return ""
    return " ".join(str(part.get("text", "")) for part in result.get("content", ())) or "refused"
