"""The parts of a backup without a product: stores, digests, seals, lists, retention; what damage each finds."""

from __future__ import annotations

import io
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BUCKET
from webapp.backup import check, make, seal, tools
from webapp.backup import manifest as form
from webapp.backup.check import backup_check
from webapp.backup.errors import BackupError, Damaged, Refused
from webapp.backup.make import Copier, exclusive, profile_of
from webapp.backup.manifest import Kept, Manifest, Part
from webapp.backup.stores import Entry, Folder, Store, open_place


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "folder":
        return open_place(str(tmp_path / "place"))
    endpoint = request.getfixturevalue("bucket").meta.endpoint_url
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    return open_place(f"s3://{BUCKET}/some/prefix")


@pytest.fixture
def source(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "source", private=False)
    for number in range(3):
        folder.write(f"profiles/{number}/upload/a", io.BytesIO(b"object %d" % number))
    return folder


def write_backup(place: Store, source: Store, name: str) -> Manifest:
    """Write a backup whose dump is no dump."""
    objects = Copier(source, place, {}, lambda line: None).copy_all("saved")
    parts = {form.ROWS: form.write_part(place, name, form.ROWS, io.BytesIO(b"PGDMP" * 100)),
             form.OBJECTS: form.write_objects(place, name, objects)}
    manifest = Manifest(name=name, made="", postgres=18, migrations=[], parts=parts, objects=len(objects),
                        object_bytes=sum(each.size for each in objects), rows={})
    form.write_manifest(place, manifest)
    return manifest


NAMES = ("2026-01-01T000000.000Z", "2026-01-02T000000.000Z", "2026-01-03T000000.000Z")


@pytest.mark.slow
def test_what_is_written_is_listed_read_and_deleted(place: Store) -> None:
    place.write("a/b", io.BytesIO(b"12345"))
    place.write("a/b", io.BytesIO(b"123"))
    place.write("ab/c", io.BytesIO(b""))
    assert {(entry.key, entry.size) for entry in place.list()} == {("a/b", 3), ("ab/c", 0)}
    assert [entry.key for entry in place.list("a")] == ["a/b"]
    assert place.stat("a/b") == next(place.list("a")) and place.stat("a/x") is None
    with place.open("a/b") as file:
        assert file.read() == b"123"
    with pytest.raises(FileNotFoundError):
        place.open("a/x")
    place.delete("a/b")
    place.delete("a/b")
    assert [entry.key for entry in place.list()] == ["ab/c"]


def test_half_a_source_leaves_nothing(place: Store) -> None:
    class Breaks:
        def __init__(self) -> None:
            self.chunks = [b"half"]

        def read(self, size: int, /) -> bytes:
            if not self.chunks:
                raise OSError("the disk is gone")
            return self.chunks.pop()

    with pytest.raises(OSError, match="the disk is gone"):
        place.write("a/b", Breaks())
    assert list(place.list()) == []


def test_a_key_cannot_leave_its_folder(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="leads out of the folder"):
        Folder(tmp_path / "place").write("../outside", io.BytesIO(b""))
    assert not (tmp_path / "outside").exists()


