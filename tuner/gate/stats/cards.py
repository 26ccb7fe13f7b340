"""One GPU seen slower, or a slower build? What can be told where the two builds ran on different cards of one model.

A card that is slower (its clocks, its memory, its heat) is slower in most kernels; a build mostly is in a few. Runs of other builds
on both cards say by how much one card is slower in each kernel. Without them, and with every kernel slower, nobody can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

LEAST_RUNS = 3              # of each card of one build, before its ratio says how cards differ
LEAST_KERNELS = 3           # that a common slowdown must be seen in
COMMON = 0.75               # share of the kernels that a slower card slows
SHARE = 0.25                # of a kernel's slowdown: kernels that are slower by less are not slowed by what slowed it


@dataclass(frozen=True)
class CardAnswer:
    """Whether the card may have done it: "card" it did, "unknown" it may have, "build" it did not."""

    kind: str
    effect: float | None = None             # time on the candidate's card / on the baseline's, of other builds
    common: float | None = None             # median ratio of the suite's other kernels


def card_effect(here: Mapping[str, Sequence[float]], there: Mapping[str, Sequence[float]]) -> float | None:
    """Return time on one card over time on the other: the median over builds that ran on both, by run medians in µs.

    None where no build has LEAST_RUNS runs on each.
    """
    both = [build for build in here if len(here[build]) >= LEAST_RUNS and len(there.get(build, ())) >= LEAST_RUNS]
    return median(median(a / b for a in here[build] for b in there[build]) for build in both) if both else None


def tell_card_from_build(ratio: float, floor: float, others: Sequence[float], effect: float | None) -> CardAnswer:
    """Return what a slowdown between two cards is.

    ratio   of the kernel, candidate / baseline
    others  of the suite's other kernels in the same runs
    effect  of the card, from builds that ran on both; None: unknown
    """
    common = median(others) if others else None
    if effect is not None:
        explained = effect > 1 and ratio / effect < 1 + floor
        return CardAnswer("card" if explained else "build", effect, common)
    if len(others) + 1 < LEAST_KERNELS:
        return CardAnswer("unknown", None, common)
    slowed = sum(other - 1 >= SHARE * (ratio - 1) for other in others)
    return CardAnswer("unknown" if slowed >= COMMON * len(others) else "build", None, common)
