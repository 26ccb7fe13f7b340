"""Each request: its number, its line in the log, its counts in /metrics."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable
from http.client import responses
from typing import Any

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

from webapp.logs import OUTAGES
from webapp.operate import probes
from workers import spans, trail
from workers.redact import redact
from workers.trail import Trail

log = logging.getLogger("webapp.requests")
ID_HEADER = b"x-request-id"
GONE = 499              # nginx's number: the client left before there was an answer
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")      # would begin another line, or steer the terminal
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
QUIET = ("static", "metrics", "health/", probes.LIVE.strip("/"), probes.READY.strip("/"))      # asked very often
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
REQUESTS = Counter("ridgepoint_http_requests", "Requests answered, by route and status", ("method", "route", "status"),
                   registry=REGISTRY)
DURATIONS = Histogram("ridgepoint_http_request_seconds", "From a request's first byte to its answer's last, by route", ("route",),
                      buckets=SECONDS, registry=REGISTRY)


class Observed:
    """The outermost ASGI wrapper of HTTP."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        now, began_s, status = trail.begin(headers.get("x-request-id", "")), time.perf_counter(), GONE

        async def pass_on(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), (ID_HEADER, now.request_id.encode())]}
            await send(message)

        try:
            with spans.span(scope["method"], "SERVER", headers, {"url.path": redact(scope["path"])[:500]}) as recorded:
                await self.app(scope, receive, pass_on)
                now.route = now.route or _route_outside_django(scope["path"])
                if recorded is not None:
                    _describe(recorded, now, scope["method"], status)
        except Exception:
            status = 500 if status == GONE else status
            raise
        finally:
            now.route = now.route or _route_outside_django(scope["path"])
            _note(now, scope, status, time.perf_counter() - began_s)


class NoteView:
    """Django's middleware that tells the request's route and person, once they are known."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if now := trail.current():
            match, user = request.resolver_match, getattr(request, "user", None)
            now.route = match.route if match else ""
            account = getattr(user, "_wrapped", user)             # of a lazy one only what was asked for anyway
            now.person = account.get_username() if isinstance(account, AbstractBaseUser) else ""
        return response


def _route_outside_django(path: str) -> str:
    if path.startswith(settings.STATIC_URL):
        return "static"
    if path.rstrip("/") in (probes.LIVE, probes.READY):
        return path.strip("/")
    try:
        return str(resolve(path).route)         # refused before Django saw it
    except Resolver404:
        return "none"


def _describe(recorded: Any, now: Trail, method: str, status: int) -> None:
    """Name the span for its route, with the attributes of OpenTelemetry's conventions for HTTP."""
    recorded.update_name(f"{method} {now.route}")
    recorded.set_attributes({"http.request.method": method, "http.route": now.route, "http.response.status_code": status,
                             "ridgepoint.request_id": now.request_id})


def _note(now: Trail, scope: dict[str, Any], status: int, seconds: float) -> None:
    method = scope["method"] if scope["method"] in METHODS else "other"
    REQUESTS.labels(method, now.route, str(status)).inc()
    DURATIONS.labels(now.route).observe(seconds)
    if (status < 400 or status == GONE) and (not settings.LOG_REQUESTS or now.route in QUIET):
        return
    expected = status < 500 or status in OUTAGES
    level = logging.INFO if status < 400 or status == GONE else logging.WARNING if expected else logging.ERROR
    path, ms = scope["path"][:500], round(1e3 * seconds, 1)
    why = now.why.removesuffix(f": {path}")
    why = "" if why.title() == responses.get(status, "").title() else why       # "Not Found: /x" says nothing more
    line = f"{method} {path} {status} {ms:.0f} ms" + (f" {now.person}" if now.person else "") + (f": {why}" if why else "")
    log.log(level, "%s", _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line), extra={
        "method": method, "path": path, "status": status, "ms": ms, "client": (scope.get("client") or ("",))[0],
        **({"why": why} if why else {})})
