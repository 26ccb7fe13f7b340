"""An upload's way to a ready or a failed row: real storage, real PostgreSQL, real Valkey."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile, File
from django.core.files.storage import default_storage
from django.utils import timezone

from profiles.ingest.trace import TraceError
from profiles.models import Finding, KernelStat, LaunchCounters, Profile
from profiles.progress import Progress
from profiles.store import trace as store
from profiles.store.objects import launches_read
from profiles.topics.services import topic_make
from profiles.topics.table import topic_of
from profiles.upload import ingest_run as steps
from profiles.upload import services
from profiles.upload.services import (
    profile_create,
    profile_delete,
    profile_ingest,
    profile_update,
    profiles_fail_hopeless,
    upload_check,
)
from workers import jobs
from workers.leases import Superseded

H200 = Path(__file__).parents[2] / "data" / "h200"
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "reads_anew")]

TINY = {"schemaVersion": 1, "traceEvents": [
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5,
     "args": {"device": 0, "stream": 7, "correlation": 1, "grid": [1, 1, 1], "block": [32, 1, 1]}}]}


def upload(name: str = "t.json", content: Any = TINY) -> ContentFile:
    return ContentFile(content if isinstance(content, bytes) else json.dumps(content).encode(), name=name)


def create(file: File, **fields: Any) -> Profile:
    return profile_create(**{"owner": None, "file": file, "worker": "test", **fields})


def recording(name: str, **fields: Any) -> Profile:
    with (H200 / name).open("rb") as file:
        return create(File(file, name=name), **fields)


def ingested(profile: Profile, worker: str = "test") -> Profile:
    profile_ingest(profile.pk, worker)
    profile.refresh_from_db()
    return profile


def test_create_stores_the_bytes_and_wakes_a_worker_on_commit(django_capture_on_commit_callbacks, alice):
    with django_capture_on_commit_callbacks() as callbacks:
        profile = profile_create(owner=alice, file=upload(), build=" 4f2c1e ", model="m", tags=["a", " a ", "b"],
                                 notes="n")
    assert (profile.status, profile.build, profile.tags, profile.name) == ("uploaded", "4f2c1e", ["a", "b"], "t.json")
    assert profile.upload_bytes == len(json.dumps(TINY)) and len(profile.sha256) == 64
    assert profile.upload_key.startswith("uploads/") and profile.upload_key.endswith("/t.json")
    assert default_storage.open(profile.upload_key).read() == json.dumps(TINY).encode()
    queue_before = jobs.waiting("ingest")
    callbacks[0]()
    assert profile.pk in jobs.waiting("ingest") and profile.pk not in queue_before


def test_a_rolled_back_upload_leaves_no_row_and_wakes_nobody(django_capture_on_commit_callbacks, settings):
    settings.UPLOAD_MAX_BYTES = 10
    with pytest.raises(TraceError, match="more than 10"), django_capture_on_commit_callbacks() as callbacks:
        create(upload())
    assert not callbacks and not Profile.objects.exists()


def test_bytes_of_an_upload_that_is_rolled_back_do_not_stay(settings, tmp_store):
    """Two ranks, the second too large: the first lies in the store already when that shows."""
    settings.UPLOAD_MAX_BYTES = len(json.dumps(TINY))
    with pytest.raises(TraceError, match="more than"):
        create(upload(), more_files=[upload("rank1.json", json.dumps(TINY).encode() + b" ")])
    assert not Profile.objects.exists()
    assert not [path for path in tmp_store.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["../../etc/passwd", "C:\\traces\\t.json", "a\x00b.json", "\ud800.json", "..", "", "x" * 400])
def test_hostile_file_names_stay_in_the_uploads_folder(name):
    file = upload()
    file.name = name
    profile = create(file)
    assert profile.upload_key.startswith("uploads/") and profile.upload_key.count("/") == 2
    assert ".." not in profile.upload_key and "\x00" not in profile.file_name and profile.file_name
    assert ingested(profile).status == "ready"


def test_what_can_be_known_at_once_is_refused_at_once(settings):
    settings.UPLOAD_MAX_BYTES = 5
    for file, what in ((None, "no file"), (upload(content=b""), "empty"), (upload(), "at most 5")):
        with pytest.raises(TraceError, match=what) as refused:
            upload_check(file)
        assert refused.value.where and refused.value.hint


def test_trace_becomes_ready_with_everything():
    profile = ingested(recording("kineto_train.json.gz"))
    assert (profile.status, profile.kind, profile.format, profile.gpu) == ("ready", "trace", "kineto", "NVIDIA H200")
    assert (profile.steps, profile.launches, profile.gpu_time_ns) == (4, 948, 10_876_979)
    assert profile.wall_ns > profile.busy_ns > 0 and profile.top_kernel
    assert profile.integrity["records_read"] == profile.integrity["records_kept"] == 10_949
    assert profile.seconds > 0 and profile.peak_rss_bytes > 10**7 and profile.heartbeat is None
    stats = KernelStat.objects.filter(profile=profile)
    assert sum(stat.total_ns for stat in stats) == profile.gpu_time_ns
    assert sum(stat.share_pct for stat in stats) == pytest.approx(100)
    assert launches_read(profile.pk).num_rows == 948
    assert not profile.findings.filter(rule="gpu_idle").exists()            # the account says it, once it is made
    topic_make(profile, topic_of("causes"))
    assert profile.findings.filter(rule="cause_host_launch", severity="high", numbers__leads=1).exists()
    assert 0 < sum(each.worth_ns or 0 for each in profile.findings.all()) <= profile.wall_ns
    folder = Path(default_storage.path(f"profiles/{profile.pk}"))
    stored = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    assert profile.stored_bytes == stored and stored < 0.1 * 4_900_000       # 10 % of the raw JSON


def test_what_is_remarkable_is_in_the_integrity_report():
    assert ingested(create(upload())).integrity["remarks"] == {"GPU work whose launch call is not in the file": 1}


def test_counter_report_becomes_ready_with_its_launches():
    profile = ingested(recording("buildA.ncu-rep.zst", build="A"))
    assert (profile.status, profile.kind, profile.launches, profile.gpu_time_ns) == ("ready", "counters", 15, 1_661_568)
    assert LaunchCounters.objects.filter(profile=profile).count() == 15
    assert profile.findings.exists() and profile.findings.first().kernel is not None
    assert launches_read(profile.pk).num_rows == 15


def test_ranks_of_a_job_become_one_profile():
    names = ("ddp_even_rank0.json.gz", "ddp_even_rank1.json.gz")
    with (H200 / names[0]).open("rb") as one, (H200 / names[1]).open("rb") as two:
        profile = create(File(one, name=names[0]), more_files=[File(two, name=names[1])])
    profile = ingested(profile)
    assert profile.status == "ready" and profile.steps == 5 and len(profile.summary["devices"]) == 2
    assert [each["name"] for each in profile.metadata["files"]] == list(names)
    assert set(profile.metadata["ranks"]) == {"rank 0", "rank 1"}


@pytest.mark.parametrize(("content", "what"), [
    (b"", "empty"), (b"\x00" * 4000, "unknown binary"), (b'{"traceEvents": []}', "no records"),
    (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
])
def test_unreadable_files_fail_with_where_what_and_hint(content, what):
    profile = ingested(create(upload(content=content)))
    assert profile.status == "failed" and what in profile.error["what"]
    assert profile.error["where"] and profile.error["hint"]
    assert not KernelStat.objects.exists() and not Finding.objects.exists()
    assert default_storage.exists(profile.upload_key) and not default_storage.exists(f"profiles/{profile.pk}")


def test_text_that_postgresql_cannot_hold_is_kept_as_near_as_can_be():
    events = {**TINY, "traceEvents": [{**TINY["traceEvents"][0], "name": "bad\u0000name " + "T<int>," * 3000}],
              "traceName": "nul \u0000 inside"}
    profile = ingested(create(upload(content=events)))
    assert profile.status == "ready", profile.error
    assert profile.kernels.get().name.startswith("bad\N{REPLACEMENT CHARACTER}name")
    assert len(profile.kernels.get().short_name) <= 200


def test_a_full_disk_fails_the_row_clearly_and_leaves_nothing(monkeypatch):
    profile = create(upload())

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.PreparedTrace, "_encode", full)
    profile = ingested(profile)
    assert profile.status == "failed" and profile.error["where"] == "object store"
    assert "no room on the disk" in profile.error["what"] and "read again by itself when there is room" in profile.error["hint"]
    assert default_storage.exists(profile.upload_key) and not default_storage.exists(f"profiles/{profile.pk}")


def test_an_unexpected_fault_fails_the_row_and_says_that_it_is_ours(monkeypatch, caplog):
    profile = create(upload())
    monkeypatch.setattr(store, "prepare", lambda *_: 1 / 0)
    profile = ingested(profile)
    assert profile.status == "failed" and "ZeroDivisionError" in profile.error["what"]
    assert "fault of Ridgepoint" in profile.error["hint"] and "Traceback" in caplog.text


def test_a_second_worker_does_not_take_a_row_that_is_held():
    profile = create(upload(), worker="first")
    assert profile_ingest(profile.pk, "second").status == "ingesting"
    assert ingested(profile, "first").status == "ready"
    before = profile.seconds
    assert ingested(profile, "first").seconds == before      # ready: nothing to do


def test_after_a_kill_the_next_worker_replaces_what_was_left(monkeypatch):
    """Killed after the rows and objects of a first try: the second try leaves exactly one profile's worth."""
    profile = create(upload(), worker="first")

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(services, "_keep", die)
    with pytest.raises(Killed):
        profile_ingest(profile.pk, "first")
    monkeypatch.undo()
    profile.refresh_from_db()
    assert profile.status == "ingesting" and not profile.kernels.exists()
    assert not Profile.leases.abandoned_rows()                     # its heartbeat is fresh
    Profile.objects.filter(pk=profile.pk).update(heartbeat=timezone.now() - timedelta(seconds=11))
    assert list(Profile.leases.abandoned_rows()) == [profile]
    assert ingested(profile, "second").status == "ready"
    assert profile.kernels.count() == 1 and profile.attempts == 2


