"""What somebody wants to capture, and what is proposed for it: where the form begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class About:
    """A beginning of the form. The first of `tools` that a living worker has is proposed, with `options` of each."""

    name: str
    label: str
    tools: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)     # tool -> what differs from its defaults
    running: bool = False                # processes that run already can be captured where agents look after them


ABOUT = {about.name: about for about in (
    About("kernel", "A kernel", ("ncu", "proton", "cutlass"), {"ncu": {"launch_count": 1}}),
    About("step", "A step", ("torch", "nsys", "proton")),
    About("memory", "Memory", ("torch",), {"torch": {"memory": "end", "profile_memory": True}}),
    About("server", "A server", ("nsys", "torch"), {"torch": {"steps": "whole", "end_after": False}}, running=True),
    About("job", "A job of ranks", ("torch", "nsys"), {"torch": {"processes": 2}, "nsys": {"processes": 2}}, running=True),
)}


def about_of(name: str, tool: str) -> About:
    """Return the beginning that was asked for, else the first that proposes the tool."""
    return ABOUT.get(name) or next((about for about in ABOUT.values() if tool and tool in about.tools), ABOUT["kernel"])
