"""Who calls the tool that runs, and the API asked in that name: what tools are written with."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from webapp.agents import services
from webapp.agents.inside import Caller, TooLarge, in_thread

_caller: ContextVar[Caller] = ContextVar("caller")


def enter(caller: Caller) -> None:
    """Say who calls, for the rest of this context: one message."""
    _caller.set(caller)


def current() -> Caller:
    """Return who calls the tool that runs."""
    return _caller.get()


async def get(path: str, sizes: Mapping[str, int] | None = None, **query: Any) -> Any:
    """Return what the API answers; None and "" in `query` are left out, and what it names goes before a dimension of `sizes`.

    Raises ToolError with the API's reason.
    """
    return await _ask("GET", path, {**(sizes or {}), **query})


async def find(path: str, **query: Any) -> Any:
    """Return what the API answers; None where there is nothing at this address. Raises ToolError with the API's reason."""
    return await _ask("GET", path, query, missing=True)


async def post(path: str, body: Any = None) -> Any:
    """Return what the API answers to a change. Raises ToolError with the API's reason."""
    return await _ask("POST", path, body=body)


async def _ask(method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None, *, missing: bool = False) -> Any:
    """`missing`: 404 is the answer None."""
    try:
        answer = await current().ask(method, path, query, body)
    except ValueError as wrong:         # a number or text that is none in JSON or an address: nothing was sent
        current().refused = method != "GET"
        raise ToolError(str(wrong)) from wrong
    except TooLarge as large:
        raise ToolError(str(large)) from large
    if missing and answer.status == 404:
        return None
    if method != "GET" and 400 <= answer.status < 500:
        current().refused = True        # after a 5xx it may have begun all the same
    if answer.status >= 400 or answer.content is None:
        raise ToolError(answer.why)
    return answer.content


# What a tool that begins work does before: it takes the work from the token's day.

async def spend(tool: str, arguments: Any, gpu_s: float = 0.0) -> None:
    """Take one write and `gpu_s` GPU-seconds of the day, before the work begins. Raises ToolError where the day is spent.

    Given back where the API refuses what is asked for then.
    """
    who = current()
    try:
        who.call_id = await in_thread(lambda: services.call_begin(who.who, tool, arguments, gpu_s))
    except services.OverBudget as over:
        raise ToolError(str(over)) from over


def led_to(kind: str, pk: int) -> None:
    """Say what the call began: "tune", "capture", "check" or "candidate", and its id."""
    current().led_to = (kind, pk)
