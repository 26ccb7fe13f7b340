"""Was it the code or the clock? Time × clock is cycles: a lower clock makes the same cycles last longer.

Clocks count only where they surely differ between the builds: the same exact test as for times, at the same level. On the
recorded H200 the sampled SM clock of identical code goes from 1,785 to 1,980 MHz between runs while its time stays within
0.3 %, so a difference of some per cent that a few runs show by chance must change no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.gate.stats.decide import Decision, Levels, Limits, decide
from tuner.gate.stats.rank_test import ROUNDING, rank_sum_p, ratio_estimate, smallest_p
from tuner.gate.stats.results import percent_text
from tuner.gate.stats.rule import Rule, Verdict
from tuner.gate.stats.sides import Side, drop_runs

APART = 0.15        # of a run's clock from the others': such a run was throttled, or its clock was read while idle
JUMPED = 0.10       # clocks so far apart are other conditions: a PASS then needs the cycles to agree (10 % is usual, see above)


@dataclass(frozen=True)
class Clocks:
    facts: Mapping[str, Any]        # {"baseline_mhz", "candidate_mhz", "ratio", "cycles_ratio", "says"}; {}: not sampled
    doubt: str = ""                 # why the verdict by time must not stand; "": it may


def drop_clock_jumps(baseline: Side, candidate: Side) -> tuple[Side, Side]:
    """Return both sides without single runs whose clock jumped away from the rest's.

    Where a whole side ran at another clock nothing is dropped: `judge_clocks` has the word.
    """
    if baseline.clocks is None or candidate.clocks is None or not len(baseline.clocks) or not len(candidate.clocks):
        return baseline, candidate
    usual = float(np.median(np.concatenate([baseline.clocks, candidate.clocks])))
    sides = []
    for side in (baseline, candidate):
        assert side.clocks is not None
        jumped = np.abs(side.clocks / usual - 1) > APART
        why = [f"its clock of {clock:,.0f} MHz jumped away from the others' {usual:,.0f} MHz" for clock in side.clocks[jumped]]
        sides.append(drop_runs(side, jumped, why) if jumped.any() and not jumped.all() else side)
    return sides[0], sides[1]


def judge_clocks(baseline: Side, candidate: Side, time: Decision, levels: Levels, rule: Rule) -> Clocks:
    if baseline.clocks is None or candidate.clocks is None:
        return Clocks({})
    b, c = baseline.clocks, candidate.clocks
    ratio = ratio_estimate(c, b)
    cycles_b, cycles_c = baseline.p50 * b, candidate.p50 * c
    facts = {"baseline_mhz": float(np.median(b)), "candidate_mhz": float(np.median(c)), "ratio": ratio,
             "cycles_ratio": ratio_estimate(cycles_c, cycles_b), "says": ""}
    level = max(levels.slower, smallest_p(len(c), len(b)))
    if abs(ratio - 1) <= rule.floor or min(rank_sum_p(c, b), rank_sum_p(b, c)) > level * (1 + ROUNDING):
        return Clocks(facts)
    cycles = decide(cycles_c, cycles_b, rank_sum_p(cycles_c, cycles_b), rank_sum_p(cycles_b, cycles_c), levels,
                    Limits(rule.floor, rule.target, rule.beta))
    facts["says"] = _says(ratio, cycles.bounds.ratio, rule)
    blames = time.verdict == Verdict.SLOWER and cycles.verdict != Verdict.SLOWER
    hides = time.verdict in (Verdict.PASS, Verdict.FASTER) and abs(ratio - 1) > JUMPED and cycles.verdict != time.verdict
    if blames:
        return Clocks(facts, f"{facts['says']}: the clock, not the build, can be why its time is {percent_text(time.bounds.ratio)}")
    if hides:
        return Clocks(facts, f"{facts['says']}: the two builds were not measured under the same conditions")
    return Clocks(facts)


def _says(ratio: float, cycles: float, rule: Rule) -> str:
    same = "same cycles" if abs(cycles - 1) <= rule.floor else f"{percent_text(cycles)} cycles"
    return f"{same}, {abs(ratio - 1) * 100:.0f} % {'lower' if ratio < 1 else 'higher'} clock"
