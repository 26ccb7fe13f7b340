"""Outages told from exceptions: 503 with Retry-After, or 507, as a page or JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db import Error as DjangoDatabaseError
from django.http import HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.urls import get_script_prefix
from psycopg.errors import DeadlockDetected, SerializationFailure

from workers import disk
from workers.away import DATABASE, VALKEY, causes, server_away

RETRY_AFTER_S = 5
_API = re.compile(r"(?:/p/[^/]+)?/api/")


@dataclass(frozen=True)
class Outage:
    """`status` 503 or 507; `what` and `hint` are for people, without a final stop."""

    status: int
    what: str
    hint: str

    @property
    def headers(self) -> dict[str, str]:
        """Return the answer's headers."""
        later = {"Retry-After": str(RETRY_AFTER_S)} if self.status == 503 else {}
        return {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **later}


_AGAIN = f"try again in {RETRY_AFTER_S} s; what was stored is kept"
DATABASE_AWAY = Outage(503, "the database does not answer at the moment", _AGAIN)
VALKEY_AWAY = Outage(503, "Valkey does not answer at the moment", _AGAIN)
AWAY = {DATABASE: DATABASE_AWAY, VALKEY: VALKEY_AWAY}
BUSY = Outage(503, "the server has more requests than it can answer at the moment", _AGAIN)
CONFLICT = Outage(503, "two changes met in the database, and this one was taken back", _AGAIN)
FULL = Outage(507, "the disk is full: nothing can be stored", "pages can be read; make room on the server, then try again")


class Busy(Exception):
    """A request found no slot in time."""


def outage_of(error: BaseException | None) -> Outage | None:
    """Return what the error, or what it was raised from, says is away or full; None where it says neither."""
    return next(filter(None, map(_outage, causes(error))), None)


def outage_data(outage: Outage, where: str) -> dict[str, str]:
    """Return the API's error object."""
    return {"error": outage.what, "where": where, "hint": outage.hint}


def outage_answer(outage: Outage, path: str, method: str | None) -> HttpResponse:
    """Return JSON for the API, else a page in the site's frame; no query is made for it."""
    if _API.match(path):
        return JsonResponse(outage_data(outage, path), status=outage.status, headers=outage.headers)
    page = _page(outage, get_script_prefix(), again=outage.status == 503 and method == "GET")
    return HttpResponse(page, status=outage.status, headers=outage.headers)


@lru_cache(maxsize=16)
def _page(outage: Outage, root: str, *, again: bool) -> str:
    """`root`: what the addresses on it begin with."""
    # Without the request: its context processors would ask the database who is signed in.
    context: dict[str, Any] = {"what": outage.what, "hint": outage.hint, "again_s": RETRY_AFTER_S if again else 0}
    return render_to_string("outage.html", context)


def _outage(error: BaseException) -> Outage | None:
    if isinstance(error, Busy):
        return BUSY
    if isinstance(error, disk.NoRoom):
        return Outage(507, error.what, error.hint)
    if disk.is_full_error(error):
        return FULL
    if isinstance(error, DjangoDatabaseError) and disk.is_full_error(error.__cause__):
        return FULL
    if isinstance(error, DjangoDatabaseError) and isinstance(error.__cause__, DeadlockDetected | SerializationFailure):
        return CONFLICT
    away = server_away(error)
    return _with_reason(AWAY[away]) if away in AWAY else None


def _with_reason(outage: Outage) -> Outage:
    """Return the outage with a full disk of this machine as its likely cause: the private servers end where theirs is."""
    full = next((place for place in disk.places() if place.is_full), None)
    return outage if full is None else Outage(
        outage.status, f"{outage.what}: the disk of the {full.title} is full", "make room on the server; everything goes on then")
