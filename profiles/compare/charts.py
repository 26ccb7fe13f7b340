"""Figures of the compare page: paired bars of kernel time, arrows on the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource, NumeralTickFormatter

from profiles.analysis.compare.comparison import SIGNS, Comparison, Row, verdict_text
from profiles.analysis.core.sentences import time_text
from profiles.base.words import shorten
from profiles.charts.roofline_plane import compare_figure, compare_point
from profiles.theme import FASTER, NEUTRAL, SERIES, SLOWER, figure, item, kept_figure

MOST_KERNELS = 16
# Bars of the new side: colour and word by verdict.
_NEW = ((("slower",), " ▲ slower", SLOWER), (("faster",), " ▼ faster", FASTER),
        (("unchanged", "unknown", "other_work", "new", "gone"), "", SERIES[2]))
_LABEL_CHARS = 44


@kept_figure
def paired_bars(result: Comparison, old: str, new: str) -> dict[str, Any] | None:
    """Return old and new time of the kernels that take or changed most, largest first.

    None without kernels.
    """
    chosen = sorted(result.rows, key=lambda row: -max(row.old_total_ns, row.new_total_ns))[:MOST_KERNELS]
    if not chosen:
        return None
    labels = _labels(chosen)
    plot = figure(
        height=150 + 40 * len(chosen), y_range=list(reversed(labels)), x_axis_label="kernel time (ms)",
        hover=[("kernel", "@kernel"), ("", "@side"), ("time", "@time"), ("launches", "@launches"),
               ("mean", "@mean"), ("change", "@change")])
    plot.hbar(y="y", right="ms", height=0.34, source=ColumnDataSource(_bars(chosen, labels, "old", old, 0.19)),
              legend_label=shorten(old, 40), line_color=None, fill_color=NEUTRAL)
    for verdicts, word, colour in _NEW:
        mine = [index for index, row in enumerate(chosen) if row.verdict in verdicts]
        if mine:
            bars = _bars([chosen[index] for index in mine], [labels[index] for index in mine], "new", new, -0.19)
            plot.hbar(y="y", right="ms", height=0.34, source=ColumnDataSource(bars), line_color=None, fill_color=colour,
                      legend_label=f"{shorten(new, 30)}{word}")
    plot.x_range.start = 0
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0.[000]")
    plot.ygrid.grid_line_color = None
    plot.legend.location = "left"
    plot.add_layout(plot.legend[0], "below")                # within the plane it would lie on the short bars
    return item(plot)


def _bars(rows: Sequence[Row], labels: Sequence[str], which: str, label: str, offset: float) -> dict[str, list[Any]]:
    sides = [getattr(row, which) for row in rows]
    totals = [getattr(row, f"{which}_total_ns") for row in rows]
    return {
        "y": [(name, offset) for name in labels], "ms": [total / 1e6 for total in totals], "side": [label] * len(rows),
        "kernel": [(side.name if side else row.kernel)[:200] for row, side in zip(rows, sides, strict=True)],
        "time": [time_text(total) for total in totals],
        "launches": [f"{side.launches:,}" if side else "none" for side in sides],
        "mean": [time_text(side.mean_ns) if side else "—" for side in sides],
        "change": [_change(row) for row in rows],
    }


def _change(row: Row) -> str:
    pct = f" {row.change_pct:+.1f} %" if row.change_pct is not None else ""
    return f"{SIGNS[row.verdict]} {verdict_text(row.verdict)}{pct}"


def _labels(rows: Sequence[Row]) -> list[str]:
    """Distinct factors of the axis: sign, short name, and which shape where one kernel has several."""
    labels: list[str] = []
    for row in rows:
        label = f"{SIGNS[row.verdict]} {shorten(row.kernel, _LABEL_CHARS)}" + (f" ({row.shape})" if row.shape else "")
        while label in labels:
            label += "\N{ZERO WIDTH SPACE}"
        labels.append(label)
    return labels


def roofline_arrows(rows: Sequence[Row], facts: Mapping[int, tuple[Sequence[Any], Sequence[Any]]]) -> dict[str, Any] | None:
    """Return an arrow from old to new for every kernel that changed beyond noise.

    It needs a roofline point on both sides.
    """
    pairs = [(row, *facts[index]) for index, row in enumerate(rows)
             if index in facts and all(facts[index]) and row.verdict != "unchanged"]
    old = [compare_point(_name(row), a) for row, a, _ in pairs]
    new = [compare_point(_name(row), b) for row, _, b in pairs]
    return compare_figure(old, new) if pairs else None


def _name(row: Row) -> str:
    return f"{row.kernel} ({row.shape})" if row.shape else row.kernel
