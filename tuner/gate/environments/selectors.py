"""What runs across environments tell: the matrix, effects with intervals, build or environment, compiled code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypedDict

from profiles.base.answers import make_answer, plain
from tuner.gate.environments.observation_selectors import Cells, Environment, load_cells
from tuner.gate.stats.attribution import Attribution, attribute_effects
from tuner.gate.stats.effects import Effect, Observation
from tuner.gate.stats.explanation import EffectJson, Explanation, ExplanationJson, FactChange, explain, fact_changes
from tuner.models import Suite

MOST_COLUMNS = 8               # newest builds that the matrix shows
MOST_FACT_CHANGES = 60
KINDS = ("environment", "build", "both", "unknown", "neither")      # what matters most first


@dataclass(frozen=True)
class Cell:
    """One build in one environment. `ratio` against the matrix's reference, geometric mean over the kernels that both hold."""

    runs: int = 0
    kernels: int = 0
    us: float | None = None                     # of a single kernel: median of run medians
    ratio: float | None = None
    reference: bool = False

    @property
    def change_pct(self) -> float | None:
        return None if self.ratio is None else 100 * (self.ratio - 1)

    @property
    def level(self) -> str:
        """Shade of the cell."""
        if self.ratio is None or self.reference or abs(self.ratio - 1) < 0.01:
            return ""
        return "good" if self.ratio < 1 else "bad" if self.ratio >= 1.05 else "poor"


@dataclass(frozen=True)
class Matrix:
    environments: list[Environment]
    builds: list[str]
    rows: list[tuple[Environment, list[Cell]]]
    reference: tuple[str, Environment] | None
    more_builds: int = 0


@dataclass(frozen=True)
class CellComparison:
    """Two cells, every kernel that both hold: which of build and environment did it."""

    before: tuple[str, Environment]
    after: tuple[str, Environment]
    names: tuple[str, str]                      # of both, in the URL
    kernels: list[tuple[str, Explanation]]
    says: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Picture:
    """All that the page and the API show of one suite."""

    cells: Cells
    attribution: Attribution
    matrix: Matrix
    compared: CellComparison | None
    facts: list[FactChange]


def load_picture(suite: Suite, *, kernel: str = "", recorded: bool = False, before: str = "", after: str = "") -> Picture:
    """Return all that is shown of a suite. `before`, `after`: names of cells to compare, "": the newest two."""
    cells = load_cells(suite, kernels=[kernel] if kernel else None, recorded=recorded)
    references = {"build": cells.builds[0]} if cells.builds else {}
    return Picture(cells, attribute_effects(cells.observations, references=references), build_matrix(cells, single=bool(kernel)),
                   compare_cells(cells, _cell_of_name(cells, before), _cell_of_name(cells, after)),
                   fact_changes(cells.observations)[:MOST_FACT_CHANGES])


def build_matrix(cells: Cells, *, single: bool) -> Matrix:
    """Return builds across, environments down, each against the reference cell."""
    logs: dict[tuple[str, Environment], dict[str, list[float]]] = {}
    for sample, where in zip(cells.observations, cells.where, strict=True):
        logs.setdefault((sample.factors["build"], where), {}).setdefault(sample.kernel, []).append(math.log(sample.us))
    centres = {key: {kernel: median(values) for kernel, values in kernels.items()} for key, kernels in logs.items()}
    builds = cells.builds[-MOST_COLUMNS:]
    reference = next(((build, where) for where in cells.environments for build in builds if (build, where) in centres), None)

    def cell(build: str, where: Environment) -> Cell:
        kernels = centres.get((build, where))
        if kernels is None or reference is None:
            return Cell()
        shared = [kernels[name] - centres[reference][name] for name in kernels if name in centres[reference]]
        return Cell(sum(len(values) for values in logs[build, where].values()), len(kernels),
                    math.exp(next(iter(kernels.values()))) if single else None,
                    math.exp(sum(shared) / len(shared)) if shared else None, (build, where) == reference)

    return Matrix(cells.environments, builds, [(where, [cell(build, where) for build in builds]) for where in cells.environments],
                  reference, len(cells.builds) - len(builds))


# ---- who did it ----

