"""Racing: end a configuration early once it is slower than the incumbent, at a stated risk.

After the first n samples, n in LOOKS, a configuration is dropped when even the fastest of them is above the incumbent's
median by a margin. Hypothesis tested: its median is at most the incumbent's. Were that so, the fastest of n samples
would lie above the configuration's own median by the same margin t or more, and of that two bounds are known:

* Chebyshev: P(D ≥ t) ≤ E[D₊²] / t², D = log(fastest of n / median of all) of a run. The second moment is learned from
  the session's runs that went to their end; samples of one run may depend on each other as they like (drift, warm-up).
* sign test: all of n independent samples lie above their median with probability 2⁻ⁿ, whatever their distribution.

The smaller of the two counts. Looking several times multiplies the chance (Bonferroni), so each look has its share of
`risk`. The fastest of n never rises as n grows: what has been as fast as the incumbent once is never dropped.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

LOOKS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
PRIOR_RUNS = 4              # what is believed before anything was measured weighs as much as so many runs …
PRIOR_DEVIATION = 0.05      # … whose first sample lies 5 % above their median, the fastest of n by 5 % / n


class Noise:
    """Distance of the fastest of n samples above a run's median: second moments, one per look."""

    def __init__(self) -> None:
        self.runs = float(PRIOR_RUNS)
        self._squares = [PRIOR_RUNS * (PRIOR_DEVIATION / n) ** 2 for n in LOOKS]

    def learn(self, samples_ms: Sequence[float]) -> None:
        """Add a run that went to its end, samples in the order taken."""
        median = statistics.median(samples_ms)
        fastest = list(accumulate(samples_ms, min))
        self.runs += 1
        for look, n in enumerate(LOOKS):
            if n < len(fastest):                            # with all samples seen there is no later median to be above
                self._squares[look] += max(0.0, math.log(fastest[n - 1] / median)) ** 2
            else:
                self._squares[look] += self._squares[look] / (self.runs - 1)     # nothing learned: the mean stays

    def exceeds(self, look: int, margin: float) -> float:
        """Bound the probability that the fastest of LOOKS[look] samples lies `margin` (log) above the median."""
        if margin <= 0:
            return 1.0
        return min(1.0, self._squares[look] / self.runs / margin ** 2, 0.5 ** LOOKS[look])


def reference_ms(samples_ms: Sequence[float], median_ms: float) -> float:
    """Return the upper end of the 95 % interval of the incumbent's median, in ms.

    Ranks n/2 + 0.98·√n: the binomial's normal approximation (Conover, Practical Nonparametric Statistics, 3.2).
    """
    n = len(samples_ms)
    if n < 2:
        return median_ms
    upper = sorted(samples_ms)[min(n - 1, math.ceil(n / 2 + 0.98 * math.sqrt(n)) - 1)]
    return max(median_ms, upper)


@dataclass(frozen=True)
class LostRace:
    """A race lost after `samples` samples; `probability` bounds the chance of an accident."""

    samples: int
    probability: float


class Race:
    """One configuration against the incumbent."""

    def __init__(self, incumbent_ms: float, noise: Noise, risk: float) -> None:
        if not incumbent_ms > 0:
            raise ValueError(f"an incumbent's median is positive, not {incumbent_ms!r}")
        self.incumbent_ms, self.risk, self._noise = incumbent_ms, risk, noise
        self._look = 0

    @property
    def next_look(self) -> int | None:
        """Return the number of samples at which the next decision falls; None when none is left."""
        return LOOKS[self._look] if self._look < len(LOOKS) else None

    def lost(self, samples_ms: Sequence[float]) -> LostRace | None:
        """Decide with all samples so far, in the order taken; None while the race goes on."""
        while (n := self.next_look) is not None and n <= len(samples_ms):
            margin = math.log(min(samples_ms[:n]) / self.incumbent_ms)
            if margin <= 0:                                 # as fast as the incumbent once: to the end
                self._look = len(LOOKS)
                return None
            probability = min(1.0, self._noise.exceeds(self._look, margin) * len(LOOKS))
            self._look += 1
            if probability <= self.risk:
                return LostRace(n, probability)
        return None
