"""The fleet's pages over a day of 10,000 simulated GPUs, as they are answered from hours: the day is not summed yet.

One minute of the whole fleet (bench.fleet.rows) is written and merged through the store as one hour, and its rows are copied to the
23 others. Each page is asked three times; its rows are in the system's memory from the start. What counts is the time to the last
byte, and the processor time of this process and PostgreSQL's beside it, which holds on a busy machine too.
RIDGEPOINT_BENCH_QUICK: a tenth of the hosts.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from bench.fleet import START_MINUTE, empty, processor_s
from bench.fleet.rows import Fleet, fleet_batches

HOURS, AGAIN = 24, 2
PAGE_S = 2.0


def run() -> list[dict[str, Any]]:
    fleet = Fleet(125, 60) if "RIDGEPOINT_BENCH_QUICK" in os.environ else Fleet()
    settings.ALLOWED_HOSTS = ["testserver"]
    try:
        rows = fill(fleet)
        return [_row(name, url, fleet, rows) for name, url in pages()] + [_memory()]
    finally:
        empty()


def fill(fleet: Fleet) -> int:
    """Write a day of hours; return how many rows of single GPUs' kernels it has."""
    from django.db import connection

    from profiles.fleet.days import mark_compacted, mark_written
    from profiles.fleet.merge import merge
    from profiles.fleet.postgres_tables import make_partitions
    from profiles.fleet.slow.compared_services import compare_rested
    from profiles.fleet.stores import fleet_store
    from profiles.fleet.tables import TABLES, table_name

    empty()
    store, batches = fleet_store(), fleet_batches(fleet, START_MINUTE)
    for first in range(0, len(batches), 500):
        store.write(merge(batches[first:first + 500]))
    day, written = START_MINUTE // 1440, START_MINUTE // 60
    store.compact(day, (day + 1) * HOURS)
    hours = range(day * HOURS, (day + 1) * HOURS)
    with connection.cursor() as cursor:
        for table in TABLES:
            name, rest = table_name(table, "hour"), ", ".join(table.columns[1:])
            make_partitions(table, "hour", hours)
            for hour in hours:
                if hour != written:
                    cursor.execute(f"INSERT INTO {name} (at, {rest}) SELECT %s, {rest} FROM {name} WHERE at = %s", [hour, written])
        mark_written(hours)
        mark_compacted(day, hours.stop)             # as workers leave hours that ended
        compare_rested(hours.stop, timezone.now())
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("SELECT count(*) FROM fleet_gpu_kernels_hour")
        return int(cursor.fetchone()[0])


def pages() -> Iterator[tuple[str, str]]:
    def fleet(**words: str) -> str:
        return f"{reverse('fleet')}?{urlencode(words)}"

    yield "Kernels", fleet()
    yield "by job", fleet(group="job")
    yield "kernels of one job", fleet(job="simulated-job-000")
    yield "kernels of one GPU", fleet(gpu="GPU-simulated-0000-0")
    yield "kernels of one host", fleet(host="simulated-host-0000")
    yield "by GPU", fleet(group="gpu")
    yield "by host", fleet(group="host")
    yield "by shape", fleet(group="signature")
    yield "Utilisation, its numbers", f"{reverse('fleet-utilisation')}?whole=1"
    yield "Slow GPUs, its numbers", f"{reverse('fleet-gpus')}?whole=1"


def _row(name: str, url: str, fleet: Fleet, rows: int) -> dict[str, Any]:
    (first_s, first_work_s), *again = [ask(url) for _ in range(1 + AGAIN)]
    least_s = min(taken for taken, _ in again)
    return {"what": f"page: {name}, {fleet.gpus:,} GPUs × {HOURS} h", "measured": f"{first_s:.2f} s, again {least_s:.2f} s",
            "reference": f"processor time {first_work_s:.2f} s; {rows:,} rows of GPUs' kernels", "ratio": first_s / PAGE_S,
            "budget": f"< {PAGE_S:g} s", "ok": first_s < PAGE_S}


def ask(url: str) -> tuple[float, float]:
    """Seconds until a page answered, and of processor time."""
    client, spent, began = Client(), processor_s(), time.perf_counter()
    answer = client.get(url)
    body = b"".join(answer)
    taken = time.perf_counter() - began
    if answer.status_code != 200 or not body:
        raise RuntimeError(f"{url} answered {answer.status_code}")
    return taken, processor_s() - spent


def _memory() -> dict[str, Any]:
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"what": "peak memory of the process that answered them", "measured": f"{peak_mb:,.0f} MB", "reference": "with filling",
            "ratio": None, "budget": "", "ok": None}