def test_a_file_that_kills_its_worker_again_and_again_fails():
    profile = create(upload())
    Profile.objects.filter(pk=profile.pk).update(
        attempts=services.MAX_ATTEMPTS, heartbeat=timezone.now() - timedelta(minutes=1))
    profiles_fail_hopeless()
    profile.refresh_from_db()
    assert profile.status == "failed" and not Profile.leases.abandoned_rows() and "died 3 times" in profile.error["what"]


def test_a_worker_that_lost_its_row_writes_nothing():
    profile = create(upload(), worker="slow")
    progress = Progress(profile.pk, "slow")
    Profile.objects.filter(pk=profile.pk).update(worker="other")
    with pytest.raises(Superseded):
        progress.now("storing")


def test_deleted_while_it_is_read_leaves_nothing(monkeypatch):
    profile = create(upload())
    write = steps.launches_write

    def delete_meanwhile(profile_id: int, launches: Any) -> int:
        Profile.objects.filter(pk=profile_id).delete()
        return write(profile_id, launches)

    monkeypatch.setattr(steps, "launches_write", delete_meanwhile)
    assert profile_ingest(profile.pk, "test") is None
    assert not Path(default_storage.path(f"profiles/{profile.pk}")).exists()


def test_progress_is_bounded_kept_and_catchable(monkeypatch):
    profile = create(upload(), worker="w")
    published = []
    monkeypatch.setattr(jobs, "publish", lambda topic, event, data: published.append((topic, event, data)))
    clock = iter(range(1000))
    monkeypatch.setattr("profiles.progress.time.monotonic", lambda: next(clock) * 0.05)
    progress = Progress(profile.pk, "w")
    for done in range(100):
        progress("reading", done * 1000, 100_000, done * 10)
    assert 20 <= len(published) <= 26                         # 5 s of calls: at most 5 a second
    topic, event, data = published[-1]
    assert (topic, event) == (f"profile.{profile.pk}", "progress")
    assert data["total_bytes"] == 100_000 and data["rate_bytes_s"] > 0 and data["eta_s"] >= 0
    profile.refresh_from_db()
    assert profile.summary["progress"]["phase"] == "reading" and profile.heartbeat


