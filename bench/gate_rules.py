"""The rules that the gate is measured beside, each on one kernel's runs: is the candidate called slower?

Google Benchmark's compare.py: two-sided Mann-Whitney over all samples, p < 0.05 (tools/gbench/report.py), here with the
median higher. airspeed velocity: Mann-Whitney over all samples, p < 0.002, and a ratio above --factor, 1.1 unless told
otherwise (asv/statistics.py, asv/commands/compare.py). Both count each sample as a witness of its own. A bare threshold: the
medians' ratio above 1.05.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

Floats = NDArray[np.float64]


def verdicts(baseline: Sequence[Floats], candidate: Sequence[Floats]) -> dict[str, bool]:
    """`baseline`, `candidate`: samples of each run."""
    b, c = np.concatenate(baseline), np.concatenate(candidate)
    ratio = float(np.median(c) / np.median(b))
    p = float(mannwhitneyu(c, b, alternative="two-sided", method="asymptotic").pvalue)
    return {name: rule(p, ratio) for name, rule in RULES.items()}


RULES: dict[str, Callable[[float, float], bool]] = {
    "Mann-Whitney on pooled samples, p < 0.05": lambda p, ratio: p < 0.05 and ratio > 1,
    "asv (p < 0.002 on pooled samples, factor 1.1)": lambda p, ratio: p < 0.002 and ratio > 1.1,
    "asv's test without its factor": lambda p, ratio: p < 0.002 and ratio > 1,
    "median > 5 %": lambda p, ratio: ratio > 1.05,
}
