"""What is not taken for a change of the code: a slip of units. And what a mean alone hides: launches of two speeds.

A file in ms that is read as µs makes every kernel a thousand times as fast, and no test of ranks minds. A p50 that changes by more
than the rule's `believable` (5 times) is not called FASTER and, where the factor is near a power of 1,000, not SLOWER either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

UNITS = 1000.0              # s, ms, µs, ns
NEAR = 2.0                  # times: the code may have changed too


def why_not_believed(ratio: float, believable: float) -> str:
    """Return why a ratio of candidate to baseline is not believed; "" where it is."""
    times = max(ratio, 1 / ratio)
    if times <= believable:
        return ""
    way = "slower" if ratio > 1 else "faster"
    if is_unit_slip(ratio):
        return f"not believed: units? ({unit_power(times):.0f} times {way}), of this build or of its baseline"
    return f"not believed: {times:.3g} times {way}, where the rule believes {believable:g}: units, or other work?"


def is_unit_slip(ratio: float) -> bool:
    """Return whether a ratio is near 1,000, a million, … or one of their inverses."""
    power = abs(math.log(ratio)) / math.log(UNITS)
    return round(power) >= 1 and abs(power - round(power)) * math.log(UNITS) <= math.log(NEAR)


def unit_power(ratio: float) -> float:
    """Return the power of 1,000 that a ratio, or its inverse, is near."""
    return float(UNITS ** round(abs(math.log(ratio)) / math.log(UNITS)))


def mixed_units(us: Sequence[float] | Floats) -> str:
    """Return why the samples of one run are not of one unit; "" where they may be: launches that wait for a busy host are few."""
    lowest, highest = float(min(us)), float(max(us))
    if lowest <= 0 or highest / lowest < UNITS / NEAR:
        return ""
    ordered = np.sort(np.asarray(us, dtype=np.float64))
    cut = int(np.argmax(ordered[1:] / ordered[:-1])) + 1
    times = float(np.median(ordered[cut:]) / np.median(ordered[:cut]))
    if min(cut, len(ordered) - cut) < max(2, FEWEST_SHARE * len(ordered)) or not is_unit_slip(times):
        return ""
    return f"{len(ordered) - cut} of {len(ordered)} samples are about {unit_power(times):.0f} times the others: units?"


# ---- two speeds ----

FEWEST_SAMPLES = 40         # of a side
FEWEST_SHARE = 0.08         # of the samples at either speed
APART = 1.10                # times
EXPLAINED = 0.85            # of the variance: two groups of a normal distribution explain 0.64, of a uniform one 0.75


@dataclass(frozen=True)
class Speeds:
    """Samples of one side in two groups."""

    slow_share: float               # 0 to 1
    fast_us: float                  # medians
    slow_us: float


def two_speeds(us: Floats) -> Speeds | None:
    """Return the two speeds of all samples of a side; None where they have one.

    The best cut by variance (Otsu, 1979), of logarithms.
    """
    if len(us) < FEWEST_SAMPLES:
        return None
    ordered = np.sort(np.log(us))
    n = len(ordered)
    total = float(np.var(ordered))
    if total <= 0:
        return None
    sums = np.cumsum(ordered)
    left = np.arange(1, n)
    gap = sums[:-1] / left - (sums[-1] - sums[:-1]) / (n - left)
    between = left * (n - left) / n**2 * gap**2
    fewest = max(1, math.ceil(FEWEST_SHARE * n))
    between[:fewest - 1] = 0
    between[n - fewest:] = 0
    at = int(np.argmax(between)) + 1
    fast, slow = float(np.exp(np.median(ordered[:at]))), float(np.exp(np.median(ordered[at:])))
    if between[at - 1] < EXPLAINED * total or slow < fast * APART:
        return None
    return Speeds((n - at) / n, fast, slow)


def speeds_text(baseline: Floats, candidate: Floats) -> str:
    """Return what is said of launches at two speeds, with the share of slow ones on both sides; "" where neither side has them."""
    before, after = two_speeds(baseline), two_speeds(candidate)
    shown = after or before
    if shown is None:
        return ""
    cut = math.sqrt(shown.fast_us * shown.slow_us)
    shares = [float(np.mean(side > cut)) for side in (baseline, candidate)]
    return (f"launches have two speeds, {shown.fast_us:.4g} and {shown.slow_us:.4g} µs: {shares[0] * 100:.0f} % are slow in the "
            f"baseline, {shares[1] * 100:.0f} % in the candidate")
