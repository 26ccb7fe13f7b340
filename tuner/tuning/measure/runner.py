"""The contract between the search loop and what measures: a GPU child or a recorded landscape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tuner.tuning.offer import Offer
from tuner.tuning.trial import Config, Outcome, Rejected


@dataclass(frozen=True)
class Session:
    """What the runner reports on opening: it is stored with every number."""

    gpu: str                                  # "NVIDIA H200"
    compute_capability: str | None
    recorded: str = ""                        # "recorded on NVIDIA H200, …": empty when measured now
    environment: dict[str, Any] = field(default_factory=dict)   # driver, cuda, torch, triton
    policy: dict[str, Any] = field(default_factory=dict)        # how times are taken: cold_l2, warmup, samples, clock sampling
    library_ms: float | None = None           # cuBLAS / torch, same session
    flops: int | None = None                  # of the algorithm at this shape
    bytes: int | None = None
    offer: Offer | None = None                # of an operator whose space the GPU's machine lists


OTHER_CARD = 1.03          # configurations recorded on one H200 came within 2 % on another one, but for one shape of 16 rows


@dataclass(frozen=True)
class Incumbent:
    """The fastest configuration so far, and its own samples: what a new one races against."""

    median_ms: float
    samples_ms: tuple[float, ...] = ()

    def for_other_card(self) -> Incumbent:
        """Return a reference for another card or session, slower by what cards differ at most."""
        return Incumbent(self.median_ms * OTHER_CARD, tuple(ms * OTHER_CARD for ms in self.samples_ms))


@dataclass(frozen=True)
class SessionUse:
    """Seconds of a session so far; the GPU is busy while a configuration is checked or timed."""

    wall_s: float = 0.0                # since open() was called
    open_s: float = 0.0                # … of which went by before the first configuration could be asked for
    busy_s: float = 0.0                # … in which a configuration or the finalists held the GPU
    waited_s: float = 0.0              # … in which it had nothing to do, as nothing was compiled
    load_s: float = 0.0                # … in which binaries that were compiled ahead were put onto it
    compile_s: float = 0.0             # summed over the processes that compiled
    compiled: int = 0                  # configurations that the compile processes answered
    compilers: int = 0                 # processes that compile at the same time; 0: the measuring child compiles itself
    replaced: int = 0                  # children that died, hung or were killed

    @property
    def busy_share(self) -> float | None:
        """Return the busy share of the time since the first configuration; None before it."""
        searched_s = self.wall_s - self.open_s
        return self.busy_s / searched_s if searched_s > 0 and self.busy_s else None


class Runner(Protocol):
    """Measures configurations of one operator at one shape."""

    @property
    def ahead(self) -> int:
        """Return how many configurations may wait for the GPU; 1: one after the other."""
        ...

    def open(self) -> Session: ...

    def measure(self, configs: Sequence[Config], incumbent: Incumbent | None = None) -> Iterator[tuple[Config, Outcome]]:
        """Yield one outcome per configuration, as each is known. Never raises for a bad configuration.

        With an incumbent a configuration may be given up as soon as it is clearly slower: facts["ended"] is "raced".
        """
        ...

    def finalists(self, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
        """Measure these again, interleaved, in one session (a replay returns its recorded values)."""
        ...

    def stop(self) -> None:
        """Called from another thread: `measure` ends within a second and yields nothing for what was not finished."""
        ...

    def close(self) -> None: ...


Compiled = tuple[Config, Mapping[str, Any] | Rejected]      # with its static facts, or why it cannot run


@runtime_checkable
class CompilingRunner(Protocol):
    """A runner with compilers that work while the GPU measures (`ahead` above 1)."""

    def compile_ahead(self, configs: Sequence[Config]) -> None:
        """Begin to compile these; returns at once."""
        ...

    def take_compiled(self, wait_s: float) -> list[Compiled] | None:
        """Return what compiled since the last call, waiting up to `wait_s`; None: told to stop."""
        ...

    def forget(self) -> None:
        """Stop compiling what was asked."""
        ...

    def use(self) -> SessionUse: ...