def compare_cells(cells: Cells, before: tuple[str, Environment] | None = None,
             after: tuple[str, Environment] | None = None) -> CellComparison | None:
    """Return what build and environment did between two cells; None without two environments, and none named."""
    after = after or cells.newest
    before = before or (_cell_before(cells, after) if after else None)
    if before is None or after is None or before == after:
        return None
    by_kernel: dict[str, list[Observation]] = {}
    measured: dict[str, set[tuple[str, Environment]]] = {}
    for sample, where in zip(cells.observations, cells.where, strict=True):
        by_kernel.setdefault(sample.kernel, []).append(sample)
        measured.setdefault(sample.kernel, set()).add((sample.factors["build"], where))
    old, new = _factors(before), _factors(after)
    results = [(kernel, explain(rows, old, new)) for kernel, rows in by_kernel.items() if {before, after} <= measured[kernel]]
    results.sort(key=lambda one: (KINDS.index(one[1].kind), -abs(math.log(_ratio(one[1])))))
    counts = Counter(explanation.kind for _, explanation in results)
    return CellComparison(before, after, (_name(cells, before), _name(cells, after)), results,
                          _comparison_sentence(before, after, results, counts), counts)


def _cell_before(cells: Cells, after: tuple[str, Environment]) -> tuple[str, Environment] | None:
    """Of another environment, seen before, the same GPU first: the same build where it was measured there, else its newest."""
    build, where = after
    others = [place for place in cells.environments if place != where]
    others.sort(key=lambda one: (one.gpu == where.gpu, cells.environments.index(one)))
    if not others:
        return None
    there = [sample.factors["build"] for sample, place in zip(cells.observations, cells.where, strict=True) if place == others[-1]]
    return (build if build in there else max(there, key=cells.builds.index)), others[-1]


def _factors(cell: tuple[str, Environment]) -> dict[str, str]:
    return {"build": cell[0], **cell[1].factors}


def _ratio(explanation: Explanation) -> float:
    return explanation.total.ratio if explanation.total is not None and explanation.total.ratio else 1.0


def _comparison_sentence(before: tuple[str, Environment], after: tuple[str, Environment], told: Sequence[tuple[str, Explanation]],
          counts: Mapping[str, int]) -> str:
    """The answer in a sentence."""
    over = _from_to(before, after)
    if not told:
        return f"{over}: no kernel was measured in both."
    if len(told) == 1:
        return f"{told[0][0]}, {over}: {told[0][1].says}"
    who = [(counts.get("environment", 0), "by the environment"), (counts.get("build", 0), "by the build"),
           (counts.get("both", 0), "by both")]
    changed = sum(number for number, _ in who)
    parts = ", ".join(f"{number} {words}" for number, words in who if number)
    first = f"{changed} of {len(told)} kernels changed, {parts}" if changed else f"none of {len(told)} kernels surely changed"
    name, worst = max(((kernel, _ratio(explanation)) for kernel, explanation in told), key=lambda one: one[1])
    most = f" The most: {name}, {100 * (worst - 1):.1f} % slower." if changed and worst > 1.01 else ""
    unknown = f" Of {counts['unknown']} it cannot be told which did it." if counts.get("unknown") else ""
    return f"{over}: {first}.{most}{unknown}"


def _from_to(before: tuple[str, Environment], after: tuple[str, Environment]) -> str:
    """"Build abc from driver 580 to driver 590": only what differs is named twice."""
    (old, a), (new, b) = before, after
    parts = [name for name in b.factors.keys() | a.factors.keys() if a.factors.get(name, "") != b.factors.get(name, "")]
    differs = [name for name in ("gpu", "cuda", "triton", "driver") if name in parts]

    def text(where: Environment) -> str:
        named = [(name, where.factors.get(name) or "unknown") for name in differs]
        return ", ".join(value if name == "gpu" else f"{name} {value}" for name, value in named)

    if not differs:
        return f"From build {old} to build {new} under {b.text}"
    if old == new:
        return f"Build {new} from {text(a)} to {text(b)}"
    return f"From build {old} under {text(a)} to build {new} under {text(b)}"


# ---- as JSON ----

class BuildCellJson(TypedDict):
    build: str
    environment: Environment


