"""Who made it slower: the build, the toolkit, the driver or the GPU? Effects from the same kernels measured across environments.

Model, per kernel: log(time of a run) = level + effect of the build + of CUDA + of Triton + of the driver + of the GPU + noise, as
in any unbalanced factorial design (Searle, "Linear Models for Unbalanced Data"). Every cell (one build in one environment) is
brought to its Hodges-Lehmann centre first, so that a bad run among five moves nothing; cells are weighted by their runs; the noise
is what runs of one cell differ by, pooled over cells and winsorised. Where cells do not add up by more than that, their misfit
widens the intervals and is told. What never varied without something else is not guessed: an effect is stated only where it lies
in the row space of the design, else the text names what it always came with and the run that would tell them apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FACTORS = ("build", "cuda", "triton", "driver", "gpu")      # the first is the team's code, the others are the environment
FLOOR = 0.01               # an effect that is smaller is told with its interval, and blamed for nothing
MISFIT_ALPHA = 0.01        # below it, cells that do not add up are no chance
WALSH_MOST = 400           # runs of a cell up to which its centre is Hodges-Lehmann's; above, their median
MAX_SUGGESTED = 3

Floats = NDArray[np.float64]
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
    def sure(self) -> bool:
        """Whether the whole interval lies on one side of 1 and the effect is worth blaming."""
        return self.low is not None and self.high is not None and self.ratio is not None \
            and (self.low > 1 or self.high < 1) and abs(self.ratio - 1) >= FLOOR


@dataclass(frozen=True)
class KernelEffects:
    kernel: str
    effects: Sequence[Effect]
    cells: int
    runs: int
    noise: float | None                         # standard deviation between runs of one cell, as a fraction
    misfit: str = ""                            # where the cells do not add up


@dataclass(frozen=True)
class Attribution:
    kernels: Sequence[KernelEffects]
    suite: Sequence[Effect]                     # geometric means over the kernels for which an effect can be told
    missing: Sequence[Levels]                   # cells whose runs would tell apart what cannot be told apart now
    says: str


def attribute(observations: Sequence[Observation], *, level: float = 0.95, factors: Sequence[str] = FACTORS) -> Attribution:
    """Effects of every factor that varied, per kernel and over all. References are the levels seen first."""
    by_kernel = grouped(observations)
    first: dict[str, str] = {}
    for one in observations:
        for name in factors:
            first.setdefault(name, level_of(one, name))
    models = {kernel: Model(rows, factors, first) for kernel, rows in by_kernel.items()}
    kernels = [KernelEffects(kernel, model.effects(level), len(model.cells), model.runs, model.noise, model.misfit())
               for kernel, model in models.items()]
    suite = _over_kernels(kernels, level)
    missing = next((found for model in models.values() if (found := model.missing())), [])
    return Attribution(kernels, suite, missing, _says(suite, kernels))


def grouped(observations: Sequence[Observation]) -> dict[str, list[Observation]]:
    """By kernel, in the order in which kernels come. Raises ValueError for a time that is not finite and above zero."""
    found: dict[str, list[Observation]] = {}
    for one in observations:
        if isinstance(one.us, bool) or not (math.isfinite(one.us) and one.us > 0):
            raise ValueError(f"{one.kernel}: a time is not a finite number above zero")
        found.setdefault(one.kernel, []).append(one)
    return found


def level_of(one: Observation, factor: str) -> str:
    return str(one.factors.get(factor) or "unknown")


class Model:
    """The fit of one kernel. `contrast` answers what one setting of the factors costs against another."""

    def __init__(self, rows: Sequence[Observation], factors: Sequence[str], first: Levels = {}) -> None:  # noqa: B006
        logs: dict[tuple[str, ...], list[float]] = {}
        for one in rows:
            logs.setdefault(tuple(level_of(one, name) for name in factors), []).append(math.log(one.us))
        self.factors, self.cells = tuple(factors), list(logs)
        self.runs = len(rows)
        self.n = np.array([len(values) for values in logs.values()], dtype=np.float64)
        self.centre = np.array([_centre(np.array(values)) for values in logs.values()])
        self.levels = {name: _ordered([cell[at] for cell in self.cells], first.get(name, ""))
                       for at, name in enumerate(factors)}
        self.columns = [(name, value) for name in factors for value in self.levels[name][1:]]
        self.design = np.array([self.row(dict(zip(factors, cell, strict=True))) for cell in self.cells])
        weighted = self.design * np.sqrt(self.n)[:, None]
        self.solution: Floats = np.linalg.pinv(weighted) @ (self.centre * np.sqrt(self.n))
        self.spread: Floats = np.linalg.pinv(weighted.T @ weighted)
        self.known: Floats = np.linalg.pinv(self.design) @ self.design          # projection onto what can be told
        self.rank = int(np.linalg.matrix_rank(self.design))
        self.residuals = self.centre - self.design @ self.solution
        variance, self.df = _within([np.array(values) for values in logs.values()], self.centre)
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
        if variance > 0 and stats.chi2.sf(off / variance, free) >= MISFIT_ALPHA:
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
        half = error * float(stats.t.ppf((1 + level) / 2, self.df))
        p_value = 2 * float(stats.t.sf(abs(value) / error, self.df))
        return math.exp(value), math.exp(value - half), math.exp(value + half), p_value

    def effects(self, level: float) -> list[Effect]:
        """One per column that can be told, one per group of columns that only go together, and each of those with its reason."""
        found, told = [], set()
        for at, (name, value) in enumerate(self.columns, start=1):
            unit = np.eye(len(self.columns) + 1)[at]
            reference, runs = self.levels[name][0], self._runs(name, value)
            numbers = self.contrast(unit, level)
            if numbers is not None:
                found.append(Effect(name, value, reference, *numbers, runs=runs))
                continue
            group = self._together(at)
            others = tuple(f"{self.columns[other - 1][0]} {self.columns[other - 1][1]}" for other in group if other != at)
            found.append(Effect(name, value, reference, None, runs=runs, identifiable=False, with_=others,
                                why=f"{name} {value} never varied without {' and '.join(others)}"))
            if group not in told:
                told.add(group)
                found += self._joined(group, level)
        return found

    def _together(self, at: int) -> tuple[int, ...]:
        """Columns that cannot be told apart from column `at`: those that the directions nobody measured move with it."""
        unknown = np.eye(len(self.known)) - self.known
        return tuple(sorted({at, *(int(other) for other in np.flatnonzero(np.abs(unknown[at]) > 1e-8) if other)}))

    def _joined(self, group: tuple[int, ...], level: float) -> Iterator[Effect]:
        sum_of = np.zeros(len(self.columns) + 1)
        sum_of[list(group)] = 1.0
        numbers = self.contrast(sum_of, level) if len({self.columns[at - 1][0] for at in group}) == len(group) else None
        if numbers is not None:
            parts = [self.columns[at - 1] for at in group]
            yield Effect(" + ".join(name for name, _ in parts), " + ".join(value for _, value in parts),
                         " + ".join(self.levels[name][0] for name, _ in parts), *numbers,
                         runs=min(self._runs(name, value) for name, value in parts))

    def _runs(self, name: str, value: str) -> int:
        at = self.factors.index(name)
        return int(sum(n for cell, n in zip(self.cells, self.n, strict=True) if cell[at] in (value, self.levels[name][0])))

    def missing(self) -> list[Levels]:
        """Cells that nobody measured, each of which alone would let one more effect be told; environments that exist come first."""
        lost = self.rank
        if lost == len(self.columns) + 1:
            return []
        environments = dict.fromkeys(cell[1:] for cell in self.cells)
        known = ((build, *rest) for build in reversed(self.levels[self.factors[0]]) for rest in environments)
        every = itertools.product(*(self.levels[name] for name in self.factors))
        found: list[Levels] = []
        for cell in itertools.islice(itertools.chain(known, every), 2000):
            levels = dict(zip(self.factors, cell, strict=True))
            if cell not in self.cells and levels not in found and not self.estimable(self.row(levels)):
                found.append(levels)
            if len(found) == MAX_SUGGESTED:
                break
        return found

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


def _within(cells: Sequence[Floats], centres: Floats) -> tuple[float | None, int]:
    """(variance between runs of one cell, degrees of freedom): winsorised at 3 robust deviations; None from single runs."""
    scaled = [(values - centre) * math.sqrt(len(values) / (len(values) - 1))
              for values, centre in zip(cells, centres, strict=True) if len(values) > 1]
    if not scaled:
        return None, 0
    residuals = np.concatenate(scaled)
    most = 3 * float(stats.median_abs_deviation(residuals, center=lambda *_, **__: 0.0, scale="normal")) or math.inf
    return float(np.mean(np.clip(residuals, -most, most) ** 2)) / 0.955, sum(len(values) - 1 for values in scaled)


def _ordered(values: Sequence[str], first: str) -> list[str]:
    """Each level once, in the order in which they came, `first` before all others."""
    found = list(dict.fromkeys(values))
    return sorted(found, key=lambda value: value != first)


# ---- over all kernels ----

def _over_kernels(kernels: Sequence[KernelEffects], level: float) -> list[Effect]:
    """Geometric means over kernels; standard errors add as those of independent means."""
    told: dict[tuple[str, str, str], list[Effect]] = {}
    for kernel in kernels:
        for effect in kernel.effects:
            told.setdefault((effect.factor, effect.level, effect.reference), []).append(effect)
    found = []
    for (factor, value, reference), effects in told.items():
        good = [effect for effect in effects if effect.ratio is not None]
        if not good:
            found.append(effects[0])
            continue
        logs = [math.log(effect.ratio) for effect in good if effect.ratio is not None]
        mean = sum(logs) / len(logs)
        half: float | None = None
        if all(effect.low is not None for effect in good):
            halves = [(math.log(effect.high or 1) - math.log(effect.low or 1)) / 2 for effect in good]
            half = math.sqrt(sum(one ** 2 for one in halves)) / len(good)
        z = float(stats.norm.ppf((1 + level) / 2))
        p_value = 2 * float(stats.norm.sf(abs(mean) / (half / z))) if half else None
        found.append(Effect(factor, value, reference, math.exp(mean), math.exp(mean - half) if half is not None else None,
                            math.exp(mean + half) if half is not None else None, p_value, sum(effect.runs for effect in good),
                            kernels=len(good)))
    return found


def _says(suite: Sequence[Effect], kernels: Sequence[KernelEffects]) -> str:
    """The answer in a sentence or two: what some kernel's time surely depends on, the largest first, and what cannot be told."""
    if not kernels:
        return "Nothing was measured yet."
    if not suite:
        return "One build in one environment: there is nothing to compare yet."
    told = sorted(((most, _sentence(mean, own)) for mean in suite if (own := _of(mean, kernels))
                   and (most := max((abs(math.log(e.ratio or 1)) for _, e in own if e.sure), default=0.0))), reverse=True)
    unclear = [effect for effect in suite if not effect.identifiable]
    first = "; ".join(text for _, text in told[:3]) + "." if told else "" if len(unclear) == len(suite) else \
        f"No build and no part of the environment surely changes a kernel's time by {100 * FLOOR:.0f} % or more."
    more = f" {unclear[0].why[0].upper()}{unclear[0].why[1:]}: which of them it is cannot be told." if unclear else ""
    return (first + more).strip()


