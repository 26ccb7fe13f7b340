"""What a job's trials show: parameters that matter, time spent, how soon it was how good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profiles.base.numbers import finite_number
from tuner.tuning.trial import Measured, Rejected, Trial, Value

SPARE = 8            # measured trials needed beyond the coefficients of the model
WITHIN = (1.10, 1.05, 1.02, 1.01)       # "how soon": times of the best that a comparison looks for


@dataclass(frozen=True)
class ParameterValue:
    """One value of a parameter over the trials that had it; times in ms, None if none ran."""

    value: Value
    measured: int
    rejected: int
    best_ms: float | None
    median_ms: float | None

    @property
    def tried(self) -> int:
        """Return how many trials had this value."""
        return self.measured + self.rejected


@dataclass(frozen=True)
class Effect:
    """One parameter; `share` (0-1): differences in log time that it alone explains; None: too few."""

    name: str
    levels: tuple[ParameterValue, ...]
    share: float | None = None

    @property
    def best(self) -> ParameterValue | None:
        """Return the value of the fastest trial."""
        timed = [level for level in self.levels if level.best_ms is not None]
        return min(timed, key=lambda level: level.best_ms or 0.0, default=None)

    @property
    def share_pct(self) -> float | None:
        """Return the share in percent."""
        return None if self.share is None else 100 * self.share

    @property
    def loss(self) -> float | None:
        """Return the worst value's best ÷ the best of all; None with one value."""
        bests_ms = [level.best_ms for level in self.levels if level.best_ms is not None]
        return max(bests_ms) / min(bests_ms) if len(bests_ms) > 1 else None


@dataclass(frozen=True)
class Insight:
    """`explained`: share of log-time differences that parameters explain one by one."""

    effects: tuple[Effect, ...]
    measured: int
    rejected: int
    explained: float | None


def explain_trials(trials: Sequence[Trial]) -> Insight:
    """Return effects, largest first; without a model by what the wrong value costs."""
    names = tuple(dict.fromkeys(name for trial in trials for name in trial.config))
    measured = [trial for trial in trials if trial.median_ms is not None]
    shares, explained = _explained_shares(names, measured)
    effects = [Effect(name, _parameter_levels(name, trials), shares.get(name)) for name in names]
    effects.sort(key=lambda effect: (-(effect.share or 0.0), -(effect.loss or 1.0)))
    return Insight(tuple(effects), len(measured), len(trials) - len(measured), explained)


def _parameter_levels(name: str, trials: Sequence[Trial]) -> tuple[ParameterValue, ...]:
    times: dict[Value, list[float]] = {}
    rejected: Counter[Value] = Counter()
    for trial in trials:
        if name not in trial.config:
            continue
        value = trial.config[name]
        times.setdefault(value, [])
        if trial.median_ms is None:
            rejected[value] += 1
        else:
            times[value].append(trial.median_ms)
    return tuple(ParameterValue(value, len(times_ms), rejected[value], min(times_ms, default=None),
                       float(np.median(times_ms)) if times_ms else None)
                 for value, times_ms in sorted(times.items(), key=lambda pair: (isinstance(pair[0], str), pair[0])))


def _explained_shares(names: Sequence[str], measured: Sequence[Trial]) -> tuple[dict[str, float], float | None]:
    """Return ω² per parameter of an additive least-squares model of log time, and the total.

    A parameter is left out of the model, the others stay: what is then not explained any more is its own. So two parameters
    that the search moved together do not get the credit for each other. ω² = (ΔSS − Δdf · MS_error) / (SS_total + MS_error)
    takes away what chance alone explains (Hays 1963; Olejnik and Algina, Psychological Methods 8, 2003).
    """
    blocks: dict[str, NDArray[np.float64]] = {}
    for name in names:
        values = [trial.config.get(name) for trial in measured]
        index = {value: position for position, value in enumerate(dict.fromkeys(values))}
        if len(index) > 1:
            codes = np.array([index[value] for value in values])
            blocks[name] = (codes[:, None] == np.arange(1, len(index))).astype(float)
    coefficients = 1 + sum(block.shape[1] for block in blocks.values())
    n = len(measured)
    if not blocks or n < coefficients + SPARE:
        return {}, None
    y = np.log([trial.median_ms or 1.0 for trial in measured])
    total = float(np.sum((y - y.mean()) ** 2))
    if total <= 0:
        return {}, None
    columns = np.hstack([np.ones((n, 1)), *blocks.values()])
    owner = np.concatenate([[-1], *[np.full(block.shape[1], position) for position, block in enumerate(blocks.values())]])
    gram, moment, square = columns.T @ columns, columns.T @ y, float(y @ y)

    def left(keep: NDArray[np.bool_]) -> tuple[float, int]:
        """Return the residual sum of squares of the kept columns, and their rank."""
        part = gram[np.ix_(keep, keep)]
        fitted, _, rank, _ = np.linalg.lstsq(part, moment[keep], rcond=1e-10)
        return max(0.0, square - float(moment[keep] @ fitted)), int(rank)

    error, rank = left(np.full(coefficients, True))
    mean_error = error / max(1, n - rank)
    shares = {}
    for position, name in enumerate(blocks):
        without, less = left(owner != position)
        shares[name] = max(0.0, without - error - (rank - less) * mean_error) / (total + mean_error)
    explained = max(0.0, total - error - (rank - 1) * mean_error) / (total + mean_error)
    return shares, explained


