"""Too little room on a disk: new work is refused in words, what runs ends cleanly, and everything goes on when there is room."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.files.base import File
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client

from profiles.capture import services as capture_services
from profiles.models import CaptureTarget, Profile
from profiles.upload import services
from webapp.outage import FULL, outage_of
from workers import disk, jobs, sweep, tasks

TRACE = json.dumps({"traceEvents": [
    {"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, "ts": i, "dur": 1, "args": {"device": 0, "stream": 7}}
    for i in range(50)]}).encode()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 40 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("only root may mount a small disk here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def store(small_disk: Path, settings: Any) -> Path:
    """The object store on the small disk, of which 4 MiB are kept."""
    settings.STORAGES = {**settings.STORAGES, "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": small_disk / "store", "allow_overwrite": True}}}
    settings.DISK_REST = "10 %"
    return small_disk


def fill(folder: Path, left_bytes: int) -> Path:
    """Leave so many bytes free."""
    facts = os.statvfs(folder)
    ballast = folder / "ballast"
    with open(ballast, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, facts.f_bavail * facts.f_frsize - left_bytes)
    return ballast


def trace() -> SimpleUploadedFile:
    return SimpleUploadedFile("trace.json", TRACE, "application/json")


@pytest.mark.parametrize(("text", "of_bytes", "kept_bytes"), [
    ("2 GB, 5 %", 10**12, 2 * 10**9), ("2 GB, 5 %", 10**10, 5 * 10**8), ("10%", 1000, 100), ("0", 10**9, 0),
    ("1.5MB", 10**9, 1_500_000)])
def test_the_smaller_part_is_kept(text: str, of_bytes: int, kept_bytes: int) -> None:
    assert disk.rest_bytes(of_bytes, text) == kept_bytes


@pytest.mark.parametrize("text", ["", "much", "5 GB 2", "-3 GB", "2 GB,"])
def test_a_rest_that_is_none_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="RIDGEPOINT_DISK_REST"):
        disk.rest_parse(text)


def test_each_disk_is_named_once(tmp_path: Path, settings: Any) -> None:
    settings.HOME = tmp_path / "not made yet" / "var"
    names = [name for place in disk.places() for name in place.names]
    assert sorted(names) == ["data folder", "object store", "temporary files"]
    assert len({os.stat(place.path).st_dev for place in disk.places()}) == len(disk.places())


def test_full_is_told_from_whatever_a_library_raised() -> None:
    arrow, wrapped = OSError("[Errno 28] Error writing: No space left on device"), RuntimeError("writing failed")
    wrapped.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    full = (arrow, wrapped, OSError(errno.EDQUOT, "quota"), redis.ResponseError("MISCONF Errors writing"))
    other = (None, OSError(errno.EACCES, "no"), redis.ResponseError("WRONGTYPE"), ValueError("28"))
    assert all(map(disk.is_full_error, full)) and not any(map(disk.is_full_error, other))
    assert outage_of(wrapped) == FULL


@pytest.mark.django_db
@pytest.mark.servers
def test_new_work_is_refused_with_507_and_words_on_every_way(alice: Any, store: Path, capsys: Any, tmp_path: Path) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    ballast = fill(store, 2 << 20)
    answer = client.post("/api/profiles/", {"file": trace()})
    assert answer.status_code == 507 and "2.1 MB free, 4.19 MB are kept for what runs (object store)" in answer.json()["error"]
    assert answer.json()["hint"] and "Retry-After" not in answer.headers
    page = client.post("/profiles/upload/", {"file": trace()})
    assert page.status_code == 507 and "4.19 MB are kept" in page.content.decode()
    target = CaptureTarget.objects.create(name="t", argv=["true"])
    with pytest.raises(disk.NoRoom):
        capture_services.capture_create(owner=alice, target=target, tool="nsys", options={})
    assert client.post("/api/captures/", {"target": target.pk, "tool": "nsys"}, "application/json").status_code == 507
    given = tmp_path / "trace.json"
    given.write_bytes(TRACE)
    with pytest.raises(CommandError) as refused:
        call_command("ingest", str(given), stdout=io.StringIO())
    assert "the disk is full" in str(refused.value)
    assert not Profile.objects.exists()
    home = client.get("/").content.decode()
    assert "Disk full" in home and "No uploads or captures" in home
    assert client.get("/health/").json() == {"status": "ok", "database": "ok", "redis": "ok", "disk": "full"}
    status = client.get("/api/status/").json()
    assert status["state"] == "bad"
    ballast.unlink()
    assert client.post("/api/profiles/", {"file": trace()}).status_code == 201
    assert "Disk full" not in client.get("/").content.decode() and "disk" not in client.get("/health/").json()


@pytest.mark.django_db(transaction=True)
@pytest.mark.servers
def test_an_ingest_waits_for_room_or_fails_with_that_word_and_is_read_again(
        alice: Any, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = services.profile_create(owner=alice, file=File(io.BytesIO(TRACE), name="t.json"))
    ballast = fill(store, 2 << 20)
    tasks._run(tasks.ROW_KINDS["ingest"], profile.pk, services.profile_ingest)
    profile.refresh_from_db()
    assert profile.status == Profile.Status.UPLOADED            # not begun: it waits
    services.profile_ingest(profile.pk, "w1")                   # one that had begun before
    profile.refresh_from_db()
    assert profile.status == Profile.Status.READY               # 2 MB were enough
    ballast.unlink()

    second = services.profile_create(owner=alice, file=File(io.BytesIO(TRACE), name="u.json"))
    ballast = fill(store, 0)
    services.profile_ingest(second.pk, "w1")
    second.refresh_from_db()
    assert second.status == Profile.Status.FAILED and second.error is not None
    assert second.error["kind"] == services.NO_ROOM and "no room on the disk" in second.error["what"]
    key = "ridgepoint:sweep"
    jobs.connection().delete(key)
    assert second.pk not in sweep.sweep().get("ingest", [])
    ballast.unlink()
    jobs.connection().delete(key)
    sweep.sweep()
    second.refresh_from_db()
    assert second.status == Profile.Status.UPLOADED and second.error is None
    services.profile_ingest(second.pk, "w1")
    second.refresh_from_db()
    assert second.status == Profile.Status.READY


@pytest.mark.django_db
@pytest.mark.servers
def test_one_that_needs_more_than_there_is_does_not_turn_in_circles(alice: Any, store: Path) -> None:
    profile = services.profile_create(owner=alice, file=File(io.BytesIO(TRACE), name="t.json"))
    free_bytes = disk.least_free_bytes()
    Profile.objects.filter(pk=profile.pk).update(
        status=Profile.Status.FAILED, error={"kind": services.NO_ROOM, "what": "…", "free_bytes": free_bytes})
    services.profiles_retry_without_room()
    profile.refresh_from_db()
    assert profile.status == Profile.Status.FAILED              # nothing is free that was not when it failed
    Profile.objects.filter(pk=profile.pk).update(error={"kind": services.NO_ROOM, "free_bytes": free_bytes - (8 << 20)})
    services.profiles_retry_without_room()
    profile.refresh_from_db()
    assert profile.status == Profile.Status.UPLOADED


def test_running_work_stops_before_the_servers_of_the_disk_cannot_write(store: Path) -> None:
    fill(store, 2 << 20)
    disk.require_rest()
    (store / "ballast").unlink()
    fill(store, 1 << 19)
    with pytest.raises(disk.NoRoom):
        disk.require_rest()
