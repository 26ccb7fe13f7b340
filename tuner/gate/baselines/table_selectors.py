"""The baselines of a suite as a table: what the next build will be compared with, how it spreads, and who said so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NotRequired, TypedDict

import numpy as np
from django.core.paginator import Page, Paginator

from profiles.base.answers import make_answer
from tuner.gate.baselines.selectors import (
    Baseline,
    Env,
    Expected,
    baseline_history,
    environment_counts,
    load_baselines,
    load_next_baselines,
)
from tuner.models import BaselineChange, Suite, SuiteKernel

MOST_CHANGES = 200
PAGE_ROWS = 100                 # kernels in the page's table


@dataclass(frozen=True)
class BaselineLine:
    """One kernel's baseline in one environment. Times in µs; None where there are no runs, or too few for a spread."""

    baseline: Baseline
    p50_us: float | None = None             # median of run medians
    low_us: float | None = None             # fastest and slowest run median
    high_us: float | None = None
    spread: float | None = None             # coefficient of variation of run medians, a fraction: between fresh processes
    p95_us: float | None = None             # median of the runs' p95
    clock_mhz: float | None = None          # median SM clock; None: not sampled in every run
    newest: datetime | None = None
    drift: float | None = None              # newest build's median over the oldest's, within the baseline; 1.01 is 1 % slower

    @property
    def enough(self) -> bool:
        return len(self.baseline.runs) >= self.baseline.kernel.suite.baseline_runs or self.baseline.mode != "rolling"


def kernels_page(kernels: Sequence[SuiteKernel], number: str | None) -> Page[SuiteKernel]:
    return Paginator(kernels, PAGE_ROWS).get_page(number)


def next_lines(kernels: Sequence[SuiteKernel], shown: Sequence[SuiteKernel], env: Env) -> tuple[list[BaselineLine], list[Expected]]:
    """Return lines of the kernels shown, and of every kernel what it is compared with, without its runs."""
    forecasts, baselines = load_next_baselines(kernels, shown, env)
    return [_line(baselines[kernel.pk]) for kernel in shown], forecasts


def baseline_lines(kernels: Sequence[SuiteKernel], env: Env, samples: bool = False) -> list[BaselineLine]:
    """Return the lines of these kernels of one suite, in their order."""
    baselines = load_baselines(kernels, env, samples=samples)
    return [_line(baselines[kernel.pk]) for kernel in kernels]


def _line(baseline: Baseline) -> BaselineLine:
    runs = baseline.runs
    if not runs:
        return BaselineLine(baseline)
    p50 = np.array([run.p50_us for run in runs], dtype=np.float64)
    p95 = np.array([run.p95_us for run in runs if run.p95_us], dtype=np.float64)
    clocks = [run.sm_clock_mhz for run in runs if run.sm_clock_mhz]
    return BaselineLine(
        baseline, float(np.median(p50)), float(p50.min()), float(p50.max()),
        float(p50.std(ddof=1) / p50.mean()) if len(runs) > 1 else None, float(np.median(p95)) if p95.size else None,
        float(np.median(clocks)) if len(clocks) == len(runs) else None, max(run.created for run in runs), _drift(baseline))


def _drift(baseline: Baseline) -> float | None:
    """A rolling baseline creeps where each build is a little slower than the one before: seen between its ends."""
    if len(baseline.builds) < 2:
        return None
    ends = [np.median([run.p50_us for run in baseline.runs if run.build_id == build.pk]) for build in
            (baseline.builds[0], baseline.builds[-1])]
    return float(ends[0] / ends[1])


def choose_environment(suite: Suite, query: Mapping[str, str]) -> tuple[Env | None, list[dict[str, Any]]]:
    """Return the environment asked for (else that of the newest run), and all there are."""
    every = environment_counts(suite)
    fits = [row["env"] for row in every
            if all(getattr(row["env"], name) == query[name] for name in Env.__dataclass_fields__ if query.get(name) is not None)]
    return (fits or [row["env"] for row in every] or [None])[0], every


