"""One ingest of the file named on the command line, timed; JSON on standard output. A process of its own so that the
peak memory is the ingest's."""

from __future__ import annotations

import json
import os
import sys
import time

import django

BENCH_PROFILE = 2_000_000_000          # no row has this id


class Untold:
    """Progress of an ingest that nobody watches."""

    def __call__(self, phase: str, done_bytes: int, total_bytes: int, records: int) -> None: ...

    def slices(self, phase: str, done: int, total: int) -> None: ...

    def now(self, phase: str, records: int = 0) -> None: ...


def main(path: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    django.setup()
    from profiles import ingest
    from profiles.store.objects import objects_delete
    from profiles.upload import ingest_run  # need the settings

    began, untold = time.perf_counter(), Untold()
    trace = ingest.read(path, untold)
    found = ingest_run.trace_store(BENCH_PROFILE, trace, untold, ranks=1)
    seconds = time.perf_counter() - began
    sys.stdout.write(json.dumps({
        "seconds": seconds, "stored_bytes": found.stored_bytes, "records": trace.integrity.records_read,
        "slices": trace.parts.rows, "peak_rss_bytes": ingest_run.peak_rss_bytes()}) + "\n")
    objects_delete(BENCH_PROFILE)


if __name__ == "__main__":
    main(sys.argv[1])
