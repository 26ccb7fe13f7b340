"""A baseline's number beside each number of a kernel's page: `{% versus "pipe" pipe.name %}`, and its bar: `{% ghost … %}`.

Both print nothing where no baseline is chosen, or where it has no such number. `{{ metric|meaning }}` says what a metric means.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

from profiles.analysis.kernel.meaning import meaning_of
from profiles.kernel import selectors
from profiles.kernel.measures import Overlay, Versus
from webapp.templatetags import numbers

register = template.Library()
_AS = {"pct": numbers.pct, "%": numbers.pct, "ns": numbers.ns, "bytes": numbers.nbytes, "byte": numbers.nbytes}
_RATES = {"hz": "Hz", "byte/s": "B/s", "Hz": "Hz", "FLOP": "FLOP"}
STEADY_PCT = 0.05                # a change that three digits do not show has no arrow


def _found(context: Context, key: tuple[Any, ...]) -> Versus | None:
    overlay: Overlay | None = context.get("overlay")
    return overlay.get(":".join(str(part) for part in key)) if overlay else None


def value_text(value: float, unit: str) -> SafeString:
    """Return a number as the page writes it."""
    return _AS[unit](value) if unit in _AS else numbers.si(value, _RATES.get(unit, ""))


def change_text(found: Versus) -> str:
    change_pct = found.change_pct
    if change_pct is None:
        return "from 0" if found.measure.value else "= 0 %"
    if abs(change_pct) < STEADY_PCT:
        return "= 0 %"
    return f"{'▲ +' if change_pct > 0 else '▼ −'}{numbers.three_digits(abs(change_pct))} %"


@register.simple_tag(takes_context=True)
def versus(context: Context, *key: Any) -> SafeString:
    """Return the baseline's number and the change from it."""
    change = _found(context, key)
    if change is None:
        return SafeString("")
    return format_html('<span class="versus" data-key="{}" title="baseline, and the change from it">{} <b>{}</b></span>',
                       change.measure.key, value_text(change.baseline, change.measure.unit), change_text(change))


@register.simple_tag(takes_context=True)
def ghost(context: Context, *key: Any) -> SafeString:
    """Return the baseline's bar, hollow, for a track of percents."""
    change = _found(context, key)
    return SafeString("") if change is None else format_html(
        '<span class="sol-ghost" style="width:{}%" title="baseline"></span>', change.css)


@register.simple_tag(takes_context=True)
def ghost_of(context: Context, most: float, *key: Any) -> SafeString:
    """Return the baseline's bar where the track ends at `most`."""
    change = _found(context, key)
    if change is None or not most:
        return SafeString("")
    return format_html('<span class="sol-ghost" style="width:{}%" title="baseline"></span>',
                       f"{min(100.0, 100.0 * change.baseline / most):.2f}")


@register.filter
def part_url(anchor: str, kernel: Any) -> str:
    """Return the address of a part of the kernel's page on the tab that holds it."""
    return f"{selectors.address(kernel, selectors.MOVED.get(anchor, ''))}#{anchor}"


@register.filter
def meaning(metric: object) -> str:
    """Return the name, what it means with its unit, and which values are good and which are bad, a line each."""
    name = str(metric or "")
    return f"{name}\n{meaning_of(name).text}" if name else ""
