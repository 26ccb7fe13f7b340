"""Numbers of a verdict as a person reads them."""

from __future__ import annotations

from profiles.analysis.gate.ratio import Bounds


def percent(ratio: float, *limits: float) -> str:
    """1.081 is "+8.1 %". More digits where it would read as one of the `limits` and is not: 1.0497 beside 1.05 is "+4.97 %"."""
    change = (ratio - 1) * 100
    fewest = 1 if abs(change) < 99.95 else 0
    told = ((_rounded(change, digits), [_rounded((limit - 1) * 100, digits) for limit in limits if limit != ratio])
            for digits in range(fewest, fewest + 3))
    return next((text for text, taken in told if text not in taken), _rounded(change, fewest))


def _rounded(change: float, digits: int) -> str:
    text = f"{change:+.{digits}f} %".replace("-", "−")
    return text if text.strip("+−0. %") else "0.0 %"


def interval(low: float, high: float, *limits: float) -> str:
    return f"{percent(low, *limits)} to {percent(high, *limits)}"


def change(bounds: Bounds, before: float, after: float, *limits: float) -> str:
    """"+8.1 % (41.2 → 44.5 µs, interval +7.5 % to +8.8 %)"; without the interval where so few runs have none worth the name."""
    held = f", interval {interval(bounds.low, bounds.high, *limits)}" if bounds.confidence >= 0.5 else ""
    return f"{percent(bounds.ratio, *limits)} ({us(before)} → {us(after)} µs{held})"


def probability(p: float) -> str:
    return f"p = {p:.2g}" if p >= 1e-6 else "p < 0.000001"


def runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number:,} runs"


def us(value: float) -> str:
    """Four digits and no exponent: "41.17", "19,320"."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"
