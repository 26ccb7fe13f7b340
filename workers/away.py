"""Which server an error says is away: its own fault, and no fault of what asked it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import psycopg
import redis
from django.db import Error as DjangoDatabaseError

# PostgreSQL's classes: connection lost, shutting down or starting up, no connection left
AWAY_STATES = ("08", "57P", "53300")
DATABASE, VALKEY, STORE = "the database", "Valkey", "the object store"


def server_away(error: BaseException | None) -> str | None:
    """Return which server the error, or what it was raised from, says does not answer; None where it says none."""
    return next(filter(None, map(_server, causes(error))), None)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, step by step."""
    while error is not None:
        yield error
        error = error.__cause__


def _server(error: BaseException) -> str | None:
    if isinstance(error, redis.ConnectionError | redis.TimeoutError):
        return VALKEY
    if isinstance(error, DjangoDatabaseError | psycopg.Error):
        return DATABASE if _is_database_away(error) else None
    botocore = sys.modules.get("botocore.exceptions")           # loaded where the object store is a bucket
    if botocore and isinstance(error, (botocore.ConnectionError, botocore.HTTPClientError)):
        return STORE
    return None


def _is_database_away(error: Exception) -> bool:
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return bool(state.startswith(AWAY_STATES))
    # Without a state nobody answered: no connection, or it broke. Interface errors also tell of wrong use of a cursor.
    return isinstance(cause, psycopg.OperationalError) or ("connection" in str(error) and isinstance(cause, psycopg.InterfaceError))
