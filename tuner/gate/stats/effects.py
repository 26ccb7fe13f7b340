"""What one build, toolkit, driver or GPU does to a kernel's time, all else equal: a log-linear model of fresh runs.

log(time of a run) = level + effect of the build + of CUDA + of Triton + of the driver + of the GPU + noise, as in any unbalanced
factorial design (Searle, "Linear Models for Unbalanced Data"). Every cell (one build in one environment) is brought to its
Hodges-Lehmann centre first, so that a bad run among five moves nothing; cells are weighted by their runs; the noise is what runs of
one cell differ by, pooled over cells and winsorised; intervals are Student's t with that noise. Where cells do not add up by more
than it, their misfit widens the intervals and is told. What never varied without something else is not guessed: an effect is stated
only where it lies in the row space of the design, else the text names what it always came with and the run that would tell.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.distributions import chi2_tail, deviation_around_zero, t_quantile, t_tail

FACTORS = ("build", "cuda", "triton", "driver", "gpu")      # the first is the team's code, the others are the environment
FLOOR = 0.01               # an effect that is smaller is told with its interval, and blamed for nothing

Levels = Mapping[str, str]


@dataclass(frozen=True)
class Observation:
    """One fresh run of one kernel: its median time, and where it ran."""

    kernel: str
    us: float                                   # median of the run's samples, µs
    factors: Levels                             # {"build": …, "cuda": …, "driver": …}: a factor that is not named is "unknown"
    facts: Mapping[str, Any] = field(default_factory=dict)      # registers, spills, smem_bytes


@dataclass(frozen=True)
class Effect:
    """What one level of a factor does to the time, against another level, all else equal."""

    factor: str                                 # "cuda"; of joined ones "cuda + driver"
    level: str
    reference: str
    ratio: float | None                         # time at `level` / time at `reference`; None: cannot be told
    low: float | None = None                    # None: so few runs that no interval can be given
    high: float | None = None
    p_value: float | None = None                # two-sided, of no effect
    runs: int = 0                               # of cells at either level
    identifiable: bool = True
    why: str = ""                               # it cannot be told
    with_: Sequence[str] = ()                   # "driver 560.28": what it always came with
    kernels: int = 1                            # whose geometric mean it is

    @property
    def text(self) -> str:
        return percent_text(self.ratio)

    @property
    def interval_text(self) -> str:
        return f"{percent_text(self.low)} … {percent_text(self.high)}" if self.low is not None else ""

    @property
    def sure(self) -> bool:
        """Whether the whole interval lies on one side of 1 and the effect is worth blaming."""
        return self.low is not None and self.high is not None and self.ratio is not None \
            and (self.low > 1 or self.high < 1) and abs(self.ratio - 1) >= FLOOR


def percent_text(ratio: float | None) -> str:
    """1.031 → "+3.10 %"."""
    return "—" if ratio is None else f"{100 * (ratio - 1):+.2f} %".replace("-", "−")


def level_of(observation: Observation, factor: str) -> str:
    return str(observation.factors.get(factor) or "unknown")


MISFIT_ALPHA = 0.01        # below it, cells that do not add up are no chance
WALSH_MOST = 400           # runs of a cell up to which its centre is Hodges-Lehmann's; above, their median
MAX_SUGGESTED = 3
MOST_SETS = 2000           # of levels that are tried when it is asked what always came together

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Step:
    """From one level of a factor to another."""

    factor: str
    reference: str
    level: str


class Model:
    """The fit of one kernel. `contrast` answers what one setting of the factors costs against another."""

    def __init__(self, rows: Sequence[Observation], factors: Sequence[str], first: Levels = {}) -> None:  # noqa: B006
        logs: dict[tuple[str, ...], list[float]] = {}
        for row in rows:
            logs.setdefault(tuple(level_of(row, name) for name in factors), []).append(math.log(row.us))
        self.factors, self.cells = tuple(factors), list(logs)
        self.runs = len(rows)
        self.n = np.array([len(values) for values in logs.values()], dtype=np.float64)
        self.centre = np.array([_centre(np.array(values)) for values in logs.values()])
        self.levels = {name: _order_levels([cell[index] for cell in self.cells], first.get(name, ""))
                       for index, name in enumerate(factors)}
        self.columns = [(name, value) for name in factors for value in self.levels[name][1:]]
        self.design = np.array([self.row(dict(zip(factors, cell, strict=True))) for cell in self.cells])
        weighted = self.design * np.sqrt(self.n)[:, None]
        self.solution: Floats = np.linalg.pinv(weighted) @ (self.centre * np.sqrt(self.n))
        self.spread: Floats = np.linalg.pinv(weighted.T @ weighted)
        self.known: Floats = np.linalg.pinv(self.design) @ self.design          # projection onto what can be told
        self.rank = int(np.linalg.matrix_rank(self.design))
        self.residuals = self.centre - self.design @ self.solution
        variance, self.df = _noise_variance([np.array(values) for values in logs.values()], self.centre)
        self.noise = math.sqrt(variance) if variance is not None else None
        self.variance, self.adds_up = self._with_misfit(variance)

    def row(self, levels: Levels) -> Floats:
        """Of the design: 1, then an indicator per column."""
        return np.array([1.0, *(float(levels.get(name) == value) for name, value in self.columns)])

    def _with_misfit(self, variance: float | None) -> tuple[float | None, bool]:
        """Variance of a run for the intervals: widened where cells do not add up (Birge's ratio)."""
        free = len(self.cells) - self.rank
        if free == 0:
            return variance, True
        off = float((self.n * self.residuals ** 2).sum())
        if variance is None:                    # one run per cell: what does not add up is the only noise that is seen
            self.df = free
            return off / free, True
        if variance > 0 and chi2_tail(off / variance, free) >= MISFIT_ALPHA:
            return variance, True
        if off / free <= variance:
            return variance, True
        self.df = free
        return off / free, False

    def estimable(self, contrast: Floats) -> bool:
        return bool(np.allclose(contrast @ self.known, contrast, atol=1e-8))

    def contrast(self, contrast: Floats, level: float) -> tuple[float, float | None, float | None, float | None] | None:
        """(ratio, low, high, p) of a combination of columns; None when it cannot be told."""
        if not self.estimable(contrast):
            return None
        value = float(contrast @ self.solution)
        if self.variance is None or self.df < 1:
            return math.exp(value), None, None, None
        error = math.sqrt(max(0.0, float(contrast @ self.spread @ contrast)) * self.variance)
        if error == 0:
            return math.exp(value), math.exp(value), math.exp(value), float(value == 0)
        half = error * t_quantile((1 + level) / 2, self.df)
        p_value = 2 * t_tail(abs(value) / error, self.df)
        return math.exp(value), math.exp(value - half), math.exp(value + half), p_value

    def effects(self, level: float) -> list[Effect]:
        """Of every factor: each level against the first one that it can be compared with; what always came together, as one.

        Levels between which nothing can be told (an older driver that only an older toolkit was run under) fall into classes;
        a class is compared with the factor's first one only together with whatever else changed between them.
        """
        effects: list[Effect] = []
        lost: list[_Step] = []
        for name in self.factors:
            classes: list[list[str]] = []
            for value in self.levels[name]:
                near = next((group for group in classes if self.estimable(self._step(_Step(name, group[0], value)))), None)
                classes.append([value]) if near is None else near.append(value)
            for group in classes:
                effects += [effect for value in group[1:] if (effect := self._effect([_Step(name, group[0], value)], level))]
            lost += [_Step(name, classes[0][0], group[0]) for group in classes[1:]]
        joint_steps: set[tuple[_Step, ...]] = set()
        for step in lost:
            together = self._together(step, lost)
            others = tuple(f"{other.factor} {other.level}" for other in together if other != step)
            why = f"never varied without {' and '.join(others)}" if others else \
                f"was never measured beside {step.reference} with all else, or anything else that is known, the same"
            effects.append(Effect(step.factor, step.level, step.reference, None, runs=self._runs(step.factor, step.level),
                                  identifiable=False, with_=others, why=f"{step.factor} {step.level} {why}"))
            if others and together not in joint_steps and (joined := self._effect(together, level)):
                joint_steps.add(together)
                effects.append(joined)
        return effects

    def _step(self, step: _Step) -> Floats:
        """The contrast of one level of a factor with another."""
        return self.row({step.factor: step.level}) - self.row({step.factor: step.reference})

    def _effect(self, steps: Sequence[_Step], level: float) -> Effect | None:
        contrast: Floats = np.sum([self._step(step) for step in steps], axis=0)
        numbers = self.contrast(contrast, level)
        if numbers is None:
            return None
        return Effect(" + ".join(step.factor for step in steps), " + ".join(step.level for step in steps),
                      " + ".join(step.reference for step in steps), *numbers,
                      runs=min(self._runs(step.factor, step.level) for step in steps))

    def _together(self, step: _Step, lost: Sequence[_Step]) -> tuple[_Step, ...]:
        """The fewest steps of other factors that together with this one can be told; this one alone where none are found."""
        others = [other for other in lost if other.factor != step.factor]
        sets = (chosen for size in range(1, len(self.factors)) for chosen in itertools.combinations(others, size)
                if len({other.factor for other in chosen}) == size)
        for chosen in itertools.islice(sets, MOST_SETS):
            together = tuple(other for other in lost if other == step or other in chosen)
            if self.estimable(np.sum([self._step(part) for part in together], axis=0)):
                return together
        return (step,)

    def _runs(self, name: str, value: str) -> int:
        column = self.factors.index(name)
        return int(sum(n for cell, n in zip(self.cells, self.n, strict=True) if cell[column] in (value, self.levels[name][0])))

    def missing(self) -> list[Levels]:
        """Cells that nobody measured, each of which alone would let one more effect be told; environments that exist come first."""
        lost = self.rank
        if lost == len(self.columns) + 1:
            return []
        environments = dict.fromkeys(cell[1:] for cell in self.cells)
        real_cells = ((build, *rest) for build in reversed(self.levels[self.factors[0]]) for rest in environments)
        every = itertools.product(*(self.levels[name] for name in self.factors))
        suggestions: list[Levels] = []
        for cell in itertools.islice(itertools.chain(real_cells, every), 2000):
            levels = dict(zip(self.factors, cell, strict=True))
            if cell not in self.cells and levels not in suggestions and not self.estimable(self.row(levels)):
                suggestions.append(levels)
            if len(suggestions) == MAX_SUGGESTED:
                break
        return suggestions

    def misfit(self) -> str:
        """The cell that is farthest from what its parts add up to, where the cells do not add up; else ""."""
        if self.adds_up or self.noise is None:
            return ""
        worst = int(np.argmax(np.abs(self.residuals) * np.sqrt(self.n)))
        off = 100 * math.expm1(self.residuals[worst])
        cell = zip(self.factors, self.cells[worst], strict=True)
        varied = ", ".join(f"{name} {value}" for name, value in cell if len(self.levels[name]) > 1)
        return (f"The effects do not simply add up: {varied} takes {abs(off):.2f} % {'more' if off > 0 else 'less'} than its parts "
                f"say, where runs differ by {100 * self.noise:.2f} %. The intervals are widened by that.")


def _centre(values: Floats) -> float:
    """Hodges-Lehmann: median of all means of two; efficiency 0.955 for normal noise, and up to 29 % of the runs may be off."""
    if len(values) > WALSH_MOST:
        return float(np.median(values))
    left, right = np.triu_indices(len(values))
    return float(np.median((values[left] + values[right]) / 2))


def _noise_variance(cells: Sequence[Floats], centres: Floats) -> tuple[float | None, int]:
    """(variance between runs of one cell, degrees of freedom): winsorised at 3 robust deviations; None from single runs."""
    scaled = [(values - centre) * math.sqrt(len(values) / (len(values) - 1))
              for values, centre in zip(cells, centres, strict=True) if len(values) > 1]
    if not scaled:
        return None, 0
    residuals = np.concatenate(scaled)
    most = 3 * deviation_around_zero(residuals) or math.inf
    return float(np.mean(np.clip(residuals, -most, most) ** 2)) / 0.955, sum(len(values) - 1 for values in scaled)


def _order_levels(values: Sequence[str], first: str) -> list[str]:
    """Each level once, in the order in which they came, `first` before all others."""
    levels = list(dict.fromkeys(values))
    return sorted(levels, key=lambda value: value != first)