def test_an_object_that_does_not_stop_changing_is_left_out(source: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.backup.make._PAUSE_S", 0)
    changes = 0
    whole = source.open

    def open_and_change(key: str) -> Any:
        nonlocal changes
        file = whole(key)
        if key.startswith("profiles/1/"):
            changes += 1
            source.write(key, io.BytesIO(b"version %d" % changes))
        return file

    monkeypatch.setattr(source, "open", open_and_change)
    copier = Copier(source, Folder(tmp_path / "place"), {}, lambda line: None)
    assert {each.key for each in copier.copy_all("saved")} == {"profiles/0/upload/a", "profiles/2/upload/a"}
    assert copier.unsettled == {"profiles/1/upload/a"} and changes == 4


def test_an_object_that_is_deleted_meanwhile_is_left_out(source: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [*source.list(), Entry("profiles/9/upload/a", 3, "1")]
    monkeypatch.setattr(source, "list", lambda prefix="": iter(gone))
    copier = Copier(source, Folder(tmp_path / "place"), {}, lambda line: None)
    assert len(copier.copy_all("saved")) == 3 and not copier.unsettled


def test_equal_bytes_lie_once_and_unchanged_ones_are_not_read_again(
        place: Store, source: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    source.write("profiles/7/upload/a", io.BytesIO(b"object 1"))
    first = Copier(source, place, {}, lambda line: None)
    objects = first.copy_all("saved")
    assert first.copied == 3 and len(objects) == 4
    monkeypatch.setattr(source, "open", lambda key: pytest.fail(f"{key} was read"))
    again = Copier(source, place, {each.key: each for each in objects}, lambda line: None)
    assert again.copy_all("saved") == objects and again.copied == 0


@pytest.mark.slow
def test_the_keys_open_under_their_passphrase_alone() -> None:
    sealed = seal.seal({"secret_key": "äöü"}, "a long passphrase")
    assert b"\xc3" not in sealed and seal.unseal(sealed, "a long passphrase") == {"secret_key": "äöü"}
    with pytest.raises(BackupError, match="not the one that this backup's keys were sealed under"):
        seal.unseal(sealed, "another passphrase")
    document = json.loads(sealed)
    for changed in ({"cost": 1 << 30}, {"cost": 3}, {"salt": 7}, {"sealed": None}):
        with pytest.raises(BackupError):
            seal.unseal(json.dumps(document | changed).encode(), "a long passphrase")
    with pytest.raises(Damaged):
        seal.unseal(b"\xff", "a long passphrase")


def test_the_passphrase_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    assert seal.read_passphrase({}) is None
    (tmp_path / "file").write_text("a long passphrase\n")
    assert seal.read_passphrase({"RIDGEPOINT_BACKUP_PASSPHRASE_FILE": str(tmp_path / "file")}) == "a long passphrase"
    with pytest.raises(BackupError, match="fewer than 12"):
        seal.read_passphrase({"RIDGEPOINT_BACKUP_PASSPHRASE": "short"})
    with pytest.raises(BackupError, match="cannot be read"):
        seal.read_passphrase({"RIDGEPOINT_BACKUP_PASSPHRASE_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
@pytest.mark.parametrize("part", [form.ROWS, form.OBJECTS, form.MANIFEST, "object"])
def test_every_harm_is_found(source: Folder, tmp_path: Path, harm: str, part: str) -> None:
    place = Folder(tmp_path / "place")
    write_backup(place, source, NAMES[0])
    before = backup_check(place, NAMES[0], say=lambda line: None)
    assert len(before.faults) == 1 and "pg_restore failed" in before.faults[0] and not before.objects      # "PGDMP" is no dump
    key = next(place.list(form.POOL)).key if part == "object" else form.part_key(NAMES[0], part)
    path = place.root / key
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    {"flip": lambda: path.write_bytes(content), "cut": lambda: os.truncate(path, len(content) // 2), "remove": path.unlink}[harm]()
    if part == form.MANIFEST:
        with pytest.raises(Damaged, match=r"manifest\.json"):
            backup_check(place, NAMES[0], say=lambda line: None)
        return
    checked = backup_check(place, NAMES[0], say=lambda line: None)
    if part == "object":
        assert len(checked.objects) == 1 and key in next(iter(checked.objects.values()))
    else:
        assert [fault for fault in checked.faults if key in fault and "pg_restore" not in fault]


def test_a_manifest_of_a_later_form_is_not_guessed_at(source: Folder, tmp_path: Path) -> None:
    place = Folder(tmp_path / "place")
    write_backup(place, source, NAMES[0])
    path = place.root / form.part_key(NAMES[0], form.MANIFEST)
    document = json.loads(path.read_text())
    document["manifest"]["format"] = form.FORMAT + 1
    path.write_text(json.dumps(document))
    with pytest.raises(BackupError, match="made by a later version"):
        form.read_manifest(place, NAMES[0])


def test_a_list_that_asks_for_endless_memory_is_refused(source: Folder, tmp_path: Path) -> None:
    place = Folder(tmp_path / "place")
    manifest = write_backup(place, source, NAMES[0])
    form.write_objects(place, NAMES[0], [Kept("x" * 1_000_000, 1, "0" * 64, "")])
    with pytest.raises(Damaged, match="line 1"):
        list(form.read_objects(place, manifest))


def test_keeping_the_newest_removes_what_only_older_ones_need(place: Store, source: Folder) -> None:
    write_backup(place, source, NAMES[0])
    source.delete("profiles/0/upload/a")
    write_backup(place, source, NAMES[1])
    source.write("profiles/5/upload/a", io.BytesIO(b"object 5"))
    write_backup(place, source, NAMES[2])
    assert len(list(place.list(form.POOL))) == 4
    assert make.prune(place, 2) == [NAMES[0]]
    assert list(form.names(place)) == list(NAMES[1:]) and len(list(place.list(form.POOL))) == 3
    for name in NAMES[1:]:
        assert not backup_check(place, name, say=lambda line: None).objects
    assert form.choose(place, None) == NAMES[2]
    with pytest.raises(BackupError, match="it holds 2026-01-02"):
        form.choose(place, NAMES[0])


def test_a_backup_that_cannot_be_read_keeps_all_objects(source: Folder, tmp_path: Path) -> None:
    place = Folder(tmp_path / "place")
    for name in NAMES:
        write_backup(place, source, name)
    os.truncate(place.root / form.part_key(NAMES[1], form.OBJECTS), 10)
    with pytest.raises(BackupError, match="their objects stay"):
        make.prune(place, 2)
    assert len(list(place.list(form.POOL))) == 3


def test_two_backups_do_not_share_a_folder_at_once(tmp_path: Path) -> None:
    place = Folder(tmp_path / "place")
    with exclusive(place), pytest.raises(Refused, match="another backup is being made"), exclusive(Folder(tmp_path / "place")):
        pass


def test_an_unfinished_backup_of_today_in_a_bucket_is_left_alone(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bucket.meta.endpoint_url)
    place = open_place(f"s3://{BUCKET}")
    fresh = form.new_name(datetime.now(UTC))
    for name in (NAMES[0], fresh):
        place.write(form.part_key(name, form.STARTED), io.BytesIO(b"{}"))
    assert make.clear_unfinished(place) == [NAMES[0]] and form.names(place) == {fresh: False}


def test_an_old_tool_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "pg_dump"
    old.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 12.3'\n")
    old.chmod(0o755)
    monkeypatch.setenv("RIDGEPOINT_PG_BIN", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.find_tool("pg_dump", 12) == old
    with pytest.raises(BackupError, match=r"pg_dump of PostgreSQL 18 or later is needed: .*pg_dump is of version 12"):
        tools.find_tool("pg_dump", 18)
    monkeypatch.setenv("RIDGEPOINT_PG_BIN", str(tmp_path / "none"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(BackupError, match="none was found"):
        tools.find_tool("pg_restore", 18)


def test_the_mark_names_the_command_that_goes_on(tmp_path: Path) -> None:
    assert check.refuse_half_restored(tmp_path, "serve") is None
    check.mark(tmp_path, "/backups", NAMES[0])
    refused = check.refuse_half_restored(tmp_path, "serve")
    assert refused and f"restore /backups --backup {NAMES[0]}" in refused
    assert check.refuse_half_restored(tmp_path, "restore") is None
    (tmp_path / check.MARK).write_text("half")
    assert "restore DIR" in (check.refuse_half_restored(tmp_path, "serve") or "")
    check.unmark(tmp_path)
    assert check.marked(tmp_path) is None


@pytest.mark.parametrize(("key", "owner"), [("profiles/7/upload/x", 7), ("profiles/x/upload", None), ("captures/7/x", None),
                                            ("a", None)])
def test_an_object_names_its_profile(key: str, owner: int | None) -> None:
    assert profile_of(key) == owner


def test_parts_compare_by_value() -> None:
    digest = form.Digest(io.BytesIO(b"abc"))
    assert digest.read() == b"abc" and digest.read() == b""
    assert digest.part == Part(3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
