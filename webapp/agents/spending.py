"""What a tool that begins work does before: it takes the work from the token's day."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from webapp.agents import caller, services
from webapp.agents.threads import in_thread


async def spend(tool: str, arguments: Any, gpu_s: float = 0.0) -> None:
    """Take one write and `gpu_s` GPU-seconds of the day, before the work begins. Raises ToolError where the day is spent.

    Given back where the API refuses what is asked for then.
    """
    who = caller.current()
    try:
        who.call_id = await in_thread(lambda: services.call_begin(who.who, tool, arguments, gpu_s))
    except services.OverBudget as over:
        raise ToolError(str(over)) from over


def led_to(kind: str, pk: int) -> None:
    """Say what the call began: "tune", "capture", "check" or "candidate", and its id."""
    caller.current().led_to = (kind, pk)
