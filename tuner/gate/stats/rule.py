"""The rule of a verdict: its thresholds, the five words that a gate can say, their order and their exit codes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    PASS = "PASS"
    SLOWER = "SLOWER"
    FASTER = "FASTER"
    AMBIGUOUS = "AMBIGUOUS"        # cannot be told apart from either side: more fresh runs decide
    NO_DATA = "NO DATA"


ORDER = (Verdict.SLOWER, Verdict.AMBIGUOUS, Verdict.NO_DATA, Verdict.FASTER, Verdict.PASS)   # a suite's verdict is the first it has
# beside a verdict's colour, or without one
SIGN: Mapping[str, str] = {
    Verdict.SLOWER: "▲", Verdict.FASTER: "▼", Verdict.AMBIGUOUS: "?", Verdict.NO_DATA: "∅", Verdict.PASS: "✓"}
EXIT_CODE = {Verdict.PASS: 0, Verdict.FASTER: 0, Verdict.SLOWER: 1, Verdict.AMBIGUOUS: 2, Verdict.NO_DATA: 2}
ERROR_EXIT_CODE = 3


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that comes first in ORDER; NO DATA for a suite without kernels."""
    return min(verdicts, key=ORDER.index, default=Verdict.NO_DATA)


def finite_number(value: Any) -> float | None:
    """Return a finite number as it is, else None; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


@dataclass(frozen=True)
class Rule:
    """Ratios of candidate to baseline, as fractions: 0.05 is 5 % slower. The mean has the p50's target and floor."""

    target: float = 0.05           # of the p50: what the gate exists to stop
    floor: float = 0.02            # of the p50: no smaller change is called SLOWER, however sure it is
    target_p95: float = 0.10
    floor_p95: float = 0.05
    alpha: float = 0.01            # of a false SLOWER, for the whole suite
    beta: float = 0.05             # of passing a kernel that is slower by the target, for each kernel
    believable: float = 5.0        # times: a p50 that changes by more is looked at as a slip of units first


# what each may be: a target of nothing, or a risk that is certain, asks for no number of runs
RANGES: Mapping[str, tuple[float, float]] = {
    "target": (1e-4, 10.0), "floor": (0.0, 10.0), "target_p95": (1e-4, 10.0), "floor_p95": (0.0, 10.0), "alpha": (1e-9, 0.5),
    "beta": (1e-9, 0.5), "believable": (1.5, 1e6)}


def rule_of(*given: Mapping[str, Any]) -> Rule:
    """Return the rule that the numbers among these fields make, else the defaults. Later ones count before earlier ones."""
    return Rule(**{name: number for fields in given for name, value in fields.items()
                   if name in RANGES and (number := finite_number(value)) is not None})
