"""Statistics of measured times: quantiles, racing, the standing of finalists. Plain Python.

Standing: medians of the same rounds are compared in pairs.

Test: sign flips. Were two configurations equally fast, the sign of the difference of any round would be a coin's. So of
all 2^R sign patterns of the R differences (of log medians), the share whose sum is at least the observed one is an exact
one-sided p-value. Rounds are few and the test forces no shape on their noise: with a tie in them, rank tests fall back on
a normal approximation that can never get small with so few. The fastest was chosen by the same rounds from all rivals:
p is multiplied by their number (Bonferroni). So the truly fastest is called slower with a chance of RISK at most.

A difference below EQUAL_WITHIN is none, however sure: medians of identical code differ by 0.1-0.9 % from one process to
the next (recorded on an H200), and one session cannot see that. Where there are no rounds (recorded values), TIE_WITHIN decides.

Racing: a configuration ends early once it is slower than the incumbent, at a stated risk.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from profiles.analysis.core import gpus
from profiles.base.numbers import quantile


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the 95 % interval of the median, from order statistics.

    Ranks n/2 ± 0.98·√n: the binomial's normal approximation (Conover, Practical Nonparametric Statistics, 3.2).
    """
    n = len(ordered)
    reach = 0.98 * math.sqrt(n)
    low, high = max(0, math.floor(n / 2 - reach)), min(n - 1, math.ceil(n / 2 + reach) - 1)
    return ordered[low], ordered[high]


def half_width(ordered: Sequence[float]) -> float:
    """Return half the 95 % interval of the median over the median."""
    low, high = median_interval(ordered)
    return (high - low) / 2 / quantile(ordered, 0.5)


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


RISK = 0.05                # of calling the truly fastest slower
EQUAL_WITHIN = 0.005
TIE_WITHIN = 0.01
FEWEST_ROUNDS = 6          # 2⁻⁶ = 1.6 %: with fewer no difference could be shown
EXACT_ROUNDS = 14          # of these at most, all sign patterns are counted


@dataclass(frozen=True)
class Entry:
    """A finalist: its median and its median per round; rounds pair up across finalists."""

    median_ms: float
    round_ms: Sequence[float] = ()
    facts: Mapping[str, Any] | None = None       # registers, smem_bytes: for ties


@dataclass(frozen=True)
class Standing:
    """Where a finalist stands against the fastest."""

    slower_by: float               # median over rounds of the ratio, minus one
    p: float | None                # adjusted; None for the fastest, and where there are no rounds
    equal: bool
    why: str
    rounds: int = 0                # that were compared


def standings(entries: Sequence[Entry]) -> list[Standing]:
    """Return one standing per entry, in their order."""
    if not entries:
        return []
    lead = min(range(len(entries)), key=lambda i: entries[i].median_ms)
    ratios = [_ratios(entry, entries[lead]) for entry in entries]
    fastest = Standing(0.0, None, True, "fastest", len(ratios[lead]))
    return [fastest if i == lead else _standing(entry, entries[lead], ratios[i], len(entries) - 1)
            for i, entry in enumerate(entries)]


def _standing(entry: Entry, lead: Entry, ratios: Sequence[float], rivals: int) -> Standing:
    if len(ratios) < FEWEST_ROUNDS:
        by = entry.median_ms / lead.median_ms - 1
        return Standing(by, None, by <= TIE_WITHIN, f"medians {by:.2%} apart; without rounds a tie is {TIE_WITHIN:.0%}")
    by = float(np.expm1(np.median(ratios)))
    p = min(1.0, sign_flip_p(ratios) * rivals)
    seen = f"{by:+.2%} over {len(ratios)} rounds"
    if by <= EQUAL_WITHIN:
        return Standing(by, p, True, f"{seen}: less than processes of identical code differ ({EQUAL_WITHIN:.1%})", len(ratios))
    if p > RISK:
        return Standing(by, p, True, f"{seen}, not told apart (sign flips, p = {p:.2f} > {RISK:g})", len(ratios))
    return Standing(by, p, False, f"{seen} (sign flips, p = {p:.3f})", len(ratios))


def _ratios(entry: Entry, lead: Entry) -> list[float]:
    """Return log of entry over lead, round by round."""
    return [float(np.log(own / other)) for own, other in zip(entry.round_ms, lead.round_ms, strict=False)]


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact one-sided p of a sum this large under random signs."""
    values = np.asarray(differences[:EXACT_ROUNDS], dtype=np.float64)
    patterns = (np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1) * 2 - 1
    sums = patterns @ np.abs(values)
    return float(np.mean(sums >= values.sum() - 1e-12 * np.abs(values).sum()))


def finalist_order(standing: Standing, entry: Entry) -> tuple[float, ...]:
    """Return the sort key of a finalist, the winner first.

    Among equals no slower than TIE_WITHIN: fewer registers (room for other code), then code that fits more GPUs, less shared
    memory, the time. Noise that hides more than that must not choose the winner, nor may values recorded one by one."""
    if not standing.equal or standing.slower_by > TIE_WITHIN or standing.rounds < FEWEST_ROUNDS:
        return (2.0 - standing.equal, entry.median_ms)
    facts = entry.facts or {}
    registers, smem = facts.get("registers"), facts.get("smem_bytes")
    return (0.0, registers if isinstance(registers, int) else float("inf"), -capability_count(smem),
            smem if isinstance(smem, int) else float("inf"), entry.median_ms)


def capability_count(smem_bytes: Any) -> int:
    """Return on how many compute capabilities a block with this shared memory fits; 0 if unknown."""
    if not isinstance(smem_bytes, int):
        return 0
    return sum(limits.smem_bytes_per_block >= smem_bytes for limits in gpus.LIMITS.values())