def _of(mean: Effect, kernels: Sequence[KernelEffects]) -> list[tuple[str, Effect]]:
    key = (mean.factor, mean.level, mean.reference)
    return [(kernel.kernel, effect) for kernel in kernels for effect in kernel.effects
            if (effect.factor, effect.level, effect.reference) == key and effect.ratio is not None]


def _sentence(mean: Effect, own: Sequence[tuple[str, Effect]]) -> str:
    interval = f"[{percent(mean.low)}, {percent(mean.high)}]"
    text = f"{mean.factor} {mean.level} is {change(mean.ratio or 1)} than {mean.reference} {interval}"
    if len(own) == 1:
        return text
    (fast, least), *_, (slow, most) = sorted(own, key=lambda one: one[1].ratio or 1)
    return f"{text} on average of {len(own)} kernels, from {percent(least.ratio)} ({fast}) to {percent(most.ratio)} ({slow})"


def change(ratio: float) -> str:
    """1.031 → "3.1 % slower"; below 1 % with two places."""
    off = abs(100 * (ratio - 1))
    return f"{off:.{1 if off >= 1 else 2}f} % {'slower' if ratio >= 1 else 'faster'}"


def percent(ratio: float | None) -> str:
    """1.031 → "+3.10 %"."""
    return "—" if ratio is None else f"{100 * (ratio - 1):+.2f} %".replace("-", "−")
