"""The one shape of an operator: plain functions and facts, collected in a frozen record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tuner.operators.limits import Limits
from tuner.space import Space
from tuner.trial import Config, Value

Shape = Mapping[str, int]
BYTES = {"fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True)
class Dim:
    """One number of a shape."""

    name: str
    meaning: str
    low: int = 1
    high: int = 1 << 20
    exact: bool = False                # the kernel's code depends on it: never rounded into a bucket
    only: tuple[int, ...] = ()         # when only these make sense

    def problem(self, value: object) -> str | None:
        """Why `value` cannot be this dimension, and what could."""
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{self.name} ({self.meaning}) must be a whole number"
        if self.only and value not in self.only:
            return f"{self.name} ({self.meaning}) must be one of {', '.join(map(str, self.only))}"
        if not self.low <= value <= self.high:
            return f"{self.name} ({self.meaning}) must be between {self.low:,} and {self.high:,}"
        return None


@dataclass(frozen=True)
class Operator:
    name: str
    title: str
    dims: tuple[Dim, ...]
    dtypes: tuple[str, ...]                                   # the first is the default
    presets: tuple[Shape, ...]
    space: Callable[[Shape, str, Limits], Space]
    default_config: Callable[[Shape, str, Limits], Config]
    flops: Callable[[Shape], int]                             # of the algorithm, a multiply-add is 2
    bytes: Callable[[Shape, str], int]                        # each input read once, each output written once
    kernel_module: str                                        # imported by the GPU child only
    kernel_names: tuple[str, ...]                             # what it is called in profiles
    tolerance: Mapping[str, float]                            # dtype -> largest error, see tuner.bench.accuracy
    unit: str                                                 # what a person compares: "FLOP/s" or "B/s"
    absent: Mapping[str, Value] = field(default_factory=dict)  # value of a parameter that a configuration does not name
    starts: Callable[[Shape, str, Limits], tuple[Config, ...]] | None = None   # published designs, worth trying early
    together: Callable[[Shape, str], dict[str, str]] | None = None   # field → problem, when each number alone is fine

    def complete(self, config: Config) -> dict[str, Value]:
        """The configuration with every parameter named: those recorded or written before a parameter existed lack it."""
        return {**self.absent, **config}

    def default_in(self, space: Space, shape: Shape, dtype: str, gpu: Limits) -> Config | None:
        """The default configuration as `space` spells it; a recorded landscape may not know all parameters. None: not there."""
        config = self.default_config(shape, dtype, gpu)
        if config in space:
            return config
        names = {param.name for param in space.params}
        short = {name: value for name, value in config.items() if name in names or value != self.absent.get(name)}
        return short if short in space else None

    def published(self, space: Space, shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
        """The designs of `starts` that the space has."""
        return tuple(config for config in (self.starts(shape, dtype, gpu) if self.starts else ()) if config in space)

    def problems(self, shape: Mapping[str, object], dtype: str) -> dict[str, str]:
        """Field -> why it is invalid; empty when the operator takes this shape and dtype."""
        found = {dim.name: problem for dim in self.dims if (problem := dim.problem(shape.get(dim.name)))}
        unknown = sorted(set(shape) - {dim.name for dim in self.dims})
        if unknown:
            found["shape"] = f"{self.name} has no {', '.join(map(_shown, unknown))}; it has {', '.join(d.name for d in self.dims)}"
        if dtype not in self.dtypes:
            found["dtype"] = f"{self.name} takes {', '.join(self.dtypes)}"
        if not found and self.together is not None:
            found |= self.together({name: value for name, value in shape.items() if isinstance(value, int)}, dtype)
        return found


def power_of_two_at_least(value: int) -> int:
    return 1 << max(0, value - 1).bit_length()


def _shown(name: object) -> str:
    """Of a name that somebody sent: short, and of characters that every answer can hold."""
    return str(name)[:40].encode("ascii", "backslashreplace").decode()
