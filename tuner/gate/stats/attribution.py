"""Who made it slower: the build, the toolkit, the driver or the GPU? Effects from the same kernels measured across environments.

One log-linear model per kernel (`effects.Model`), geometric means over kernels, and the answer in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.gate.stats.distributions import normal_quantile, normal_tail
from tuner.gate.stats.effects import FACTORS, FLOOR, Effect, Levels, Model, Observation, level_of, percent_text


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


def attribute_effects(observations: Sequence[Observation], *, level: float = 0.95, factors: Sequence[str] = FACTORS,
              references: Levels | None = None) -> Attribution:
    """Return the effects of every factor that varied, per kernel and over all.

    `references`: levels to compare with, else those seen first.
    """
    by_kernel = group_by_kernel(observations)
    first = dict(references or {})
    for observation in observations:
        for name in factors:
            first.setdefault(name, level_of(observation, name))
    models = {kernel: Model(rows, factors, first) for kernel, rows in by_kernel.items()}
    kernels = [KernelEffects(kernel, model.effects(level), len(model.cells), model.runs, model.noise, model.misfit())
               for kernel, model in models.items()]
    suite = _over_kernels(kernels, level)
    missing = next((cells for model in models.values() if (cells := model.missing())), [])
    return Attribution(kernels, suite, missing, _summary(suite, kernels))


def group_by_kernel(observations: Sequence[Observation]) -> dict[str, list[Observation]]:
    """Return the observations by kernel, in the order in which kernels come.

    Raises ValueError for a time that is not finite and above zero.
    """
    rows_by_kernel: dict[str, list[Observation]] = {}
    for observation in observations:
        if isinstance(observation.us, bool) or not (math.isfinite(observation.us) and observation.us > 0):
            raise ValueError(f"{observation.kernel}: a time is not a finite number above zero")
        rows_by_kernel.setdefault(observation.kernel, []).append(observation)
    return rows_by_kernel


# ---- over all kernels ----

def _over_kernels(kernels: Sequence[KernelEffects], level: float) -> list[Effect]:
    """Geometric means over kernels; standard errors add as those of independent means."""
    effects_by_step: dict[tuple[str, str, str], list[Effect]] = {}
    for kernel in kernels:
        for effect in kernel.effects:
            effects_by_step.setdefault((effect.factor, effect.level, effect.reference), []).append(effect)
    means = []
    for (factor, value, reference), effects in effects_by_step.items():
        good = [effect for effect in effects if effect.ratio is not None]
        if not good:
            means.append(effects[0])
            continue
        logs = [math.log(effect.ratio) for effect in good if effect.ratio is not None]
        mean = sum(logs) / len(logs)
        half: float | None = None
        if all(effect.low is not None for effect in good):
            halves = [(math.log(effect.high or 1) - math.log(effect.low or 1)) / 2 for effect in good]
            half = math.sqrt(sum(width ** 2 for width in halves)) / len(good)
        z = normal_quantile((1 + level) / 2)
        p_value = 2 * normal_tail(abs(mean) / (half / z)) if half else None
        means.append(Effect(factor, value, reference, math.exp(mean), math.exp(mean - half) if half is not None else None,
                            math.exp(mean + half) if half is not None else None, p_value, sum(effect.runs for effect in good),
                            kernels=len(good)))
    return means


def _summary(suite: Sequence[Effect], kernels: Sequence[KernelEffects]) -> str:
    """The answer in a sentence or two: what some kernel's time surely depends on, the largest first, and what cannot be told."""
    if not kernels:
        return "Nothing was measured yet."
    if not suite:
        return "One build in one environment: there is nothing to compare yet."
    sentences = sorted(((most, _sentence(mean, own)) for mean in suite if (own := _kernel_effects(mean, kernels))
                        and (most := max((abs(math.log(e.ratio or 1)) for _, e in own if e.sure), default=0.0))), reverse=True)
    unclear = [effect for effect in suite if not effect.identifiable]
    first = "; ".join(text for _, text in sentences[:2]) + "." if sentences else "" if len(unclear) == len(suite) else \
        f"No build and no part of the environment surely changes a kernel's time by {100 * FLOOR:.0f} % or more."
    more = f" {unclear[0].why[0].upper()}{unclear[0].why[1:]}: which of them it is cannot be told." if unclear else ""
    return (first + more).strip()


def largest_effect(mean: Effect, kernels: Sequence[KernelEffects]) -> tuple[str, Effect] | None:
    """Return the kernel that an effect changes most, which a mean hides; None where no kernel can tell."""
    return max(_kernel_effects(mean, kernels), key=lambda one: abs(math.log(one[1].ratio or 1)), default=None)


def _kernel_effects(mean: Effect, kernels: Sequence[KernelEffects]) -> list[tuple[str, Effect]]:
    key = (mean.factor, mean.level, mean.reference)
    return [(kernel.kernel, effect) for kernel in kernels for effect in kernel.effects
            if (effect.factor, effect.level, effect.reference) == key and effect.ratio is not None]


def _sentence(mean: Effect, own: Sequence[tuple[str, Effect]]) -> str:
    interval = f"[{percent_text(mean.low)}, {percent_text(mean.high)}]"
    text = f"{mean.factor} {mean.level} is {change_words(mean.ratio or 1)} than {mean.reference} {interval}"
    if len(own) == 1:
        return text
    (fast, least), *_, (slow, most) = sorted(own, key=lambda one: one[1].ratio or 1)
    ends = f"from {percent_text(least.ratio)} ({fast}) to {percent_text(most.ratio)} ({slow})"
    return f"{text} on average of {len(own)} kernels, {ends}"


def change_words(ratio: float) -> str:
    """1.031 → "3.1 % slower"; below 1 % with two places."""
    off = abs(100 * (ratio - 1))
    return f"{off:.{1 if off >= 1 else 2}f} % {'slower' if ratio >= 1 else 'faster'}"
