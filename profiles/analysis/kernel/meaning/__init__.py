"""What a metric of Nsight Compute means: a sentence, a unit, and which values are good and which are bad, for every name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from profiles.analysis.core.sentences import capital
from profiles.analysis.kernel.meaning.own import NUMBER, own_sentence
from profiles.analysis.kernel.meaning.parts import MOST_LETTERS, Parts, parts_of
from profiles.analysis.kernel.meaning.ranges import range_of
from profiles.analysis.kernel.meaning.vocabulary import RATIOS, ROLLUPS, SUBMETRICS, UNITS

NO_RANGE = "Which values are good is not known here."


@dataclass(frozen=True)
class Meaning:
    """`is_known`: every part of the name has words; else the sentence says which have none."""

    sentence: str
    unit: str                   # of the number, in Nsight Compute's words; "number", "word", "yes/no" of what has none
    range: str                  # which values are good and which are bad
    source: str                 # of the range; "" where none is stated
    is_known: bool

    @property
    def text(self) -> str:
        """Return all of it in lines, as a hover shows it."""
        return f"{self.sentence} Unit: {self.unit}.\n{self.range}" + (f" ({self.source})" if self.source else "")

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"text": self.text}


@lru_cache(8192)
def meaning_of(name: str) -> Meaning:
    """Return the meaning of a metric by its full name, "sm__warps_active.avg.pct_of_peak_sustained_active"."""
    parts = parts_of(name)
    base = name[:MOST_LETTERS].partition("[")[0].partition(".")[0]
    own = own_sentence(base)
    if own is not None:
        sentence, unit = own
        if parts.rollup in ROLLUPS:
            sentence += f" {capital(ROLLUPS[parts.rollup])}."
        return Meaning(sentence, unit, *range_of(base, parts, unit), True)
    if not parts.is_known:
        return Meaning(_unknown_sentence(name, parts), parts.count_unit or NUMBER, NO_RANGE, "", False)
    unit = parts.count_unit or NUMBER
    return Meaning(_sentence(parts), unit, *range_of(_plain_base(name), parts, unit), not parts.unknown)


def meanings(names: Iterable[str]) -> dict[str, Meaning]:
    return {name: meaning_of(name) for name in names}


def _plain_base(name: str) -> str:
    """Return the name from its unit on, without what stands before ("pmsampling:") and behind (".sum")."""
    first = next((part for part in name[:MOST_LETTERS].removeprefix("pmsampling:").split(".") if "__" in part), "")
    return first.partition("[")[0]


def _sentence(parts: Parts) -> str:
    quantity = parts.quantity.words if parts.quantity else ""
    said = capital(quantity)
    if parts.stage:
        said += f", {parts.stage}"
    said += f"; {UNITS[parts.unit]}"
    if parts.qualifiers:
        said += f": {', '.join(parts.qualifiers)}"
    if parts.key:
        said += f": of {parts.key}"
    if parts.unknown:
        said += f". Without words here: {', '.join(f'“{part}”' for part in parts.unknown)}"
    said += ". "
    ends = [ROLLUPS.get(parts.rollup, ""), SUBMETRICS[parts.submetric][0]]
    if parts.rollup in RATIOS:
        ends = [RATIOS[parts.rollup][0]]
    if any(ends):
        said += capital(", ".join(each for each in ends if each)) + ". "
    if parts.is_instrumented:
        said += "Counted by instrumented machine code. "
    if parts.is_sampled:
        said += "Sampled over the time of the launch. "
    if parts.is_derived:
        said += "Computed by Nsight Compute of other metrics. "
    return said.strip()


def _unknown_sentence(name: str, parts: Parts) -> str:
    unit = UNITS.get(parts.unit)
    counter = name[:MOST_LETTERS].partition(".")[0].partition("__")[2] or name[:MOST_LETTERS]
    where = f" of {unit}" if unit else ""
    return f"A counter{where}, without words here: “{counter}”. Its meaning stands in the documentation of the tool that wrote it."
