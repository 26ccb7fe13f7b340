"""Pictures of the topic "time": bars of parts per GPU and phase, cards of the three classes, and steps as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bokeh.models import ColumnDataSource, FactorRange, HoverTool

from profiles.analysis.core.sentences import pct_of, time_text
from profiles.charts.trace import Part
from profiles.theme import PALETTE, figure, fit, follows, item

# How a part looks: the category whose colour it has, and a hatch where the colour is not its own (Bokeh's names).
LOOKS: dict[str, tuple[str, str]] = {
    "compute": ("compute", ""), "memory": ("compute", "horizontal_line"), "unknown": ("compute", "cross"),
    "small": ("compute", "dot"), "communication": ("communication", ""), "transfers": ("memory", ""),
    "host_slow": ("runtime", "right_diagonal_line"), "synchronisation": ("annotation", "right_diagonal_line"),
    "data_loading": ("python", "right_diagonal_line"), "kernel_wait": ("cpu", "right_diagonal_line"),
    "other": ("idle", "right_diagonal_line"), "edges": ("idle", "right_diagonal_line")}
DRAWN_STEPS = 200
CLASS_TITLES = {"compute": "Compute", "memory": "Memory", "overhead": "Overhead", "unknown": "Unknown"}
CLASS_MEANINGS = {
    "compute": "Long kernels that calculate: faster arithmetic helps, tensor cores, lower precision, less work.",
    "memory": "Long kernels that move data: fewer bytes help, fusion, smaller types, better reuse.",
    "overhead": "Everything else: the GPU waits for the host, for copies and collectives, or runs kernels too small for it.",
    "unknown": "Kernels whose names say nothing of what limits them: capture counters for these."}


@dataclass(frozen=True)
class Bar:
    """A stacked bar. `width` in percent of the longest bar of its card."""

    label: str
    ns: int
    parts: list[Part]
    width: str = "100"
    note: str = ""

    @property
    def wide(self) -> bool:
        """Wide enough for words within its parts."""
        return float(self.width) >= 60

    @property
    def text(self) -> str:
        return ", ".join(f"{part.label} {part.pct:.1f} %" for part in self.parts)


@dataclass(frozen=True)
class Evidence:
    """One line of a class: how much, what, and where most of it is. `code`: `most` is a name."""

    label: str
    pct: float
    ns: int
    most: str = ""
    full: str = ""
    css: str = ""


@dataclass(frozen=True)
class ClassCard:
    name: str
    title: str
    meaning: str
    pct: float
    ns: int
    bound: bool
    lines: list[Evidence] = field(default_factory=list)


def part(key: str, ns: float, of_ns: float, names: Mapping[str, Mapping[str, str]]) -> Part:
    look, _ = LOOKS[key]
    idle = "idle, " if key in ("host_slow", "synchronisation", "data_loading", "kernel_wait", "other", "edges") else ""
    pct = pct_of(ns, of_ns)
    return Part(f"{look} part-{key}", idle + names[key]["label"], round(ns), pct, names[key]["meaning"])


def parts(of: Mapping[str, float], numbers: Mapping[str, Any]) -> list[Part]:
    """The parts of a bar, without those of no time."""
    whole = sum(of.values())
    return [part(key, of[key], whole, numbers["parts"]) for key in LOOKS if of.get(key)]


def device_bars(numbers: Mapping[str, Any]) -> list[Bar]:
    return [Bar(each["label"], each["wall_ns"], parts(each["parts_ns"], numbers), note=each["name"]) for each in numbers["devices"]]


def phase_bars(numbers: Mapping[str, Any]) -> list[Bar]:
    longest = max((phase["total_ns"] for phase in numbers["phases"]), default=0)
    return [Bar(phase["label"], phase["total_ns"], parts(phase["parts_ns"], numbers), f"{100 * phase['total_ns'] / longest:.3f}",
                phase["bound"]) for phase in numbers["phases"]]


def class_cards(numbers: Mapping[str, Any]) -> list[ClassCard]:
    """Return the three classes with their evidence, and a fourth of what is unknown.

    The fourth where that is 1 % and more.
    """
    classes, evidence = numbers["classes"], numbers["evidence"]
    total = classes["of_classes_ns"]
    cards = []
    for name, ns in classes["classes_ns"].items():
        if name == "unknown" and 100 * ns < total:
            continue
        lines = _overhead(numbers) if name == "overhead" else [
            Evidence(kernel["name"], pct_of(kernel["ns"], total), kernel["ns"], full=kernel["full"])
            for kernel in evidence["kernels"][name]]
        cards.append(ClassCard(name, CLASS_TITLES[name], CLASS_MEANINGS[name], pct_of(ns, total), ns,
                               name == classes["bound"], lines))
    return cards


def _overhead(numbers: Mapping[str, Any]) -> list[Evidence]:
    """Its parts from 0.5 % on, each with what the host was in the longest."""
    classes, host = numbers["classes"], numbers["evidence"]["host"]
    lines = []
    for key, ns in sorted(classes["parts_ns"].items(), key=lambda pair: -pair[1]):
        pct = pct_of(ns, classes["of_classes_ns"])
        if numbers["parts"][key]["of"] == "overhead" and pct >= 0.5:
            top = next((activity["name"] for activity in host.get(key, ()) if activity["name"]), "")
            lines.append(Evidence(numbers["parts"][key]["label"], pct, ns, top, numbers["parts"][key]["meaning"],
                                  f"cat-{LOOKS[key][0]} part-{key}"))
    return lines


def legend(bars: Sequence[Bar]) -> list[Part]:
    """Every part that a card draws, once, with its sum."""
    sums: dict[str, Part] = {}
    whole = sum(bar.ns for bar in bars)
    for bar in bars:
        for piece in bar.parts:
            ns = piece.ns + (sums[piece.category].ns if piece.category in sums else 0)
            sums[piece.category] = Part(piece.category, piece.label, ns, pct_of(ns, whole), piece.why)
    return [sums[key] for key in (f"{LOOKS[name][0]} part-{name}" for name in LOOKS) if key in sums]


def steps_figure(numbers: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return one stacked bar per step, ranks side by side in groups, or None.

    What does not count is pale. None for less than two steps, and where none of them takes any time.
    """
    rows = numbers["steps"]["rows"][:DRAWN_STEPS]
    if len(rows) < 2:
        return None
    ranks = list(dict.fromkeys([*(device["rank"] for device in numbers["devices"]), *(row["rank"] for row in rows)]))
    rows = sorted(rows, key=lambda row: ranks.index(row["rank"]))
    short = _short_names(rows)
    factors: list[Any] = [(row["rank"], name) for row, name in zip(rows, short, strict=True)] if len(ranks) > 1 else short
    names = numbers["parts"]
    drawn = [key for key in LOOKS if any(row["parts_ns"][key] > 0 for row in rows)]
    if not drawn:
        return None
    data: dict[str, list[Any]] = {
        "x": factors, "name": [row["name"][:80] for row in rows], "rank": [row["rank"] or "—" for row in rows],
        "took": [time_text(row["dur_ns"]) for row in rows], "alpha": [1.0 if row["counts"] else 0.35 for row in rows],
        "counts": ["yes" if row["counts"] else f"no: {row['why']}" for row in rows], "bound": [row["bound"] or "—" for row in rows],
        **{key: [round(row["parts_ns"][key] / 1e6, 6) for row in rows] for key in drawn}}
    source = ColumnDataSource(data)
    plot = figure(height=300, x_range=FactorRange(*factors), y_axis_label="time of a step (ms)", x_axis_label="step")
    hatches = [LOOKS[key][1] or " " for key in drawn]
    bars = plot.vbar_stack(drawn, x="x", width=0.86, source=source, color=[PALETTE[LOOKS[key][0]] for key in drawn],
                           fill_alpha="alpha", line_alpha=0, hatch_pattern=hatches, hatch_alpha=0.45, hatch_scale=8, hatch_weight=1,
                           legend_label=[names[key]["label"] for key in drawn])
    for key, bar in zip(drawn, bars, strict=True):
        follows(bar.glyph, hatch_color="--cat-ink")
        plot.add_tools(HoverTool(renderers=[bar], visible=False, tooltips=[
            ("step", "@name"), ("rank", "@rank"), ("took", "@took"), (names[key]["label"], f"@{key}{{0.000}} ms"),
            ("counts", "@counts"), ("bound by", "@bound")]))
    fit(plot, factors, [sum(row["parts_ns"][key] for key in drawn) / 1e6 for row in rows], data["took"], zero=True)
    plot.xgrid.grid_line_color = None
    if len(rows) > 40:
        plot.xaxis.major_label_text_font_size = "0px"
    plot.add_layout(plot.legend[0], "right")
    return item(plot)


def _short_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Distinct per rank: the number at the end of a name, else the place."""
    out, used = [], set()
    for place, row in enumerate(rows):
        tail = row["name"].rsplit("#", 1)[-1].rsplit(" ", 1)[-1]
        name = tail if tail.isdigit() else str(place)
        while (row["rank"], name) in used:
            name += "′"
        used.add((row["rank"], name))
        out.append(name)
    return out
