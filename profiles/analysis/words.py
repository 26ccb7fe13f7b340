"""Rates and amounts in the sentences about counters: SI prefix, three significant digits."""

from __future__ import annotations

_UP = ("", "k", "M", "G", "T", "P", "E")


def si_text(value: float, unit: str) -> str:
    """1.23e12, "FLOP/s" -> "1.23 TFLOP/s"."""
    step = 0
    while step < len(_UP) - 1 and abs(value) >= 999.5:
        value, step = value / 1000, step + 1
    size = abs(value)
    number = f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
    return f"{number} {_UP[step]}{unit}"
