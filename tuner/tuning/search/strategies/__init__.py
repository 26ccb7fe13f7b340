"""Search methods: a strategy proposes configurations and is told outcomes; it measures nothing.

A new one is one file and one line in STRATEGIES, and passes tests/tuner/search/conformance.py:StrategyTests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tuner.tuning.search.strategies.evolution import EvolutionarySearch
from tuner.tuning.search.strategies.fixed_order import ExhaustiveSearch, RandomSearch
from tuner.tuning.search.strategies.local_search import LocalSearch
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Trial


class Strategy(Protocol):
    """Proposes what to try next, from the space, the seed, prior knowledge and the trials told.

    `ask` may come again before earlier asked configurations are told. A strategy may also have
    `tell_facts(facts: Mapping[str, Mapping[str, Any]])`: config_key -> registers, spills, smem_bytes, occupancy of
    configurations that were compiled but not timed. The function `tell_facts` calls it where there is one.
    """

    def ask(self, n: int) -> list[Config]:
        """Return at most `n` configurations never asked or told before; empty when none is left."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take trials in the order they were known, those of earlier attempts included."""
        ...


@dataclass(frozen=True)
class Method:
    """One line of the table: a strategy's maker, title and explanation."""

    title: str
    explanation: str
    maker: Callable[[Space, np.random.Generator, PriorKnowledge], Strategy]
    transfers: bool = False            # learns from `Known.past` itself; others may be given its winners to start from
    whole_space: bool = False          # ends with the space or its budget: a plateau says nothing about what is left

    def make(self, space: Space, rng: np.random.Generator, prior: PriorKnowledge | None = None) -> Strategy:
        """Return a new strategy over `space`."""
        return self.maker(space, rng, prior or PriorKnowledge())


def tell_facts(strategy: Strategy, facts_by_key: Mapping[str, Mapping[str, Any]]) -> None:
    """Give a strategy that learns from them the static facts of configurations, by key."""
    tell = getattr(strategy, "tell_facts", None)
    if tell is not None:
        tell(facts_by_key)


# The two that model the times load scipy: where they are made, and not wherever the table is read.
def _make_composed(space: Space, rng: np.random.Generator, prior: PriorKnowledge) -> Strategy:
    from tuner.tuning.search.strategies.composed import ComposedSearch

    return ComposedSearch(space, rng, prior)


def _make_model(space: Space, rng: np.random.Generator, prior: PriorKnowledge) -> Strategy:
    from tuner.tuning.search.strategies.model import ModelSearch

    return ModelSearch(space, rng, prior)


STRATEGIES: dict[str, Method] = {
    "default": Method(
        "Default",
        "Tries the operator's own configuration first, then what a model of the times proposes. The model starts from what "
        "holds for any GPU kernel and from what was measured on other shapes and GPUs, and learns from every trial; every "
        "fourth trial is a neighbour of the fastest, in case the model is wrong.",
        _make_composed, transfers=True),
    "model": Method(
        "Model",
        "Bayesian optimisation: a Gaussian process learns the times and proposes the configuration with the largest "
        "expected gain. It knows nothing of other shapes.",
        _make_model),
    "evolutionary": Method(
        "Evolution",
        "Children of the fastest configurations: each parameter from either parent, now and then one step further. "
        "Needs more trials than a model, and assumes less.",
        EvolutionarySearch),
    "local": Method(
        "Local search",
        "Starts from a few well-spread configurations, then walks from the fastest ones to their neighbours, "
        "one parameter at a time; keeps looking elsewhere now and then.",
        LocalSearch),
    "random": Method(
        "Random",
        "Every valid configuration is equally likely. The baseline that the others must beat.",
        RandomSearch),
    "exhaustive": Method(
        "Exhaustive",
        "Every valid configuration, in order. Sure, and slow: give it a budget as large as the space. "
        "Trials without a gain do not end it.",
        ExhaustiveSearch, whole_space=True),
}
DEFAULT = "default"


def plateau_of(strategy: str, plateau: int | None) -> int | None:
    """Return the trials without a gain that end a search by `strategy`; None where they do not."""
    method = STRATEGIES.get(strategy)
    return None if method is not None and method.whole_space else plateau
