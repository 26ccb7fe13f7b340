"""Every number of a kernel's page under a key of its own, so that another result's number can stand beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """`key`: "pipe:FMA", the same of every result. `unit`: as the page writes it, "pct" and "bytes" included."""

    key: str
    tab: str
    label: str
    value: float
    unit: str


@dataclass(frozen=True)
class Versus:
    """A measure beside the baseline's. `change_pct` None: the baseline's is zero."""

    measure: Measure
    baseline: float
    change_pct: float | None

    @property
    def css(self) -> str:
        """Return the baseline's share for a style attribute: locale-free, within the track."""
        return f"{min(100.0, max(0.0, self.baseline)):.2f}"


def measures(page: Mapping[str, Any]) -> dict[str, Measure]:
    """Return the numbers of a page made by `counters.selectors.kernel_page`."""
    found: dict[str, Measure] = {}

    def add(tab: str, key: str, label: str, value: Any, unit: str) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found.setdefault(key, Measure(key, tab, label, float(value), unit))

    kernel, whole = page["kernel"], page["whole"]
    for name, label in (("total_ns", "Total"), ("mean_ns", "Mean"), ("p50_ns", "p50"), ("p95_ns", "p95"), ("min_ns", "Shortest"),
                        ("max_ns", "Longest")):
        add("launches", f"time:{name}", label, getattr(kernel, name), "ns")
    add("launches", "time:launches", "Launches", kernel.launches, "")
    if whole is None:
        return found
    add("", "head:roof", "Of its roof", whole.point.roof_pct, "pct")
    add("", "head:occupancy", "Occupancy", whole.occupancy.achieved_pct, "pct")
    for bar in page["sol"]:
        add("", f"sol:{bar['label']}", bar["label"], bar["pct"], "pct")
    for each in page["sides"]:
        for part in each["side"].parts:
            add("", f"part:{part.metric}", part.title, part.pct, "pct")
    for each in page["judged"]:
        add("", f"judged:{each.measure.metric}", each.measure.label, each.value, "pct")
    for part in page["work"]:
        add("", f"work:{part['name']}", part["name"], part["flop"], "FLOP")
    add("", "work:dram", "DRAM traffic", whole.point.dram_bytes, "bytes")
    add("", "work:sm_clock", "SM clock", whole.sm_clock_hz, "Hz")
    _memory(page, add)
    _warps(page, add)
    for each in page["parameters"]:
        add("launches", f"parameter:{each['label']}", each["label"], each["value"], "bytes" if each["unit"] == "B" else "")
    for section in page["detail_sections"]:
        for each in section["lines"]:
            add("raw", f"detail:{each['line'].metric}", each["line"].label, each["line"].value, each["unit"])
    return found


def _memory(page: Mapping[str, Any], add: Any) -> None:
    for link in page["anatomy"].chart.links:
        add("memory", f"link:{link.source}:{link.target}", f"{link.source} to {link.target}", link.amount,
            "bytes" if link.unit == "B" else link.unit)
    for name, place in page["anatomy"].chart.places.items():
        add("memory", f"place:{name}", place.title, place.pct, "pct")
        add("memory", f"hit:{name}", f"{place.title} hit rate", place.hit_pct, "pct")
    for table in page["memory_tables"]:
        for row in table["rows"]:
            for value, unit, is_text, key in row:
                if not is_text:
                    add("memory", key, key.removeprefix("table:").replace(":", ", "), value, unit)


def _warps(page: Mapping[str, Any], add: Any) -> None:
    whole, anatomy = page["whole"], page["anatomy"]
    add("warps", "occupancy:theoretical", "Occupancy at most", whole.occupancy.theoretical_pct, "pct")
    for limit in page["limits"]:
        add("warps", f"limit:{limit['name']}", limit["name"], limit["blocks"], "")
    for each in page["shares"]:
        add("warps", f"share:{each['share'].unit}", f"{each['share'].unit} active", each["active_pct"], "pct")
    for step in page["issue_steps"]:
        add("warps", f"step:{step['name']}", step["name"], step["warps"], "")
    for stall in page["stalls"]:
        add("warps", f"stall:{stall['reason']}", stall["known"].title, stall["cycles"], "")
        add("warps", f"stallshare:{stall['reason']}", stall["known"].title, stall["share_pct"], "pct")
    for pipe in anatomy.pipes:
        add("warps", f"pipe:{pipe.name}", pipe.name, pipe.pct, "pct")
    if anatomy.mix:
        for opcode in anatomy.mix.opcodes:
            add("warps", f"opcode:{opcode.name}", opcode.name, opcode.warps, "")
        for group, _, share in anatomy.mix.groups:
            add("warps", f"group:{group}", group, share, "pct")


def versus(page: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, Versus]:
    """Return every number that both results have, with the change from the baseline."""
    mine, other = measures(page), measures(baseline)
    return {key: Versus(each, other[key].value, 100.0 * (each.value / other[key].value - 1.0) if other[key].value else None)
            for key, each in mine.items() if key in other}
