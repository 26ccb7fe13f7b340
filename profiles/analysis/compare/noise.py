"""How large a change of a kernel's time must be to be one: the noise of identical code, within a process and between them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from profiles.analysis.compare.comparison import Side

Floats = npt.NDArray[np.float64]

# How much medians of identical code vary from process to process on an H200 with free clocks (coefficient of variation,
# the worst seen in 24 processes): kernels below `below_ns`, percent. One profile is one process, so no number of
# launches within it sees this part of the noise. Over all pairs of those processes (13 kernels) identical code is called
# changed in 2.0 % of the comparisons with 3 launches a side, in 0.8 % of those with 100.
PROCESS_CV_PCT = ((20_000.0, 2.6), (float("inf"), 0.9))
# One launch has no spread of its own: the widest that identical code showed within a process on the same GPU. A change
# beyond it is one, a smaller one cannot be told.
ONE_LAUNCH_CV_PCT = 6.0
SIGMAS = 2.0            # a change counts when it is beyond this many standard deviations of the noise


def noise_pct_of(old: Side, new: Side, a: Floats, b: Floats) -> float | None:
    """Return `SIGMAS` standard deviations of the relative change of the mean, if nothing had changed; `a`, `b`: durations, ns.

    The part between processes (PROCESS_CV_PCT, once per side) and the part within: where both sides have as many
    launches the k-th are paired, so that launches of different problems do not count as noise.
    """
    if not old.mean_ns:
        return None
    if old.sd_ns is None or new.sd_ns is None:
        error_ns = old.mean_ns * 2**0.5 * ONE_LAUNCH_CV_PCT / 100
    elif len(a) == len(b):
        error_ns = float(np.std(b - a, ddof=1)) / len(a) ** 0.5
    else:
        error_ns = (old.sd_ns**2 / len(a) + new.sd_ns**2 / len(b)) ** 0.5
    process = next(pct for below_ns, pct in PROCESS_CV_PCT if old.mean_ns < below_ns) / 100
    return float(100 * SIGMAS * (2 * process**2 + (error_ns / old.mean_ns) ** 2) ** 0.5)


def verdict_of(change_pct: float | None, noise_pct: float | None, several: bool) -> str:
    """Return "slower", "faster", "unchanged" or "unknown"; `several`: both sides have more than one launch."""
    if change_pct is None or noise_pct is None:
        return "unknown"
    if abs(change_pct) <= noise_pct:
        return "unchanged" if several else "unknown"
    return "slower" if change_pct > 0 else "faster"