class EnvironmentRowJson(TypedDict):
    environment: Environment
    cells: list[Cell]


class EnvironmentMatrixJson(TypedDict):
    builds: list[str]
    reference: BuildCellJson | None
    rows: list[EnvironmentRowJson]


class KernelEffectsJson(TypedDict):
    kernel: str
    runs: int
    noise: float | None
    misfit: str
    effects: list[EffectJson]


class KernelExplanationJson(ExplanationJson):
    kernel: str


class CellComparisonJson(TypedDict):
    before: BuildCellJson
    after: BuildCellJson
    says: str
    counts: dict[str, int]
    kernels: list[KernelExplanationJson]


class PictureJson(TypedDict):
    """Effects of build, CUDA, Triton, driver and GPU on a suite; `code`: compiled code that changed beside them."""

    says: str
    labels: list[str]
    left_out: str
    environments: list[Environment]
    builds: list[str]
    kernels: list[str]
    matrix: EnvironmentMatrixJson
    effects: list[EffectJson]
    by_kernel: list[KernelEffectsJson]
    missing: list[dict[str, str]]
    compared: CellComparisonJson | None
    code: list[FactChange]


def picture_json(found: Picture) -> PictureJson:
    """Return the JSON of all that is shown of a suite."""
    cells, compared = found.cells, found.compared
    return make_answer(
        PictureJson, cells, says=found.attribution.says,
        matrix={"builds": found.matrix.builds, "reference": _cell_json(found.matrix.reference) if found.matrix.reference else None,
                "rows": [{"environment": plain(where), "cells": plain(row)} for where, row in found.matrix.rows]},
        effects=[effect_json(effect) for effect in found.attribution.suite],
        by_kernel=[make_answer(KernelEffectsJson, entry, effects=[effect_json(effect) for effect in entry.effects])
                   for entry in found.attribution.kernels],
        missing=[dict(gap) for gap in found.attribution.missing],
        compared=None if compared is None else {
            "before": _cell_json(compared.before), "after": _cell_json(compared.after), "says": compared.says,
            "counts": dict(compared.counts), "kernels": [
                {"kernel": kernel, **explanation_json(explanation)} for kernel, explanation in compared.kernels]},
        code=found.facts)


def effect_json(effect: Effect) -> EffectJson:
    """Return the JSON of one effect."""
    return make_answer(EffectJson, effect, **{"with": effect.with_})


def explanation_json(one: Explanation) -> ExplanationJson:
    """Return the JSON of who made a kernel slower."""
    return make_answer(ExplanationJson, one, parts=[effect_json(part) for part in one.parts],
                       total=effect_json(one.total) if one.total else None, measure=[dict(cell) for cell in one.measure])


def _cell_json(cell: tuple[str, Environment]) -> Any:
    return {"build": cell[0], "environment": plain(cell[1])}


def cell_names(picture: Picture) -> list[tuple[str, str]]:
    """Return (name in the URL, words) of every cell that was measured, newest build first."""
    cells = picture.cells
    there = {(sample.factors["build"], where) for sample, where in zip(cells.observations, cells.where, strict=True)}
    return [(_name(cells, (build, where)), f"{build} · {_driver_first(where)}") for build in reversed(cells.builds)
            for where in reversed(cells.environments) if (build, where) in there]


def _driver_first(where: Environment) -> str:
    """What changes most often stands where a narrow list still shows it."""
    return ", ".join(filter(None, (f"driver {where.driver}" if where.driver else "", where.toolkit, where.gpu)))


def _name(cells: Cells, cell: tuple[str, Environment]) -> str:
    """"2|abc": the place of the environment in the order of first runs, and the build."""
    return f"{cells.environments.index(cell[1])}|{cell[0]}"


def _cell_of_name(cells: Cells, name: str) -> tuple[str, Environment] | None:
    """What a name in the URL means; None where it means nothing."""
    place, _, build = name.partition("|")
    if not (place.isascii() and place.isdecimal() and len(place) < 6 and int(place) < len(cells.environments)):
        return None
    cell = (build, cells.environments[int(place)])
    there = ((sample.factors["build"], where) for sample, where in zip(cells.observations, cells.where, strict=True))
    return cell if cell in there else None
