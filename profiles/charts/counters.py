"""Figures of counters: stalls, and what a kernel page shows. Made from what selectors give."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

from bokeh.models import ColumnDataSource

from profiles.analysis.core.sentences import pct_text, plain_number, si_text
from profiles.analysis.kernel.anatomy import Anatomy
from profiles.analysis.kernel.memory_chart import FAR, SPACES, Chart, Link, Place
from profiles.charts.roofline import roofline_figure
from profiles.charts.roofline_plane import time_text
from profiles.theme import PALETTE, cached_figure, figure, follows, item

# The memory chart as boxes and arrows with places: the template draws them as SVG, in the page's own colours.

# columns: left edge and width
KERNEL, SPACE, LEVEL, L2, FAR_X = (8, 84), (214, 168), (524, 132), (826, 112), (1098, 134)
ROW, TOP, BOX = 50, 12, 38               # height of a row, above the first, height of a small box
ROWS, ROWS_BESIDE = 5, 7                 # at least; beside a baseline each arrow has a second number below it
ALWAYS = ("global", "local", "shared")   # the other spaces only where the kernel uses them
IN_L1 = ("global", "local", "texture", "surface", "ldgsts")
UNITS = {"inst": "inst", "req": "req", "wavefronts": "wavefronts"}
MANY_TIMES = 10.0                        # from here a change says how often, not how many percent
HEATS = (10.0, 30.0, 60.0, 80.0)         # % of a link's peak: the borders between the five colours


def memory_chart(chart: Chart, baseline: Chart | None = None) -> dict[str, Any] | None:
    """Return the chart's boxes and arrows with places, None where the report holds none.

    An arrow that the baseline has too says its amount there and the change.
    """
    if not chart.collected:
        return None
    link = {(edge.source, edge.target): edge for edge in chart.links}
    used = [key for key in SPACES if key in ALWAYS or (link["kernel", key].amount or 0) > 0]
    upper, lower = [key for key in used if key in IN_L1], [key for key in used if key not in IN_L1]
    y = {key: TOP + ROW * index for index, key in enumerate([*upper, *lower])}
    height = TOP + ROW * max(len(used), ROWS_BESIDE if baseline else ROWS)
    split = TOP + ROW * len(upper)
    before = baseline.places if baseline else {}

    def box(place: Place, *where: Any) -> dict[str, Any]:
        return _box(place, before.get(place.key), *where)
    boxes = [box(chart.places["kernel"], KERNEL, TOP, height - TOP - 12)]
    boxes += [box(chart.places[key], SPACE, y[key], BOX) for key in used]
    boxes += [box(chart.places["l1"], LEVEL, TOP, split - TOP - 12), box(chart.places["smem"], LEVEL, split, height - split - 12),
              box(chart.places["l2"], L2, TOP, height - TOP - 12)]
    arrows = [_arrow(link["kernel", key], _right(KERNEL), SPACE[0], y[key] + BOX / 2) for key in used]
    arrows += [_arrow(link[key, "l1"], _right(SPACE), LEVEL[0], y[key] + BOX / 2) for key in upper]
    arrows.append(_arrow(link["shared", "smem"], _right(SPACE), LEVEL[0], y["shared"] + BOX / 2))
    if "tma" in y:       # a bulk copy has no request of its own to the L1: its bytes are those between L2 and shared memory
        arrows.append({"x1": _right(SPACE), "x2": LEVEL[0], "y": y["tma"] + BOX / 2, "label_y": y["tma"] + BOX / 2 - 5,
                       "label": "L2 ↔ shared", "middle": (_right(SPACE) + LEVEL[0]) / 2, "heat": 0, "idle": False, "unknown": False,
                       "tip": 1, "title": "Copies between the L2 and shared memory: see the bytes there."})
    if "dshared" in y:
        arrows.append(_arrow(link["dshared", "smem"], _right(SPACE), LEVEL[0], y["dshared"] + BOX / 2))
    middle_l1, middle_smem = (TOP + split - 12) / 2, (split + height - 12) / 2
    arrows += _both(link["l2", "l1"], link["l1", "l2"], LEVEL, L2, middle_l1)
    if (link["l2", "smem"].amount or 0) > 0 or (link["smem", "l2"].amount or 0) > 0:
        arrows += _both(link["l2", "smem"], link["smem", "l2"], LEVEL, L2, middle_smem)
    far = ["device", *FAR, *(["fabric"] if link["l2", "fabric"].amount is not None else [])]
    step = (height - TOP - 12) / len(far)
    for index, key in enumerate(far):
        top = TOP + step * index
        boxes.append(box(chart.places[key], FAR_X, top, min(step - 10, 62)))
        centre = top + min(step - 10, 62) / 2
        if key == "fabric":
            arrows.append(_arrow(link["l2", "fabric"], _right(L2), FAR_X[0], centre))
        else:
            arrows += _both(link[key, "l2"], link["l2", key], L2, FAR_X, centre)
    old = {(edge.source, edge.target): edge for edge in baseline.links} if baseline else {}
    for arrow in arrows:
        if arrow and arrow.get("link"):
            arrow |= _versus(arrow["link"], old.get((arrow["link"].source, arrow["link"].target)), arrow["y"])
    unused = [SPACES[key][0].lower() for key in SPACES if key not in used]
    return {"width": _right(FAR_X) + 8, "height": height, "boxes": boxes, "arrows": [arrow for arrow in arrows if arrow],
            "unused": ", ".join(unused), "through_l1": link["l1", "smem"], "text": text(chart), "rows": rows(chart)}


def _right(column: tuple[int, int]) -> int:
    return column[0] + column[1]


def _box(place: Place, old: Place | None, column: tuple[int, int], y: float, height: float) -> dict[str, Any]:
    """A box with its title, how full it is, and below that what the baseline's is, in its own kind of line."""
    title = [(words, "strong") for words in _wrap(place.title, max(10, column[1] // 8))]
    facts = [(f"{pct_text(place.hit_pct)} hit", "")] if place.hit_pct is not None else []
    facts += [(f"{pct_text(place.pct)} of peak", "")] if place.pct is not None else []
    facts += [(words, "") for words in _wrap(place.note, 15)] if place.note else []
    shown = [f"{pct_text(old.hit_pct)} hit"] if old and old.hit_pct is not None and place.hit_pct is not None else []
    shown += [pct_text(old.pct)] if old and old.pct is not None and place.pct is not None else []
    lines = [*title, *facts, *([(f"was {', '.join(shown)}", "base")] if shown else [])]
    first = y + height / 2 - 7.5 * (len(lines) - 1) + 4
    return {"x": column[0], "y": y, "width": column[1], "height": height, "heat": heat(place.pct),
            "middle": column[0] + column[1] / 2, "lines": [{"text": words, "y": first + 15 * index, "css": css}
                                                           for index, (words, css) in enumerate(lines)]}


def _wrap(words: str, letters: int) -> list[str]:
    lines = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + len(word) + 1 > letters:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _both(inwards: Link, outwards: Link, left: tuple[int, int], right: tuple[int, int], y: float) -> list[dict[str, Any]]:
    """Data to the left above, data to the right below."""
    return [_arrow(inwards, right[0], _right(left), y - 13), _arrow(outwards, _right(left), right[0], y + 19)]


def _arrow(link: Link, x1: float, x2: float, y: float) -> dict[str, Any]:
    label = "not collected" if link.amount is None else amount_text(link)
    if link.amount and link.unit == "B" and link.rate:
        label += f" · {si_text(link.rate, 'B/s')}"
    share = f" {pct_text(link.pct)} of peak." if link.pct is not None else ""
    return {"x1": x1, "x2": x2, "y": y, "label_y": y - 5, "label": label, "middle": (x1 + x2) / 2, "heat": heat(link.pct),
            "idle": not link.amount, "unknown": link.amount is None,
            "tip": 1 if x2 > x1 else -1, "link": link, "title": f"{label}.{share} {' + '.join(link.metrics)}"}


def _versus(link: Link, old: Link | None, y: float) -> dict[str, Any]:
    if old is None or link.amount is None or old.amount is None or not (link.amount or old.amount):
        return {}
    ratio = link.amount / old.amount if old.amount else None
    change = "" if ratio is None else f" × {plain_number(ratio)}" if ratio >= MANY_TIMES else f" {100.0 * (ratio - 1.0):+.3g} %"
    before = si_text(old.amount, "B" if link.unit == "B" else "").strip()        # its unit stands above it
    return {"versus": f"{before}{change}", "base_y": y + 11}


def amount_text(link: Link) -> str:
    if link.amount is None:
        return "—"
    if not link.amount:
        return "0"
    return si_text(link.amount, "B") if link.unit == "B" else f"{si_text(link.amount, '').strip()} {UNITS[link.unit]}"


def heat(pct: float | None) -> int:
    """0 idle or unknown … 4 full."""
    return 0 if pct is None else sum(pct >= border for border in HEATS)


def rows(chart: Chart) -> list[dict[str, Any]]:
    """The links as a table: what the picture shows, in words and numbers."""
    return [{"source": chart.places[link.source].title, "target": chart.places[link.target].title, "link": link,
             "amount": amount_text(link)} for link in chart.links if link.amount is None or link.amount > 0]


def text(chart: Chart) -> str:
    """The picture in words, for those who do not see it."""
    moved = [f"{chart.places[link.source].title} to {chart.places[link.target].title} {amount_text(link)}"
             for link in chart.links if link.amount]
    return f"Memory chart. {chart.sentence} {'; '.join(moved)}."


__all__ = ["stall_figure", "tab_figures", "time_text"]


def stall_figure(stalls: Sequence[Mapping[str, Any]], baseline: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any] | None:
    """Cycles a warp spends in each state between two instructions, longest on top; shares where no cycles are known.

    The baseline's are hollow bars.
    """
    chosen = [stall for stall in stalls if stall["share_pct"] >= 0.1][:12]
    if not chosen:
        return None
    names, has_cycles = [stall["known"].title for stall in chosen], all(stall["cycles"] is not None for stall in chosen)
    sizes = [stall["cycles"] if has_cycles else stall["share_pct"] for stall in chosen]
    source = ColumnDataSource({
        "name": names, "cycles": sizes, "meaning": [stall["known"].meaning for stall in chosen],
        "fix": [stall["known"].fix for stall in chosen], "share": [f"{stall['share_pct']:.1f} %" for stall in chosen],
        "colour": [PALETTE["idle"] if stall["reason"] == "selected" else PALETTE["communication"] for stall in chosen],
        "text": [f"{size:.2f}" for size in sizes] if has_cycles else [f"{size:.1f} %" for size in sizes],
    })
    plot = figure(height=60 + 24 * len(chosen), y_range=list(reversed(names)),
                  x_axis_label="cycles per issued instruction" if has_cycles else "share of a warp's active cycles, %",
                  hover=[("state", "@name"), ("cycles", "@text"), ("share", "@share"), ("means", "@meaning"), ("fix", "@fix")])
    plot.hbar(y="name", right="cycles", height=0.7, source=source, fill_color="colour", line_color=None)
    labels = plot.text("cycles", "name", text="text", source=source, x_offset=5, y_offset=0, text_baseline="middle",
                       text_font_size="11px")
    follows(labels.glyph, text_color="--text")
    unit = "cycles" if has_cycles else "share_pct"
    before = {stall["reason"]: stall[unit] for stall in baseline if stall[unit] is not None}
    hollow = [(stall["known"].title, before[stall["reason"]]) for stall in chosen if stall["reason"] in before]
    if hollow:
        old = plot.hbar(y=[name for name, _ in hollow], right=[size for _, size in hollow], height=0.9, fill_color=None,
                        line_width=1.5, line_dash="dashed", name="baseline")
        follows(old.glyph, line_color="--text")
        plot.hover.renderers = [plot.renderers[0]]
    plot.x_range.start = 0
    plot.x_range.end = 1.12 * max([*sizes, *(size for _, size in hollow)])
    plot.ygrid.grid_line_color = None
    return item(plot)


class Shown(Protocol):
    """What the figures take of a kernel's page; each is computed when it is asked for."""

    @property
    def version(self) -> Hashable: ...
    @property
    def measured_version(self) -> Hashable: ...
    @property
    def anatomy(self) -> Anatomy: ...
    @property
    def stalls(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def points(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def ceilings(self) -> Sequence[Mapping[str, Any]]: ...


def tab_figures(page: Shown, base: Shown | None, tab: str) -> dict[str, Any]:
    """The figures of one tab of a kernel, with the baseline's values where there is one."""
    version = (page.version, base.version if base else None)
    if tab == "memory":
        return {"chart": memory_chart(page.anatomy.chart, base.anatomy.chart if base else None)}
    if tab == "warps":
        return {"stall_figure": cached_figure((version, "stalls"), lambda: stall_figure(page.stalls, base.stalls if base else ()))}
    return {"roofline_figure": cached_figure((version, page.measured_version, "roofline"),
                                             lambda: _roofline(page, base))} if tab == "" else {}


def _roofline(page: Shown, base: Shown | None) -> dict[str, Any] | None:
    """Dots of the launches; of a baseline too, joined by an arrow from its longest launch to the longest one here."""
    points = list(page.points)
    if base is None or not points or not base.points:
        return roofline_figure(points, page.ceilings, height=420, tap=False)
    old = max(base.points, key=lambda point: point["time_ns"] or 0.0)
    new = max(range(len(points)), key=lambda at: points[at]["time_ns"] or 0.0)
    return roofline_figure([*points, {**old, "short_name": "baseline"}], page.ceilings, height=420, tap=False,
                           pairs=[(len(points), new)])
