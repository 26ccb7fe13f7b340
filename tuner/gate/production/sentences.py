"""What pages, messages and commands say of production's regressions."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.gate.production.series import FLOOR, LEAST_DAYS
from tuner.models import ProductionRegression


def change_text(ratio: float | None) -> str:
    """1.118 -> "+11.8 %"."""
    return "—" if ratio is None else f"{100 * (ratio - 1):+.1f} %".replace("-", "\N{MINUS SIGN}")


def interval_text(row: ProductionRegression) -> str:
    """"+11.2 to +12.4 %"; "—" where there are too few days."""
    if row.low is None or row.high is None:
        return "—"
    return f"{change_text(row.low).removesuffix(' %')} to {change_text(row.high)}"


def builds_text(row: ProductionRegression) -> str:
    """"serve-2.18 → serve-2.19"; a change without a new build says so."""
    if row.from_build == row.to_build:
        return f"{row.to_build or 'unknown build'}, unchanged: the environment or the input changed"
    return f"{row.from_build or 'unknown build'} → {row.to_build or 'unknown build'}"


def headline(row: ProductionRegression) -> str:
    """Return one regression as a sentence without its end."""
    label = "Simulated: " if row.simulated else ""
    return (f"{label}{row.short_name} on {row.gpu_model or 'unknown GPU'} takes {change_text(row.ratio)} since {row.since}"
            f" ({builds_text(row)})")


def list_sentence(rows: Sequence[ProductionRegression], series: int, days: int) -> str:
    """The answer of the page: what is slower in production, or how much was looked at."""
    opened = [row for row in rows if row.state == ProductionRegression.State.OPEN]
    if opened:
        worst = max(opened, key=lambda each: (each.ratio - 1) * each.day_ns)
        count = f"{len(opened)} kernel{'s are' if len(opened) != 1 else ' is'} slower in production"
        return f"{count}. Most time is lost by: {headline(worst)}."
    if days < 2 * LEAST_DAYS:
        return (f"Too early to say: {days} day{'s' * (days != 1)} summed. A change shows once {LEAST_DAYS} days before it and "
                f"{LEAST_DAYS} after it were summed.")
    return f"Nothing is slower in production: {series:,} series over {days} days, changes above {100 * FLOOR:.0f} %."
