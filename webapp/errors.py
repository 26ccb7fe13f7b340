"""Domain errors become an answer in one place: JSON for the API."""

from __future__ import annotations

from typing import Any

from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_exception_handler

from profiles.trace import TraceError


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """{"error": what, "where": where, "hint": what to do} with status 400 for a domain error; DRF's own shape otherwise."""
    if isinstance(error, TraceError):
        return Response({"error": error.what, "where": error.where, "hint": error.hint}, status=400)
    return drf_exception_handler(error, context)
