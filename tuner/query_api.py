"""Numbers of an address, wherever the tuner's API takes one."""

from __future__ import annotations

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request


def whole(request: Request, name: str, default: int, high: int, low: int = 0) -> int:
    """The whole number of `?name=`, brought into its bounds. ValidationError where it is none."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return max(low, min(high, int(text)))
    except ValueError as error:
        raise ValidationError({name: ["must be a whole number"]}) from error
