"""Projects take turns in the queue of uploads, whatever one of them has queued."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from profiles.models import SMALL_UPLOAD_BYTES, Profile, ingest_queue
from webapp.models import Project
from workers import fair, jobs, tasks
from workers.scope import within

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


@pytest.fixture(autouse=True)
def nothing_from_before() -> None:
    Profile._base_manager.all().delete()
    for key in jobs.connection().keys("ridgepoint:served:*"):       # type: ignore[union-attr]
        jobs.connection().delete(key)


def project(slug: str) -> Project:
    return Project.objects.create(slug=slug, name=slug)


def uploads(of: Project, count: int, age_s: float = 60.0, **fields: Any) -> list[int]:
    with within(of.pk):
        rows = [Profile.objects.create(name=f"{of.slug} {number}", file_name="f", upload_key="k", project_id=of.pk, **fields)
                for number in range(count)]
    for number, row in enumerate(rows):
        Profile._base_manager.filter(pk=row.pk).update(created=timezone.now() - timedelta(seconds=age_s - number))
    return [row.pk for row in rows]


def serve(count: int, woken_by: int) -> list[int]:
    """Ids in the order in which one worker takes them."""
    served = []
    for _ in range(count):
        served.append(fair.next_row(Profile.leases, "ingest", woken_by))
        Profile._base_manager.filter(pk=served[-1]).update(status="ready")
    return served


def test_one_upload_of_a_project_does_not_wait_for_many_of_another() -> None:
    many, one = uploads(project("many"), 8, age_s=100), uploads(project("one"), 1, age_s=10)
    assert serve(4, many[0]) == [many[0], one[0], many[1], many[2]]


def test_projects_take_turns_and_each_has_its_oldest_first() -> None:
    a, b, c = uploads(project("a"), 3, 300), uploads(project("b"), 2, 200), uploads(project("c"), 1, 100)
    assert serve(6, a[2]) == [a[0], b[0], c[0], a[1], b[1], a[2]]


def test_a_project_with_nothing_at_work_comes_before_one_that_keeps_workers_busy() -> None:
    busy, idle = project("busy"), project("idle")
    uploads(busy, 2, 50, status="ingesting", worker="w", heartbeat=timezone.now())
    waiting, other = uploads(busy, 1, 100), uploads(idle, 2, 10)
    assert serve(2, waiting[0])[0] == other[0]


def test_two_workers_do_not_choose_the_same_row() -> None:
    rows = uploads(project("a"), 3)
    assert [fair.next_row(Profile.leases, "ingest", rows[0]) for _ in range(3)] == rows


def test_where_nothing_waits_the_entry_s_own_row_is_named() -> None:
    gone = uploads(project("a"), 1, status="ready")
    assert fair.next_row(Profile.leases, "ingest", gone[0]) == gone[0]


def test_a_row_whose_worker_died_waits_with_the_others() -> None:
    lost = uploads(project("a"), 1, status="ingesting", worker="dead", heartbeat=timezone.now() - timedelta(minutes=5))
    assert serve(1, 0) == lost


def wake(row_id: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The row that the task of an entry takes."""
    taken: list[int] = []
    monkeypatch.setattr(tasks, "ingest_this", lambda row_id: taken.append(row_id) or "")
    tasks.ingest_profile(row_id)
    return taken[0]


def test_an_entry_of_a_small_upload_takes_a_small_one_and_one_of_a_large_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever serves the small ones alone is never held by a large one, and no entry is spent on a row that has another."""
    of = project("a")
    large = uploads(of, 2, 100, upload_bytes=SMALL_UPLOAD_BYTES + 1)
    small, tried = uploads(of, 2, 50, upload_bytes=1), uploads(of, 1, 40, upload_bytes=1, attempts=1)
    assert [wake(row_id, monkeypatch) for row_id in (small[1], large[1], small[0], large[0], tried[0])] \
        == [small[0], large[0], small[1], large[1], tried[0]]
    assert [ingest_queue(Profile._base_manager.get(pk=row_id)) for row_id in (small[0], large[0], tried[0])] \
        == [jobs.SMALL, "ingest", "ingest"]


def test_small_uploads_are_served_by_whoever_reads_files_and_by_one_process_more() -> None:
    assert [jobs.served_by([queue]) for queue in ("ingest", "replay", "messages")] \
        == [["ingest", "small"], ["replay", "small"], ["messages"]]
    assert jobs.served_by(["ingest", "replay"]) == ["ingest", "replay", "small"] and jobs.served_by(["small"]) == ["small"]


def test_behind_a_large_file_waits_only_what_takes_long_itself() -> None:
    """Sums of the fleet, changes of builds, retention and the like follow on uploads of everybody, and take seconds."""
    folders = [Path(__file__).parents[3] / name for name in ("profiles", "tuner", "webapp", "workers")]
    asked = [match for folder in folders for file in folder.rglob("*.py") for match in re.findall(
        r'(?:enqueue\w*\(|_?QUEUE, \w+ = )"ingest", "(\w+)"', file.read_text())]
    assert sorted(asked) == ["analyse", "join"]         # of a large trace, of the traces of all ranks
