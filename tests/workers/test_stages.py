"""The stages of the work on a profile within a bound of memory: what exceeds it says so, and everything else stays."""

from __future__ import annotations

import json
import mmap
import os
import resource
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connections
from django.test import Client
from django.utils import timezone

from profiles.analysis.core.result import Result
from profiles.families import follow_services
from profiles.ingest.core import columns
from profiles.models import Profile
from profiles.store.objects import topic_read
from profiles.store.timeline import timeline
from profiles.topics import services as topic_services
from profiles.topics.table import TOPICS, Topic
from profiles.upload import ingest_run as steps
from profiles.upload.services import profile_create
from profiles.upload.waiting_services import MOST_ATTEMPTS, wake_follows
from tests.scale import DEEP
from tests.workers.core.test_worker import wait_until
from workers import bounded_process, jobs, stages, tasks

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tmp_store")]
MORE_MB = 200           # that a test's stage may take beyond what this process holds already
HUNGRY_BYTES = 400_000_000


def held_mb() -> int:
    """What RLIMIT_DATA counts of this process, in MB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmData"].split()[0]) * 1024 // 1_000_000


@pytest.fixture(autouse=True)
def bound(settings: Any) -> int:
    settings.STAGE_MEMORY_MB = MORE_MB
    return int(settings.STAGE_MEMORY_MB)


def trace(names: int) -> bytes:
    """Launches of so many kernels, each once and the first of all three times; they take 1 µs and more."""
    records = [{"ph": "X", "cat": "kernel", "name": f"kernel_{at if at < names else 0}", "pid": 0, "tid": 7, "ts": 10 * at,
                "dur": 1 + at % 7, "args": {"device": 0, "stream": 7, "grid": [1 + at % 64, 1, 1], "block": [128, 1, 1]}}
               for at in range(names + 2)]
    return json.dumps({"schemaVersion": 1, "traceEvents": records}).encode()


def profile_of(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """A row that this process holds, ingested by the worker's task."""
    monkeypatch.setenv("RQ_WORKER_ID", "test")
    profile = profile_create(owner=None, file=ContentFile(content, name="t.json"), worker="test")
    tasks.ingest_profile(profile.pk)
    profile.refresh_from_db()
    return profile


