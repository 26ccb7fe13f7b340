"""Rates of the gate in what ordinary CI does to it: steps, days that differ, missing kernels. For docs/gate-bench.md.

Kernels of 40 µs are generated, not recorded: runs differ by 0.5 %, samples within a run by 1 %, 5 runs a build, 25 samples a run.
*Without* is the same draw judged by what the gate did before it knew of the matter: a baseline of the newest 10 runs whatever their
level, sessions taken as one, p50 and p95 alone, exact ranks alone, kernels that are gone left out, a timer's steps and a drift of
the machine unknown. `python -m bench.gate_around [draws [words of a row]]` prints the table; each row is a function of (draws).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.distributions import rank_sum_p, ratio_estimate, smallest_p
from tuner.gate.stats.results import KernelVerdict, SuiteVerdict
from tuner.gate.stats.rule import Rule, Verdict
from tuner.gate.stats.runs import EarlierLevel, KernelRuns, Run
from tuner.gate.stats.sessions import estimate_sessions
from tuner.gate.stats.suite import judge

Floats = NDArray[np.float64]
RED, GREEN = (Verdict.SLOWER, Verdict.AMBIGUOUS, Verdict.NO_DATA), (Verdict.PASS, Verdict.FASTER)
LEVEL_US, RUNS, SAMPLES, NOISE, KERNELS = 40.0, 5, 25, 0.005, 13


@dataclass(frozen=True)
class Row:
    title: str
    counts: str                             # what is counted
    wanted: str
    rate: Callable[[int], tuple[int, int, int]]         # draws -> (counted without, counted with, draws)


def build(random: np.random.Generator, factors: Floats, session: float = 0.0, runs: int = RUNS) -> list[KernelRuns]:
    """One build: kernels at these factors of the level, all of them slower by its session."""
    us = LEVEL_US * factors * (1 + session) * np.exp(NOISE * random.standard_normal((runs, len(factors))))
    samples = us[..., None] * (1 + 0.01 * random.standard_normal((*us.shape, SAMPLES)))
    return [KernelRuns("generated", {"kernel": at}, None, str(at), [Run(f"{run}", samples[run, at]) for run in range(runs)])
            for at in range(len(factors))]


def joined(*builds: list[KernelRuns]) -> list[KernelRuns]:
    """Runs of several builds as one side."""
    return [KernelRuns(of[0].op, of[0].shape, None, of[0].key, [Run(f"{number} {run.run}", run.us) for number, each in enumerate(of)
                                                                for run in each.runs]) for of in zip(*builds, strict=True)]


def slowed(kernels: int, at: int, factor: float) -> Floats:
    return np.where(np.arange(kernels) == at, factor, 1.0)


def _called(found: SuiteVerdict, key: str, verdict: Verdict = Verdict.SLOWER) -> bool:
    return any(each.key == key and each.verdict == verdict for each in found.kernels)


def _is_red(found: SuiteVerdict, at: int, effect: float) -> bool:
    """Return whether the kernel with the effect is called slower; without an effect, whether the suite is."""
    return _called(found, str(at)) if effect != 1 else found.verdict == Verdict.SLOWER


# ---- rows ----

def returns(gain: float) -> Callable[[int], tuple[int, int, int]]:
    """c, c, then a build that is faster by `gain` in one kernel, then the old speed again."""
    def rate(draws: int) -> tuple[int, int, int]:
        without = ours = 0
        for draw in range(draws):
            random, at = np.random.default_rng([1, draw]), draw % KERNELS
            old = [build(random, np.ones(KERNELS)) for _ in range(2)]
            fast, back = build(random, slowed(KERNELS, at, 1 - gain)), build(random, np.ones(KERNELS))
            without += _called(judge(joined(old[1], fast), back, calibrated=False), str(at))
            before = {each.key: EarlierLevel("c", each.runs) for each in joined(*old) if each.key == str(at)}
            base = [mine if mine.key == str(at) else both for mine, both in zip(fast, joined(old[1], fast), strict=True)]
            ours += _called(judge(base, back, calibrated=False, earlier=before), str(at))
        return without, ours, draws
    return rate


def sessions(sd: float, kernels: int, effect: float = 1.0) -> Callable[[int], tuple[int, int, int]]:
    """Eight builds of one level before, the newest two of which are the baseline; each build's day of its own."""
    def rate(draws: int) -> tuple[int, int, int]:
        without = ours = 0
        for draw in range(draws):
            random, at = np.random.default_rng([2, kernels, draw]), draw % kernels
            past = [build(random, np.ones(kernels), sd * random.standard_normal()) for _ in range(8)]
            candidate = build(random, slowed(kernels, at, effect), sd * random.standard_normal())
            base = joined(*past[-2:])
            history = {str(key): [[float(np.median(run.us)) for run in each[key].runs] for each in past] for key in range(kernels)}
            without += _is_red(judge(base, candidate, calibrated=False), at, effect)
            ours += _is_red(judge(base, candidate, calibrated=False, sessions=estimate_sessions(history, 2)), at, effect)
        return without, ours, draws
    return rate


