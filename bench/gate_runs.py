"""Recorded runs of identical code that the gate is measured on, as suites of kernels, and the rules beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from tests.public_timing import samples
from tuner.gate.stats.records import read_runs
from tuner.gate.stats.runs import KernelRuns, Run

H200 = Path(__file__).resolve().parent.parent / "tests" / "data" / "h200"
BASELINE, CANDIDATE = 10, 5
NOISY = 2                               # of the small kernels: layer norm of 64 × 16384, the noise of "h200 shared"

SETS = {
    "h200": "13 kernels of 38-212 µs, NVIDIA H200, clocks free (timing_runs)",
    "h200 small": "16 kernels of 5-22 µs, NVIDIA H200, clocks free (timing_runs_small)",
    "h200 waiting": "those 16, recorded anew with the GPU waiting for the host before each sample (timing_runs_lead)",
    "h200 shared": "the first 13, each run as a whole slower or faster by as much as runs of an 8 µs kernel differ (1.8 %)",
    "public": "13 kernels of 19 ms, RTX A4000, clock locked (public_timing, five files, with repetition of files but not of runs)",
}
FILES = {"h200": "timing_runs.jsonl.gz", "h200 small": "timing_runs_small.jsonl.gz", "h200 waiting": "timing_runs_lead.jsonl.gz"}


@lru_cache(maxsize=4)
def kernels(name: str) -> tuple[KernelRuns, ...]:
    """Identical code, all runs of it; each with a key of its own."""
    if name == "h200 shared":
        slow = [float(np.median(run.us)) for run in kernels("h200 small")[NOISY].runs]
        return tuple(replace(kernel, runs=[replace(run, us=run.us * factor / np.median(slow))
                                           for run, factor in zip(kernel.runs, slow, strict=True)]) for kernel in kernels("h200"))
    if name != "public":
        found = read_runs(H200 / FILES[name])
        return tuple(replace(kernel, key=f"{at} {kernel.op}") for at, kernel in enumerate(found))
    files = sorted(samples().items())
    found = []
    for at in range(13):
        title, us = files[at % len(files)]
        own = us[at // len(files)::3]               # each kernel its own runs of the file
        found.append(KernelRuns("gemm", {"file": title, "part": at}, None, f"{at} gemm {title}",
                                [Run(str(number), each) for number, each in enumerate(own)]))
    return tuple(found)


def some(kernel: KernelRuns, which: Iterable[int], scale: float = 1.0) -> KernelRuns:
    runs = [kernel.runs[at] for at in which]
    return replace(kernel, runs=runs if scale == 1 else [replace(run, us=run.us * scale) for run in runs])


def middle(kernel: KernelRuns) -> float:
    return float(np.median([np.median(run.us) for run in kernel.runs]))


# ---- other rules, each on one kernel's runs: is the candidate called slower? ----
# Google Benchmark's compare.py: two-sided Mann-Whitney over all samples, p < 0.05 (tools/gbench/report.py), here with the
# median higher. airspeed velocity: Mann-Whitney over all samples, p < 0.002, and a ratio above --factor, 1.1 unless told
# otherwise (asv/statistics.py, asv/commands/compare.py). Both count each sample as a witness of its own. A bare threshold: the
# medians' ratio above 1.05.

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