def recent_changes(suite: Suite) -> list[BaselineChange]:
    return list(baseline_history(suite)[:MOST_CHANGES])


def changes_in_force(held: Iterable[Expected]) -> set[int]:
    """Return ids of the changes that decide something now."""
    return {forecast.change.pk for forecast in held if forecast.change is not None}


def summary_sentence(suite: Suite, env: Env | None, kernels: Sequence[Expected], lines: Sequence[BaselineLine]) -> str:
    """Return one sentence with numbers: of all kernels, and how far the runs of `lines` lie apart."""
    if env is None:
        return "No run of this suite was taken yet: the first build that is measured becomes the baseline of the next."
    forecasts = [forecast for forecast in kernels if forecast.runs]
    pinned = sum(forecast.mode == "pinned" for forecast in forecasts)
    builds = {build.pk for forecast in forecasts for build in forecast.builds}
    says = f"On {env.text}, the next build is compared with {len(builds)} earlier build{'s' if len(builds) != 1 else ''}: " \
           f"{len(forecasts):,} of {len(kernels):,} kernels have a baseline"
    short = sum(forecast.mode == "rolling" and forecast.runs < suite.baseline_runs for forecast in forecasts)
    spreads = [line.spread for line in lines if line.spread is not None]
    says += f", {pinned:,} pinned" if pinned else ""
    says += f", {short:,} with fewer than {suite.baseline_runs} runs" if short else ""
    if not spreads:
        return f"{says}."
    whose = "the kernels" if len(lines) == len(kernels) else f"the {len(lines)} kernels below"
    return f"{says}; fresh runs differ by {np.median(spreads) * 100:.2f} % (coefficient of variation, median of {whose})."


class BaselineRunJson(TypedDict):
    id: int
    build: str
    run: str
    us: list[float]
    sm_clock_mhz: float | None
    created: str


class BaselineChangeJson(TypedDict):
    """What a person said of baselines; `kernel` null: of every kernel; `gpu` "": on every GPU."""

    id: int
    action: str
    build: str | None
    kernel: str | None
    gpu: str
    note: str
    author: str | None
    created: str


class BaselineJson(TypedDict):
    """What a kernel's next build is compared with; `spread`: of run medians ÷ mean; `samples`: where they are asked for."""

    kernel: str
    op: str
    shape: dict[str, int]
    family: str
    mode: str
    says: str
    builds: list[str]
    runs: int
    p50_us: float | None
    low_us: float | None
    high_us: float | None
    spread: float | None
    p95_us: float | None
    sm_clock_mhz: float | None
    drift: float | None
    change: BaselineChangeJson | None
    run_medians_us: list[float]
    run_p95_us: list[float]
    samples: NotRequired[list[BaselineRunJson]]


def line_json(line: BaselineLine, raw: bool = False) -> BaselineJson:
    """`raw`: with every run and its samples in µs."""
    kernel, choice = line.baseline.kernel, line.baseline
    return make_answer(
        BaselineJson, line, kernel=kernel.key, op=kernel.op, shape=kernel.shape, family=kernel.family, mode=choice.mode,
        says=choice.says, builds=[build.name for build in choice.builds], runs=len(choice.runs), sm_clock_mhz=line.clock_mhz,
        change=change_json(choice.change) if choice.change else None, run_medians_us=[run.p50_us for run in choice.runs],
        run_p95_us=[run.p95_us for run in choice.runs],
        **({"samples": [make_answer(BaselineRunJson, run, build=run.build.name) for run in choice.runs]} if raw else {}))


def change_json(change: BaselineChange) -> BaselineChangeJson:
    """Return the JSON of what a person said."""
    return make_answer(BaselineChangeJson, change, build=change.build.name if change.build else None,
                       kernel=change.kernel.key if change.kernel else None,
                       author=change.author.get_username() if change.author else None)
