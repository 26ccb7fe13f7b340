"""One ingest of the file named on the command line, timed; JSON on standard output. A process of its own so that the
peak memory is the ingest's."""

from __future__ import annotations

import json
import os
import resource
import sys
import time

import django

BENCH_PROFILE = 2_000_000_000          # no row has this id


def main(path: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    django.setup()
    from profiles import ingest, store  # need the settings
    from profiles.analysis.breakdown import breakdown
    from profiles.analysis.kernels import kernel_table
    from profiles.objects import objects_delete

    began = time.perf_counter()
    trace = ingest.read(path)
    kernel_table(trace)
    breakdown(trace)
    stored_bytes = store.write_trace(BENCH_PROFILE, trace)
    seconds = time.perf_counter() - began
    sys.stdout.write(json.dumps({
        "seconds": seconds, "stored_bytes": stored_bytes, "records": trace.integrity.records_read,
        "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}) + "\n")
    objects_delete(BENCH_PROFILE)


if __name__ == "__main__":
    main(sys.argv[1])
