"""Fresh runs of kernels, the one shape that every source of timings is brought to, and which kernels are compared.

Files of other people's making say a shape as {"M": 4096}, as [4096, 4096] or as "4096x4096", and one side's 4096 may be the
other's 4096.0 (pandas) or "4096" (a CSV file): numbers of one value are one name.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")


def identity_text(*values: Any) -> str:
    """Return a text that is equal for what is the same; the order of names does not count."""
    return json.dumps([_plain(value) for value in values], sort_keys=True, default=str)


def shape_text(value: Any) -> str:
    """{"M": 4096, "N": 64} is "M=4096 N=64", [4096, 64] is "4096×64"."""
    return " ".join(shape_parts(value))


def shape_parts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{name}={shape_text(element)}" for name, element in value.items()]
    if isinstance(value, list | tuple):
        return ["×".join(shape_text(element) for element in value)] if value else []
    return [] if value is None else [str(value)]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(element) for name, element in value.items()} or None          # nothing said, in either way
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    if isinstance(value, str) and NUMBER.fullmatch(value):
        value = float(value) if "." in value else int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True)
class Run:
    """One kernel in one fresh process."""

    run: str                                    # label of the process: kernels of one process share it
    us: NDArray[np.float64]                     # (samples,), µs, in the order taken
    sm_clock_mhz: float | None = None           # median while it was timed; None: not sampled
    gpu: str = ""                               # model
    environment: str = ""                       # "cuda 13.0, triton 3.6.0, driver 580.159"; "": not said
    facts: Mapping[str, Any] = field(default_factory=dict)     # registers, spills, smem_bytes, any metric by name
    id: int | None = None                       # of the row it comes from


@dataclass(frozen=True)
class KernelRuns:
    """All runs of one kernel on one side of a comparison."""

    op: str
    shape: Any = field(default_factory=dict)    # a mapping; in files of other people's making also a list, a text, a number
    config: Any = None                          # a mapping, or the same; None: not said
    key: str = ""                               # of the suite's kernel; "": a file's, told apart by op, shape and config
    runs: Sequence[Run] = ()
    notes: Sequence[str] = ()                   # what the reader had to say: "run 3 was there twice"

    @property
    def name(self) -> str:
        """For people: "matmul M=4096 N=4096 K=4096"."""
        return self.key or " ".join([self.op, *shape_parts(self.shape)])


@dataclass(frozen=True)
class EarlierLevel:
    """Runs of a kernel from before it became faster: what a build that gives the gain back is like."""

    name: str                                   # of its newest build
    runs: Sequence[Run]


@dataclass(frozen=True)
class Pair:
    """One kernel; a side that does not have it is empty."""

    op: str
    shape: Any
    config: Any                                     # of the candidate where it has one
    baseline_config: Any                            # only where it differs
    key: str
    name: str                                       # for people; with its configuration where another pair would be called the same
    baseline: Sequence[KernelRuns]
    candidate: Sequence[KernelRuns]


def pair_kernels(baseline: Sequence[KernelRuns], candidate: Sequence[KernelRuns]) -> list[Pair]:
    """By the suite's key where all have one. Else one (op, shape) is one kernel where both sides hold a single configuration
    of it (they may differ: that is then what is compared), and (op, shape, config) otherwise. In order of first mention."""
    keyed = all(kernel.key for kernel in (*baseline, *candidate)) and not any(map(_has_shared_key, (baseline, candidate)))
    configs: dict[str, tuple[set[str], set[str]]] = {}
    for index, kernels in enumerate((baseline, candidate)):
        for kernel in kernels:
            configs.setdefault(identity_text(kernel.op, kernel.shape), (set(), set()))[index].add(identity_text(kernel.config))
    sides_by_identity: dict[str, tuple[list[KernelRuns], list[KernelRuns]]] = {}
    for index, kernels in enumerate((baseline, candidate)):
        for kernel in kernels:
            problem = identity_text(kernel.op, kernel.shape)
            single = all(len(side) == 1 for side in configs[problem])
            identity = kernel.key if keyed else problem if single else problem + identity_text(kernel.config)
            sides_by_identity.setdefault(identity, ([], []))[index].append(kernel)
    names = Counter((c or b)[-1].name for b, c in sides_by_identity.values())
    return [_make_pair(b, c, names[(c or b)[-1].name] > 1) for b, c in sides_by_identity.values()]


def _has_shared_key(kernels: Sequence[KernelRuns]) -> bool:
    """Whether a file calls two problems by one key: it then tells nothing apart, and their runs must not be mixed."""
    problems: dict[str, str] = {}
    return any(problems.setdefault(kernel.key, problem) != problem
               for kernel in kernels for problem in [identity_text(kernel.op, kernel.shape)])


def _make_pair(baseline: list[KernelRuns], candidate: list[KernelRuns], shared: bool) -> Pair:
    newest = (candidate or baseline)[-1]
    before = baseline[-1].config if baseline and identity_text(baseline[-1].config) != identity_text(newest.config) else None
    name = f"{newest.name} ({', '.join(shape_parts(newest.config))})" if shared else newest.name
    return Pair(newest.op, newest.shape, newest.config, before, newest.key, name, baseline, candidate)
