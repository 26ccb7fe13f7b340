"""`{% problem_url operator dtype shape gpu %}`: the page of a kernel problem, "" where no operator takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from webapp.problem import address

register = template.Library()


@register.simple_tag
def problem_url(operator: str, dtype: str, shape: Mapping[str, Any], gpu: str | None) -> str:
    """Return the address of a job's, an entry's or a suite kernel's problem."""
    made = address.make(operator, dtype, shape, gpu or "")
    return made.url if made else ""
