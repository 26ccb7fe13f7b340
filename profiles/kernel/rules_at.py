"""Which chart each of NVIDIA's rules explains, by the section of the report that it stands in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# part of the page -> beginnings of section identifiers; the longest that fits decides
SECTIONS = {
    "speed": ("SpeedOfLight",), "roofline": ("SpeedOfLight_",), "memory": ("Memory", "Nvlink", "NumaAffinity", "C2CLink"),
    "stalls": ("WarpState", "Scheduler"), "occupancy": ("Occupancy", "LaunchStats", "WorkloadDistribution"),
    "pipes": ("ComputeWorkload", "InstructionStats", "Tile"), "source": ("SourceCounters",), "sampling": ("PmSampling",),
}
_PART = {beginning: part for part, beginnings in SECTIONS.items() for beginning in beginnings}


def part_of(section: str) -> str:
    """Return the part of the page that a section's rules stand at, "" where none is known: those stand under Rules only."""
    fits = [beginning for beginning in _PART if section.startswith(beginning)]
    return _PART[max(fits, key=len)] if fits else ""


def rules_at(rules: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rules of each part, in the order given."""
    placed: dict[str, list[Mapping[str, Any]]] = {part: [] for part in SECTIONS}
    for rule in rules:
        if part := part_of(rule["section"]):
            placed[part].append(rule)
    return placed
