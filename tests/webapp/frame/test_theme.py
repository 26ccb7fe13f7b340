"""The stylesheet's promises: WCAG AA contrast in both themes, and one palette for pages and figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bokeh.models import ColumnDataSource, Span

from profiles import theme

CSS = (Path(__file__).parents[3] / "static" / "css" / "base" / "ridgepoint.css").read_text()
TEXT_ON = [("text", "bg"), ("text", "panel"), ("text", "raised"), ("muted", "bg"), ("muted", "panel"),
           ("muted", "raised"),
           ("accent", "bg"), ("accent", "panel"), ("accent", "raised"), ("accent-ink", "accent"), ("ok", "panel"),
           ("warn", "panel"),
           ("bad", "panel"), ("ok", "ok-soft"), ("warn", "warn-soft"), ("bad", "bad-soft"), ("text", "accent-soft"),
           ("text", "bad-soft"), ("muted", "bad-soft"), ("text", "warn-soft")]  # fmt: skip
CATEGORIES = [name for name in theme.PALETTE if name != "idle"]


def tokens(dark: bool) -> dict[str, str]:
    light_block, dark_block = re.findall(r":root(?:\[data-theme=\"dark\"\])? \{(.*?)\n\}", CSS, re.S)[:2]
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light_block))
    return {**found, **dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark_block))} if dark else found


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(dark: bool) -> None:
    found = tokens(dark)
    poor = {pair: round(contrast(found[pair[0]], found[pair[1]]), 2) for pair in TEXT_ON
            if contrast(found[pair[0]], found[pair[1]]) < 4.5}  # fmt: skip
    assert poor == {}


@pytest.mark.parametrize("dark", [False, True])
def test_controls_and_categories_stand_out(dark: bool) -> None:
    found = tokens(dark)
    assert contrast(found["line-strong"], found["panel"]) >= 3
    assert all(contrast(found["cat-ink"], found[f"cat-{name}"]) >= 4.5 for name in CATEGORIES)


def test_pages_and_figures_share_one_palette() -> None:
    assert {name: tokens(dark=False)[f"cat-{name}"] for name in theme.PALETTE} == theme.PALETTE


def test_an_embedded_figure_has_no_target_and_its_legend_hides_what_is_clicked() -> None:
    plot = theme.figure(hover=[("x", "@x")], tap=True)
    plot.line("x", "y", source=ColumnDataSource({"x": [1], "y": [2]}, name="live"), legend_label="one")
    plot.add_layout(theme.follows(Span(location=1, dimension="height"), line_color="--muted"))
    item = theme.item(plot)
    assert "target_id" not in item
    assert plot.legend[0].click_policy == "hide"
    assert plot.toolbar.logo is None
    assert "--muted" in str(item["doc"])
