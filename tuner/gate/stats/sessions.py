"""Sessions that differ as a whole: a machine that is 2 % slower today slows every kernel, and no test of one kernel's runs knows.

Runs of one build are exchangeable among themselves; runs of two builds that were taken on two days are not, where the days differ.
Two things tell. Of five kernels and more the comparison itself: their median ratio is the session's (`common_shift`), as long as it
is no larger than sessions differ; a verdict must then hold with the session taken out as well. Of fewer kernels the suite's history
tells how far builds of one level lie apart beyond what their own runs explain (a one-way model with random effects, by moments:
DerSimonian and Laird, 1986). Without a history sessions are taken to differ by `UNKNOWN_SD`. Runs taken in turn need none of this.

A machine also drifts within a session: where all runs of one build were taken after all of the other, what it got slower by
meanwhile is on one side. The runs of each side tell, in the order taken: Kendall's rank correlation of both sides together (Mann,
1945), and the median of the slopes between two runs of one side with its interval (Sen, 1968).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.distributions import normal_quantile, t_quantile

Floats = NDArray[np.float64]

UNKNOWN_SD = 0.02           # of a session, as a fraction, where no history says more
FEWEST_SESSIONS = 4         # of one level, that say how far sessions lie apart
FEWEST_KERNELS = 5          # whose median ratio is the session's and not one kernel's
SEEN = 0.005                # a smaller shift of all kernels changes no verdict
LEAST_SD = 0.001            # that is believed: a few sessions may agree by chance
SEEN_RISK, FAR_RISK = 0.2, 0.05     # of a trend that is none: it only makes a verdict more careful; of one beyond its interval
FEWEST_IN_ORDER = 4         # runs of a side that say something of a trend


@dataclass(frozen=True)
class Sessions:
    """How far sessions of a suite lie apart."""

    sd: float = UNKNOWN_SD          # of one session, as a fraction of the time
    sessions: int = 0               # that it was estimated from; 0: nobody knows
    baseline: int = 1               # sessions that the baseline's runs are of

    def limit(self, risk: float) -> float:
        """Return the logarithm of the ratio that two equal builds exceed with this risk, by their sessions alone."""
        quantile = t_quantile(1 - risk, self.sessions - 1) if self.sessions >= FEWEST_SESSIONS else normal_quantile(1 - risk)
        return quantile * self.sd * math.sqrt(1 + 1 / max(1, self.baseline))

    @property
    def says(self) -> str:
        """For people: "by 1.5 % (of 9 sessions)"."""
        of = f"of {self.sessions} sessions" if self.sessions >= FEWEST_SESSIONS else "taken as such: too few sessions are known"
        return f"by {self.sd * 100:.2g} % ({of})"


def estimate_sessions(history: Mapping[str, Sequence[Sequence[float]]], baseline: int = 1) -> Sessions:
    """Return how far sessions lie apart by kernel -> sessions of one level -> run medians, µs.

    The excess of the variance between sessions over what runs within one explain, averaged over kernels; a session slows all of
    them, so they are no more witnesses than there are sessions.
    """
    variances: list[float] = []
    most = 0
    for sessions in history.values():
        logs = [np.log(np.asarray(us, dtype=np.float64)) for us in sessions if len(us) >= 2]
        if len(logs) < FEWEST_SESSIONS:
            continue
        most = max(most, len(logs))
        variances.append(_excess(logs))
    if not variances:
        return Sessions(baseline=baseline)
    return Sessions(max(LEAST_SD, math.sqrt(max(0.0, float(np.mean(variances))))), most, baseline)


def _excess(logs: Sequence[Floats]) -> float:
    """Variance between sessions, by moments; may be negative, so that the mean over kernels is not too large."""
    n = np.array([len(session) for session in logs], dtype=np.float64)
    means = np.array([session.mean() for session in logs])
    free = float(n.sum() - len(n))
    within = float(sum(((session - session.mean()) ** 2).sum() for session in logs)) / free
    grand = float((n * means).sum() / n.sum())
    between = float((n * (means - grand) ** 2).sum())
    return (between - (len(n) - 1) * within) / float(n.sum() - (n**2).sum() / n.sum())


def common_shift(log_ratios: Sequence[float], limit: float) -> float:
    """Return the logarithm by which the candidate's session is slower than the baseline's, from all kernels' ratios.

    0 where too few kernels say so, where it is next to nothing, or where it is more than sessions differ by: the build did that.
    """
    if len(log_ratios) < FEWEST_KERNELS:
        return 0.0
    shift = float(np.median(log_ratios))
    return shift if SEEN < abs(shift) <= limit else 0.0


# ---- a machine that drifts while the runs are taken ----

@dataclass(frozen=True)
class MachineDrift:
    """By how much a machine got slower between the middles of two sides that were measured one after the other; logarithms."""

    shift: float                    # of the candidate against the baseline
    far: float                      # the end of its interval that is farther from 0
    series: float                   # from the first run to the last


def find_machine_drift(baseline: Sequence[Floats], candidate: Sequence[Floats]) -> MachineDrift | None:
    """Return the drift of a series of runs, all of the baseline first; None where there is no trend, or it is next to nothing.

    baseline, candidate: run medians of each kernel, µs, in the order taken. A process is slow for all of its kernels: each run
    counts once, by the median of its kernels. Kernels with fewer runs than most are left out.
    """
    lengths = [(len(b), len(c)) for b, c in zip(baseline, candidate, strict=True)]
    most = max(lengths, key=lambda each: (lengths.count(each), sum(each)), default=(0, 0))
    if max(most) < FEWEST_IN_ORDER:
        return None
    indexes = [index for index, length in enumerate(lengths) if length == most]
    sides = (baseline, candidate) if min(most) else ()
    series = [np.median([np.log(side[index] / np.median(side[index])) for index in indexes], axis=0) for side in sides]
    slopes, signs, variance = [], 0.0, 0.0
    for runs in series:
        first, second = np.triu_indices(len(runs), 1)
        steps = runs[second] - runs[first]
        slopes.append(steps / (second - first))
        signs += float(np.sign(steps).sum())
        variance += len(runs) * (len(runs) - 1) * (2 * len(runs) + 5) / 18
    if variance == 0 or abs(signs) - 1 < normal_quantile(1 - SEEN_RISK / 2) * math.sqrt(variance):
        return None
    ordered = np.sort(np.concatenate(slopes))
    slope = float(np.median(ordered))
    beyond = min(len(ordered) - 1, math.ceil((len(ordered) + normal_quantile(1 - FAR_RISK / 2) * math.sqrt(variance)) / 2))
    far = float(ordered[beyond] if slope > 0 else ordered[len(ordered) - 1 - beyond])
    apart = sum(most) / 2
    return MachineDrift(slope * apart, far * apart, slope * (sum(most) - 1)) if abs(slope * apart) > SEEN else None
