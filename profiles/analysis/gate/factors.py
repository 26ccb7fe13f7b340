"""Where a fresh run was taken, factor by factor, and what is told of one: its effect on a kernel's time, with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FACTORS = ("build", "cuda", "triton", "driver", "gpu")      # the first is the team's code, the others are the environment
FLOOR = 0.01               # an effect that is smaller is told with its interval, and blamed for nothing

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
    def text(self) -> str:
        return percent(self.ratio)

    @property
    def interval_text(self) -> str:
        return f"{percent(self.low)} … {percent(self.high)}" if self.low is not None else ""

    @property
    def sure(self) -> bool:
        """Whether the whole interval lies on one side of 1 and the effect is worth blaming."""
        return self.low is not None and self.high is not None and self.ratio is not None \
            and (self.low > 1 or self.high < 1) and abs(self.ratio - 1) >= FLOOR


def percent(ratio: float | None) -> str:
    """1.031 → "+3.10 %"."""
    return "—" if ratio is None else f"{100 * (ratio - 1):+.2f} %".replace("-", "−")


def level_of(one: Observation, factor: str) -> str:
    return str(one.factors.get(factor) or "unknown")
