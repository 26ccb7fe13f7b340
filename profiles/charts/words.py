"""Numbers as figures say them."""

from __future__ import annotations

from profiles.analysis.core.sentences import si_text


def time_text(ns: float | None) -> str:
    if ns is None:
        return "unknown"
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= scale * 0.9995:
            return si_text(ns / scale, unit)
    return f"{ns:.0f} ns"
