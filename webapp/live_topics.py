"""What open pages are told of a session and of a person. `webapp.live` listens; this says, and each process imports it."""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import transaction

from workers import jobs


def session_topic(session_key: str) -> str:
    """Return the topic on which connections of a session are told that it ended."""
    return f"session.{hashlib.sha256(session_key.encode()).hexdigest()[:32]}"


def person_topic(user: int) -> str:
    """Return the topic on which connections of a person are told that what they may do has changed."""
    return f"person.{user}"


def connections_renew(user: int) -> None:
    """Close a person's connections once the change is committed: their pages connect again, as who they are then."""
    transaction.on_commit(lambda: jobs.publish(person_topic(user), "changed", {}), robust=True)


def connections_close(request: Any = None, **signal: Any) -> None:
    """Tell a session's connections that it was signed out (user_logged_out receiver)."""
    if request is not None and request.session.session_key:
        jobs.publish(session_topic(request.session.session_key), "signed-out", {})
