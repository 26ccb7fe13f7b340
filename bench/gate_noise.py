"""Error rates of the gate under noise made to order: what recorded runs of one machine cannot show. For docs/gate-bench.md.

Suites of 13 kernels of 40 µs are generated, not recorded: 10 runs of the baseline, then 5 of the candidate, 40 samples each, with
the noise between runs that the row names and 1 % within a run. A suite that ends AMBIGUOUS gets the re-run that the verdict asks
for, both builds in turn. A slowdown multiplies one kernel's time before the timer reads it. `python -m bench.gate_noise [draws
[words]]` prints the table, or the rows whose title holds the words.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.results import KernelVerdict
from tuner.gate.stats.rule import Verdict, worst_verdict
from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.stats.suite import judge

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Random = np.random.Generator
Levels = Callable[[Random, Bools], Floats]      # of each run and kernel, in the order measured; which runs are the candidate's

KERNELS, BASELINE, CANDIDATE, SAMPLES, LEVEL_US = 13, 10, 5, 40, 40.0
EFFECTS = (1.0, 1.05, 1.10)
CHUNK = 50


def normal(percent: float) -> Levels:
    return lambda random, candidate: np.exp(percent / 100 * random.standard_normal((len(candidate), KERNELS)))


def student(percent: float, freedom: int) -> Levels:
    return lambda random, candidate: np.exp(np.clip(percent / 100 * random.standard_t(freedom, (len(candidate), KERNELS)), -2, 2))


def two_speeds(share: float, percent: float, together: bool = False) -> Levels:
    def levels(random: Random, candidate: Bools) -> Floats:
        slow = random.random((len(candidate), 1 if together else KERNELS)) < share
        return normal(0.2)(random, candidate) * (1 + percent / 100 * slow)

    return levels


def wider(baseline: float, candidate: float) -> Levels:
    def levels(random: Random, is_candidate: Bools) -> Floats:
        percent = np.where(is_candidate, candidate, baseline)[:, None]
        return np.exp(percent / 100 * random.standard_normal((len(is_candidate), KERNELS)))

    return levels


def drifting(percent: float) -> Levels:
    return lambda random, candidate: (normal(0.3)(random, candidate)
                                      * (1 + percent / 100 * np.linspace(0, 1, len(candidate))[:, None]))


def following(share: float, percent: float) -> Levels:
    """Each run is near the one before: an AR(1) series."""
    def levels(random: Random, candidate: Bools) -> Floats:
        steps = random.standard_normal((len(candidate), KERNELS))
        for at in range(1, len(steps)):
            steps[at] = share * steps[at - 1] + (1 - share**2) ** 0.5 * steps[at]
        return np.exp(percent / 100 * steps)

    return levels


def outlier(of_candidate: bool) -> Levels:
    """One run takes three times as long, all kernels of it."""
    def levels(random: Random, candidate: Bools) -> Floats:
        found = normal(0.3)(random, candidate)
        found[int(np.argmax(candidate == of_candidate))] *= 3
        return found

    return levels


@dataclass(frozen=True)
class Noise:
    title: str
    levels: Levels
    late: float = 0.0                                   # share of samples that come late, by twice the time on average
    step_us: float = 0.0                                # of the timer
    us: float = LEVEL_US


NOISES = (
    Noise("normal, 0.3 % between runs", normal(0.3)),
    Noise("normal, 1 %", normal(1.0)),
    Noise("normal, 2 %", normal(2.0)),
    Noise("normal, 5 %", normal(5.0)),
    Noise("heavy tails: Student's t of 2 degrees, 0.5 %", student(0.5, 2)),
    Noise("Cauchy's, 0.3 %", student(0.3, 1)),
    Noise("two speeds: 30 % of a kernel's runs 4 % slower", two_speeds(0.3, 4)),
    Noise("half of them 8 % slower", two_speeds(0.5, 8)),
    Noise("30 % of the processes 6 % slower, all kernels", two_speeds(0.3, 6, together=True)),
    Noise("5 % of the samples late by 0 to 300 %", normal(0.3), late=0.05),
    Noise("one run of the baseline takes three times as long", outlier(False)),
    Noise("one run of the candidate does", outlier(True)),
    Noise("timer of 1.024 µs steps", normal(0.5), step_us=1.024),
    Noise("the same timer, kernels of 6.6 µs", normal(0.5), step_us=1.024, us=6.6),
    Noise("all runs equal to the last bit", normal(0.0)),
    Noise("the candidate's runs differ by 3 %, the baseline's by 0.3 %", wider(0.3, 3.0)),
    Noise("each run near the one before: AR(1) of 0.7, 0.5 %", following(0.7, 0.5)),
    Noise("drift by 1 % while the 15 runs are taken", drifting(1.0)),
)


@dataclass
class Rates:
    draws: int = 0
    first: Counter[str] = field(default_factory=Counter)       # suites at first, and at last
    last: Counter[str] = field(default_factory=Counter)
    slowed: Counter[str] = field(default_factory=Counter)      # the slowed kernel at last
    missed: int = 0                     # kernels whose true ratio lies outside the interval, of those …
    kernels: int = 0
    asked: int = 0                      # kernels of re-runs, and those that stayed AMBIGUOUS
    undecided: int = 0

    def add(self, other: Rates) -> None:
        self.draws += other.draws
        for mine, theirs in ((self.first, other.first), (self.last, other.last), (self.slowed, other.slowed)):
            mine.update(theirs)
        self.missed, self.kernels = self.missed + other.missed, self.kernels + other.kernels
        self.asked, self.undecided = self.asked + other.asked, self.undecided + other.undecided


def measured(task: tuple[int, float, int]) -> Rates:
    """Of one noise and effect, `CHUNK` draws from the given one on."""
    which, effect, start = task
    rates = Rates()
    for draw in range(start, start + CHUNK):
        _one(rates, NOISES[which], np.random.default_rng([which, draw]), effect, draw % KERNELS if effect != 1 else None)
    return rates


def _one(rates: Rates, noise: Noise, random: Random, effect: float, slowed: int | None) -> None:
    first = judge(*_suite(noise, random, np.arange(BASELINE + CANDIDATE) >= BASELINE, effect, slowed), calibrated=False)
    called = {each.key: each.verdict for each in first.kernels}
    for each in first.kernels:
        assert each.p50
        true = effect if each.key == str(slowed) else 1.0
        rates.missed += not each.p50.low * (1 - 1e-9) <= true <= each.p50.high * (1 + 1e-9)
    rates.kernels += KERNELS
    if first.verdict == Verdict.AMBIGUOUS:
        again = _again(noise, random, [each for each in first.kernels if each.verdict == Verdict.AMBIGUOUS], effect, slowed)
        rates.asked += len(again)
        rates.undecided += sum(verdict == Verdict.AMBIGUOUS for verdict in again.values())
        called |= again
    rates.draws += 1
    rates.first[first.verdict] += 1
    rates.last[worst_verdict(called.values())] += 1
    if slowed is not None:
        rates.slowed[called[str(slowed)]] += 1


def _again(noise: Noise, random: Random, unsure: list[KernelVerdict], effect: float, slowed: int | None) -> dict[str, Verdict]:
    in_turn = np.arange(2 * max(each.more_runs for each in unsure)) % 4
    keys = {each.key for each in unsure}
    sides = _suite(noise, random, (in_turn == 1) | (in_turn == 2), effect, slowed)          # A B B A
    baseline, ours = ([kernel for kernel in side if kernel.key in keys] for side in sides)
    found = judge(baseline, ours, calibrated=False)
    return {each.key: each.verdict for each in found.kernels}


def _suite(noise: Noise, random: Random, candidate: Bools, effect: float,
           slowed: int | None) -> tuple[list[KernelRuns], list[KernelRuns]]:
    levels = noise.us * noise.levels(random, candidate)
    if slowed is not None:
        levels[candidate, slowed] *= effect
    us = levels[..., None] * (1 + 0.01 * random.standard_normal((*levels.shape, SAMPLES)) if levels.std() else np.ones(SAMPLES))
    if noise.late:
        us *= 1 + np.where(random.random(us.shape) < noise.late, random.exponential(1.0, us.shape), 0)
    if noise.step_us:
        us = np.maximum(np.round(us / noise.step_us), 1) * noise.step_us
    numbers = np.arange(len(candidate))
    baseline, ours = ([KernelRuns("generated", {"kernel": at}, None, str(at), [Run(str(run), us[run, at]) for run in numbers[side]])
                       for at in range(KERNELS)] for side in (~candidate, candidate))
    return baseline, ours


def slowed_draws(draws: int) -> int:
    """Of each slowdown, where `draws` are of identical builds."""
    return max(1, round(draws * 0.4 / CHUNK)) * CHUNK


def table(draws: int, processes: int, words: str = "") -> Iterator[str]:
    rows = [which for which, noise in enumerate(NOISES) if words in noise.title]
    tasks = [(which, effect, start) for which in rows for effect in EFFECTS
             for start in range(0, draws if effect == 1 else slowed_draws(draws), CHUNK)]
    found: dict[tuple[int, float], Rates] = {}
    with ProcessPoolExecutor(processes) as pool:
        for (which, effect, _), rates in zip(tasks, pool.map(measured, tasks), strict=True):
            found.setdefault((which, effect), Rates()).add(rates)
    yield ("| noise | identical: suites SLOWER | AMBIGUOUS at first | after the re-run | +5 % SLOWER | +5 % passed | +10 % SLOWER "
           "| true ratio outside `ci` | kernels that a re-run decided |")
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for which in rows:
        yield f"| {NOISES[which].title} | " + " | ".join(_cells([found[which, effect] for effect in EFFECTS])) + " |"


def _cells(rates: list[Rates]) -> Iterable[str]:
    same, five, ten = rates
    yield from (_share(same.last[Verdict.SLOWER], same.draws), _share(same.first[Verdict.AMBIGUOUS], same.draws),
                _share(same.last[Verdict.AMBIGUOUS], same.draws), _share(five.slowed[Verdict.SLOWER], five.draws),
                _share(five.slowed[Verdict.PASS] + five.slowed[Verdict.FASTER], five.draws),
                _share(ten.slowed[Verdict.SLOWER], ten.draws))
    yield _share(same.missed + five.missed, same.kernels + five.kernels)
    asked = sum(each.asked for each in rates)
    yield f"{_share(asked - sum(each.undecided for each in rates), asked)} of {asked:,}" if asked else "—"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "—"


if __name__ == "__main__":
    print("\n".join(table(int(sys.argv[1]) if len(sys.argv) > 1 else 500, 2, sys.argv[2] if len(sys.argv) > 2 else "")))
