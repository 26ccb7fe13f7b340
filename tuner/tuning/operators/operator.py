"""The record of an operator: plain functions and facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tuner.tuning.operators.limits import Limits
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Value

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
        """Return why `value` cannot be this dimension; None when it can."""
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{self.name} ({self.meaning}) must be a whole number"
        if self.only and value not in self.only:
            return f"{self.name} ({self.meaning}) must be one of {', '.join(map(str, self.only))}"
        if not self.low <= value <= self.high:
            return f"{self.name} ({self.meaning}) must be between {self.low:,} and {self.high:,}"
        return None


def _one(shape: Shape) -> int:
    return 1


@dataclass(frozen=True)
class Operator:
    """What the tuner needs to know of an operator."""
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
    tolerance: Mapping[str, float]                            # dtype -> largest error, see tuner.tuning.measure.accuracy
    unit: str                                                 # what a person compares: "FLOP/s" or "B/s"
    default_name: str = "the default"                         # … configuration, as a sentence says it
    library: str = "the library"                              # what it is compared with, as a sentence says it
    absent: Mapping[str, Value] = field(default_factory=dict)  # value of a parameter that a configuration does not name
    unread: Mapping[str, Value] = field(default_factory=dict)  # … of one that older configurations name and no kernel reads
    starts: Callable[[Shape, str, Limits], tuple[Config, ...]] | None = None   # published designs, worth trying early
    held: Callable[[Shape, Config], int] | None = None        # 4-byte values that each thread holds at once, at least
    together: Callable[[Shape, str], dict[str, str]] | None = None   # field → problem, when each number alone is fine
    listed_on_gpu: bool = False        # its space is what the GPU's machine lists (tuner.tuning.offer); `space` is empty until then
    apply_text: Callable[[Config], str] | None = None      # what applies a configuration, to paste; None: Triton's own text
    gpus: Callable[[Shape], int] = _one                       # of a host that a launch runs on
    # parameter → values with which one program keeps an SM busy: its warps are specialised
    fills_sm: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    version: str = ""                  # of an own kernel the hash of its files: another text is another operator
    newest: bool = True                # False: an older version, which forms do not offer any more
    parameters: tuple[str, ...] = ()   # in the order people write them, where `default_config` does not name them

    @property
    def on_several_gpus(self) -> bool:
        """Return whether a launch runs on more than one GPU at some shape."""
        return any(self.gpus(shape) > 1 for shape in self.presets)

    def named(self, config: Config) -> dict[str, Value]:
        """Return the configuration with every parameter named; older ones lack newer parameters."""
        return {**self.absent, **config}

    def complete(self, config: Config) -> dict[str, Value]:
        """Return the configuration as the space spells it; older ones also name parameters that nothing reads any more."""
        return {**self.named(config), **self.unread}

    def default_in(self, space: Space, shape: Shape, dtype: str, gpu: Limits) -> Config | None:
        """Return the default configuration as `space` spells it; None where it lacks it."""
        config = self.default_config(shape, dtype, gpu)
        if config in space:
            return config
        names = {param.name for param in space.params}
        short = {name: value for name, value in config.items() if name in names or value != self.absent.get(name)}
        return short if short in space else None

    def published_starts(self, space: Space, shape: Shape, dtype: str, gpu: Limits) -> tuple[Config, ...]:
        """Return the designs of `starts` that the space has."""
        return tuple(config for config in (self.starts(shape, dtype, gpu) if self.starts else ()) if config in space)

    def problems(self, shape: Mapping[str, object], dtype: str) -> dict[str, str]:
        """Return field -> why it is invalid; empty when the operator takes shape and dtype."""
        problems = {dim.name: problem for dim in self.dims if (problem := dim.problem(shape.get(dim.name)))}
        unknown = sorted(set(shape) - {dim.name for dim in self.dims})
        if unknown:
            problems["shape"] = (f"{self.name} has no {', '.join(map(_safe_name, unknown))}; "
                                 f"it has {', '.join(d.name for d in self.dims)}")
        if dtype not in self.dtypes:
            problems["dtype"] = f"{self.name} takes {', '.join(self.dtypes)}"
        if not problems and self.together is not None:
            problems |= self.together({name: value for name, value in shape.items() if isinstance(value, int)}, dtype)
        return problems


def power_of_two_at_least(value: int) -> int:
    """Return the smallest power of two not below `value`."""
    return 1 << max(0, value - 1).bit_length()


def _safe_name(name: object) -> str:
    """Return a sent name shortened, in ASCII."""
    return str(name)[:40].encode("ascii", "backslashreplace").decode()
