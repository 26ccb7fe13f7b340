"""How much of what a fleet launched is looked at: kernels that run too seldom have no level to compare. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Watched:
    """Of one day. A series counts once, whatever its builds."""

    series: int                 # with a point
    seldom: int                 # left out: no GPU launched it LEAST_LAUNCHES times within any hour
    beyond: int                 # left out: others have more GPU time (MOST_SERIES)
    watched_ns: int             # GPU time of the hours behind the points
    seen_ns: int                # GPU time of all launches that were seen

    def as_json(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def of_days(cls, kept: Iterable[dict[str, Any] | None]) -> Watched | None:
        """Return the sum of times over days, newest first, and the series of the newest; None where no day counted them."""
        days = [cls(**each) for each in kept if each]
        if not days:
            return None
        newest = days[0]
        return cls(newest.series, newest.seldom, newest.beyond, sum(day.watched_ns for day in days),
                   sum(day.seen_ns for day in days))

    @property
    def time_pct(self) -> float | None:
        return 100 * self.watched_ns / self.seen_ns if self.seen_ns else None
