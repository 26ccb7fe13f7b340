"""Numbers for people: SI prefixes, three significant digits, exact on hover. Unknown is an em dash, never zero.

`static/js/lib/units.js` writes the same text in the browser; tests/data/numbers.json holds the cases both must meet.
For an attribute or a sentence without markup: ``{{ value|ns|striptags }}``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from html import escape
from typing import Any

from django import template
from django.template.defaultfilters import pluralize
from django.utils.formats import localize
from django.utils.html import conditional_escape, format_html, format_html_join, strip_tags
from django.utils.safestring import SafeString

from tuner.gate.stats.results import percent_text

register = template.Library()

NO_BREAK = "\N{NO-BREAK SPACE}"
UNKNOWN = SafeString('<span class="unknown" title="unknown">—</span>')
_UP = ("", "k", "M", "G", "T", "P", "E")
_DOWN = ("", "m", "µ", "n", "p", "f")
_TIMES = ((1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"), (60e9, "min"), (3600e9, "h"))
_SMALL_UNITS = ("s", "J", "W", "V", "A", "m")  # units people write with m, µ, n; 0.250 FLOP/B keeps its zero
_EXACT_COUNTS_BELOW = 100_000
_FILTERS = {"ns": "ns", "bytes": "nbytes", "pct": "pct", "count": "count"}         # unit of a column -> filter
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def three_digits(value: float) -> str:
    """Three significant digits without an exponent: 12.345 -> 12.3, 0.05 -> 0.0500."""
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    if round(abs(value), decimals) >= 10 ** (3 - decimals):  # 9.996 -> 10.0, not 10.00
        decimals = max(0, decimals - 1)
    return f"{value:.{min(decimals, 12)}f}"


def _plain(value: float) -> str:
    """Without a prefix a whole number stays whole: 7 ns, not 7.00 ns."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1000 else three_digits(value)


def si_text(value: float, unit: str) -> str:
    """1.23e12, "FLOP/s" -> "1.23 TFLOP/s"."""
    size, step = abs(value), 0
    while step < len(_UP) - 1 and size >= 999.5:
        size, step = size / 1000, step + 1
    while 0 < size < 0.9995 and -step < len(_DOWN) - 1 and unit in _SMALL_UNITS:
        size, step = size * 1000, step - 1
    prefix = _UP[step] if step >= 0 else _DOWN[-step]
    number = math.copysign(size, value)
    text = _plain(number) if step == 0 else three_digits(number)
    return f"{text} {prefix}{unit}".rstrip()


def ns_text(value: float) -> str:
    """A duration from ns to h: 12400 -> "12.4 µs"."""
    size = abs(value)
    scale, unit = _TIMES[0]
    for factor, name in _TIMES[1:]:
        rounds_up = 0.9995 if factor <= 1e9 else 1.0  # 999.6 µs is 1.00 ms; 59.99 s stays seconds
        if size >= factor * rounds_up:
            scale, unit = factor, name
    return f"{_plain(value / scale) if unit == 'ns' else three_digits(value / scale)} {unit}"


def pct_text(value: float) -> str:
    """0-100: "61.3 %"; what is smaller than 0.01 but not nothing says so."""
    if value != 0 and abs(value) < 0.01:
        return f"{'>' if value < 0 else '<'}{math.copysign(0.01, value)} %"
    return f"{_plain(value)} %" if abs(value) >= 1 or value == 0 else f"{value:.2f} %"


def count_text(value: float) -> str:
    """Whole numbers, exact below 100,000."""
    return f"{value:,.0f}" if abs(value) < _EXACT_COUNTS_BELOW else si_text(value, "")


def _exact(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}".rstrip() if value == int(value) else f"{value:,.6g} {unit}".rstrip()


def _span(text: str, exact: str) -> SafeString:
    # as format_html does, in a fifth of its time: a page shows thousands
    return SafeString(f'<span class="num" title="{escape(exact)}">{escape(text.replace(" ", NO_BREAK))}</span>')


def _with_exact(value: Any, unit: str, text: Callable[[float], str]) -> SafeString:
    """The text of a number with its exact value on hover."""
    number = _number(value)
    return UNKNOWN if number is None else _span(text(number), _exact(number, unit))


@register.filter
def unknown(why: Any) -> SafeString:
    """An em dash that says on hover why nothing is known."""
    return SafeString(f'<span class="unknown" title="{conditional_escape(why)}">—</span>')


@register.filter
def cell(value: Any, kind: str) -> SafeString:
    """A table's cell of a number: its text as the filter `kind` of this module writes it, sorted and drawn by its value."""
    exact = "" if value is None else conditional_escape(localize(value))
    return SafeString(f'<td class="num" data-value="{exact}">{conditional_escape(register.filters[kind](value))}</td>')


@register.filter
def num(value: Any, kind: str) -> SafeString:
    """A table's cell of a number: its text as the filter `kind` of this module writes it."""
    return SafeString(f'<td class="num">{conditional_escape(register.filters[kind](value))}</td>')


@register.filter
def signed_ns(value: Any) -> SafeString:
    """A change given in ns, with its sign."""
    return SafeString("+" if (_number(value) or 0) > 0 else "") + ns(value)


@register.filter
def plural(value: Any, word: str) -> SafeString:
    """A number and its word: 1 build, 3 builds."""
    return format_html("{} {}{}", localize(value), word, pluralize(value))


@register.filter
def counted(value: Any, word: str) -> SafeString:
    """The same, the number as `count` writes it."""
    return format_html("{} {}{}", count(value), word, pluralize(value))


@register.filter
def ns(value: Any) -> SafeString:
    """Duration given in ns."""
    return _with_exact(value, "ns", ns_text)


