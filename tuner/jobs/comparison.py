"""Two jobs side by side: how soon each was how good, what both measured, and where their winners stand with the other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.jobs.insight import Reached, reached
from tuner.trial import Config, Rejected, Trial, config_key

LEAST_PAIRS = 5          # configurations that both measured, for an interval and a rank correlation
Z95 = 1.96


@dataclass(frozen=True)
class Pair:
    """One configuration that both measured. Times in ms."""

    config: Config
    a_ms: float
    b_ms: float


@dataclass(frozen=True)
class Crossed:
    """A job's winner as the other job measured it. `loss`: ÷ the other's best; None: the other never measured it."""

    ms: float | None
    loss: float | None


@dataclass(frozen=True)
class Comparison:
    """`ratio`: geometric mean of b / a over what both measured, with its 95 % interval; above 1 a measured it faster."""

    best_ms: tuple[float | None, float | None]
    reached: tuple[tuple[Reached, ...], tuple[Reached, ...]]
    pairs: tuple[Pair, ...]
    ratio: float | None
    interval: tuple[float, float] | None
    rank: float | None                       # Spearman's correlation of the two orders, -1 to 1
    crossed: tuple[Crossed, Crossed]         # a's winner in b, b's winner in a
    failures: tuple[tuple[str, int, int], ...]      # reason, in a, in b


def compare(a: Sequence[Trial], b: Sequence[Trial], same_problem: bool) -> Comparison:
    """`same_problem`: both looked for the same optimum; then "how soon" counts to the better of the two winners."""
    timed = [_timed(a), _timed(b)]
    bests = [min(each.values(), default=None, key=lambda trial: trial.median_ms or math.inf) for each in timed]
    best_ms = (_ms(bests[0]), _ms(bests[1]))
    known = [ms for ms in best_ms if ms is not None]
    goals = [min(known) if same_problem and known else ms for ms in best_ms]
    soon = [tuple(reached(trials, goal)) if goal is not None else () for trials, goal in zip((a, b), goals, strict=True)]
    pairs = tuple(Pair(trial.config, trial.median_ms or 0.0, timed[1][key].median_ms or 0.0)
                  for key, trial in timed[0].items() if key in timed[1])
    ratio, interval = _ratio(pairs)
    return Comparison(best_ms, (soon[0], soon[1]), pairs, ratio, interval, _rank(pairs),
                      (_cross(bests[0], timed[1], best_ms[1]), _cross(bests[1], timed[0], best_ms[0])), _failures(a, b))


def _timed(trials: Sequence[Trial]) -> dict[str, Trial]:
    """Measured to the end: a raced trial's time is of the few samples it took to give it up."""
    return {config_key(trial.config): trial for trial in trials
            if trial.median_ms is not None and trial.outcome.facts.get("ended") != "raced"}


def _ms(trial: Trial | None) -> float | None:
    return trial.median_ms if trial is not None else None


def _ratio(pairs: Sequence[Pair]) -> tuple[float | None, tuple[float, float] | None]:
    if not pairs:
        return None, None
    logs = np.log([pair.b_ms / pair.a_ms for pair in pairs])
    middle = float(logs.mean())
    if len(pairs) < LEAST_PAIRS:
        return math.exp(middle), None
    half = Z95 * float(logs.std(ddof=1)) / math.sqrt(len(pairs))
    return math.exp(middle), (math.exp(middle - half), math.exp(middle + half))


def _rank(pairs: Sequence[Pair]) -> float | None:
    """Spearman: Pearson's correlation of the ranks, ties at their mean rank."""
    if len(pairs) < LEAST_PAIRS:
        return None
    left, right = _ranks([pair.a_ms for pair in pairs]), _ranks([pair.b_ms for pair in pairs])
    if left.std() == 0 or right.std() == 0:
        return None
    return float(np.corrcoef(left, right)[0, 1])


def _ranks(values: Sequence[float]) -> Any:
    _, index, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[index]


def _cross(winner: Trial | None, other: Mapping[str, Trial], best_ms: float | None) -> Crossed:
    there = other.get(config_key(winner.config)) if winner is not None else None
    ms = _ms(there)
    return Crossed(ms, ms / best_ms if ms is not None and best_ms else None)


def _failures(a: Sequence[Trial], b: Sequence[Trial]) -> tuple[tuple[str, int, int], ...]:
    counts = [Counter(str(trial.outcome.reason) for trial in trials if isinstance(trial.outcome, Rejected)) for trials in (a, b)]
    return tuple((reason, counts[0][reason], counts[1][reason]) for reason, _ in (counts[0] + counts[1]).most_common())


@dataclass(frozen=True)
class OneForAll:
    """A configuration that every job measured. `worst`: its largest loss over the jobs; `mean`: geometric mean of them."""

    config: Config
    worst: float
    mean: float


def carried(jobs: Sequence[Sequence[Trial]]) -> list[list[float | None]]:
    """[i][j]: the winner of job i as job j measured it ÷ the best of j; None: j did not measure it."""
    timed = [_timed(trials) for trials in jobs]
    bests = [min(each.values(), default=None, key=lambda trial: trial.median_ms or math.inf) for each in timed]
    return [[_cross(winner, other, _ms(best)).loss for other, best in zip(timed, bests, strict=True)] for winner in bests]


def one_for_all(jobs: Sequence[Sequence[Trial]]) -> OneForAll | None:
    """The configuration whose worst loss over all jobs is the smallest; None: none was measured by all of them."""
    timed = [_timed(trials) for trials in jobs]
    if not timed or not all(timed):
        return None
    bests = [min(trial.median_ms or math.inf for trial in each.values()) for each in timed]
    found: OneForAll | None = None
    for key in set.intersection(*(set(each) for each in timed)):
        losses = [(each[key].median_ms or math.inf) / best for each, best in zip(timed, bests, strict=True)]
        worst, mean = max(losses), math.exp(sum(map(math.log, losses)) / len(losses))
        if found is None or (worst, mean) < (found.worst, found.mean):
            found = OneForAll(timed[0][key].config, worst, mean)
    return found
