"""Colours that a program gave to what it names: one per name, as "#rrggbb"."""

from __future__ import annotations

import re
from typing import Any

from profiles.ingest.core.columns import NAME_CHARS
from profiles.ingest.naming.names import clip_name
from profiles.ingest.trace import Integrity

MAX_COLOURS = 10_000
_HEX = re.compile(r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})(?:[0-9a-fA-F]{2})?", re.ASCII)
_SEVERAL = "a name with several colours: the first is shown"

# What `cname` may say: tracing/tracing/base/color_scheme.html of catapult (Trace Event Format, "cname").
RESERVED = {
    "thread_state_uninterruptible": "#b67d8f", "thread_state_iowait": "#ff8c00", "thread_state_running": "#7ec894",
    "thread_state_runnable": "#85a0d2", "thread_state_sleeping": "#f0f0f0", "thread_state_unknown": "#c79b7d",
    "background_memory_dump": "#00b4b4", "light_memory_dump": "#0000b4", "detailed_memory_dump": "#b400b4",
    "vsync_highlight_color": "#0000ff", "generic_work": "#7d7d7d", "good": "#007d00", "bad": "#b47d00", "terrible": "#b40000",
    "black": "#000000", "grey": "#dddddd", "white": "#ffffff", "yellow": "#ffff00", "olive": "#646400",
    "rail_response": "#4387fd", "rail_animation": "#f44a3f", "rail_idle": "#ee8e00", "rail_load": "#0da861",
    "startup": "#e6e600", "heap_dump_stack_frame": "#808080", "heap_dump_object_type": "#0000ff",
    "heap_dump_child_node_arrow": "#cc6600", "cq_build_running": "#ffff77", "cq_build_passed": "#99ee66",
    "cq_build_failed": "#ee8888", "cq_build_abandoned": "#bbbbbb", "cq_build_attempt_runnig": "#dede4b",
    "cq_build_attempt_passed": "#67da23", "cq_build_attempt_failed": "#c55151",
}


def colour_of(value: Any) -> str | None:
    """Return "#rrggbb" of what a trace event says: a reserved name, "#rgb", "#rrggbb" or "#rrggbbaa"; else None."""
    if not isinstance(value, str) or len(value) > 40:
        return None
    match = _HEX.fullmatch(value)
    if match is None:
        return RESERVED.get(value)
    digits = match[1].lower()
    return "#" + ("".join(each * 2 for each in digits) if len(digits) == 3 else digits)


def colour_of_argb(value: int) -> str | None:
    """Return "#rrggbb" of NVTX's ARGB number; None where it is none, or all of it is transparent (0: no colour was set)."""
    unsigned = value & 0xFFFFFFFF if -(1 << 31) <= value < 1 << 32 else 0
    return f"#{unsigned & 0xFFFFFF:06x}" if unsigned >> 24 else None


class Colours:
    """One colour per name, the first that the file gives; at most MAX_COLOURS names."""

    def __init__(self, integrity: Integrity) -> None:
        self.by_name: dict[str, str] = {}
        self._integrity = integrity

    def add(self, name: str, colour: str | None) -> None:
        if colour is None or not name:
            return
        name = clip_name(name, NAME_CHARS)
        known = self.by_name.get(name)
        if known is None and len(self.by_name) < MAX_COLOURS:
            self.by_name[name] = colour
        elif known is None:
            self._integrity.remark(f"names with a colour beyond the first {MAX_COLOURS:,}: in the colour of their category")
        elif known != colour:
            self._integrity.remark(_SEVERAL)