# ---- where the time went ----

@dataclass(frozen=True)
class TimeSpent:
    """Seconds of a job, None where unknown; `compile_s` may run beside measuring."""

    elapsed_s: float
    gpu_s: float | None             # the GPU was measured on
    compile_s: float | None         # over all compiling processes
    raced: int                      # trials given up early, against the best so far …
    raced_saved_s: float | None     # … and the measuring that was not done for it
    throttled: int                  # samples thrown away because the clock was throttled
    compiled_only: int              # rejected by what the compiler told, before the GPU was used
    compiled_saved_s: float | None  # at the mean GPU time of a measured trial

    @property
    def busy(self) -> float | None:
        """Return the share of the job's time in which the GPU measured."""
        return min(1.0, self.gpu_s / self.elapsed_s) if self.gpu_s is not None and self.elapsed_s > 0 else None

    @property
    def saved_s(self) -> float | None:
        """Return the seconds saved by racing and pruning; None where unknown."""
        savings = [saving for saving in (self.raced_saved_s, self.compiled_saved_s) if saving is not None]
        return sum(savings) if savings else None


BEFORE_THE_GPU = ("spills", "resources", "quarantined")


def time_spent(trials: Sequence[Trial], elapsed_s: float) -> TimeSpent:
    """Return the sum of the trials' `measure_s` or `gpu_s`, `compile_s` and savings."""
    facts = [trial.outcome.facts for trial in trials]
    gpu = [seconds for trial in trials if (seconds := _gpu_seconds(trial)) is not None]
    compiling = [took for entry in facts if (took := finite_number(entry.get("compile_s"))) is not None]
    racing = [entry["racing"] for entry in facts if isinstance(entry.get("racing"), Mapping)]
    saved = [less for entry in racing if (less := finite_number(entry.get("saved_s"))) is not None]
    throttled = [entry["throttled"] for entry in facts if isinstance(entry.get("throttled"), Mapping)]
    early = sum(isinstance(trial.outcome, Rejected) and trial.outcome.reason in BEFORE_THE_GPU
                and _gpu_seconds(trial) is None for trial in trials)
    timed = [seconds for trial in trials if isinstance(trial.outcome, Measured) and (seconds := _gpu_seconds(trial)) is not None]
    return TimeSpent(elapsed_s, sum(gpu) if gpu else None, sum(compiling) if compiling else None,
                 sum(entry.get("ended") == "raced" for entry in facts), sum(saved) if saved else None,
                 sum(int(finite_number(entry.get("discarded")) or 0) for entry in throttled),
                 early, early * sum(timed) / len(timed) if timed and early else None)


def _gpu_seconds(trial: Trial) -> float | None:
    """Return seconds that a trial held the GPU (`measure_s`), or was timed on it (`gpu_s`)."""
    numbers = (finite_number(trial.outcome.facts.get(name)) for name in ("measure_s", "gpu_s"))
    return next((seconds for seconds in numbers if seconds is not None), None)


# ---- how soon ----

@dataclass(frozen=True)
class Milestone:
    """The first trial within `within` × of a time: its place and job seconds; None: never."""

    within: float
    trials: int | None
    seconds: float | None


def milestones(trials: Sequence[Trial], best_ms: float) -> list[Milestone]:
    """Return one milestone for each of WITHIN; failures count as trials, raced ones reach nothing."""
    reached = []
    ordered = sorted(trials, key=lambda trial: trial.number)
    for within in WITHIN:
        hit = next(((place, trial.at_s) for place, trial in enumerate(ordered, 1)
                    if trial.median_ms is not None and trial.median_ms <= best_ms * within
                    and trial.outcome.facts.get("ended") != "raced"), (None, None))
        reached.append(Milestone(within, *hit))
    return reached


