"""Never worse than the default: the interval of a gain over the default in one session.

Distribution-free, from order statistics, so that neither spikes nor two clock levels break it. 95 % unless told otherwise.
Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from profiles.base.numbers import positive_number

RISK = 0.05
MEDIANS_FLOOR = 0.01       # where only medians are known: process to process they vary 0.1-0.9 % on an H200 (20 µs and more)


class Verdict(StrEnum):
    """Outcome of the comparison with the default."""
    FASTER = "faster"              # than the default, by the whole interval
    EQUAL = "equal"                # the interval holds 1: the default serves, it is what everybody runs already
    SLOWER = "slower"
    UNMEASURED = "unmeasured"      # the default was not measured beside it


@dataclass(frozen=True)
class DefaultCheck:
    """Default time / configuration time: 1.2 is 20 % faster than the default."""

    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    how: str = ""

    @property
    def gain(self) -> float | None:
        """Return the least gain over the default; None when it is not known."""
        return None if self.low is None else max(0.0, self.low - 1)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": str(self.verdict)}


def check_default(winner: Mapping[str, Any], default: Mapping[str, Any] | None, risk: float = RISK) -> DefaultCheck:
    """Compare two finalists of one session: {"median_ms", "samples_ms"?, "round_ms"?} each.

    Paired rounds are compared round by round; else two sets of samples by the intervals of their medians; else medians only.
    """
    if default is None or not positive_number(default.get("median_ms")) or not positive_number(winner.get("median_ms")):
        return DefaultCheck(Verdict.UNMEASURED, how="the default configuration was not measured in the same session")
    ratio = default["median_ms"] / winner["median_ms"]
    pairs = list(zip(_times(winner, "round_ms"), _times(default, "round_ms"), strict=False))
    interval = median_interval([math.log(d / w) for w, d in pairs], risk)
    if interval is not None:
        low, high = (math.exp(side) for side in interval)
        return _judge_interval(ratio, low, high, f"{len(pairs)} interleaved rounds, paired; {_percent_text(risk)} "
                               "interval of the median ratio")
    ours = median_interval(_times(winner, "samples_ms"), risk / 2)
    theirs = median_interval(_times(default, "samples_ms"), risk / 2)
    if ours is not None and theirs is not None:
        return _judge_interval(ratio, theirs[0] / ours[1], theirs[1] / ours[0],
                        f"{_percent_text(risk)} interval of the ratio of two medians, from their order statistics")
    return _judge_interval(ratio, ratio / (1 + MEDIANS_FLOOR), ratio * (1 + MEDIANS_FLOOR),
                    f"medians only; {100 * MEDIANS_FLOOR:g} % is taken for what two processes may differ by")


def check_library(best: Mapping[str, Any], library_ms: float | None) -> DefaultCheck | None:
    """Compare the best found with the vendor library of the same session; None where that was not measured.

    best  {"median_ms", "round_ms"?, "library_round_ms"?}, flat or in its "facts". SLOWER: the library, by the whole interval
    """
    if not positive_number(library_ms) or not positive_number(best.get("median_ms")):
        return None
    theirs = {"median_ms": library_ms, "round_ms": _times(best, "library_round_ms")}
    return check_default({"median_ms": best["median_ms"], "round_ms": _times(best, "round_ms")}, theirs)


def library_gain(check: Mapping[str, Any] | None) -> float | None:
    """Return how many times as fast the library is as the best found, by a stored `check_library`; None where it is not surely."""
    return 1 / check["ratio"] if check and check.get("verdict") == Verdict.SLOWER and check.get("ratio") else None


def winner_is_default() -> DefaultCheck:
    """Return the check of a winner that is the default itself."""
    return DefaultCheck(Verdict.EQUAL, 1.0, 1.0, 1.0, "the default configuration is the fastest that was found")


def median_interval(values: Sequence[float], risk: float = RISK) -> tuple[float, float] | None:
    """Return the narrowest order statistics that hold the median with 1 - risk; None if too few.

    Coverage of [x(k), x(n-k+1)] is 1 - 2·P(Binomial(n, 1/2) < k) (Conover, Practical Nonparametric Statistics, 3.2).
    """
    n = len(values)
    left, below = 0, 0.0
    for k in range(1, n // 2 + 1):
        below += math.comb(n, k - 1) / 2 ** n
        if 2 * below > risk:
            break
        left = k
    if not left:
        return None
    ordered = sorted(values)
    return ordered[left - 1], ordered[n - left]


def _judge_interval(ratio: float, low: float, high: float, how: str) -> DefaultCheck:
    verdict = Verdict.FASTER if low > 1 else Verdict.SLOWER if high < 1 else Verdict.EQUAL
    return DefaultCheck(verdict, ratio, low, high, how)


def _times(finalist: Mapping[str, Any], name: str) -> list[float]:
    values = finalist.get(name) or (finalist.get("facts") or {}).get(name) or []
    return [number for value in values if (number := positive_number(value))][:1000]


def _percent_text(risk: float) -> str:
    return f"{100 * (1 - risk):g} %"
