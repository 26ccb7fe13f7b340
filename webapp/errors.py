"""Errors become an answer in one place: JSON for the API, pages for people."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import is_valid_path
from django.views import defaults
from rest_framework.exceptions import NotFound, ParseError
from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_exception_handler

from profiles.trace import TraceError


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """{"error": what, "where": where, "hint": what to do}: 400 for a domain error, DRF's status for its own.

    A field error keeps DRF's shape under "fields" too, so that a form can put each message beside its field.
    """
    if isinstance(error, RecursionError):              # of the JSON parser: [[[[[…
        error = ParseError("the JSON is nested too deeply")
    if isinstance(error, UnicodeDecodeError):          # of knox, for a token that is no text
        error = ParseError("the request holds text that is not UTF-8")
    if isinstance(error, TraceError):
        return Response({"error": error.what, "where": error.where, "hint": error.hint}, status=400)
    if isinstance(error, Http404) and (named := re.fullmatch(r"No (\w+) matches the given query\.", str(error))):
        error = NotFound(f"there is no such {re.sub(r'(?<=[a-z])(?=[A-Z])', ' ', named[1]).lower()}")
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
    """The first message, however deep a list of lists or objects holds it."""
    while isinstance(told, list | dict) and told:
        told = told[0] if isinstance(told, list) else next(iter(told.values()))
    return str(told)


class NoNul:
    """Refuse addresses with a NUL: PostgreSQL's texts hold none, so that nothing could match. Forms refuse their own."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "%00" in request.META.get("QUERY_STRING", "") or "\0" in request.path:
            raise BadRequest("the address holds a NUL character")
        return self.get_response(request)


class WayBack:
    """An address that only takes forms leads to the page above it: a reload, or signing in, after a form that was refused."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code != 405 or request.method != "GET" or request.path.startswith("/api/"):
            return response
        above = request.path
        while above != "/":
            above = above[:above.rstrip("/").rfind("/") + 1]
            if is_valid_path(above):
                break
        return HttpResponseRedirect(above)


def _answer(request: HttpRequest, exception: Exception | None = None, *, status: int) -> HttpResponse:
    """Of errors that no view saw: the API speaks JSON there too."""
    if not request.path.startswith("/api/"):
        page = _PAGES[status]
        return page(request) if exception is None else page(request, exception)
    what = str(exception) if status == 400 and exception else _WHAT[status]
    return JsonResponse({"error": what, "where": request.path, "hint": HINTS[status]}, status=status)


bad_request, forbidden, not_found, server_error = (partial(_answer, status=status) for status in (400, 403, 404, 500))
_PAGES: dict[int, Callable[..., HttpResponse]] = {
    400: defaults.bad_request, 403: defaults.permission_denied, 404: defaults.page_not_found, 500: defaults.server_error}
_WHAT = {400: "the request cannot be understood", 403: "this is not allowed", 404: "there is nothing at this address",
         500: "the server made a mistake"}
HINTS = {
    400: "see /api/docs/ for what this address takes",
    401: "sign in, or send “Authorization: Token …” with a token (your name in the menu → API tokens)",
    403: "a program sends “Authorization: Token …” (your name in the menu → API tokens); a page is reloaded; else ask an owner "
         "for the role",
    404: "it may have been deleted",
    500: "nothing that was stored is lost; the server's log has the trace",
    405: "see /api/docs/ for what this address takes",
}
