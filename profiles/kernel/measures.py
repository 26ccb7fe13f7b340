"""Every number of a kernel's page under a key of its own, so that another result's number can stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from profiles.base.numbers import finite_number
from profiles.counters.kernel_page import KernelPage


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


Found = Iterator[tuple[str, str, Any, str]]      # what follows the kind in the key, label, value, unit


def _time(page: KernelPage) -> Found:
    for name, label in (("total_ns", "Total"), ("mean_ns", "Mean"), ("p50_ns", "p50"), ("p95_ns", "p95"), ("min_ns", "Shortest"),
                        ("max_ns", "Longest")):
        yield name, label, getattr(page.kernel, name), "ns"
    yield "launches", "Launches", page.kernel.launches, ""


def _head(page: KernelPage) -> Found:
    if page.whole is not None:
        yield "roof", "Of its roof", page.whole.point.roof_pct, "pct"
        yield "occupancy", "Occupancy", page.whole.occupancy.achieved_pct, "pct"


def _sol(page: KernelPage) -> Found:
    for bar in page.sol:
        yield bar["label"], bar["label"], bar["pct"], "pct"


def _part(page: KernelPage) -> Found:
    for side in page.anatomy.sides:
        for part in side.parts:
            yield part.metric, part.title, part.pct, "pct"


def _judged(page: KernelPage) -> Found:
    for verdict in page.judged:
        yield verdict.measure.metric, verdict.measure.label, verdict.value, "pct"


def _work(page: KernelPage) -> Found:
    for part in page.work:
        yield part["name"], part["name"], part["flop"], "FLOP"
    if page.whole is not None:
        yield "dram", "DRAM traffic", page.whole.point.dram_bytes, "bytes"
        yield "sm_clock", "SM clock", page.whole.sm_clock_hz, "Hz"


def _link(page: KernelPage) -> Found:
    for link in page.anatomy.chart.links:
        yield (f"{link.source}:{link.target}", f"{link.source} to {link.target}", link.amount,
               "bytes" if link.unit == "B" else link.unit)


def _link_rate(page: KernelPage) -> Found:
    for link in page.anatomy.chart.links:
        yield f"{link.source}:{link.target}", f"{link.source} to {link.target}, rate", link.rate, (
            "byte/s" if link.unit == "B" else f"{link.unit}/s")


def _link_pct(page: KernelPage) -> Found:
    for link in page.anatomy.chart.links:
        yield f"{link.source}:{link.target}", f"{link.source} to {link.target}, of peak", link.pct, "pct"


def _place(page: KernelPage) -> Found:
    for name, place in page.anatomy.chart.places.items():
        yield name, place.title, place.pct, "pct"


def _hit(page: KernelPage) -> Found:
    for name, place in page.anatomy.chart.places.items():
        yield name, f"{place.title} hit rate", place.hit_pct, "pct"


def _waste(page: KernelPage) -> Found:
    for waste in page.anatomy.wastes:
        yield waste.what, f"{waste.what}, more than needed", waste.excess_pct, "pct"


def _table(page: KernelPage) -> Found:
    for table in page.memory_tables:
        for row in table["rows"]:
            for value, unit, is_text, key in row:
                if not is_text:
                    rest = key.removeprefix("table:")
                    yield rest, rest.replace(":", ", "), value, unit


def _occupancy(page: KernelPage) -> Found:
    if page.whole is not None:
        yield "theoretical", "Occupancy at most", page.whole.occupancy.theoretical_pct, "pct"
        yield "waves", "Waves", page.whole.occupancy.waves, ""
        yield "tail", "Last wave full", page.whole.occupancy.tail_pct, "pct"


def _limit(page: KernelPage) -> Found:
    for limit in page.limits:
        yield limit["name"], limit["name"], limit["blocks"], ""


def _share(page: KernelPage) -> Found:
    for share in page.shares:
        yield share["share"].unit, f"{share['share'].unit} active", share["active_pct"], "pct"


def _spread(page: KernelPage) -> Found:
    for share in page.anatomy.shares:
        for name in ("average", "least", "most"):
            yield f"{share.unit}:{name}", f"{share.unit} active cycles, {name}", getattr(share, name), ""
        yield f"{share.unit}:spread", f"{share.unit} spread", share.spread_pct, "pct"


def _step(page: KernelPage) -> Found:
    for step in page.issue_steps:
        yield step["name"], step["name"], step["warps"], ""


def _scheduler(page: KernelPage) -> Found:
    if page.whole is not None:
        yield "ipc", "Instructions per SM and cycle", page.whole.scheduler.ipc, ""


def _stall(page: KernelPage) -> Found:
    for stall in page.stalls:
        yield stall["reason"], stall["known"].title, stall["cycles"], ""


def _stall_share(page: KernelPage) -> Found:
    for stall in page.stalls:
        yield stall["reason"], stall["known"].title, stall["share_pct"], "pct"


def _stall_sampled(page: KernelPage) -> Found:
    for stall in page.stalls:
        yield stall["reason"], f"{stall['known'].title}, sampled", stall["samples_pct"], "pct"


def _pipe(page: KernelPage) -> Found:
    for pipe in page.anatomy.pipes:
        yield pipe.name, pipe.name, pipe.pct, "pct"


def _mix(page: KernelPage) -> Found:
    if page.anatomy.mix:
        yield "total", "Warp instructions", page.anatomy.mix.total, ""
        yield "active", "Active threads", page.anatomy.mix.active_threads, ""
        yield "predicated", "Active threads, not predicated off", page.anatomy.mix.predicated_threads, ""


def _opcode(page: KernelPage) -> Found:
    for opcode in page.anatomy.mix.opcodes if page.anatomy.mix else ():
        yield opcode.name, opcode.name, opcode.warps, ""


def _opcode_share(page: KernelPage) -> Found:
    for opcode in page.anatomy.mix.opcodes if page.anatomy.mix else ():
        yield opcode.name, f"{opcode.name}, share", opcode.share_pct, "pct"


def _group(page: KernelPage) -> Found:
    for group, _, share in page.anatomy.mix.groups if page.anatomy.mix else ():
        yield group, group, share, "pct"


def _parameter(page: KernelPage) -> Found:
    for parameter in page.parameters:
        yield parameter["label"], parameter["label"], parameter["value"], "bytes" if parameter["unit"] == "B" else ""


def _detail(page: KernelPage) -> Found:
    for section in page.detail_sections:
        for line in section["lines"]:
            yield line["line"].metric, line["line"].label, line["line"].value, line["unit"]


# kind, with which a key begins -> the tab that it stands on, what finds it. All but "time" are of counters.
KINDS: dict[str, tuple[str, Callable[[KernelPage], Found]]] = {
    "time": ("launches", _time), "head": ("", _head), "sol": ("", _sol), "part": ("", _part), "judged": ("", _judged),
    "work": ("", _work),
    "link": ("memory", _link), "linkrate": ("memory", _link_rate), "linkpct": ("memory", _link_pct), "place": ("memory", _place),
    "hit": ("memory", _hit), "waste": ("memory", _waste), "table": ("memory", _table),
    "occupancy": ("warps", _occupancy), "limit": ("warps", _limit), "share": ("warps", _share), "spread": ("warps", _spread),
    "step": ("warps", _step), "scheduler": ("warps", _scheduler), "stall": ("warps", _stall), "stallshare": ("warps", _stall_share),
    "stallsampled": ("warps", _stall_sampled), "pipe": ("warps", _pipe), "mix": ("warps", _mix), "opcode": ("warps", _opcode),
    "opcodeshare": ("warps", _opcode_share), "group": ("warps", _group),
    "parameter": ("launches", _parameter), "detail": ("raw", _detail),
}


def measures(page: KernelPage, kind: str) -> dict[str, Measure]:
    """Return the numbers of one kind, by key; none where nothing was counted."""
    if kind not in KINDS or (kind != "time" and page.whole is None):
        return {}
    tab, find = KINDS[kind]
    by_key: dict[str, Measure] = {}
    for rest, label, value, unit in find(page):
        if (number := finite_number(value)) is not None:
            by_key.setdefault(f"{kind}:{rest}", Measure(f"{kind}:{rest}", tab, label, number, unit))
    return by_key


class Overlay:
    """The numbers that two results both have, with the change; a kind is computed when one of its keys is asked for."""

    def __init__(self, page: KernelPage, baseline: KernelPage) -> None:
        self._page, self._baseline = page, baseline
        self._kinds: dict[str, dict[str, Versus]] = {}

    def get(self, key: str) -> Versus | None:
        return self.kind(key.partition(":")[0]).get(key)

    def kind(self, kind: str) -> dict[str, Versus]:
        if kind not in self._kinds:
            mine, other = measures(self._page, kind), measures(self._baseline, kind)
            self._kinds[kind] = {key: Versus(measure, other[key].value, _change_pct(measure.value, other[key].value))
                                 for key, measure in mine.items() if key in other}
        return self._kinds[kind]

    def all(self) -> list[Versus]:
        return [versus for kind in KINDS for versus in self.kind(kind).values()]


def _change_pct(value: float, baseline: float) -> float | None:
    return 100.0 * (value / baseline - 1.0) if baseline else None
