"""What a metric of Nsight Compute means, for the hover of its name."""

from __future__ import annotations

from django import template

from profiles.analysis.kernel.meaning import meaning_of

register = template.Library()


@register.filter
def meaning(metric: object) -> str:
    """Return the name, what it means with its unit, and which values are good and which are bad, a line each."""
    name = str(metric or "")
    return f"{name}\n{meaning_of(name).text}" if name else ""
