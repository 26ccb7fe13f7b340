"""What a request of the tuner's API says: values of its body, and numbers of its query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.serializers import Field

from tuner.tuning.trial import storable


@extend_schema_field({})
class Checked(Field[Any, Any, Any, Any]):
    """A value that is taken as it came where it fits, without DRF's conversions (3 is no text, "true" no flag)."""

    def __init__(self, fits: Callable[[Any], bool], words: str, **more: Any) -> None:
        """`words`: what would be right, for whatever does not fit, is null or is not there."""
        super().__init__(error_messages=dict.fromkeys(("required", "null", "invalid"), words), **more)
        self.fits = fits

    def to_internal_value(self, data: Any) -> Any:
        if not self.fits(data):
            self.fail("invalid")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


def is_text(value: Any) -> bool:
    """Return whether a row can hold it as a text."""
    return isinstance(value, str) and storable(value)


def read_whole(request: Request, name: str, default: int, high: int, low: int = 0) -> int:
    """Return the whole number `?name=`, clipped to its bounds. Raises ValidationError."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return max(low, min(high, int(text)))
    except ValueError as error:
        raise ValidationError({name: ["must be a whole number"]}) from error
