"""Search methods. A strategy asks for configurations and is told what came of them; it never measures, waits or stores.

A new one is one file and one line in STRATEGIES, and passes tests/conformance.py:StrategyTests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tuner.space import Space
from tuner.strategies.composed import Composed
from tuner.strategies.evolution import Evolutionary
from tuner.strategies.exhaustive import Exhaustive
from tuner.strategies.known import Known, Past
from tuner.strategies.local_search import LocalSearch
from tuner.strategies.model import Model
from tuner.strategies.random_search import RandomSearch
from tuner.trial import Config, Trial


class Strategy(Protocol):
    """What to try next. What is asked depends only on the space, the seed, what is known, and the trials told so far.

    `ask` may come again before earlier asked configurations are told. A strategy may also have
    `facts(found: Mapping[str, Mapping[str, Any]])`: config_key -> registers, spills, smem_bytes, occupancy of
    configurations that were compiled but not timed. `tell_facts` calls it where there is one.
    """

    def ask(self, n: int) -> list[Config]:
        """At most `n` configurations that were neither asked nor told before; empty when there is none left."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """Trials in the order they were known: also those of an earlier attempt, which were never asked here."""
        ...


@dataclass(frozen=True)
class Method:
    """One line of the table: how to make the strategy, and what a person reads before choosing it."""

    title: str
    explanation: str
    maker: Callable[[Space, np.random.Generator, Known], Strategy]
    transfers: bool = False            # learns from `Known.past` itself; others may be given its winners to start from

    def make(self, space: Space, rng: np.random.Generator, known: Known | None = None) -> Strategy:
        return self.maker(space, rng, known or Known())


def tell_facts(strategy: Strategy, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Static facts of configurations by key, for the strategies that learn from them."""
    facts = getattr(strategy, "facts", None)
    if facts is not None:
        facts(found)


STRATEGIES: dict[str, Method] = {
    "default": Method(
        "Default",
        "Tries the operator's own configuration first, then what a model of the times proposes. The model starts from what "
        "holds for any GPU kernel and from what was measured on other shapes and GPUs, and learns from every trial; every "
        "fourth trial is a neighbour of the fastest, in case the model is wrong.",
        Composed, transfers=True),
    "model": Method(
        "Model",
        "Bayesian optimisation: a Gaussian process learns the times and proposes the configuration with the largest "
        "expected gain. It knows nothing of other shapes.",
        Model),
    "evolutionary": Method(
        "Evolution",
        "Children of the fastest configurations: each parameter from either parent, now and then one step further. "
        "Needs more trials than a model, and assumes less.",
        Evolutionary),
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
        "Every valid configuration, in order. Sure, and slow: give it a budget as large as the space.",
        Exhaustive),
}
DEFAULT = "default"

__all__ = ["DEFAULT", "STRATEGIES", "Known", "Method", "Past", "Strategy", "tell_facts"]