def test_delete_removes_rows_and_objects(django_capture_on_commit_callbacks):
    profile = ingested(create(upload()))
    folder = Path(default_storage.path(f"profiles/{profile.pk}"))
    assert folder.is_dir()
    with django_capture_on_commit_callbacks(execute=True):
        profile_delete(profile)
    assert not folder.exists() and not KernelStat.objects.exists()


def test_update_changes_what_is_given_and_cleans_it():
    profile = create(upload())
    profile_update(profile, tags=["x", "x", " "], notes="nul\x00", name="  ")
    profile.refresh_from_db()
    assert profile.tags == ["x"] and "\x00" not in profile.notes and profile.name == "t.json"


def test_more_kernel_names_than_a_table_takes_are_one_row_of_it(monkeypatch):
    monkeypatch.setattr(steps, "KERNEL_ROWS", 3)
    records = [{"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, "ts": i * 10, "dur": 1 + i} for i in range(8)]
    profile = ingested(create(upload(content={"schemaVersion": 1, "traceEvents": records})))
    assert [(row.name, row.launches, row.total_ns) for row in profile.kernels.order_by("-total_ns")] == [
        ("(further names)", 5, 15_000), ("k7", 1, 8_000), ("k6", 1, 7_000), ("k5", 1, 6_000)]
    assert (profile.launches, profile.gpu_time_ns) == (8, 36_000)
    assert any("kernel names beyond" in what and n == 5 for what, n in profile.integrity["remarks"].items())
