"""Numbers of a verdict as a person reads them."""

from __future__ import annotations

from profiles.analysis.gate.ratio import Bounds


def percent(ratio: float) -> str:
    """1.081 is "+8.1 %"."""
    change = (ratio - 1) * 100
    text = f"{change:+.{1 if abs(change) < 99.95 else 0}f} %".replace("-", "−")
    return "0.0 %" if text[1:] == "0.0 %" else text


def interval(low: float, high: float) -> str:
    return f"{percent(low)} to {percent(high)}"


def change(bounds: Bounds, before: float, after: float) -> str:
    """"+8.1 % (41.2 → 44.5 µs, interval +7.5 % to +8.8 %)"; without the interval where so few runs have none worth the name."""
    held = f", interval {interval(bounds.low, bounds.high)}" if bounds.confidence >= 0.5 else ""
    return f"{percent(bounds.ratio)} ({_us(before)} → {_us(after)} µs{held})"


def probability(p: float) -> str:
    return f"p = {p:.2g}" if p >= 1e-6 else "p < 0.000001"


def runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number:,} runs"


def _us(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"
