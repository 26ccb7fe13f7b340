"""The database's connections are few: long work gives its own back before it begins."""

from __future__ import annotations

from django.db import connection


def connection_release() -> None:
    """Give this thread's connection back; its next query takes one again. Within a transaction nothing happens."""
    if not connection.in_atomic_block:
        connection.close()
