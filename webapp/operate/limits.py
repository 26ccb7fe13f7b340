"""How often somebody may upload, run SQL, search and use tools: by token or person, and by address, counted in Valkey by all web
processes.

RIDGEPOINT_LIMITS="upload=120/min, sql=120/min, search=600/min, agents=600/min" are the defaults; "sql=0" lifts one. An address
has ADDRESS_TIMES as much as one person, since a company may have only one. Single-user mode is not limited, nor is anybody while
Valkey is away.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from webapp.accounts import is_local
from webapp.operate.rates import PERIODS_S, limits_parse
from webapp.outage import Outage, outage_answer
from workers import clock, jobs

log = logging.getLogger(__name__)
API = {("api-profiles", "POST"): "upload", ("api-fleet-capture-trace", "POST"): "upload", ("api-sql", "POST"): "sql",
       ("api-search", "GET"): "search", ("api-agents-me", "GET"): "agents"}
PAGES = {("profile-upload", "POST"): "upload", ("search", "GET"): "search"}
ADDRESS_TIMES = 4
TRY_AGAIN_S = 5.0           # after Valkey did not answer, nobody waits for it that long
_away_until_s = 0.0


@dataclass(frozen=True)
class Excess:
    """Somebody asked too often: `kind` of request, at most `times` in `period_s`; free again in `wait_s`."""

    kind: str
    times: int
    period_s: int
    wait_s: int

    @property
    def what(self) -> str:
        period = {seconds: name for name, seconds in PERIODS_S.items()}[self.period_s]
        return f"too many requests of this kind: {self.kind} {self.times}/{period}"


def excess(request: HttpRequest, table: dict[tuple[str, str], str]) -> Excess | None:
    """Count a request that the table names; return the limit that it exceeds, None where it may go on."""
    match = request.resolver_match
    kind = table.get((match.url_name or "", request.method or "")) if match else None
    headers = {name.lower(): value for name, value in request.headers.items()}
    address = request.META.get("REMOTE_ADDR", "")
    if kind is None or (settings.LOCAL_MODE and is_local(address, headers)):
        return None
    times, period_s = limits_parse(settings.LIMITS)[kind]
    if not times:
        return None
    window, now_s = divmod(clock.now_s(), period_s)
    counts = _count([f"ridgepoint:rate:{kind}:{who}:{int(window)}" for who in (_who(request, headers), address)], period_s)
    if not counts or (counts[0] <= times and counts[1] <= ADDRESS_TIMES * times):
        return None
    return Excess(kind, times if counts[0] > times else ADDRESS_TIMES * times, period_s, max(1, round(period_s - now_s)))


def _who(request: HttpRequest, headers: dict[str, str]) -> str:
    """Return the token's digest, else the person; nobody's are counted by address alone."""
    if token := headers.get("authorization"):
        return hashlib.sha256(token.encode()).hexdigest()[:32]
    return f"person-{request.user.pk}" if request.user.is_authenticated else f"nobody-{request.META.get('REMOTE_ADDR', '')}"


def _count(keys: list[str], period_s: int) -> list[int]:
    """Count one more in each window; nothing where Valkey is away."""
    global _away_until_s
    if time.monotonic() < _away_until_s:
        return []
    try:
        with jobs.connection().pipeline() as batch:
            for key in keys:
                batch.incr(key)
                batch.expire(key, period_s + 1)
            return [int(count) for count in batch.execute()[::2]]
    except redis.RedisError as error:
        _away_until_s = time.monotonic() + TRY_AGAIN_S
        log.warning("requests are not counted: %s", error)
        return []


class Throttle(BaseThrottle):
    """REST framework's hook, for every view of the API."""

    def allow_request(self, request: Request, view: Any) -> bool:
        if over := excess(request._request, API):
            raise Throttled(over.wait_s, over.what)
        return True


class LimitPages:
    """The same for pages, as middleware."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, *view: Any) -> HttpResponse | None:
        over = excess(request, PAGES)
        if over is None:
            return None
        answer = outage_answer(Outage(429, over.what, f"try again in {over.wait_s} s"), request.path_info, request.method)
        answer["Retry-After"] = str(over.wait_s)
        return answer