def hungry(frame: Any) -> Result:
    return Result(str(np.ones(HUNGRY_BYTES // 8).sum()))


def test_work_within_its_bound_ends_well_and_work_beyond_it_ends_with_a_clear_word(bound: int) -> None:
    def beyond(say: bounded_process.Say) -> None:
        say("first")
        say("second")
        np.ones(HUNGRY_BYTES // 8)

    assert bounded_process.run(lambda say: np.ones(10_000_000 // 8), bound).why == ""
    ending = bounded_process.run(beyond, bound)
    assert ending.why == f"needs more memory than {bound:,} MB" and ending.parts == ("first", "second")
    ending = bounded_process.run(lambda say: os.kill(os.getpid(), signal.SIGKILL), bound)
    assert ending.why.startswith("was ended by signal 9 (SIGKILL)")
    assert bounded_process.run(lambda say: 1 // 0, bound).why.startswith("failed")


def test_what_work_loads_reserves_nothing_for_each_core(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS, of scipy as well, takes 41 MB a core when it is loaded: on a host of 64 more than a stage may have."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    ending = bounded_process.run(lambda say: say(os.environ["OPENBLAS_NUM_THREADS"]), bound)
    assert (ending.why, ending.parts) == ("", ("1",)) and "OPENBLAS_NUM_THREADS" not in os.environ


def test_a_program_that_a_stage_starts_has_the_same_bound(bound: int) -> None:
    def start(say: bounded_process.Say) -> None:
        say(os.popen("ulimit -d").read().strip())           # of 1024 bytes each
        say(str(resource.getrlimit(resource.RLIMIT_DATA)[0] // 1024))

    inherited, own = bounded_process.run(start, bound).parts
    assert inherited == own and int(own) >= bound * 1_000_000 // 1024


def test_what_is_only_reserved_beforehand_is_not_counted_to_the_work(bound: int) -> None:
    """OpenBLAS reserves stacks and buffers for every core: 3.8 GB of private memory on a host of 32, before any work."""
    with mmap.mmap(-1, 4 * bound * 1_000_000, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        assert held_mb() > 3 * bound
        assert bounded_process.run(lambda say: np.ones(bound * 1_000_000 // 2 // 8), bound).why == ""
        assert bounded_process.run(lambda say: np.ones(HUNGRY_BYTES // 8), bound).why == f"needs more memory than {bound:,} MB"


def test_an_ingest_that_needs_more_fails_with_what_it_needs(monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    def greedy(profile: Profile, progress: Any) -> Any:
        np.ones(HUNGRY_BYTES // 8)

    monkeypatch.setattr(steps, "read_and_store", greedy)
    profile = profile_of(trace(3), monkeypatch)
    assert profile.status == Profile.Status.FAILED and profile.error is not None
    assert profile.error["where"] == "ingest" and f"needs more memory than {bound:,} MB" in profile.error["what"]
    assert "RIDGEPOINT_STAGE_MEMORY_MB" in profile.error["hint"]


def linger(*given: Any, **more: Any) -> Any:
    """Work that takes longer than any test; a library's code may not look at signals either."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    time.sleep(300)


def test_an_ingest_that_takes_longer_fails_and_says_so(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.STAGE_SECONDS = 1
    monkeypatch.setattr(steps, "read_and_store", linger)
    profile = profile_of(trace(3), monkeypatch)
    assert profile.status == Profile.Status.FAILED and profile.error is not None
    assert profile.error["what"] == "reading it took longer than 1 s" and "RIDGEPOINT_STAGE_SECONDS" in profile.error["hint"]


def test_an_analysis_that_takes_longer_says_so_and_the_others_are_made(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.STAGE_SECONDS = 8
    topics = (TOPICS[0], Topic("sequences", "Sequences", "?", 1, linger), *TOPICS[1:4])
    monkeypatch.setattr(topic_services, "TOPICS", topics)
    profile = profile_of(trace(3), monkeypatch)
    assert profile.status == Profile.Status.READY
    for topic in topics:
        document = topic_services.document_of(profile, topic)
        assert document is not None and ("refused_s" in document) == (topic.name == "sequences")
    slow = topic_services.document_of(profile, topics[1])
    assert slow is not None and "took longer than 8 s" in slow["answer"] and "RIDGEPOINT_STAGE_SECONDS" in slow["answer"]
    asked: list[Any] = []
    monkeypatch.setattr("workers.jobs.enqueue", lambda *given: asked.append(given))
    assert topic_services.document_of(profile, topics[1]) == slow and not asked
    settings.STAGE_SECONDS = 16                             # more is allowed: it is tried again
    topic_services.document_of(profile, topics[1])
    assert asked == [("ingest", "analyse", profile.pk)]


def test_an_analysis_that_needs_more_says_so_and_the_others_are_made(
        monkeypatch: pytest.MonkeyPatch, settings: Any, bound: int, alice: Any) -> None:
    topics = (TOPICS[0], Topic("sequences", "Sequences", "?", 1, hungry), *TOPICS[1:5], TOPICS[6])
    monkeypatch.setattr(topic_services, "TOPICS", topics)
    profile = profile_of(trace(3), monkeypatch)
    assert profile.status == Profile.Status.READY
    client = Client()
    client.force_login(alice)
    page = client.get(f"/profiles/{profile.pk}/analysis/sequences/")
    assert page.status_code == 200 and f"needs more memory than {bound:,} MB" in page.content.decode()
    said = client.get(f"/api/profiles/{profile.pk}/analysis/sequences/").json()
    assert said["applies"] is False and f"needs more memory than {bound:,} MB" in said["answer"]
    monkeypatch.setattr("workers.jobs.enqueue", lambda *asked: pytest.fail(f"a visit asked for {asked}"))
    for topic in topics:
        document = topic_services.document_of(profile, topic)
        assert document is not None and ("refused_mb" in document) == (topic.name == "sequences")


def test_an_analysis_that_was_refused_is_tried_again_by_a_worker_once_more_is_allowed(
        monkeypatch: pytest.MonkeyPatch, settings: Any, bound: int) -> None:
    topics = (Topic("time", "Time", "?", 1, hungry), *TOPICS[1:])
    monkeypatch.setattr(topic_services, "TOPICS", topics)
    profile = profile_of(trace(3), monkeypatch)
    asked: list[Any] = []
    monkeypatch.setattr("workers.jobs.enqueue", lambda *each: asked.append(each))
    settings.STAGE_MEMORY_MB = bound + HUNGRY_BYTES // 1_000_000
    assert topic_services.document_of(profile, topics[0]) is None       # not made where the page is
    assert asked == [("ingest", "analyse", profile.pk)]
    stages.analyse(profile.pk)
    document = topic_services.document_of(profile, topics[0])
    assert document is not None and document["answer"] == str(HUNGRY_BYTES / 8)


@pytest.mark.parametrize(("mb", "processes"), [(64_000, 1), (None, 3)])
def test_what_follows_on_a_small_profile_is_done_where_it_was_read(
        monkeypatch: pytest.MonkeyPatch, settings: Any, mb: int | None, processes: int) -> None:
    run, runs = bounded_process.run, []
    monkeypatch.setattr(bounded_process, "run", lambda *given: (runs.append(given), run(*given))[1])
    settings.STAGE_MEMORY_MB = mb or settings.STAGE_MEMORY_MB
    profile = profile_of(trace(3), monkeypatch)
    assert profile.status == Profile.Status.READY and len(runs) == processes
    assert profile.kernels.exclude(shapes=None).count() == 3
    assert all(topic_services.document_of(profile, topic) for topic in TOPICS)


def test_a_death_in_what_follows_leaves_a_ready_profile_and_is_gone_over_again(
        monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    settings.STAGE_MEMORY_MB = 64_000
    once = tmp_path / "died"

    def die_once(profile: Profile) -> None:
        if not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        shapes_make(profile)

    shapes_make = follow_services.shapes_make
    monkeypatch.setattr(follow_services, "shapes_make", die_once)
    profile = profile_of(trace(3), monkeypatch)
    assert once.exists()
    assert profile.status == Profile.Status.READY and profile.kernels.exclude(shapes=None).count() == 3
    assert not profile.integrity["notes"] and topic_services.document_of(profile, TOPICS[0]) is not None


def test_a_worker_that_is_killed_before_what_follows_is_followed_by_another(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.STAGE_MEMORY_MB = 64_000
    monkeypatch.setenv("RQ_WORKER_ID", "test")
    profile = profile_create(owner=None, file=ContentFile(trace(3), name="t.json"), worker="test")
    connections.close_all()
    worker = os.fork()
    if not worker:
        stages.families_follow = lambda profile_id: os.kill(os.getppid(), signal.SIGKILL)        # type: ignore[assignment]
        tasks.ingest_profile(profile.pk)
        os._exit(0)
    assert os.waitpid(worker, 0)[1] == signal.SIGKILL
    profile.refresh_from_db()
    written = int(timeline(profile.pk).document["written"])
    assert profile.status == Profile.Status.READY and profile.follow_due is not None
    assert not any(topic_read(profile.pk, topic.name, topic.version, written) for topic in TOPICS)
    assert wake_follows([]) == []                                   # for all that is known somebody is at it
    now = timezone.now()
    for due in (now - timedelta(seconds=1), now + timedelta(hours=1)):      # the latter was written before a clock was set back
        Profile.objects.update(follow_due=due)
        assert wake_follows([profile.pk]) == [] and wake_follows([]) == [profile.pk]
    assert jobs.waiting("follow") == {profile.pk}
    seen: list[bool] = []
    made = stages.build_of_profile
    monkeypatch.setattr(stages, "build_of_profile", lambda pk: seen.append(Profile.objects.get(pk=pk).follow_due > now) or made(pk))
    tasks.follow_profile(profile.pk)
    profile.refresh_from_db()
    assert seen == [True] and profile.follow_due is None and wake_follows([]) == []
    assert all(topic_read(profile.pk, topic.name, topic.version, written) for topic in TOPICS)
    assert profile.kernels.exclude(shapes=None).count() == 3
    Profile.objects.update(follow_due=now, attempts=MOST_ATTEMPTS)
    assert wake_follows([]) == []                                   # it took so many workers down: pages make what they show


def test_families_that_need_more_are_a_note_of_a_ready_profile(monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(follow_services, "shapes_make", hungry)
        profile = profile_of(trace(3), monkeypatch)
    assert profile.status == Profile.Status.READY
    assert [note for note in profile.integrity["notes"] if note.startswith("Shapes and families of its kernels: ")
            and f"needs more memory than {bound:,} MB" in note]
    stages.follow(profile.pk)
    profile.refresh_from_db()
    assert profile.integrity["notes"] == [] and profile.kernels.exclude(shapes=None).count() == 3


def test_more_names_than_the_bound_are_one_row_that_keeps_the_sums(
        monkeypatch: pytest.MonkeyPatch, settings: Any, bound: int, alice: Any) -> None:
    most, names = (1_000, 20_000) if DEEP else (200, 1_000)
    monkeypatch.setattr(steps, "KERNEL_ROWS", most)
    profile = profile_of(trace(names), monkeypatch)
    assert profile.status == Profile.Status.READY and not profile.integrity["notes"]
    rows = list(profile.kernels.all())
    other = next(row for row in rows if row.name == columns.FURTHER_NAMES)
    assert len(rows) == most + 1 and profile.launches == names + 2
    assert sum(row.launches for row in rows) == names + 2
    assert sum(row.total_ns for row in rows) == profile.gpu_time_ns == profile.busy_ns
    assert sum(row.share_pct for row in rows) == pytest.approx(100.0)
    assert (other.p50_ns, other.min_ns, other.max_ns) == (None, 1_000, 7_000 if DEEP else 6_000)
    assert names - most in [count for what, count in profile.integrity["remarks"].items() if columns.FURTHER_NAMES in what]
    assert profile.kernels.exclude(shapes=None).count() >= most
    client = Client()
    client.force_login(alice)
    assert client.get(f"/profiles/{profile.pk}/kernels/{other.pk}/").status_code == 200
    assert client.get(f"/profiles/{profile.pk}/").status_code == 200
    assert client.get("/kernels/").status_code == 200


def test_a_worker_that_is_killed_takes_the_stage_with_it(tmp_path: Path) -> None:
    written = tmp_path / "stage"

    def stage(say: bounded_process.Say) -> None:
        written.write_text(str(os.getpid()))
        signal.pause()

    worker = os.fork()
    if not worker:
        bounded_process.run(stage, MORE_MB)
        os._exit(0)
    wait_until(lambda: written.exists() and written.read_text())
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    state = Path(f"/proc/{written.read_text()}/status")
    wait_until(lambda: not state.exists() or "State:\tZ" in state.read_text())


@pytest.mark.parametrize("command", ["analyse", "families"])
def test_a_command_that_needs_more_ends_with_a_sentence(
        monkeypatch: pytest.MonkeyPatch, settings: Any, bound: int, command: str) -> None:
    profile = profile_of(trace(3), monkeypatch)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(f"profiles.management.commands.{command}.{'topic_make' if command == 'analyse' else 'ranking'}",
                        lambda *given: hungry(None))
    with pytest.raises(CommandError, match=f"it needs more memory than {bound:,} MB; raise RIDGEPOINT_STAGE_MEMORY_MB"):
        call_command(command, *([str(profile.pk), "time", "--again"] if command == "analyse" else []))
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
