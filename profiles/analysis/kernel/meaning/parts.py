"""Names of Nsight Compute's metrics taken apart: unit, stage, quantity, qualifiers, roll-up, submetric.

    l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum.per_second
    unit   stage                                          roll-up
             quantity                                         submetric
                     qualifiers

Source: Nsight Compute, Kernel Profiling Guide, "Metrics Structure": unit__(subunit)_(stage)_quantity_(qualifiers), behind it a
roll-up (.sum, .avg, .min, .max) with a submetric, or .pct, .ratio, .max_rate. A name may begin with the domain that sampled it
("pmsampling:", "TPC.TriageCompute."), with "derived__" where Nsight Compute computed it, with a unit and "sass_" where instrumented
machine code counted, and end with the instance of one key ("[HMMA]").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from profiles.analysis.kernel import stalls
from profiles.analysis.kernel.meaning.vocabulary import (
    QUALIFIERS,
    QUANTITIES,
    RATIOS,
    ROLLUPS,
    STAGES,
    SUBMETRICS,
    UNITS,
    Quantity,
)

MOST_LETTERS = 400              # of a name: a report is what a stranger sent
_SAMPLED = re.compile(r"pmsampling:|(?:[A-Z]+(?:_[A-Z])?\.)?[A-Z][A-Za-z]+\.(?=\w+__)", re.ASCII)
_KEY = re.compile(r"\[([^\[\]]{1,80})\]$")
MEAN = "mean"
_LONGEST = 12                   # parts between "_" that a key of the vocabulary has at most


@dataclass(frozen=True)
class Parts:
    """What a name says. Words are "" where the vocabulary has none; `unknown` are parts of the name without words."""

    unit: str                       # "l1tex"; "" of a name that is not regular
    quantity: Quantity | None = None
    stage: str = ""                 # words
    qualifiers: tuple[str, ...] = ()    # words, in the order of the name
    unknown: tuple[str, ...] = ()
    rollup: str = ""                # "sum" | "avg" | "min" | "max" | "pct" | "ratio" | "max_rate" | ""
    submetric: str = ""             # "per_second", …
    is_sampled: bool = False        # over the time of the launch
    is_derived: bool = False        # computed of other metrics
    is_instrumented: bool = False   # counted by instrumented machine code
    key: str = ""                   # the instance: "HMMA"

    @property
    def is_known(self) -> bool:
        """Return whether unit and quantity have words."""
        return self.unit in UNITS and self.quantity is not None

    @property
    def count_unit(self) -> str:
        """Return the unit of the number, in Nsight Compute's words: "sector/s"; "" where the name says none."""
        own = self.quantity.unit if self.quantity else ""
        _, shape = RATIOS.get(self.rollup, ("", "")) if self.rollup in RATIOS else SUBMETRICS.get(self.submetric, ("", "{}"))
        if shape == "%":
            return shape
        if self.rollup == "ratio" and not own:
            return "ratio"
        if own == "cycle" and shape != "{}":
            return {"{}/s": "hz"}.get(shape, "ratio")
        if own == "warp" and shape == "{}/cycle":
            return own                      # a state: over cycles it is how many there are
        return shape.format(own) if own or shape == "{}" else shape.format("1")


def parts_of(name: str) -> Parts:
    """Return the parts of a metric's name; with no words at all where the name is not regular."""
    name = name[:MOST_LETTERS]
    sampled = _SAMPLED.match(name)
    rest = name[sampled.end():] if sampled else name
    match = _KEY.search(rest)
    key = match[1] if match else ""
    rest = rest[:match.start()] if match else rest
    base, _, behind = rest.partition(".")
    is_derived = base.startswith("derived__")
    base = base.removeprefix("derived__")
    unit, double, counter = base.partition("__")
    rollup, _, submetric = behind.partition(".")
    if not double or (rollup and rollup not in ROLLUPS and rollup not in RATIOS) or submetric not in SUBMETRICS:
        return Parts("", is_sampled=bool(sampled), is_derived=is_derived, key=key)
    is_instrumented = unit == "sass" or counter.startswith("sass_")
    stage, quantity, qualifiers, unknown = _counter(counter.removeprefix("sass_"))
    return Parts(unit, quantity, stage, qualifiers, unknown, rollup, submetric, bool(sampled), is_derived, is_instrumented, key)