def by_ranks(each: KernelVerdict, kernels: int) -> Verdict:
    """The p50's word where complete separation is no proof for so many kernels."""
    reached = smallest_p(each.candidate_runs, each.baseline_runs) <= Rule().alpha / kernels
    return each.verdict if reached or each.verdict not in (Verdict.SLOWER, Verdict.FASTER) else Verdict.AMBIGUOUS


def doubled(kernels: int) -> Callable[[int], tuple[int, int, int]]:
    def rate(draws: int) -> tuple[int, int, int]:
        without = ours = 0
        for draw in range(draws):
            random, at = np.random.default_rng([3, draw]), draw % kernels
            base = build(random, np.ones(kernels), runs=2 * RUNS)
            found = judge(base, build(random, slowed(kernels, at, 2.0)), calibrated=False)
            ours += _called(found, str(at))
            without += any(each.key == str(at) and by_ranks(each, kernels) == Verdict.SLOWER for each in found.kernels)
        return without, ours, draws
    return rate


def shares(after: float) -> Callable[[int], tuple[int, int, int]]:
    """One of four kernels: 10 % of its launches are slow, then `after`; red is SLOWER or AMBIGUOUS."""
    def mixed(random: np.random.Generator, share: float, runs: int) -> KernelRuns:
        us = np.where(random.random((runs, 100)) < share, 1.9, 1.0) * LEVEL_US * (1 + 0.01 * random.standard_normal((runs, 100)))
        return KernelRuns("mixed", {}, None, "mixed", [Run(str(at), each) for at, each in enumerate(us)])

    def rate(draws: int) -> tuple[int, int, int]:
        without = ours = 0
        for draw in range(draws):
            random = np.random.default_rng([4, draw])
            base, candidate = ([*build(random, np.ones(3), runs=runs), mixed(random, share, runs)]
                               for share, runs in ((0.1, 2 * RUNS), (after, RUNS)))
            one = next(each for each in judge(base, candidate, calibrated=False).kernels if each.key == "mixed")
            ours += one.verdict in RED
            without += any(number is not None and number.verdict in RED[:2] for number in (one.p50, one.p95))
        return without, ours, draws
    return rate


def missing(draws: int) -> tuple[int, int, int]:
    """One kernel of 13 is gone; green is PASS or FASTER. Without: the kernels that the build has."""
    without = ours = 0
    for draw in range(draws):
        random = np.random.default_rng([5, draw])
        base, candidate = build(random, np.ones(KERNELS), runs=2 * RUNS), build(random, np.ones(KERNELS))
        left = [each for at, each in enumerate(candidate) if at != draw % KERNELS]
        keys = {each.key for each in left}
        without += judge([each for each in base if each.key in keys], left, calibrated=False).verdict in GREEN
        ours += judge(base, left, calibrated=False).verdict in GREEN
    return without, ours, draws


def units(draws: int) -> tuple[int, int, int]:
    without = ours = 0
    for draw in range(draws):
        random = np.random.default_rng([6, draw])
        sides = build(random, np.full(KERNELS, 20.0), runs=2 * RUNS), build(random, np.full(KERNELS, 0.02))
        for rule in (Rule(believable=1e6), Rule()):
            green = judge(*sides, rule, calibrated=False).verdict in GREEN
            without, ours = without + (green and rule.believable > 1e3), ours + (green and rule.believable < 1e3)
    return without, ours, draws


def creeps(per_build: float) -> Callable[[int], tuple[int, int, int]]:
    """Nine builds, each slower than the one before: open rows of the kernel.

    Without: a row for each build whose interval leaves the last row's.
    """
    def rate(draws: int) -> tuple[int, int, int]:
        without = ours = 0
        for draw in range(draws):
            random = np.random.default_rng([7, draw])
            base, high, ratio, any_row = build(random, np.ones(1), runs=2 * RUNS), 0.0, 0.0, 0
            for at in range(1, 10):
                found = judge(base, build(random, np.full(1, (1 + per_build) ** at)), calibrated=False).kernels[0]
                if found.verdict == Verdict.SLOWER and found.p50:
                    is_more = found.p50.low > high and found.p50.ratio > ratio * (1 + Rule().floor)
                    without += is_more
                    any_row = 1
                    high, ratio = (found.p50.high, found.p50.ratio) if is_more else (high, ratio)
            ours += any_row
        return without, ours, draws
    return rate


def coarse_timer(effect: float) -> Callable[[int], tuple[int, int, int]]:
    """One kernel of 6.63 µs, on a timer of 1.024 µs: 6.144 is read; 0.6 % more reads 7.168. Without: rank test and floor alone."""
    def rate(draws: int) -> tuple[int, int, int]:
        without = ours = 0
        for draw in range(draws):
            random = np.random.default_rng([8, draw])
            sides = []
            for runs, factor in ((2 * RUNS, 1.0), (RUNS, effect)):
                us = 6.63 * factor * (1 + 0.002 * random.standard_normal((runs, SAMPLES)))
                sides.append([KernelRuns("coarse", {}, None, "0", [Run(str(at), np.round(each / 1.024) * 1.024)
                                                                   for at, each in enumerate(us)])])
            ours += _called(judge(*sides, calibrated=False), "0")
            b, c = (np.array([np.median(run.us) for run in side[0].runs]) for side in sides)
            without += rank_sum_p(c, b) <= Rule().alpha and ratio_estimate(c, b) > 1 + Rule().floor
        return without, ours, draws
    return rate


