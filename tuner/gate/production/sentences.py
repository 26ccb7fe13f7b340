"""What pages, messages and commands say of production's regressions."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.gate.production.point_services import MOST_SERIES
from tuner.gate.production.series import FLOOR, LEAST_DAYS, LEAST_LAUNCHES
from tuner.gate.production.watched import Watched
from tuner.gate.stats.results import percent_text
from tuner.models import ProductionRegression


def interval_text(row: ProductionRegression) -> str:
    """"+11.2 to +12.4 %"; "—" where there are too few days."""
    if row.low is None or row.high is None:
        return "—"
    return f"{percent_text(row.low).removesuffix(' %')} to {percent_text(row.high)}"


def builds_text(row: ProductionRegression) -> str:
    """"serve-2.18 → serve-2.19"; a change without a new build says so."""
    if row.from_build == row.to_build:
        return f"{row.to_build or 'unknown build'}, unchanged: the environment or the input changed"
    return f"{row.from_build or 'unknown build'} → {row.to_build or 'unknown build'}"


def headline(row: ProductionRegression) -> str:
    """Return one regression as a sentence without its end."""
    label = "Simulated: " if row.simulated else ""
    return (f"{label}{row.short_name} on {row.gpu_model or 'unknown GPU'} takes {percent_text(row.ratio)} since {row.since}"
            f" ({builds_text(row)})")


def list_sentence(rows: Sequence[ProductionRegression], series: int, days: int, watched: Watched | None) -> str:
    """The answer of the page: what is slower in production, or how much was looked at."""
    opened = [row for row in rows if row.state == ProductionRegression.State.OPEN]
    if opened:
        worst = max(opened, key=lambda each: (each.ratio - 1) * each.day_ns)
        count = f"{len(opened)} kernel{'s are' if len(opened) != 1 else ' is'} slower in production"
        return f"{count}. Most time is lost by: {headline(worst)}."
    if days < 2 * LEAST_DAYS:
        return (f"Too early to say: {days} day{'s' * (days != 1)} summed. A change shows once {LEAST_DAYS} days before it and "
                f"{LEAST_DAYS} after it were summed.")
    return (f"Nothing is slower among the {series:,} series watched over {days} days, changes above {100 * FLOOR:.0f} %. "
            f"{watched_text(watched)}").rstrip()


def watched_text(watched: Watched | None) -> str:
    """"They hold 93 % of the GPU time seen; not watched: 310 series with fewer than 20 launches of a GPU in every hour."."""
    if watched is None:
        return "How much of the GPU time they hold was not counted yet."
    if watched.time_pct is None:
        return ""
    share = watched.time_pct
    shown = "all" if share == 100 else f"{min(share, 99.9):.1f} %"
    left = [f"{count:,} series {why}" for count, why in (
        (watched.seldom, f"with fewer than {LEAST_LAUNCHES} launches of a GPU in every hour"),
        (watched.beyond, f"beyond the {MOST_SERIES:,} with most time")) if count]
    if not left and share < 100:
        left = [f"hours with fewer than {LEAST_LAUNCHES} launches of a GPU"]
    return f"They hold {shown} of the GPU time seen{'; not watched: ' + ', '.join(left) if left else ''}."
