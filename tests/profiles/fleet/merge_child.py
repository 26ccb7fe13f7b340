"""A worker of the fleet's merges for tests that kill it: `python -m tests.profiles.fleet.merge_child` merges until it is killed.

With `tend` it sums every day with rows over and over instead. DATABASE_URL names the test's own database.
"""

from __future__ import annotations

import os
import sys
import time

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")


def main(what: str) -> None:
    import django

    django.setup()
    from profiles.fleet.days import day_number
    from profiles.fleet.models import FleetDay
    from profiles.fleet.services import merge_waiting
    from profiles.fleet.stores import fleet_store

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        if what == "tend":
            fleet_store().roll_up(sorted(map(day_number, FleetDay.objects.values_list("day", flat=True))))
        else:
            merge_waiting(limit=3)
        time.sleep(0.002)


if __name__ == "__main__":
    main(sys.argv[1])