@register.filter
def us(value: Any) -> SafeString:
    """Duration given in µs."""
    return _with_exact(value, "µs", lambda us: ns_text(us * 1e3))


@register.filter
def ms_as_time(value: Any) -> SafeString:
    """Duration given in ms."""
    return _with_exact(value, "ms", lambda ms: ns_text(ms * 1e6))


@register.filter
def seconds(value: Any) -> SafeString:
    """Duration given in seconds: minutes and hours as such, not kiloseconds."""
    return _with_exact(value, "s", lambda s: ns_text(s * 1e9))


@register.filter
def nbytes(value: Any) -> SafeString:
    """Bytes, decimal prefixes."""
    return si(value, "B")


@register.filter
def si(value: Any, unit: str = "") -> SafeString:
    """Any unit: ``{{ rate|si:"FLOP/s" }}``."""
    return _with_exact(value, unit, lambda number: si_text(number, unit))


@register.filter
def pct(value: Any) -> SafeString:
    """Percent given as 0-100."""
    return _with_exact(value, "%", pct_text)


@register.filter
def share(value: Any) -> SafeString:
    """Percent given as a fraction: 0.034 -> "3.40 %"."""
    number = _number(value)
    return pct(None if number is None else number * 100)


@register.filter
def shares(parts: Any) -> SafeString:
    """Parts of a whole in a sentence, by their `label` and `pct`: "compute 61.3 %, idle 38.7 %"."""
    return format_html_join(", ", "{} {}", ((part.label, SafeString(strip_tags(pct(part.pct)))) for part in parts))


@register.filter
def in_unit(value: Any, unit: str) -> Any:
    """A value of a table whose columns state their unit; without one as it is."""
    if not unit:
        return "—" if value is None else value
    return register.filters[_FILTERS[unit]](value) if unit in _FILTERS else si(value, unit)


@register.filter
def change(value: Any) -> SafeString:
    """A ratio of new to old as signed percent, 1.081 -> "+8.1 %"; the ratio itself on hover."""
    return _with_exact(value, "×", percent_text)


@register.filter
def signed_pct(value: Any) -> SafeString:
    """A change given as percent 0-100: "+61.3 %", "−5.00 %"; one that is too small to show has no sign: "<0.01 %"."""
    return _with_exact(value, "%", lambda number: f"{'+' if number >= 0.01 else ''}{pct_text(number)}".replace("-", "−"))


def p_value_text(p: float) -> str:
    """A p value: 0.031 -> "0.031"; below 0.0001 the next power of ten, "< 10⁻¹²"."""
    if p >= 1e-4:
        return f"{p:.4f}".rstrip("0").rstrip(".")
    power = 307 if p <= 0 else math.ceil(-math.log10(p)) - 1
    return f"< 10⁻{str(power).translate(_RAISED)}"


@register.filter
def p_value(value: Any) -> SafeString:
    """How likely something is among equals: a p value."""
    return _with_exact(value, "", p_value_text)


@register.filter
def count(value: Any) -> SafeString:
    """How many."""
    return _with_exact(value, "", count_text)


@register.filter
def shape(value: Any) -> str:
    """A shape of named dimensions as text: {"M": 4096, "K": 64} -> "M 4096 · K 64"."""
    return (
        " · ".join(f"{name} {size}" for name, size in value.items()) if isinstance(value, Mapping) else str(value or "")
    )


@register.filter
def pieces(parts: Any) -> SafeString:
    """Pieces of a sentence, (text, whether it is code) each."""
    return format_html_join("", "{}", ((format_html("<code>{}</code>", text) if code else text,) for text, code in parts or ()))


@register.filter
def ticked(value: Any) -> SafeString:
    """A sentence in which `names` in backticks become code; everything is escaped."""
    parts = str(value or "").split("`")
    if len(parts) % 2 == 0:  # one that is not closed is a backtick
        return format_html("{}", "`".join(parts))
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", part) if index % 2 else part,) for index, part in enumerate(parts))
    )


@register.filter
def moment(value: Any) -> SafeString:
    """A time from ISO text, epoch seconds or a datetime; the browser turns it into "3 min ago"."""
    try:
        if isinstance(value, int | float):
            when = datetime.fromtimestamp(value, UTC)
        else:
            when = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError):
        return UNKNOWN
    return format_html(
        '<time data-ago datetime="{}" title="{}">{}</time>',
        when.isoformat(),
        when.strftime("%Y-%m-%d %H:%M:%S %Z").strip(),
        when.strftime("%Y-%m-%d %H:%M"),
    )


# GPU-hours for people: three significant digits, thousands apart, exact on hover where they stand in markup.


def hours_text(hours: float) -> str:
    """1234.56 -> "1,235"; 12.345 -> "12.3"; what is smaller than 0.001 but not nothing says so."""
    if 0 < hours < 0.001:
        return "<0.001"
    return f"{hours:,.0f}" if hours >= 999.5 or hours == 0 else three_digits(hours) if hours >= 0.1 else f"{hours:.3f}"


@register.filter
def plain_hours(value: Any) -> str | SafeString:
    """Hours without a unit, for a column that states it."""
    return UNKNOWN if value is None else hours_text(float(value))


@register.filter
def gpu_hours(value: Any, unit: str = "GPU-hours") -> str | SafeString:
    """Hours with their unit: "12.3 GPU-hours"; with another unit in that: "44,280 GPU-seconds"."""
    if value is None:
        return UNKNOWN
    scale = 3600.0 if unit == "GPU-seconds" else 1.0
    return f"{hours_text(scale * float(value))}\N{NO-BREAK SPACE}{unit or 'GPU-hours'}"