def _counter(counter: str) -> tuple[str, Quantity | None, tuple[str, ...], tuple[str, ...]]:
    """Return stage, quantity, qualifiers and what has no words, of the part of a name between "__" and "."."""
    if (stalled := _stalled(counter)) is not None:
        return "", stalled[0], stalled[1], ()
    quantity: Quantity | None = None
    stage, qualifiers, unknown = "", [], []
    for text, is_quantity in _split(counter.split("_")):
        if is_quantity and (quantity is None or quantity.words == MEAN or QUANTITIES[text].unit in ("", "%")):
            quantity = _joined(quantity, QUANTITIES[text])
        elif text in STAGES and quantity is None and not stage:
            stage = STAGES[text]
        elif text in QUALIFIERS:
            qualifiers.append(QUALIFIERS[text])
        elif text in STAGES and not stage:
            stage = STAGES[text]
        else:
            unknown.append(text)
    return stage, quantity, tuple(qualifiers), tuple(unknown)


def _joined(before: Quantity | None, behind: Quantity) -> Quantity:
    """A rate behind what it is the rate of: "sector … hit_rate" is one quantity."""
    if before is None:
        return behind
    if before.words == MEAN:
        return Quantity(f"{MEAN} {behind.words}", behind.unit)
    return Quantity(f"{behind.words}, of {before.words}", behind.unit) if behind.unit in ("", "%") else behind


def _split(parts: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a counter, as many of them together as the vocabulary has words for, and whether they are a quantity."""
    start = 0
    while start < len(parts):
        for end in range(min(len(parts), start + _LONGEST), start, -1):
            text = "_".join(parts[start:end])
            if text in QUANTITIES or text in QUALIFIERS or (text in STAGES and end < len(parts)):
                yield text, text in QUANTITIES
                break
        else:
            end = start + 1
            yield parts[start], False
        start = end


# what stands before a stall reason -> words, unit, what stands behind it
_STALLED: Mapping[str, tuple[str, str, str]] = {
    "average_warps_issue_stalled_": ("cycles, for each issued instruction, in which warps stood with the reason", "cycle/inst",
                                     "_per_issue_active"),
    "average_warp_latency_issue_stalled_": ("cycles, for each issued instruction, in which a warp stood with the reason",
                                            "cycle/inst", ""),
    "warp_issue_stalled_": ("share of a warp's resident cycles with the reason", "%", "_per_warp_active"),
    "pcsamp_warps_issue_stalled_": ("samples of warps that stood with the reason", "sample", ""),
    "warps_issue_stalled_": ("cycles in which warps stood with the reason", "cycle", ""),
}
_NOT_ISSUED = "_not_issued"


def _stalled(counter: str) -> tuple[Quantity, tuple[str, ...]] | None:
    """Return quantity and qualifiers of a counter of one stall reason, with what the reason means; None of all others."""
    for begin, (words, unit, end) in _STALLED.items():
        if counter.startswith(begin):
            reason = counter.removeprefix(begin).removesuffix(end)
            own = stalls.STALLS.get(reason.removesuffix(_NOT_ISSUED))
            title = reason.removesuffix(_NOT_ISSUED).replace("_", " ")
            phrase = f"“{own.title}” ({own.meaning.rstrip('.')})" if own else f"“{title}”"
            return Quantity(f"{words} {phrase}", unit), (QUALIFIERS["not_issued"],) if reason.endswith(_NOT_ISSUED) else ()
    return None
