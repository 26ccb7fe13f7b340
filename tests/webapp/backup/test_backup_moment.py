"""What happens to profiles between the moment of the rows and that of their objects: named by the backup, settled by a restore."""

from __future__ import annotations

import io
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import connection

from profiles.models import Capture, CaptureTarget, Profile
from profiles.upload.services import profile_create, profile_delete
from webapp.backup import make, rows
from webapp.backup.check import backup_check
from webapp.backup.errors import Refused
from webapp.backup.manifest import read_objects
from webapp.backup.stores import Folder

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.process]


def create(name: str, status: str = Profile.Status.READY) -> Profile:
    profile = profile_create(owner=None, file=File(io.BytesIO(name.encode()), name=name), worker="test")
    Profile.objects.filter(pk=profile.pk).update(status=status)
    profile.refresh_from_db()
    return profile


def elsewhere(act: Any) -> None:
    """Act on a connection of its own, as another process does."""
    def run() -> None:
        act()
        connection.close()

    thread = Thread(target=run)
    thread.start()
    thread.join()


@pytest.fixture
def place(tmp_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("place") / "backups")


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is done once the rows are held and before the objects are looked at."""
    acts: list[Any] = []
    whole = make.Copier.copy_all

    def copy_all(self: make.Copier, verb: str) -> Any:
        if verb == "saved since":
            for act in acts:
                elsewhere(act)
        return whole(self, verb)

    monkeypatch.setattr(make.Copier, "copy_all", copy_all)
    return acts


def test_what_changes_meanwhile_is_named(place: Folder, between: list[Any]) -> None:
    kept, deleted, reread = create("kept.json"), create("deleted.json"), create("reread.json")
    waiting = create("waiting.json", Profile.Status.UPLOADED)
    target = CaptureTarget.objects.create(name="t", argv=["true"])
    capture = Capture.objects.create(target=target, tool="ncu")
    coming: list[Profile] = []
    between += [
        lambda: profile_delete(Profile.objects.get(pk=deleted.pk)), lambda: coming.append(create("coming.json")),
        lambda: Profile.objects.filter(pk=reread.pk).update(status=Profile.Status.INGESTING, attempts=2),
        lambda: Profile.objects.filter(pk=waiting.pk).update(status=Profile.Status.INGESTING, attempts=1),
        lambda: Capture.objects.all().delete()]
    manifest = make.backup_make(place, say=lambda line: None).manifest
    assert manifest.deleted == [deleted.pk] and manifest.deleted_captures == [capture.pk] and manifest.reread == [reread.pk]
    assert manifest.rows["profiles_profile"] == 4               # of the moment: with the deleted one, without the one that came
    held = {each.key for each in read_objects(place, manifest)}
    assert held == {kept.upload_key, reread.upload_key, waiting.upload_key} and coming[0].upload_key not in held
    assert backup_check(place, manifest.name, say=lambda line: None).is_whole


def test_a_restore_settles_it(place: Folder) -> None:
    kept, deleted, reread = create("kept.json"), create("deleted.json"), create("reread.json")
    rows.settle([deleted.pk], [], [reread.pk])
    assert set(Profile.objects.values_list("pk", "status")) == {(kept.pk, "ready"), (reread.pk, "uploaded")}


def test_an_object_that_is_written_all_the_time_is_ingested_again(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "_PAUSE_S", 0)
    profile, calm = create("busy.json"), create("calm.json")
    key, whole, size = f"profiles/{profile.pk}/topics/a", Folder.open, 0
    default_storage.save(key, File(io.BytesIO(b"")))

    def open_and_change(self: Folder, asked: str) -> Any:
        nonlocal size
        if asked == key:
            size += 1
            Path(default_storage.path(key)).write_bytes(b"x" * size)
        return whole(self, asked)

    monkeypatch.setattr(Folder, "open", open_and_change)
    manifest = make.backup_make(place, say=lambda line: None).manifest
    assert manifest.reread == [profile.pk] and calm.pk not in manifest.reread
    assert key not in {each.key for each in read_objects(place, manifest)}


def test_a_failed_dump_is_no_backup(
        place: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    tools = tmp_path_factory.mktemp("bin")
    (tools / "pg_dump").write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'pg_dump (PostgreSQL) 99.1' && exit\n"
                                   "printf half; echo 'the server went away' >&2; exit 1\n")
    (tools / "pg_dump").chmod(0o755)
    monkeypatch.setenv("RIDGEPOINT_PG_BIN", str(tools))
    with pytest.raises(make.BackupError, match="pg_dump failed: the server went away"):
        make.backup_make(place, say=lambda line: None)
    assert list(make.names(place).values()) == [False]
    monkeypatch.delenv("RIDGEPOINT_PG_BIN")
    make.backup_make(place, say=lambda line: None)
    assert list(make.names(place).values()) == [True]


def test_a_place_in_the_object_store_is_refused(place: Folder, tmp_store: Path) -> None:
    for inside in (tmp_store, tmp_store / "backups", tmp_store.parent):
        with pytest.raises(Refused, match="lie in each other"):
            make.backup_make(Folder(inside), say=lambda line: None)


def test_company_and_data_are_told(place: Folder) -> None:
    assert "profiles_profile" not in " ".join(rows.describe_data())
    create("a.json")
    assert "profiles_profile: 1" in rows.describe_data()
    elsewhere_done: list[BaseException] = []

    def ask() -> None:
        try:
            rows.refuse_company()
        except Refused as error:
            elsewhere_done.append(error)

    connection.ensure_connection()
    elsewhere(ask)
    assert "stop web and workers first" in str(elsewhere_done[0])


def test_a_schema_of_a_later_version_is_known_as_such() -> None:
    assert rows.unknown(rows.applied()) == []
    assert rows.unknown([*rows.applied(), ["profiles", "9999_later"]]) == ["profiles.9999_later"]
