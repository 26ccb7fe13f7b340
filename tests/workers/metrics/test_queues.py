"""The age of a queue is that of the entry that waits longest, wherever it stands."""

from __future__ import annotations

import pytest

from workers import clock, jobs
from workers.metrics.facts import queue_states

pytestmark = [pytest.mark.servers, pytest.mark.django_db]


def test_an_entry_that_is_put_in_front_does_not_hide_how_long_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.connection().flushdb()
    now_s = clock.now_s()
    task = sorted(jobs.FIRST)[0]
    with monkeypatch.context() as earlier:
        earlier.setattr(clock, "now_s", lambda: now_s - 500)
        jobs.enqueue("ingest", "ingest", 1)
    jobs.enqueue("ingest", task, 2)
    state = next(each for each in queue_states() if each.name == "ingest")
    assert state.waiting == 2 and state.oldest_s == pytest.approx(500, abs=30)
    assert [each.oldest_s for each in queue_states() if each.name != "ingest"] == [None] * (len(jobs.QUEUES) - 1)
    jobs.connection().flushdb()
