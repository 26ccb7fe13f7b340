"""The contract between the search loop and whatever measures: a GPU child, or a recorded landscape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tuner.trial import Config, Outcome


@dataclass(frozen=True)
class Session:
    """What the runner found when it opened: everything that must travel with its numbers."""

    gpu: str                                  # "NVIDIA H200"
    compute_capability: str | None
    recorded: str = ""                        # "recorded on NVIDIA H200, …": empty when measured now
    environment: dict[str, Any] = field(default_factory=dict)   # driver, cuda, torch, triton
    policy: dict[str, Any] = field(default_factory=dict)        # how times are taken: cold_l2, warmup, samples, clock sampling
    library_ms: float | None = None           # cuBLAS / torch, same session
    flops: int | None = None                  # of the algorithm at this shape
    bytes: int | None = None


class Runner(Protocol):
    """Measures configurations of one operator at one shape."""

    def open(self) -> Session: ...

    def measure(self, configs: Sequence[Config]) -> Iterator[tuple[Config, Outcome]]:
        """Yield one outcome per configuration, as each is known. Never raises for a bad configuration."""
        ...

    def finalists(self, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
        """Measure these again, interleaved, in one session (a replay returns its recorded values)."""
        ...

    def stop(self) -> None:
        """Called from another thread: `measure` ends within a second and yields nothing for what was not finished."""
        ...

    def close(self) -> None: ...
