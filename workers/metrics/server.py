"""Readings of the server itself: queues, disks, clocks, PostgreSQL and Valkey."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from workers import disk, jobs
from workers.metrics.families import Family, Reading, label
from workers.metrics.queues import queue_states

HOSTS = 200                 # whose disks and clocks are told

FAMILIES: tuple[Family, ...] = (
    Family("ridgepoint_workers", "Workers that live, by queue", ("queue",)),
    Family("ridgepoint_queue_entries", "Entries that wait in a queue", ("queue",)),
    Family("ridgepoint_queue_oldest_seconds", "How long the first entry of a queue waits, 0 where none does", ("queue",), "s"),
    Family("ridgepoint_disk_free_bytes", "Free on a disk, by host and what lies on it", ("host", "place"), "By"),
    Family("ridgepoint_disk_rest_bytes", "Below it new uploads and captures are refused", ("host", "place"), "By"),
    Family("ridgepoint_clock_skew_seconds", "A host's clock less Valkey's", ("host",), "s"),
    Family("ridgepoint_database_bytes", "Size of the database", (), "By"),
    Family("ridgepoint_database_connections", "Connections to PostgreSQL, of all its clients"),
    Family("ridgepoint_valkey_bytes", "Memory that Valkey uses", (), "By"),
)


def _queues() -> Iterator[Reading]:
    alive = jobs.workers()
    for state in queue_states():
        yield "ridgepoint_workers", (state.name,), sum(state.name in worker.get("queues", ()) for worker in alive)
        yield "ridgepoint_queue_entries", (state.name,), state.waiting
        yield "ridgepoint_queue_oldest_seconds", (state.name,), state.oldest_s or 0.0


def _hosts() -> Iterator[Reading]:
    """Workers say of their hosts what this one says of itself; of several on a host the last one."""
    disks = {worker.get("host", ""): worker["disks"] for worker in jobs.workers() if "disks" in worker}
    clocks = {worker.get("host", ""): worker["clock_skew_s"] for worker in jobs.workers() if "clock_skew_s" in worker}
    disks[jobs.host()] = [place.as_json() for place in disk.places()]
    clocks[jobs.host()] = jobs.clock_skew_s()
    for host, places in list(disks.items())[-HOSTS:]:
        for place in places:
            labels = (label(host), label(", ".join(place["names"])))
            yield "ridgepoint_disk_free_bytes", labels, place["free_bytes"]
            yield "ridgepoint_disk_rest_bytes", labels, place["rest_bytes"]
    for host, skew_s in list(clocks.items())[-HOSTS:]:
        yield "ridgepoint_clock_skew_seconds", (label(host),), skew_s


def _servers() -> Iterator[Reading]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database()), "
                       "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')")
        size_bytes, connections = cursor.fetchone()
    yield "ridgepoint_database_bytes", (), size_bytes
    yield "ridgepoint_database_connections", (), connections
    yield "ridgepoint_valkey_bytes", (), jobs.connection().info("memory")["used_memory"]


PARTS = {"queues": _queues, "hosts": _hosts, "servers": _servers}
