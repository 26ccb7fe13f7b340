"""Errors as answers: JSON for the API, pages for people."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import get_script_prefix, is_valid_path
from django.views import defaults
from rest_framework.exceptions import NotFound, ParseError
from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_exception_handler

from profiles.base.refused import Refused
from profiles.ingest.trace import TraceError
from webapp.outage import Outage, outage_answer, outage_data, outage_of
from workers import trail

log = logging.getLogger(__name__)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """{"error": what, "where": where, "hint": what to do}: 400 for a domain error, 503 or 507 where a server is away or the
    disk is full, DRF's status for its own.

    A field error keeps DRF's shape under "fields" too, so that a form can put each message beside its field.
    """
    if outage := outage_of(error):
        path = context["request"].path if context.get("request") else ""
        _note_outage(path, outage, error)
        return Response(outage_data(outage, path), status=outage.status, headers=outage.headers)
    if isinstance(error, RecursionError):              # of the JSON parser: [[[[[…
        error = ParseError("the JSON is nested too deeply")
    if isinstance(error, UnicodeDecodeError):          # of knox, for a token that is no text
        error = ParseError("the request holds text that is not UTF-8")
    if isinstance(error, Refused):
        fields = {name or error.whole or "request": [what] for name, what in error.fields.items()}
        whole = {"error": error.what, "where": "request", "hint": error.hint or HINTS.get(error.status, "")}
        is_whole = error.status == 403 or (not error.whole and set(error.fields) == {""})
        return Response(whole if is_whole else _error_json(fields, error.status), error.status)
    if isinstance(error, TraceError):
        return Response({"error": error.what, "where": error.where, "hint": error.hint}, status=400)
    if isinstance(error, Http404) and (named := re.fullmatch(r"No (\w+) matches the given query\.", str(error))):
        error = NotFound(f"there is no such {re.sub(r'(?<=[a-z])(?=[A-Z])', ' ', named[1]).lower()}")
    response = drf_exception_handler(error, context)
    if response is not None:
        response.data = _error_json(response.data, response.status_code)
    return response


def _note_outage(path: str, outage: Outage, error: Exception) -> None:
    """Tell the line of the request, else a line of its own, what was away or full."""
    text = outage.what if str(error) == outage.what else f"{outage.what} ({' '.join(str(error).split())})"
    if now := trail.current():
        now.why = text[:300]
    else:
        log.warning("%s: %s", path, text)


def _error_json(data: Any, status: int) -> dict[str, Any]:
    if isinstance(data, dict) and set(data) == {"detail"}:
        return {"error": str(data["detail"]), "where": "request", "hint": HINTS.get(status, "")}
    if isinstance(data, dict):
        return {"error": "; ".join(f"{name}: {_first_message(told)}" for name, told in data.items()), "where": ", ".join(data),
                "hint": "correct these fields", "fields": data}
    return {"error": _first_message(data), "where": "request", "hint": HINTS.get(status, "")}


def _first_message(told: Any) -> str:
    """Return the first message, however deep lists or objects hold it."""
    while isinstance(told, list | dict) and told:
        told = told[0] if isinstance(told, list) else next(iter(told.values()))
    return str(told)


class RefuseNul:
    """Refuses addresses with a NUL, which PostgreSQL's texts cannot hold."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "%00" in request.META.get("QUERY_STRING", "") or "\0" in request.path:
            raise BadRequest("the address holds a NUL character")
        return self.get_response(request)


class RedirectToForm:
    """Redirects a GET of a POST-only address to the page above it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code != 405 or request.method != "GET" or request.path_info.startswith("/api/"):
            return response
        above = request.path_info
        while above != "/":
            above = above[:above.rstrip("/").rfind("/") + 1]
            if is_valid_path(above):
                break
        return HttpResponseRedirect(get_script_prefix().rstrip("/") + above)


def _answer(request: HttpRequest, exception: Exception | None = None, *, status: int) -> HttpResponse:
    """Of errors that no view saw: the API speaks JSON there too."""
    if status == 500 and (outage := outage_of(sys.exc_info()[1])):
        return outage_answer(outage, request.path_info, request.method)
    if not request.path_info.startswith("/api/"):
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
    429: "wait as many seconds as Retry-After says; an owner may raise RIDGEPOINT_LIMITS",
    500: "nothing that was stored is lost; the server's log has the trace",
    405: "see /api/docs/ for what this address takes",
}
