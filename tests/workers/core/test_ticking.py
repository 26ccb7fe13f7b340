"""Work that goes on in a thread while a block runs."""

import time

from django.db import OperationalError

from workers.core.periodic import run_periodically


def test_it_goes_on_until_the_block_ends_and_outlives_a_database_that_restarts(caplog):
    turns = []

    def work() -> None:
        turns.append(time.monotonic())
        if len(turns) == 1:
            raise OperationalError("the database restarts")

    with run_periodically(0.02, work, "a test"):
        end = time.monotonic() + 5
        while len(turns) < 4 and time.monotonic() < end:
            time.sleep(0.01)
    seen = len(turns)
    time.sleep(0.1)
    assert seen >= 4 and len(turns) == seen
    assert "a test: the database restarts" in caplog.text
