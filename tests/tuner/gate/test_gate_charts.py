"""Where the pictures of a gate put things: a place across is per cent of the width, whatever is drawn there."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from tuner.gate.reports import words
from tuner.gate.stats.results import percent_text
from tuner.gate.verdicts.charts import LEFT, RIGHT, Point, RunMedian, interval_plot, strip_plot, tick_text
from tuner.gate.verdicts.run_charts import RunSamples, order_figure, samples_figure
from webapp.templatetags.numbers import change, share, signed_pct


@pytest.mark.parametrize(("ratio", "text"), [
    (1.0, "0.0 %"), (1.081, "+8.1 %"), (0.95, "−5.0 %"), (1.05, "+5.0 %"), (1.0004, "0.0 %"), (0.9996, "0.0 %"), (2.5, "+150 %"),
    (1.0005001, "+0.1 %")])
def test_a_ratio_is_said_as_signed_percent_alike_everywhere(ratio: float, text: str) -> None:
    """Pictures, reports and pages: "+5.0 %" beside its interval "+4.4 % to +5.6 %", never "+5 %"."""
    assert percent_text(ratio) == text == words.change_text(ratio)
    assert f">{text.replace(' ', chr(160))}<" in change(ratio)
    assert tick_text(ratio) == text.replace(".0 %", " %")                   # of a round change at an axis


def test_a_change_too_small_to_show_has_no_sign() -> None:
    shown = [re.sub("<.*?>", "", signed_pct(value)).replace(chr(160), " ") for value in (61.3, -5, 0.004, -0.004, 0, None)]
    assert shown == ["+61.3 %", "−5 %", "&lt;0.01 %", "&gt;−0.01 %", "0 %", "—"]


def test_unknown_ratios_and_shares_are_a_dash() -> None:
    assert "—" in change(None) and "—" in change(float("nan")) and "—" in share(None)
    assert "3.40" in share(0.034)


def test_the_axis_is_logarithmic_and_holds_floor_and_target() -> None:
    plot = interval_plot([Point("a", "SLOWER", ratio=1.08, low=1.07, high=1.09),
                          Point("b", "PASS", ratio=0.99, low=0.98, high=1.0)], 0.02, 0.05)
    first, second = plot.rows
    assert LEFT < second.low_at < second.at < plot.one_at < plot.floor.at < plot.target.at < first.low_at < first.at < RIGHT
    assert plot.faster.at < plot.one_at and (plot.floor.text, plot.target.text, plot.faster.text) == ("+2 %", "+5 %", "−2 %")
    # the same factor is the same distance: places are linear in the logarithm
    per = (plot.target.at - plot.one_at) / math.log(1.05)
    assert first.at == pytest.approx(plot.one_at + per * math.log(1.08), abs=0.01)
    assert second.at == pytest.approx(plot.one_at + per * math.log(0.99), abs=0.01)
    assert [tick.at for tick in plot.ticks] == sorted(tick.at for tick in plot.ticks) and len(plot.ticks) <= 9
    assert "0 %" in [tick.text for tick in plot.ticks]


def test_what_lies_far_off_gets_an_arrow_and_squeezes_nobody() -> None:
    plot = interval_plot([
        Point("far", "SLOWER", ratio=3.0, low=2.5, high=3.5), Point("cut", "AMBIGUOUS", ratio=1.04, low=0.99, high=1.6),
        Point("gone", "FASTER", ratio=0.2, low=0.1, high=0.3), Point("none", "NO DATA", reason="no run")], 0.02, 0.05)
    far, cut, gone, none = plot.rows
    assert (far.beyond, far.at, far.cut_right) == ("right", RIGHT, True)
    assert (gone.beyond, gone.at) == ("left", LEFT)
    assert (cut.beyond, cut.cut_left, cut.cut_right, cut.high_at) == ("", False, True, RIGHT)
    assert (none.at, none.low_at, none.why, none.interval) == (None, None, "no run", "")
    assert plot.target.at - plot.floor.at > 3, "the lines that decide stay apart"


def test_a_quantity_beside_the_p50_is_named_and_a_slip_of_units_is_told_in_times() -> None:
    by_mean, slip, _ = interval_plot([Point("softmax", "SLOWER", ratio=1.17, low=1.14, high=1.22, of="mean"),
                                      Point("matmul", "AMBIGUOUS", ratio=999.3, low=990.0, high=1010.0),
                                      Point("add", "PASS", ratio=1.0)], 0.02, 0.05).rows
    assert (by_mean.name, by_mean.ratio) == ("softmax · mean", "+17.0 %")
    assert (slip.ratio, slip.interval, slip.beyond) == ("999×", "[990×, 1,010×]", "right")
    sides = [("baseline", "a", [RunMedian(40.0 + n / 10, "") for n in range(3)]),
             ("candidate", "b", [RunMedian(40_000.0 + n, "") for n in range(3)])]
    strips = strip_plot(sides, 0.02, 0.05)
    assert strips is not None and [name for name, _ in strips.levels] == ["target"], "both at one place: one word"


def test_numbers_that_are_none_draw_nothing() -> None:
    wrong = [Point("nan", "NO DATA", ratio=math.nan), Point("zero", "NO DATA", ratio=0.0), Point("minus", "NO DATA", ratio=-1.0),
             Point("inf", "NO DATA", ratio=math.inf, low=math.inf, high=math.inf)]
    assert [line.at for line in interval_plot(wrong, 0.02, 0.05).rows] == [None] * 4


def test_a_kernel_with_a_rule_of_its_own_shows_it_and_only_the_worst_are_drawn() -> None:
    points = [Point("own", "PASS", ratio=1.0, low=0.99, high=1.01, floor=0.03, target=0.08), *[Point("x", "PASS", ratio=1.0)] * 60]
    plot = interval_plot(points, 0.02, 0.05, most=40)
    assert (len(plot.rows), plot.unlisted) == (40, 21)
    assert plot.rows[0].own_rule and plot.rows[0].own_rule[1] > plot.target.at and plot.rows[1].own_rule is None


def test_dots_of_runs_keep_their_place_and_do_not_cover_each_other() -> None:
    rng = np.random.default_rng(1)
    sides = [(name, name, [RunMedian(float(us), f"run {n}") for n, us in enumerate(rng.normal(mean, 0.3, 20))])
             for name, mean in (("baseline", 100.0), ("candidate", 108.0))]
    plot = strip_plot(sides, 0.02, 0.05, (1.06, 1.10))
    assert plot is not None and plot.band is not None
    left, width, y = plot.band
    assert left < plot.strips[1].median_at < left + width and y == plot.strips[1].y
    for strip, (_, _, runs) in zip(plot.strips, sides, strict=True):
        assert strip.median_us == pytest.approx(np.median([run.us for run in runs]))
        assert sorted(dot.run.us for dot in strip.dots) == sorted(run.us for run in runs)
        assert all(abs(dot.y - strip.y) <= 38 for dot in strip.dots)
        places = [(dot.at, dot.y) for dot in strip.dots]
        assert len(set(places)) == len(places)
    first = plot.strips[0]
    per = (plot.strips[1].median_at - first.median_at) / (plot.strips[1].median_us - first.median_us)
    for name, by in (("floor", 1.02), ("target", 1.05)):
        tick = dict(plot.levels)[name]
        assert tick.at == pytest.approx(first.median_at + per * first.median_us * (by - 1), abs=0.02)
    assert strip_plot([("baseline", "", []), ("candidate", "", [])], 0.02, 0.05) is None


def test_one_run_and_equal_runs_have_a_picture_too() -> None:
    one = strip_plot([("baseline", "a", []), ("candidate", "b", [RunMedian(5.0, "")])], 0.02, 0.05)
    assert one is not None and one.levels == [] and len(one.strips) == 1
    same = strip_plot([("baseline", "a", [RunMedian(5.0, "")] * 4), ("candidate", "b", [RunMedian(5.0, "")] * 4)], 0.02, 0.05)
    assert same is not None and same.strips[0].median_at == same.strips[1].median_at


def test_figures_of_runs_hold_each_run_and_its_quantiles() -> None:
    runs = [RunSamples(side, "b", f"r{n}", n, [float(us) for us in range(10 * n, 10 * n + 101)], 1980.0 if n % 2 else None)
            for n, side in enumerate(["baseline", "candidate"], 1)]
    for figure in (order_figure(runs), samples_figure(runs)):
        assert figure is not None and "r1" in str(figure) and "r2" in str(figure)
    assert order_figure([]) is None and samples_figure([]) is None
