"""Change points in the series of one kernel over builds: from which build on did it take another time?

Two steps. PELT (exact segmentation of the builds' medians: Killick, Fearnhead & Eckley, "Optimal detection of changepoints with a
linear computational cost", 2012) proposes where the level could have changed. Each proposal is then confirmed by tests that know
nothing of how it was found: an exact rank test on the fresh runs of both sides, and a t-test on the builds' medians, because runs
of one build share a session and what sessions differ by is no change of the code. A change that is smaller than `floor` is never
told, however sure it is, and none that rests on a single build.
Proposals that are not confirmed are merged away, weakest first, and their neighbours are tested anew (as E-divisive with
hierarchical merging does: Fleming et al., "Hunter", 2023).

Called on what is there so far, it works online: a step shows as soon as two builds after it are measured and the tests allow.
`docs/gate-bench.md` has what it finds, how soon, and its false alarms on recorded runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.distributions import cutoff, deviation_around_zero, rank_sum_p, t_tail
from tuner.gate.stats.runs import KernelRuns

# Which builds to measure next, to find the one that made a kernel slower.
#
# Pure: builds by name in their order (or environments in theirs: nothing here knows what is bisected). A build is "good" (at
# the old speed), "bad" (at the new), "unclear" (measured, at neither: another change lies between, or the runs do not tell) or
# "skip" (it cannot be measured). The plan splits what lies between the last good and the first bad build evenly, so that
# `at_once` builds measured together leave 1/(at_once + 1) of it, as `git bisect` does with one.

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
    bads = [index for index, side in enumerate(sides) if side == BAD]
    goods = [index for index, side in enumerate(sides) if side == GOOD]
    if not bads:
        return BisectPlan(builds[goods[-1]] if goods else None, None, [], [], 0,
                          "No build is known to be slower: there is nothing to look for.")
    if not goods or goods[0] > bads[-1]:
        older = [builds[index] for index in range(bads[0]) if sides[index] == ""]
        return BisectPlan(None, builds[bads[0]], older[:1], older, 1 + rounds_needed(len(older) - 1, at_once) if older else 0,
                          f"No build before {builds[bads[0]]} is known to be fast: measure an old one first." if older else
                          f"{builds[bads[0]]} is the oldest build here, and it is slow already.")
    good = max(index for index in goods if index < bads[-1])
    bad = min(index for index in bads if index > good)
    conflicts = [builds[index] for index in bads if index < good]
    between = range(good + 1, bad)
    suspects = [builds[index] for index in range(good + 1, bad + 1)]
    free = [index for index in between if sides[index] == ""]
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
        skipped = [builds[index] for index in between if sides[index] == SKIP]
        unclear = [builds[index] for index in between if sides[index] == UNCLEAR]
        lie = "lies" if len(unclear) == 1 else "lie"
        parts = [f"{_list_names(skipped)} cannot be measured" if skipped else "",
                 f"{_list_names(unclear)} {lie} at neither speed: more than one build changed it, or more runs are needed"
                 if unclear else ""]
        says = (f"The change came after {builds[good]} and at {builds[bad]} at the latest, with one of {len(suspects)} builds: "
                f"{'; '.join(part for part in parts if part)}.")
    return BisectPlan(builds[good], builds[bad], [], [builds[index] for index in between], 0, says, conflicts, suspects)


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
    places = [(len(free) + 1) * (part + 1) / (at_once + 1) - 1 for part in range(at_once)]
    return sorted({free[min(len(free) - 1, max(0, round(place - 1e-9)))] for place in places})


def _list_names(names: Sequence[str]) -> str:
    shown = [*names[:6], f"{len(names) - 6} more"] if len(names) > 7 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


MIN_BUILDS = 2             # on each side: one build alone may have had a bad session


def propose_changes(medians: NDArray[np.float64], noise: float) -> list[int]:
    """Return the starts of the segments, each of MIN_BUILDS or more, whose means explain the builds' medians at the least cost.

    The cost is the sum of squared deviations and a penalty a segment, that of the BIC for a mean of known variance.
    """
    count, penalty = len(medians), 2.0 * math.log(len(medians)) * noise ** 2
    centred = medians - medians.mean()
    sums, squares = (np.concatenate([[0.0], np.cumsum(values)]) for values in (centred, centred ** 2))
    least = np.full(count + 1, np.inf)              # cost of all builds before a place
    least[0] = -penalty
    start_of = np.zeros(count + 1, np.int64)        # of the last segment before a place, where the cost is least
    starts, last_end = np.zeros(1, np.int64), np.full(1, count)
    for end in range(MIN_BUILDS, count + 1):
        if end >= 2 * MIN_BUILDS:
            starts, last_end = np.append(starts, end - MIN_BUILDS), np.append(last_end, count)
        mask = last_end >= end
        starts, last_end = starts[mask], last_end[mask]
        costs = least[starts] + squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / (end - starts)
        chosen = int(np.argmin(costs))
        least[end], start_of[end] = costs[chosen] + penalty, starts[chosen]
        # a segment that could as well have ended here costs less, but for ends so near that it would be too short (their lemma 3.1)
        last_end[costs > least[end]] = np.minimum(last_end[costs > least[end]], end + MIN_BUILDS - 1)
    bounds, end = [], int(start_of[count])
    while end:
        bounds.append(end)
        end = int(start_of[end])
    return bounds[::-1]


FLOOR = 0.01               # half of the smallest step that must be found, 2 %
ALPHA = 2e-5               # of the rank test: two builds of five runs on each side can reach it (2 in 184,756)
ALPHA_BUILDS = 1e-4        # of the t-test on builds: its own chance, on top of the rank test's
MAX_RUNS = 40              # of each side that the rank test looks at, those nearest to the change
QUIET = 8.0                # noise below floor / QUIET is taken as that much: drifts of a hundredth of a per cent are no news
PLAUSIBLE = 7.0            # other places of the change whose log-likelihood is at most half of this lower: see `_range`

Series = Sequence[Any]     # per build: run medians in µs, or the samples of each run, or KernelRuns; empty: not measured
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """The kernel takes another time from build `index` of the series on."""

    index: int             # of the first build at the new speed
    good: int              # of the last build that is surely before it: the change lies in good+1 … bad, unmeasured builds included
    bad: int               # of the first build that is surely after it
    ratio: float           # time after / time before: 1.02 is 2 % slower (Hodges-Lehmann of the runs' logarithms)
    low: float             # its interval, of the rank test: exact where no runs tie
    high: float
    p_value: float         # of the exact rank test, two-sided
    before_us: float       # medians of run medians
    after_us: float
    runs_before: int
    runs_after: int

    @property
    def slower(self) -> bool:
        return self.ratio > 1


def change_points(series: Series, *, floor: float = FLOOR, alpha: float = ALPHA, alpha_builds: float = ALPHA_BUILDS,
                  level: float = 0.95) -> list[Change]:
    """Return the changes of a series of builds, oldest first.

    `alpha`, `alpha_builds`: of the rank test and of the t-test on builds. Who looks at many series divides them by their number.

    Raises ValueError where a time is not finite and above zero.
    """
    builds = [_run_medians(build, place) for place, build in enumerate(series)]
    places = [place for place, runs in enumerate(builds) if len(runs)]
    runs = [np.log(builds[place]) for place in places]
    if len(runs) < 2 * MIN_BUILDS:
        return []
    medians = np.array([np.median(build) for build in runs])
    noise = max(_noise(medians), math.log1p(floor) / QUIET)
    bounds = _confirm(runs, medians, propose_changes(medians, noise), noise, floor,
                      (alpha, alpha_builds))
    found = []
    for before, at, after in zip([0, *bounds], bounds, [*bounds[1:], len(runs)], strict=False):
        good, bad = _likely_range(medians[before:after], at - before, noise)
        old, new = _nearest(runs[before:at], last=True), _nearest(runs[at:after], last=False)
        shift, low, high = _level_shift(old, new, level)
        found.append(Change(places[at], places[before + good], places[before + bad], math.exp(shift), math.exp(low), math.exp(high),
                            two_sided_p(old, new), float(np.exp(np.median(old))), float(np.exp(np.median(new))),
                            len(old), len(new)))
    return found


def _run_medians(build: Any, place: int) -> Floats:
    if isinstance(build, KernelRuns):
        build = [run.us for run in build.runs]
    values = np.array([_median(run) for run in build], dtype=np.float64)
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"build {place}: a time is not a finite number above zero")
    return values


def _median(run: Any) -> float:
    if isinstance(run, float):              # the median of a run is all that is known of it
        return float(run)
    if isinstance(run, bool | np.bool_ | str | bytes):
        return math.nan
    values = np.asarray(run, dtype=np.float64)
    return float(np.median(values)) if values.size else math.nan


def _noise(medians: Floats) -> float:
    """Standard deviation of builds' medians about their level, from neighbours' differences: a few steps do not raise it."""
    return deviation_around_zero(np.diff(medians)) / math.sqrt(2)


# ---- where it could be ----

def _likely_range(medians: Floats, index: int, noise: float) -> tuple[int, int]:
    """(last build surely before, first surely after) of one change: other places of it that explain the medians nearly as well.

    The likelihood-ratio set of Siegmund (1988) for normal noise; `PLAUSIBLE` is checked by simulation in the tests.
    """
    ends = np.arange(1, len(medians))
    sums = np.cumsum(medians - medians.mean())[:-1]
    explained = sums ** 2 * len(medians) / (ends * (len(medians) - ends))        # sum of squares that a split before `end` explains
    near = ends[explained >= explained[index - 1] - PLAUSIBLE * noise ** 2]
    first, last = index, index
    while first - 1 in near:
        first -= 1
    while last + 1 in near:
        last += 1
    return int(first - 1), int(last)


# ---- whether it is ----

def _confirm(runs: list[Floats], medians: Floats, bounds: list[int], noise: float, floor: float,
             alphas: tuple[float, float]) -> list[int]:
    """Those that both tests confirm, each against its neighbours' segments as they stand when it is asked."""
    bounds = list(bounds)
    while bounds:
        edges = [0, *bounds, len(runs)]
        doubt = [_doubt(runs[a:b], runs[b:c], medians[a:b], medians[b:c], noise, floor, alphas)
                 for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)]
        worst = int(np.argmax(doubt))            # the least sure
        if doubt[worst] <= 1.0:
            break
        del bounds[worst]
    return bounds


