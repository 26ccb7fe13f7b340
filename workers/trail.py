"""Which request something belongs to: its number goes with the log's lines and with the jobs that it enqueues.

A request has a key, too: one that is sent again because its answer was lost bears the same `Idempotency-Key`.
"""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass, field

_GIVEN = re.compile(r"[A-Za-z0-9._:/=+-]{1,64}")


@dataclass
class Trail:
    """One request, or the job that it enqueued. `why`: what Django said of an expected refusal."""

    request_id: str
    person: str = ""
    route: str = ""
    why: str = field(default="", repr=False)


_current: ContextVar[Trail | None] = ContextVar("trail", default=None)


def begin(given: str = "") -> Trail:
    """Begin a request under the number that its sender gave, else a new one."""
    trail = Trail(given if _GIVEN.fullmatch(given) else secrets.token_hex(8))
    _current.set(trail)
    return trail


def current() -> Trail | None:
    """Return the request that this code runs for."""
    return _current.get()


def request_id() -> str:
    """Return its number; "" outside any."""
    trail = _current.get()
    return trail.request_id if trail else ""


MOST_CHARACTERS = 80            # of the rows' columns
WHAT = f"at most {MOST_CHARACTERS} printable characters"


def is_key(text: str) -> bool:
    """Return whether a header can be kept as a key; what prints is no NUL and no half of a surrogate pair."""
    return 0 < len(text) <= MOST_CHARACTERS and text.isprintable()
