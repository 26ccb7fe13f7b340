"""Domain errors become an answer in one place: JSON for the API."""

from __future__ import annotations

from typing import Any

from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_exception_handler

from profiles.trace import TraceError


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """{"error": what, "where": where, "hint": what to do}: 400 for a domain error, DRF's status for its own.

    A field error keeps DRF's shape under "fields" too, so that a form can put each message beside its field.
    """
    if isinstance(error, TraceError):
        return Response({"error": error.what, "where": error.where, "hint": error.hint}, status=400)
    response = drf_exception_handler(error, context)
    if response is not None:
        response.data = _shape(response.data, response.status_code)
    return response


def _shape(data: Any, status: int) -> dict[str, Any]:
    if isinstance(data, dict) and set(data) == {"detail"}:
        return {"error": str(data["detail"]), "where": "request", "hint": HINTS.get(status, "")}
    if isinstance(data, dict):
        return {"error": "; ".join(f"{name}: {_first(told)}" for name, told in data.items()), "where": ", ".join(data),
                "hint": "correct these fields", "fields": data}
    return {"error": _first(data), "where": "request", "hint": HINTS.get(status, "")}


def _first(told: Any) -> str:
    return str(told[0]) if isinstance(told, list) and told else str(told)


HINTS = {
    401: "sign in, or send “Authorization: Token …” with a token from Accounts → Tokens",
    403: "ask an owner for the role that may do this; from a page, reload it",
    404: "it may have been deleted",
    405: "see /api/docs/ for what this address takes",
}
