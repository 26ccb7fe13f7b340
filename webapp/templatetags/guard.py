"""What the guard says beside pages of profiles, which know nothing of it."""

from __future__ import annotations

from django import template

from tuner.gates import page_selectors
from tuner.models import Gate

register = template.Library()


@register.simple_tag
def gates_between(old: str, new: str) -> list[Gate]:
    """Gates that judged `new` against `old`, newest first; none where a side is not of one build."""
    return page_selectors.gates_between(old, new) if old and new else []
