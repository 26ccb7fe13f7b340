"""GPU-hours for people: three significant digits, thousands apart, exact on hover where they stand in markup."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils.safestring import SafeString

from webapp.templatetags.numbers import UNKNOWN, three_digits

register = template.Library()


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
