"""The server of the tools, and the log of their calls."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from webapp.agents import caller, services
from webapp.agents.models import AgentCall
from webapp.agents.threads import in_thread
from webapp.agents.tools import TOOLS

log = logging.getLogger(__name__)
INSTRUCTIONS = """\
Ridgepoint profiles, ranks, tunes, caches and guards GPU kernels. Begin with list_profiles and list_worst_kernels, look at one
with get_kernel, see with get_problem what is known of its operator, shape and type, and start a search with start_tune_job where
one would help. Times carry their unit in their name (ns, us, ms, s). A number that is null is unknown; where the reason is
known, it stands beside it. Jobs and captures that you start count against the token's budget of the day (get_budget)."""


def make_server() -> MCPServer:
    """Return a server with every tool of TOOLS."""
    server: MCPServer = MCPServer("ridgepoint", title="Ridgepoint", instructions=INSTRUCTIONS, version="1", log_level="WARNING",
                                  subscriptions=False, middleware=[write_down])
    for tool in TOOLS:
        server.add_tool(tool.run, title=tool.title, structured_output=True, annotations=ToolAnnotations(
            title=tool.title, read_only_hint=not tool.writes, destructive_hint=tool.destroys, idempotent_hint=not tool.writes,
            open_world_hint=False))
    return server


async def write_down(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Let a message be answered, and write down what a call of a tool was and led to."""
    if ctx.method != "tools/call" or ctx.request_id is None or ctx.request is None:
        return await call_next(ctx)
    who = ctx.request.scope["ridgepoint.caller"]
    caller.enter(who)
    asked = ctx.params or {}
    name, arguments = str(asked.get("name", "")), asked.get("arguments")
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
        await asyncio.shield(in_thread(lambda: services.call_end(
            who.who, name, arguments, ms=ms, outcome=outcome, answer=answer, call_id=who.call_id, led_to=who.led_to)))


def _error_text(result: HandlerResult) -> str:
    """Return what a refused call was told; "" where it was not refused."""
    if isinstance(result, CallToolResult):
        texts = [part.text for part in result.content if isinstance(part, TextContent)]
        return " ".join(texts) or "refused" if result.is_error else ""
    if isinstance(result, dict):
        return str(result.get("content") or "refused") if result.get("isError") else ""
    return ""
