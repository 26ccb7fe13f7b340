"""Which kernel of the candidate is compared with which of the baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from profiles.analysis.gate.names import parts, same
from profiles.analysis.gate.runs import KernelRuns


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


def pairs(baseline: Sequence[KernelRuns], candidate: Sequence[KernelRuns]) -> list[Pair]:
    """By the suite's key where all have one. Else one (op, shape) is one kernel where both sides hold a single configuration
    of it (they may differ: that is then what is compared), and (op, shape, config) otherwise. In order of first mention."""
    keyed = all(kernel.key for kernel in (*baseline, *candidate)) and not any(map(_shares, (baseline, candidate)))
    configs: dict[str, tuple[set[str], set[str]]] = {}
    for at, kernels in enumerate((baseline, candidate)):
        for kernel in kernels:
            configs.setdefault(same(kernel.op, kernel.shape), (set(), set()))[at].add(same(kernel.config))
    found: dict[str, tuple[list[KernelRuns], list[KernelRuns]]] = {}
    for at, kernels in enumerate((baseline, candidate)):
        for kernel in kernels:
            problem = same(kernel.op, kernel.shape)
            single = all(len(side) == 1 for side in configs[problem])
            identity = kernel.key if keyed else problem if single else problem + same(kernel.config)
            found.setdefault(identity, ([], []))[at].append(kernel)
    names = Counter((c or b)[-1].name for b, c in found.values())
    return [_pair(b, c, names[(c or b)[-1].name] > 1) for b, c in found.values()]


def _shares(kernels: Sequence[KernelRuns]) -> bool:
    """Whether a file calls two problems by one key: it then tells nothing apart, and their runs must not be mixed."""
    problems: dict[str, str] = {}
    return any(problems.setdefault(kernel.key, problem) != problem
               for kernel in kernels for problem in [same(kernel.op, kernel.shape)])


def _pair(baseline: list[KernelRuns], candidate: list[KernelRuns], shared: bool) -> Pair:
    newest = (candidate or baseline)[-1]
    before = baseline[-1].config if baseline and same(baseline[-1].config) != same(newest.config) else None
    name = f"{newest.name} ({', '.join(parts(newest.config))})" if shared else newest.name
    return Pair(newest.op, newest.shape, newest.config, before, newest.key, name, baseline, candidate)