def drifting(over: float, kernels: int, effect: float = 1.0) -> Callable[[int], tuple[int, int, int]]:
    """Ten runs of the baseline, then five of the candidate, while the machine gets slower by `over`."""
    def rate(draws: int) -> tuple[int, int, int]:
        without = ours = 0
        for draw in range(draws):
            random, at = np.random.default_rng([9, kernels, draw]), draw % kernels
            speed = 1 + over * np.linspace(0, 1, 3 * RUNS)
            base, candidate = build(random, np.ones(kernels), runs=2 * RUNS), build(random, slowed(kernels, at, effect))
            sides = [[replace(each, runs=[replace(run, us=run.us * factor) for run, factor in zip(each.runs, factors, strict=True)])
                      for each in side] for side, factors in ((base, speed[:2 * RUNS]), (candidate, speed[2 * RUNS:]))]
            without += _is_red(judge(*sides, calibrated=False), at, effect)
            ours += _is_red(judge(*sides, calibrated=False, one_after_other=True), at, effect)
        return without, ours, draws
    return rate


def five_and_five(effect: float) -> Callable[[int], tuple[int, int, int]]:
    """Four kernels, five runs of each build. Without: complete separation is no proof, by ranks alone."""
    def rate(draws: int) -> tuple[int, int, int]:
        without = ours = 0
        for draw in range(draws):
            random, at = np.random.default_rng([10, draw]), draw % 4
            found = judge(build(random, np.ones(4)), build(random, slowed(4, at, effect)), calibrated=False)
            red = [each for each in found.kernels if each.verdict == Verdict.SLOWER and (effect == 1 or each.key == str(at))]
            ours += bool(red)
            without += any(by_ranks(each, 4) == Verdict.SLOWER for each in red)
        return without, ours, draws
    return rate


ROWS = (
    *(Row(f"return after a gain of {100 * gain:.0f} %, 13 kernels", "SLOWER", "≥ 98 %", returns(gain))
      for gain in (0.05, 0.1, 0.2, 0.3)),
    *(Row(f"sessions of ±{100 * sd:g} %, {kernels} equal kernel(s)", "SLOWER", "≤ 1 %", sessions(sd, kernels))
      for sd in (0.015, 0.02) for kernels in (1, KERNELS)),
    Row("sessions of ±1.5 %, +8 % in one of 13", "SLOWER", "most", sessions(0.015, KERNELS, 1.08)),
    Row("sessions alike, +8 % in the only kernel", "SLOWER", "≥ 95 %", sessions(0.0, 1, 1.08)),
    Row("a doubled kernel of 60, 5 against 10 runs", "SLOWER", "≥ 98 %", doubled(60)),
    Row("10 → 40 % of the launches slow (mean +27 %)", "red", "≥ 98 %", shares(0.4)),
    Row("10 % slow, as before", "red", "≤ 1 %", shares(0.1)),
    Row("one of 13 kernels gone", "green", "0 %", missing),
    Row("ms read as µs", "green", "0 %", units),
    Row("nine builds that creep by 3 %", "open rows a draw", "1", creeps(0.03)),
    Row("6.63 µs on a timer of 1.024 µs, +0.6 %", "SLOWER", "≤ 1 %", coarse_timer(1.006)),
    Row("6.63 µs on a timer of 1.024 µs, +30 %", "SLOWER", "most", coarse_timer(1.3)),
    *(Row(f"the machine drifts by {100 * over:g} % over 10 and then 5 runs, {kernels} equal kernel(s)", "SLOWER", "≤ 1 %",
          drifting(over, kernels)) for over in (0.06, 0.12) for kernels in (1, 4)),
    Row("it drifts by 6 %, +10 % in one of 4", "SLOWER", "most", drifting(0.06, 4, 1.10)),
    Row("4 kernels, 5 against 5 runs, +6 % in one", "SLOWER", "≥ 95 %", five_and_five(1.06)),
    Row("4 equal kernels, 5 against 5 runs", "SLOWER", "≤ 1 %", five_and_five(1.0)),
)


def table(draws: int, words: str = "") -> Iterator[str]:
    yield "| what CI does | counted | wanted | without | the gate |"
    yield "|---|---|--:|--:|--:|"
    for row in (row for row in ROWS if words in row.title):
        without, ours, number = row.rate(draws)
        text = (lambda part, of=number: f"{part / of:.2f}") if row.counts.startswith("open") else \
            (lambda part, of=number: f"{100 * part / of:.1f} %")
        yield f"| {row.title} | {row.counts} | {row.wanted} | {text(without)} | {text(ours)} |"


if __name__ == "__main__":
    for line in table(int(sys.argv[1]) if len(sys.argv) > 1 else 200, " ".join(sys.argv[2:])):
        print(line, flush=True)
