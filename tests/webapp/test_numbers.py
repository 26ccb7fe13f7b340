"""The number format: three digits, SI, exact on hover; the browser writes the same (tests/js/lib/units.test.js)."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from django.template import Context, Template

from webapp.templatetags import numbers

CASES = json.loads((Path(__file__).parents[1] / "data" / "numbers.json").read_text())


def shown(markup: str) -> str:
    return (
        Template("{{ markup|striptags }}")
        .render(Context({"markup": markup}))
        .replace("\N{NO-BREAK SPACE}", " ")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
    )


@pytest.mark.parametrize("name", ["ns", "nbytes", "pct", "count"])
def test_text_of_each_filter(name: str) -> None:
    for value, text in CASES[name]:
        assert shown(getattr(numbers, name)(value)) in (text, text.replace("<", "&lt;").replace(">", "&gt;"))


def test_any_unit() -> None:
    assert [shown(numbers.si(value, unit)) for value, unit, _ in CASES["si"]] == [text for *_, text in CASES["si"]]


def test_ms_is_a_time() -> None:
    assert shown(numbers.ms_as_time(0.1748)) == "175 µs"


def test_exact_value_is_on_hover_and_markup_is_escaped() -> None:
    assert 'title="12,400 ns"' in numbers.ns(12400)
    assert 'title="0.176544 ms"' in numbers.ms_as_time(0.17654399573802948)
    assert "<script>" not in numbers.si(1.0, "<script>")


@pytest.mark.parametrize("unknown", [None, "", "n/a", float("nan"), float("inf")])
def test_unknown_is_a_dash_never_zero(unknown: object) -> None:
    for name in ("ns", "ms_as_time", "nbytes", "pct", "count", "si"):
        assert getattr(numbers, name)(unknown) == '<span class="unknown" title="unknown">—</span>'


def test_backticks_become_code_and_nothing_else_does() -> None:
    assert numbers.ticked("waits in `aten::item` <b>") == "waits in <code>aten::item</code> &lt;b&gt;"
    assert numbers.ticked("one ` only <i>") == "one ` only &lt;i&gt;"


def test_shapes_and_moments() -> None:
    assert numbers.shape({"M": 4096, "K": 64}) == "M 4096 · K 64"
    assert 'datetime="2026-01-01T12:00:00+00:00"' in numbers.moment(1767268800)
    assert "—" in numbers.moment("yesterday")


def test_a_p_value_has_no_row_of_zeros() -> None:
    cases = {1.0: "1", 0.5: "0.5", 0.03125: "0.0312", 1e-4: "0.0001", 9.9e-5: "< 10⁻⁴", 1.7e-13: "< 10⁻¹²",
             3e-320: "< 10⁻³¹⁹", 0.0: "< 10⁻³⁰⁷"}
    assert {p: numbers.p_value_text(p) for p in cases} == cases


@pytest.mark.parametrize("value", [None, 0, 1.5, 1_234_567, "a<b", Decimal("2.50"), True])
def test_a_cell_is_its_value_and_its_text(value: object) -> None:
    """`cell` and `unknown` write what the markup that they stand for writes."""
    plain = Template('<td class="num" data-value="{{ v|default_if_none:"" }}">{{ v|pct }}</td>'
                     '<span class="unknown" title="{{ v }}">—</span>')
    short = Template('{{ v|cell:"pct" }}{{ v|unknown }}')
    assert short.render(Context({"v": value})) == plain.render(Context({"v": value}))


def test_a_cell_of_nothing_is_empty() -> None:
    assert Template('{{ missing|cell:"ns" }}').render(Context()) == '<td class="num" data-value="">' + numbers.UNKNOWN + "</td>"


def test_the_head_of_a_table_is_written_a_column_a_line() -> None:
    head = Template("{% heads %}\n Kernel: text wide\nΔ: ns ? new − old\n{% if more %}Noise: % roomy hidden{% endif %}\n"
                    "{{ name }}: num\nActions: unseen\n{% endheads %}")
    assert head.render(Context({"name": "<b>", "more": True})) == (
        '<thead><tr><th data-type="text" class="wide">Kernel</th><th data-type="number" data-unit="ns" title="new − old">Δ</th>'
        '<th data-type="number" data-unit="%" data-hidden class="roomy">Noise</th><th class="num">&lt;b&gt;</th>'
        '<th><span class="visually-hidden">Actions</span></th></tr></thead>')
    assert head.render(Context({"name": "n"})).count("<th>") + head.render(Context({"name": "n"})).count("<th ") == 4


def test_a_change_of_time_has_its_sign() -> None:
    assert [shown(numbers.signed_ns(value)) for value in (12400, 0, -12400, None)] == ["+12.4 µs", "0 ns", "-12.4 µs", "—"]


def test_a_figure_brings_its_data_and_says_what_it_shows() -> None:
    drawn = Template('{% figure bars "bars" id="place" %}Bars of {{ name }}{% endfigure %}')
    assert drawn.render(Context({"bars": {"a": "</script>", "room": 320}, "name": '"'})) == (
        '<script id="bars-json" type="application/json">{"a": "\\u003C/script\\u003E", "room": 320}</script>'
        '<div class="figure" data-figure="bars-json" style="min-height:320px" id="place" role="img" '
        'aria-label="Bars of &quot;"></div>')
