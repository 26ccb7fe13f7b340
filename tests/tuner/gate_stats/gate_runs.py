"""Runs for tests of the gate: drawn from recorded ones, or written out."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from tuner.gate.stats.records import read_runs
from tuner.gate.stats.runs import KernelRuns, Run

H200 = Path(__file__).parents[2] / "data" / "h200"


@lru_cache(maxsize=2)
def recorded(name="timing_runs"):
    """One KernelRuns per configuration, 24 runs each."""
    return read_runs(H200 / f"{name}.jsonl.gz")


def drawn(seed, baseline=10, candidate=5, slower=None, name="timing_runs"):
    """(baseline, candidate) of a suite; `slower`: {index of a kernel: factor of its candidate's samples}."""
    order = np.random.default_rng(seed).permutation(24)
    return ([some(kernel, order[:baseline]) for kernel in recorded(name)],
            [some(kernel, order[baseline:baseline + candidate], (slower or {}).get(at, 1.0))
             for at, kernel in enumerate(recorded(name))])


def some(kernel, which, scale=1.0):
    return replace(kernel, runs=[replace(kernel.runs[at], us=kernel.runs[at].us * scale) for at in which])


def kernel(medians, op="k", key="", clocks=None, facts=None, samples=25, **run):
    """A kernel whose runs have these medians in µs, each with a little spread of its own."""
    spread = np.linspace(0.99, 1.01, samples)
    return KernelRuns(op, {"N": 1}, None, key, [
        Run(f"run {at}", median * spread, sm_clock_mhz=clocks[at] if clocks else None,
            facts=facts[at] if isinstance(facts, list) else facts or {}, **run) for at, median in enumerate(medians)])


BASE = [100.0, 100.2, 99.8, 100.1, 99.9, 100.3, 99.7, 100.4, 99.6, 100.05]
SAME = [100.15, 99.95, 100.02, 99.85, 100.25]
