"""Between two measurements build and environment both changed: which of them did it? And what the compiler made otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict

import numpy as np

from tuner.gate.stats.attribution import change_words, group_by_kernel
from tuner.gate.stats.effects import FACTORS, FLOOR, Effect, Levels, Model, Observation, level_of, percent_text

FACTS = ("registers", "spills", "smem_bytes")
BUILD, ENVIRONMENT = "build", "environment"


EffectJson = TypedDict("EffectJson", {
    "factor": str, "level": str, "reference": str, "ratio": float | None, "low": float | None, "high": float | None,
    "p_value": float | None, "runs": int, "identifiable": bool, "why": str, "kernels": int, "with": list[str], "sure": bool})


class ExplanationJson(TypedDict):
    """Who made a kernel slower: the build, the environment, or what cannot be told; `measure`: cells that would tell."""

    kind: str
    says: str
    parts: list[EffectJson]
    total: EffectJson | None
    measure: list[dict[str, str]]


@dataclass(frozen=True)
class Explanation:
    """`kind`: "build", "environment", "both", "neither" (no change worth blaming), "unknown" (it cannot be told yet)."""

    kind: str
    says: str
    parts: Sequence[Effect]                     # of the build and of the environment, where they can be told apart
    total: Effect | None                        # the two cells as they were measured
    measure: Sequence[Levels] = ()              # cells that would tell

    @property
    def build(self) -> Effect | None:
        return next((part for part in self.parts if part.factor == BUILD), None)

    @property
    def environment(self) -> Effect | None:
        return next((part for part in self.parts if part.factor == ENVIRONMENT), None)


@dataclass(frozen=True)
class FactChange:
    """Code that the compiler made otherwise from one cell to the next, which share the build or the environment."""

    kernel: str
    fact: str                                   # "registers"
    factor: str                                 # what changed: "cuda", "cuda + driver"
    reference: str
    level: str
    before: float
    after: float
    at: Levels                                  # everything else, which was the same


def explain(observations: Sequence[Observation], before: Levels, after: Levels, *, level: float = 0.95,
            floor: float = FLOOR) -> Explanation:
    """Return whether build or environment changed one kernel's time.

    Cells of both builds in both environments decide where they were measured, else all others help.
    """
    rows = [_two_factors(observation) for observation in observations]
    if len(group_by_kernel(rows)) > 1:
        raise ValueError("one kernel at a time")
    a, b = ({BUILD: level_of(cell, BUILD), ENVIRONMENT: _environment(cell)} for cell in
            (Observation("", 1.0, before), Observation("", 1.0, after)))
    four = [row for row in rows if row.factors[BUILD] in (a[BUILD], b[BUILD])
            and row.factors[ENVIRONMENT] in (a[ENVIRONMENT], b[ENVIRONMENT])]
    missing = [cell for cell in (a, b) if not any(row.factors == cell for row in rows)]
    if missing:
        return Explanation("unknown", f"Nothing was measured of {_cell(missing[0])}.", [], None, missing)
    direct = Model([row for row in four if row.factors in (a, b)], (BUILD, ENVIRONMENT), a)
    total = _effect(direct, "total", a, b, level)
    varied = [name for name in (BUILD, ENVIRONMENT) if a[name] != b[name]]
    model = Model(four, (BUILD, ENVIRONMENT), a)
    parts = [_effect(model, name, a, {**a, name: b[name]}, level) for name in varied]
    if any(part is None for part in parts):
        model = Model(rows, (BUILD, ENVIRONMENT), a)
        parts = [_effect(model, name, a, {**a, name: b[name]}, level) for name in varied]
    known_parts = [part for part in parts if part is not None]
    if len(known_parts) < len(varied):
        crossed = [{BUILD: a[BUILD], ENVIRONMENT: b[ENVIRONMENT]}, {BUILD: b[BUILD], ENVIRONMENT: a[ENVIRONMENT]}]
        much = "" if total is None or total.ratio is None else f"{_cell(b)} is {change_words(total.ratio)} than {_cell(a)}. "
        return Explanation("unknown", f"{much}Build and environment changed together, so it cannot be told which did it: measure "
                           f"{_cell(crossed[0])}, or {_cell(crossed[1])}.", [], total, crossed)
    kind, says = _verdict(known_parts, total, floor)
    misfit = model.misfit()
    return Explanation(kind, f"{says} {misfit}".strip(), known_parts, total)


def _two_factors(one: Observation) -> Observation:
    return Observation(one.kernel, one.us, {BUILD: level_of(one, BUILD), ENVIRONMENT: _environment(one)}, one.facts)


def _environment(observation: Observation) -> str:
    """"NVIDIA H200, cuda 13.0, driver 580.159": the levels of everything but the build, as one."""
    named = [(name, level_of(observation, name)) for name in ("gpu", *FACTORS[1:-1])]
    return ", ".join(value if name == "gpu" else f"{name} {value}" for name, value in named if value != "unknown") or "unknown"


def _effect(model: Model, name: str, a: Mapping[str, str], b: Mapping[str, str], level: float) -> Effect | None:
    row = model.row(b) - model.row(a)
    numbers = model.contrast(row, level)
    if numbers is None or not (model.estimable(model.row(a)) or np.any(row)):
        return None
    new, old = (b[name], a[name]) if name in a else (_cell(b), _cell(a))
    return Effect(name, new, old, *numbers, runs=model.runs)


def _cell(levels: Mapping[str, str]) -> str:
    return f"build {levels[BUILD]} under {levels[ENVIRONMENT]}"


def _verdict(parts: Sequence[Effect], total: Effect | None, floor: float) -> tuple[str, str]:
    """The kind, and the sentence with its numbers."""
    sure = [part for part in parts if part.low is not None and part.high is not None and (part.low > 1 or part.high < 1)
            and abs((part.ratio or 1) - 1) >= floor]
    whole = "" if total is None or total.ratio is None else f"{change_words(total.ratio).capitalize()} in all: "
    numbers = ", ".join(f"{_share(part)} {percent_text(part.ratio)} [{percent_text(part.low)}, {percent_text(part.high)}]"
                        for part in parts)
    if len(parts) == 1 and sure:
        other = "environment" if parts[0].factor == BUILD else "build"
        return parts[0].factor, f"The {other} is the same, so {numbers} is all of it."
    if not parts:
        return "neither", "Build and environment are the same."
    if any(part.low is None for part in parts):
        return "unknown", f"{whole}{numbers}. One run of a cell says nothing about its noise: measure more runs."
    if not sure:
        unsure = max(math.log(part.high or 1) - math.log(part.low or 1) for part in parts)
        if unsure > 2 * math.log1p(floor) * 2:
            return "unknown", f"{whole}{numbers}. The intervals are too wide to blame either: measure more runs."
        return "neither", f"No change of {100 * floor:.0f} % or more by either: {numbers}."
    if len(sure) == 2:
        return "both", f"{whole}build and environment both did it: {numbers}."
    second = next(part for part in parts if part is not sure[0])
    if max(abs(math.log(second.low or 1)), abs(math.log(second.high or 1))) > 2 * math.log1p(floor):
        unknown = f"whether {_share(second)} did too cannot be told from so few runs"
        return sure[0].factor, f"{whole}{_share(sure[0])} did it; {unknown}: {numbers}."
    return sure[0].factor, f"{whole}it comes from {_share(sure[0])} and not {_share(second)}: {numbers}."


def _share(part: Effect) -> str:
    return "the build" if part.factor == BUILD else "the environment"


# ---- registers, spills, shared memory ----

def fact_changes(observations: Sequence[Observation], facts: Sequence[str] = FACTS) -> list[FactChange]:
    """Return neighbouring cells of one build or one environment whose compiled code differs, largest change first.

    The compiler's figures are the same in every run of a cell; where they are not, the greatest counts.
    """
    return sorted(_fact_changes(observations, facts), key=lambda one: -abs(one.after - one.before) / max(one.before, 1.0))


def _fact_changes(observations: Sequence[Observation], facts: Sequence[str]) -> Iterator[FactChange]:
    for kernel, rows in group_by_kernel(observations).items():
        cells: dict[tuple[str, ...], dict[str, float]] = {}
        for row in rows:
            cell = cells.setdefault(tuple(level_of(row, name) for name in FACTORS), {})
            for fact in facts:
                value = row.facts.get(fact)
                if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                    cell[fact] = max(cell.get(fact, value), value)
        lines: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for key in cells:
            lines.setdefault(key[:1], []).append(key)              # of one build: environments in their order
            lines.setdefault(("", *key[1:]), []).append(key)       # of one environment: builds in theirs
        for line in lines.values():
            for old, new in pairwise(line):
                for fact in facts:
                    before, after = cells[old].get(fact), cells[new].get(fact)
                    if before is not None and after is not None and before != after:
                        yield _fact_change(kernel, fact, old, new, before, after)


def _fact_change(kernel: str, fact: str, old: tuple[str, ...], new: tuple[str, ...], before: float, after: float) -> FactChange:
    changed = [index for index in range(len(FACTORS)) if old[index] != new[index]]
    factor, reference, level = (" + ".join(names[index] for index in changed) for names in (FACTORS, old, new))
    same = {name: old[index] for index, name in enumerate(FACTORS) if index not in changed}
    return FactChange(kernel, fact, factor, reference, level, before, after, same)
