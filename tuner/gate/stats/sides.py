"""One side of a comparison made ready: damaged and repeated runs set aside with their reason, numbers of the rest.

Of each run: its median, its p95, and the winsorised mean: samples below the p5 count as the p5, those above the p95 as the p95
(Tukey, 1962). A mean is what a launch costs in all, GPU time over launches; one sample in twenty that is late moves it no further
than the p95, which is judged by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.metrics import is_unit_slip, mixed_units, unit_power
from tuner.gate.stats.runs import KernelRuns, Run

Floats = NDArray[np.float64]

LEAST_FOR_SLIP = 3          # runs of a side, below which nobody knows which of them has the wrong unit
FEWEST_SAMPLES_P95 = 20     # below it the p95 of a run is its largest sample
MOST_RUNS = 1_000           # of a side that are judged: a million pairs; more say nothing new
# An empty kernel takes about 1 µs, and timestamps of NVIDIA's GPUs count in steps of 32 ns at best: what is shorter than 0.1 µs was
# not measured in µs. Longer than 10,000 s is no time of a kernel either.
NO_TIME_US, SHORTEST_US, LONGEST_US = 1e-6, 0.1, 1e10
WINSOR = 0.05               # of a run's samples, at each end
SAME_NUMBER = 1e-5          # as a fraction: so near are one reading in µs and in ms
FEW_READINGS = 8            # that differ, of all samples


@dataclass(frozen=True)
class Side:
    """The runs that count, in their order, and the number of each: its median, p95 and clock."""

    runs: Sequence[Run]
    p50: Floats                         # µs, a value a run
    p95: Floats | None                  # None: too few samples a run
    mean: Floats | None                 # winsorised; None: the same
    clocks: Floats | None               # SM MHz; None: not sampled in each run
    damaged: Sequence[str]              # runs that cannot be used, and why
    notes: Sequence[str]                # repeated runs, runs beyond the bound


def make_side(kernels: Sequence[KernelRuns]) -> Side:
    """Return one side of a comparison: runs that count, with median, p95 and clock of each.

    `kernels`: the same kernel, once or (a suite's, whose configuration changed between runs) more often.
    """
    runs: list[Run] = []
    damaged: list[str] = []
    notes = [note for kernel in kernels for note in kernel.notes]
    marks: set[tuple[str, bytes]] = set()
    for run in (run for kernel in kernels for run in kernel.runs):
        us = np.asarray(run.us, dtype=np.float64)
        if problem := _problem(us):
            damaged.append(f"run {run.run}: {problem}")
            continue
        # a process has its samples once; rows repeat only by mistake, and a repeated run is no second witness
        mark = (run.run, us.tobytes())
        if mark in marks:
            notes.append(f"run {run.run} came twice with the same samples: counted once")
            continue
        marks.add(mark)
        runs.append(run)
    if len(runs) > MOST_RUNS:
        notes.append(f"the last {MOST_RUNS:,} of {len(runs):,} runs were judged")
        runs = runs[-MOST_RUNS:]
    medians, tails, means = _numbers(runs)
    ready = Side(runs, medians, tails, means, _known_clocks(runs), damaged, notes)
    slips = _unit_slips(medians)
    return drop_runs(ready, slips != "", [slip for slip in slips.tolist() if slip]) if (slips != "").any() else ready


def _unit_slips(medians: Floats) -> NDArray[np.str_]:
    """Return of each run how it differs from the side's median by a power of 1,000, "" where it does not: one process in ms."""
    if len(medians) < LEAST_FOR_SLIP:
        return np.full(len(medians), "")
    times = medians / np.median(medians)
    return np.array([f"its p50 is about {unit_power(one):.0f} times {'longer' if one > 1 else 'shorter'} than the others': units?"
                     if is_unit_slip(one) else "" for one in times.tolist()])


def _known_clocks(kept: Sequence[Run]) -> Floats | None:
    clocks = [run.sm_clock_mhz for run in kept]
    is_known = all(clock is not None and np.isfinite(clock) and clock > 0 for clock in clocks)
    return np.asarray(clocks, dtype=np.float64) if is_known and clocks else None


def timer_step(*sides: Side) -> float:
    """Return the step of a coarse timer, µs: between the two nearest samples that differ; 0: not known.

    One number that was written with more and with fewer digits (6.144 and 6.1439999) is no step. Where few readings differ, the
    step also divides them: 7.168 and 9.216 are 7 and 9 of 1.024.
    """
    values = np.unique(np.concatenate([run.us for side in sides for run in side.runs]))
    steps = np.diff(values)
    steps = steps[steps > SAME_NUMBER * values[1:]]
    if not len(steps):
        return 0.0
    step, first = float(steps.min()), float(values[0])
    if len(steps) > FEW_READINGS:
        return step
    steps_of_first = {parts: first * parts / step for parts in range(1, FEW_READINGS)}
    return next((step / parts for parts, count in steps_of_first.items() if abs(count - round(count)) < 0.02), step)


@dataclass(frozen=True)
class TimerSteps:
    """Fractions by which half a step on each side may move the ratio of two readings."""

    above: float = 0.0                  # the true ratio may be so much larger: a slowdown hides
    below: float = 0.0                  # … or so much smaller: what reads as slower may be as fast


def hidden_by_timer(candidate: Floats, baseline: Floats, step_us: float) -> TimerSteps:
    """Return what the timer's steps can hide, and make up: half a step on each side.

    Only between runs that read the same or the next step: 6.65 µs reads 6.144 and 6.66 µs reads 7.168 on a timer of 1.024 µs.

    Runs that differ by more than a step average it away, and nothing is hidden. A timer reads whole steps: no step is longer than
    what it read.
    """
    return _timer_steps(*(_half_step(step_us, values) if _is_stuck(values, step_us) else 0.0 for values in (candidate, baseline)))


def hidden_in_mean(candidate: Side, baseline: Side, step_us: float) -> TimerSteps:
    """Return the same for the mean of a run's samples: a mean of two readings lies anywhere between them.

    Samples that spread over three steps and more average them away.
    """
    if candidate.mean is None or baseline.mean is None or not step_us:
        return TimerSteps()
    return _timer_steps(*(_half_step(step_us, side.p50) if _reads_two(side, step_us) else 0.0 for side in (candidate, baseline)))


def _half_step(step_us: float, values: Floats) -> float:
    """Half a step as a fraction of what was read."""
    us = float(np.median(values))
    return min(step_us, us) / 2 / us


def _timer_steps(candidate: float, baseline: float) -> TimerSteps:
    """By half a step of each side, 0 where its readings average that away."""
    return TimerSteps((1 + candidate) / (1 - baseline) - 1, 1 - (1 - candidate) / (1 + baseline))


def _reads_two(side: Side, step_us: float) -> bool:
    """Whether most runs' samples, but for the outermost twentieths, are one or two neighbouring readings of the timer."""
    spans = [np.ptp(np.quantile(run.us, (WINSOR, 1 - WINSOR), method="nearest")) for run in side.runs]
    return bool(np.median(spans) < 1.5 * step_us)


def _is_stuck(values: Floats, step_us: float) -> bool:
    """Whether most runs read the same, or none is farther from another than the next step."""
    if len(values) < 2:
        return False
    ordered, half = np.sort(values), (len(values) + 1) // 2
    return bool(ordered[-1] - ordered[0] < 1.25 * step_us or (ordered[half - 1:] == ordered[:len(values) - half + 1]).any())


def drop_runs(ready: Side, out: NDArray[np.bool_], why: Sequence[str]) -> Side:
    """Return the side less these runs; `why`: of each of them."""
    mask = ~out
    left_out = [run for run, is_out in zip(ready.runs, out, strict=True) if is_out]
    damaged = [f"run {run.run}: {reason}" for run, reason in zip(left_out, why, strict=True)]
    return replace(ready, runs=[run for run, keep in zip(ready.runs, mask, strict=True) if keep], p50=ready.p50[mask],
                   p95=None if ready.p95 is None else ready.p95[mask], mean=None if ready.mean is None else ready.mean[mask],
                   clocks=None if ready.clocks is None else ready.clocks[mask], damaged=[*ready.damaged, *damaged])


def _problem(us: Floats) -> str:
    if us.ndim != 1 or not us.size:
        return "no samples"
    bad = ~((us >= SHORTEST_US) & (us <= LONGEST_US))        # true for NaN
    if not bad.any():
        return mixed_units(us)
    first = us[bad][0]
    if NO_TIME_US <= first < SHORTEST_US:
        return (f"{int(bad.sum())} of {us.size} samples are shorter than any launch (the first: {first:g} µs, the least is "
                f"{SHORTEST_US:g} µs): units?")
    return f"{int(bad.sum())} of {us.size} samples are no times (the first: {first:g})"


def _numbers(runs: Sequence[Run]) -> tuple[Floats, Floats | None, Floats | None]:
    """Median, p95 (NumPy's linear interpolation) and winsorised mean of each run."""
    if not runs:
        return np.empty(0), None, None
    lengths = {len(run.us) for run in runs}
    if len(lengths) == 1:
        numbers = _numbers_of(np.stack([run.us for run in runs]))
    else:
        numbers = np.concatenate([_numbers_of(run.us[None, :]) for run in runs], axis=1)
    return (numbers[0], numbers[1], numbers[2]) if min(lengths) >= FEWEST_SAMPLES_P95 else (numbers[0], None, None)


def _numbers_of(us: Floats) -> Floats:
    """Median, p95 and winsorised mean, shape (3, runs), of samples of shape (runs, samples)."""
    low, middle, high = np.quantile(us, (WINSOR, 0.5, 1 - WINSOR), axis=1)
    return np.stack([middle, high, np.clip(us, low[:, None], high[:, None]).mean(axis=1)])


def why_incomparable(baseline: Sequence[Run], candidate: Sequence[Run]) -> str:
    """Return why these runs must not be compared (another GPU or environment); "" where they may."""
    for what, of in (("GPU", "gpu"), ("environment", "environment")):
        sides = [{str(getattr(run, of)) for run in runs} for runs in (baseline, candidate)]
        for name, texts in zip(("baseline", "candidate"), sides, strict=True):
            if len(texts) > 1 and "" in texts:
                return f"some of the {name}'s runs do not say their {what} (others: {_list_names(texts - {''})})"
            if len(texts) > 1:
                return f"the {name}'s runs are of more than one {what}: {_list_names(texts)}"
        if sides[0] != sides[1] and {""} in sides:
            silent, says = ("baseline", "candidate") if sides[0] == {""} else ("candidate", "baseline")
            return (f"the {silent}'s runs do not say their {what}, the {says}'s do ({_list_names((sides[0] | sides[1]) - {''})}): "
                    "whether it is the same cannot be told")
        if sides[0] != sides[1]:
            return f"the {what} differs: baseline {_list_names(sides[0])}, candidate {_list_names(sides[1])}"
    return ""


def _list_names(values: set[str]) -> str:
    shown = sorted(values)
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
