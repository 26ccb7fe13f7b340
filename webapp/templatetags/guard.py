"""Template tags of the guard for pages of profiles."""

from __future__ import annotations

from django import template

from tuner.gate.verdicts import page_selectors
from tuner.models import Gate

register = template.Library()


@register.simple_tag
def gates_between(old: str, new: str) -> list[Gate]:
    """Return gates that judged `new` against `old`, newest first; none without single builds."""
    return page_selectors.gates_between(old, new) if old and new else []