def _doubt(left: list[Floats], right: list[Floats], before: Floats, after: Floats, noise: float, floor: float,
           alphas: tuple[float, float]) -> float:
    """How much a proposal misses its confirmation by: at most 1 where both tests and the floor are passed."""
    old, new = _nearest(left, last=True), _nearest(right, last=False)
    shift = float(np.median(new[:, None] - old[None, :]))
    size = min(abs(shift), 2 * _without_one(before, after, math.copysign(1, shift)))
    if size < math.log1p(floor):
        return 1e9 * math.log1p(floor) / max(size, 1e-12)       # before any test
    return max(two_sided_p(old, new) / alphas[0], _builds_test(before, after, noise) / alphas[1])


def _without_one(before: Floats, after: Floats, sign: float) -> float:
    """What is left of the shift without the build of each side that speaks for it most: a lone bad session leaves nothing."""
    a, b = np.sort(sign * before), np.sort(sign * after)
    return float(np.median(b[:-1]) - np.median(a[1:]))


def _builds_test(before: Floats, after: Floats, noise: float) -> float:
    """Two-sided p of Student's t on builds' medians, the nearest ones of each side.

    Proposals lie where the medians happen to be quiet on both sides: their spread is at least taken as that of the whole series.
    """
    a, b = before[-MAX_RUNS:], after[:MAX_RUNS]
    free = len(a) + len(b) - 2
    spread = max(math.sqrt((len(a) * a.var() + len(b) * b.var()) / free), noise)
    t = abs(a.mean() - b.mean()) / (spread * math.sqrt(1 / len(a) + 1 / len(b)))
    return 2 * t_tail(t, free)


def _nearest(builds: list[Floats], last: bool) -> Floats:
    """Runs of the builds next to the change, whole builds while there is room, in order."""
    chosen: list[Floats] = []
    count = 0
    for build in reversed(builds) if last else builds:
        if chosen and count + len(build) > MAX_RUNS:
            break
        chosen.append(build[:MAX_RUNS])
        count += len(chosen[-1])
    return np.concatenate(chosen[::-1] if last else chosen)


def two_sided_p(old: Floats, new: Floats) -> float:
    """Return the two-sided p of the exact rank test, ties included."""
    return min(1.0, 2 * min(rank_sum_p(new, old), rank_sum_p(old, new)))


def _level_shift(old: Floats, new: Floats, level: float) -> tuple[float, float, float]:
    """Hodges-Lehmann difference of logarithms with the interval that the rank test gives when it is turned round."""
    differences = np.sort((new[:, None] - old[None, :]).ravel())
    k = cutoff(len(new), len(old), (1 - level) / 2)
    if k == 0:
        return float(np.median(differences)), -math.inf, math.inf          # too few runs for this level
    return float(np.median(differences)), float(differences[k - 1]), float(differences[-k])
