"""Other people's search methods as players of bench.search.arena: Kernel Tuner's and Optuna's, with their own defaults.

Kernel Tuner's strategies run as in its simulation mode: a configuration seen before costs nothing, a failed one costs what
its failure took. Loaded only in the environment that `make bench-tuner` makes.
"""

from __future__ import annotations

import importlib
import random
import time
from functools import lru_cache
from typing import Any

import numpy as np
from kernel_tuner import util
from kernel_tuner.interface import Options
from kernel_tuner.searchspace import Searchspace

from bench.search.arena import Arena, Clock, Player

CPU_LIMIT_S = 60.0        # a search that circles in what it knows is ended
MAX_ASKS = 20_000         # of Optuna, invalid combinations counted


class _Budget:
    """What Kernel Tuner asks of its budget, answered from the arena's clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.began = time.thread_time()

    def is_done(self) -> bool:
        return self.clock.is_over or time.thread_time() - self.began > CPU_LIMIT_S

    def raise_exception_if_done(self) -> None:
        if self.is_done():
            raise util.StopCriterionReached("the budget is spent")

    def get_fraction_consumed(self) -> float:
        return min(1.0, self.clock.spent)

    def get_evaluations_spent(self) -> int:
        return len(self.clock.ms)

    def add_evaluations(self, n: int = 1) -> None:
        pass


class _Runner:
    """Answers from the recording; what was asked before is free, as in Kernel Tuner's own simulation."""

    def __init__(self, arena: Arena, clock: Clock) -> None:
        self.arena, self.clock = arena, clock
        self.known: dict[int, float] = {}
        self.names = [param.name for param in arena.space.params]

    def add_strategy_time(self, seconds: float) -> None:
        pass                                # the clock counts it

    def available_parallelism(self) -> int:
        return 1

    def run(self, configs: Any, options: Any) -> list[dict[str, Any] | None]:
        results: list[dict[str, Any] | None] = []
        for values in configs:
            if options.budget.is_done():
                results.append(None)
                continue
            config = dict(zip(self.names, values, strict=True))
            row = self.arena.space.row(config)
            if row is None:
                results.append({**config, "__error__": util.InvalidConfig(), "time": util.InvalidConfig()})
                continue
            if row not in self.known:
                self.known[row] = self.clock.evaluate(row)
            ms = self.known[row]
            failed = {"__error__": util.RuntimeFailedConfig(), "time": util.RuntimeFailedConfig()}
            results.append({**config, **(failed if np.isnan(ms) else {"time": ms})})
        return results


@lru_cache(maxsize=1)
def _searchspace(name: str, arena: Any) -> Searchspace:
    params = {param.name: list(param.values) for param in arena.value.space.params}
    cache = {str(row): config for row, config in enumerate(arena.value.space.configs())}
    return Searchspace(None, None, None, from_cache={"tune_params": params, "cache": cache})


class _Held:
    """An arena by its name: `lru_cache` wants something that hashes."""

    def __init__(self, value: Arena) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.value.name == self.value.name


def kernel_tuner(module: str) -> Player:
    strategy = importlib.import_module(f"kernel_tuner.strategies.{module}")

    def search(arena: Arena, seed: int, clock: Clock) -> None:
        random.seed(seed)
        np.random.seed(seed)
        searchspace = _searchspace(arena.name, _Held(arena))
        options = Options({
            "strategy_options": Options({}), "budget": _Budget(clock), "objective": ["time"],
            "objective_higher_is_better": [False], "cache": {}, "metrics": None, "restrictions": None, "verbose": False,
            "tune_params": searchspace.tune_params})
        strategy.tune(searchspace, _Runner(arena, clock), options)

    return search


def optuna_tpe(arena: Arena, seed: int, clock: Clock) -> None:
    """Optuna's TPE over the indices of each parameter's values; combinations that are not in the space count as infinitely slow."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    row_of = {tuple(indices): row for row, indices in enumerate(arena.space.rows.tolist())}
    known: dict[int, float] = {}
    began = time.thread_time()
    for _ in range(MAX_ASKS):
        if clock.is_over or time.thread_time() - began > CPU_LIMIT_S:
            return
        trial = study.ask()
        indices = tuple(_suggested(trial, param) for param in arena.space.params)
        row = row_of.get(indices)
        if row is not None and row not in known:
            known[row] = clock.evaluate(row)
        ms = known.get(row, np.nan) if row is not None else np.nan
        study.tell(trial, float("inf") if np.isnan(ms) else ms)


def _suggested(trial: Any, param: Any) -> int:
    if param.ordered:
        return int(trial.suggest_int(param.name, 0, len(param.values) - 1))
    return int(trial.suggest_categorical(param.name, list(range(len(param.values)))))


REFERENCES: dict[str, tuple[str, Player]] = {
    "kt_genetic_algorithm": ("Kernel Tuner: genetic algorithm", kernel_tuner("genetic_algorithm")),
    "kt_diff_evo": ("Kernel Tuner: differential evolution", kernel_tuner("diff_evo")),
    "kt_basinhopping": ("Kernel Tuner: basin hopping", kernel_tuner("basinhopping")),
    "optuna_tpe": ("Optuna: TPE", optuna_tpe),
}
