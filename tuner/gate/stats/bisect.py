"""Which builds to measure next, to find the one that made a kernel slower.

Pure: builds by name in their order (or environments in theirs: nothing here knows what is bisected). A build is "good" (at the old
speed), "bad" (at the new), "unclear" (measured, at neither: another change lies between, or the runs do not tell) or "skip" (it
cannot be measured). The plan splits what lies between the last good and the first bad build evenly, so that `at_once` builds
measured together leave 1/(at_once + 1) of it, as `git bisect` does with one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.gate.stats.rank_test import rank_sum_p

GOOD, BAD, UNCLEAR, SKIP = "good", "bad", "unclear", "skip"
SIDE_ALPHA = 0.05          # below it a build's runs are told apart from a side's
SAME = 0.3                 # and within this share of the distance between both sides a build belongs to the nearer one


@dataclass(frozen=True)
class BisectPlan:
    """`measure` is empty where the build is found, or nothing can be done; `says` tells which."""

    good: str | None                            # last build that is known to be good before the first bad one
    bad: str | None                             # first build that is known to be bad
    measure: Sequence[str]                      # oldest first
    between: Sequence[str]                      # builds after `good` and before `bad`
    rounds: int                                 # of measuring that remain, this one included
    says: str
    conflicts: Sequence[str] = ()               # bad builds before good ones: more than one change, or noise
    suspects: Sequence[str] = ()                # the change came with one of these


def bisect_plan(builds: Sequence[str], known: Mapping[str, str], *, at_once: int = 1) -> BisectPlan:
    """The next builds to measure. `known` names what is known of some of `builds`, which are in order, oldest first.

    The range is taken at the newest change from good to bad: a build that was bad before that is a conflict, and told.
    """
    at_once = max(1, at_once)
    sides = [known.get(build, "") for build in builds]
    bads = [at for at, side in enumerate(sides) if side == BAD]
    goods = [at for at, side in enumerate(sides) if side == GOOD]
    if not bads:
        return BisectPlan(builds[goods[-1]] if goods else None, None, [], [], 0,
                          "No build is known to be slower: there is nothing to look for.")
    if not goods or goods[0] > bads[-1]:
        older = [builds[at] for at in range(bads[0]) if sides[at] == ""]
        return BisectPlan(None, builds[bads[0]], older[:1], older, 1 + rounds_needed(len(older) - 1, at_once) if older else 0,
                          f"No build before {builds[bads[0]]} is known to be fast: measure an old one first." if older else
                          f"{builds[bads[0]]} is the oldest build here, and it is slow already.")
    good = max(at for at in goods if at < bads[-1])
    bad = min(at for at in bads if at > good)
    conflicts = [builds[at] for at in bads if at < good]
    between = range(good + 1, bad)
    suspects = [builds[at] for at in range(good + 1, bad + 1)]
    free = [at for at in between if sides[at] == ""]
    if free:
        chosen = _split_evenly(free, good, bad, at_once)
        left = rounds_needed(len(free), at_once)
        says = (f"The change lies after {builds[good]} and at {builds[bad]} at the latest, in one of {len(suspects)} builds. "
                f"Measure {_list_names([builds[at] for at in chosen])}: about {left} round{'s' * (left != 1)} of measuring to go.")
        return BisectPlan(builds[good], builds[bad], [builds[at] for at in chosen], [builds[at] for at in between], left, says,
                          conflicts, suspects)
    if len(suspects) == 1:
        says = f"Found: {builds[bad]} is slower, and {builds[good]}, the build before it, is not."
    else:
        skipped = [builds[at] for at in between if sides[at] == SKIP]
        unclear = [builds[at] for at in between if sides[at] == UNCLEAR]
        lie = "lies" if len(unclear) == 1 else "lie"
        parts = [f"{_list_names(skipped)} cannot be measured" if skipped else "",
                 f"{_list_names(unclear)} {lie} at neither speed: more than one build changed it, or more runs are needed"
                 if unclear else ""]
        says = (f"The change came after {builds[good]} and at {builds[bad]} at the latest, with one of {len(suspects)} builds: "
                f"{'; '.join(part for part in parts if part)}.")
    return BisectPlan(builds[good], builds[bad], [], [builds[at] for at in between], 0, says, conflicts, suspects)


def rounds_needed(free: int, at_once: int) -> int:
    """Return the most rounds of `at_once` builds each until one of `free` + 1 suspects is left."""
    return math.ceil(math.log(free + 1, at_once + 1) - 1e-9) if free > 0 else 0


def classify_build(us: Sequence[float], good_us: Sequence[float], bad_us: Sequence[float]) -> str:
    """Return the side on which a build lies by its run medians, µs: the nearer level, where its runs agree.

    "unclear" where its median lies in the middle between both sides, or far beyond one of them, or nothing was measured.
    """
    if not len(us) or not len(good_us) or not len(bad_us):
        return UNCLEAR
    level, good, bad = (float(np.median(np.log(np.asarray(values, dtype=float)))) for values in (us, good_us, bad_us))
    distance = bad - good
    if distance == 0:
        return UNCLEAR
    place = (level - good) / distance                          # 0: as the good ones, 1: as the bad ones
    if abs(place) <= SAME or abs(place - 1) <= SAME:
        return GOOD if place < 0.5 else BAD
    own, fits = np.asarray(us, dtype=float), []
    for name, others in ((GOOD, good_us), (BAD, bad_us)):
        theirs = np.asarray(others, dtype=float)
        if 2 * min(rank_sum_p(own, theirs), rank_sum_p(theirs, own)) > SIDE_ALPHA:
            fits.append(name)
    return fits[0] if len(fits) == 1 and (place < 0.5) == (fits[0] == GOOD) else UNCLEAR


def _split_evenly(free: Sequence[int], good: int, bad: int, at_once: int) -> list[int]:
    """Of the builds that can be measured, those nearest to the places that split good … bad into even parts."""
    if len(free) <= at_once:
        return list(free)
    wanted = [(len(free) + 1) * (part + 1) / (at_once + 1) - 1 for part in range(at_once)]
    return sorted({free[min(len(free) - 1, max(0, round(place - 1e-9)))] for place in wanted})


def _list_names(names: Sequence[str]) -> str:
    shown = [*names[:6], f"{len(names) - 6} more"] if len(names) > 7 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
