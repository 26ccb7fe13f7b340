"""The time of the installation: the database's, whatever the clock of this host says.

Hosts' clocks lie apart, by minutes where nobody looks after them. What several hosts compare (when a row was made or is due, when a
session, a token or a message ends) comes from one clock. Django, its sessions and knox ask `django.utils.timezone.now`, as our code
does: `install` lets it answer by the database's clock, read when a connection is opened and carried on by this host's counter of
seconds, which nobody sets. `Now()` in a query is the same clock. Before the first connection it is the host's.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from django.db import Error
from django.db.backends.signals import connection_created
from django.utils import timezone

_ahead_s: float | None = None   # the database's clock less this host's counter


def now() -> datetime:
    """Return the time now, in UTC."""
    return datetime.fromtimestamp(now_s(), UTC)


def now_s() -> float:
    """Return the seconds since 1970 now."""
    return time.time() if _ahead_s is None else _counter_s() + _ahead_s


def install() -> None:
    """Let everything that asks Django for the time have the database's."""
    connection_created.connect(_measure, dispatch_uid="workers.clock")
    timezone.now = now


def _measure(sender: Any, connection: Any, **kwargs: Any) -> None:
    """Read the database's clock, right to half of what the question takes; what it cannot tell apart from before stays."""
    global _ahead_s
    if connection.vendor != "postgresql":
        return
    with suppress(Error), connection.wrap_database_errors:      # whoever opened the connection is told by what they ask next
        before_s = _counter_s()
        row = connection.connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        after_s = _counter_s()
        ahead_s = row[0] - (before_s + after_s) / 2
        if _ahead_s is None or abs(ahead_s - _ahead_s) > (after_s - before_s) / 2 + 1e-3:
            _ahead_s = ahead_s


def _counter_s() -> float:
    """Return seconds that go on while the machine sleeps, and that setting its clock does not change."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
