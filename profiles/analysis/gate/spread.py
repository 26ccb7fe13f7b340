"""Is the candidate slower, or only noisier? Where one build's runs differ far more than the other's, the rank test is no judge.

It asks whether the runs of both builds are alike. Runs ten times as wide about the same middle are not, and five of them all lie
above a quiet baseline once in 32 comparisons, whatever the level that is asked for. So where the candidate's spread is
`WIDER` times the baseline's, the slowdown must also stand out from the candidate's own spread: Student's t of its runs against the
baseline's level, at the kernel's level. Spreads are median absolute deviations: a single bad run makes no build noisy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WIDER = 3.0                 # times as much do the candidate's runs differ; identical normal runs, 5 against 10, seldom do
NORMAL = 1.4826             # of the median absolute deviation to the standard deviation


def only_noisier(candidate: Floats, baseline: Floats, ratio: float, level: float) -> str:
    """Why a slowdown by `ratio` is not proven by runs as noisy as these; "" where it is, or they are not noisier."""
    own, other = _spread(candidate), _spread(baseline)
    if len(candidate) < 2 or own <= WIDER * other:
        return ""
    from scipy.special import stdtrit  # here: it is seldom needed, and not quick to import

    needed = float(stdtrit(len(candidate) - 1, 1 - level)) * own / len(candidate) ** 0.5
    if np.log(ratio) > needed:
        return ""
    return (f"the candidate's runs differ by {own * 100:.2g} % and the baseline's by {other * 100:.2g} %, so it may only be "
            "noisier, not slower")


def _spread(values: Floats) -> float:
    """Standard deviation as a fraction; n / (n − 0.8) for few runs (Croux and Rousseeuw, 1992)."""
    logs = np.log(values)
    return NORMAL * float(np.median(np.abs(logs - np.median(logs)))) * len(values) / max(len(values) - 0.8, 0.2)
