"""The band of an axis: the same cases as the pages' script, and what holds of any values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from bokeh.models import Scatter, Text
from hypothesis import given
from hypothesis import strategies as st

from profiles import theme
from profiles.band import FENCE, LEAST, Band, band

CASES = json.loads(Path("tests/data/bands.json").read_text())
numbers = st.lists(st.floats(-1e12, 1e12), max_size=60)
times = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=60)


@pytest.mark.parametrize("case", CASES, ids=[case["says"] for case in CASES])
def test_the_cases_that_the_script_knows_too(case: dict[str, Any]) -> None:
    assert band(case["values"], case.get("marks", ()), case.get("zero", False)) == Band(
        case["low"], case["high"], tuple(case["below"]), tuple(case["above"]))


@given(numbers, st.lists(st.floats(-1e12, 1e12), max_size=4), st.booleans())
def test_every_value_is_inside_or_told_and_every_mark_is_inside(values: list[float], marks: list[float], zero: bool) -> None:
    found = band(values, marks, zero)
    assert found.low <= found.high
    assert sorted([*found.below, *(each for each in values if found.low <= each <= found.high), *found.above]) == sorted(values)
    assert all(found.low <= each <= found.high for each in [*marks, *([0.0] if zero else [])])
    assert len(found.below) + len(found.above) <= len(values) / 2
    assert len(values) >= LEAST or not found.cut


@given(times, st.floats(1e-3, 1e3), st.randoms())
def test_neither_unit_nor_order_matters(values: list[float], factor: float, random: Any) -> None:
    mixed = [factor * each for each in values]
    random.shuffle(mixed)
    mine, theirs = band(values), band(mixed)
    if abs(len(mine.above) - len(theirs.above)) + abs(len(mine.below) - len(theirs.below)) == 0:      # not on the very fence
        assert math.isclose(theirs.low, factor * mine.low, rel_tol=1e-9)
        assert math.isclose(theirs.high, factor * mine.high, rel_tol=1e-9)


@given(times)
def test_what_is_cut_is_far_out_and_gains_room(values: list[float]) -> None:
    found = band(values)
    if found.cut:
        assert max(values) - min(values) >= 2 * (found.high - found.low)
        inside = [each for each in values if found.low <= each <= found.high]
        assert all(each > found.high for each in found.above) and all(each < found.low for each in found.below)
        assert len(inside) >= len(values) / 2 and FENCE == 3.0


@given(st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 1.0, 2.0]), max_size=20))
def test_what_is_no_number_is_no_value(values: list[float]) -> None:
    found = band(values)
    assert math.isfinite(found.low) and math.isfinite(found.high)


def test_a_figure_marks_what_its_axis_leaves_out() -> None:
    plot = theme.figure()
    ys = [10.0, 11.0, 12.0, 10.5, 11.5, 400.0]
    found = theme.fit(plot, list(range(6)), ys, [f"{each} µs" for each in ys])
    assert found.above == (400.0,) and 12 < plot.y_range.end < 13 and 9 < plot.y_range.start < 10
    marks = [each for each in plot.renderers if each.name == "outliers"]
    glyphs = {type(each.glyph) for each in marks}
    assert glyphs == {Scatter, Text} and marks[0].data_source.data["text"] == ["▲ 400.0 µs"]
    assert marks[0].data_source.data["x"] == [5] and marks[0].data_source.data["y"][0] <= plot.y_range.end


def test_a_figure_without_outliers_shows_all_of_it() -> None:
    plot = theme.figure()
    assert not theme.fit(plot, [0, 1, 2], [1.0, 2.0, 3.0], ["", "", ""], zero=True).cut
    assert plot.y_range.start == 0 and plot.y_range.end > 3 and not plot.renderers


def test_a_figure_says_what_it_shows() -> None:
    plot = theme.figure(x_axis_label="build", y_axis_label="time (µs)")
    plot.scatter([1, 2], [3, 4], legend_label="fresh run")
    assert theme.item(plot)["said"] == "time (µs) over build (fresh run)"
