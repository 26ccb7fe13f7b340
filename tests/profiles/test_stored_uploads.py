"""The same bytes are stored once, whoever sends them and however many at once, and go with the last profile that uses them."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import File
from django.core.files.storage import FileSystemStorage, default_storage
from django.db import connection, transaction

from profiles.ingest.trace import TraceError
from profiles.models import Profile, StoredUpload
from profiles.retention.services import freed_bytes, profiles_bytes, used_bytes
from profiles.upload.files_services import uploads_sweep
from profiles.upload.request_services import profile_apart
from profiles.upload.services import profile_create, profile_delete
from webapp.models import Project
from workers.scope import within

pytestmark = pytest.mark.django_db(transaction=True)


def create(content: bytes, *more: bytes, name: str = "t.json") -> Profile:
    files = [File(io.BytesIO(each), name=name) for each in (content, *more)]
    return profile_create(owner=None, file=files[0], more_files=files[1:], worker="test")


def other_project() -> int:
    return Project.objects.get_or_create(slug="other", defaults={"name": "other"})[0].pk


def objects(store: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in store.rglob("*") if path.is_file())


def read(profile: Profile) -> bytes:
    with default_storage.open(profile.upload_key) as file:
        return bytes(file.read())


def test_the_second_upload_names_the_object_of_the_first(tmp_store: Path) -> None:
    first, second = create(b"same", name="a.json"), create(b"same", name="b.json")
    assert objects(tmp_store) == [b"same"] and first.upload_key == second.upload_key
    assert (first.file_name, second.file_name, second.upload_bytes) == ("a.json", "b.json", 4)
    profile_delete(first)
    assert read(second) == b"same"
    profile_delete(second)
    assert not objects(tmp_store) and not StoredUpload.objects.exists()
    assert not [path for path in tmp_store.rglob("*") if path.is_dir() and path.parent.name == "uploads"]


def test_ranks_share_objects_among_each_other_and_with_single_files(tmp_store: Path) -> None:
    alone, group = create(b"one"), create(b"one", b"two", b"one")
    assert objects(tmp_store) == [b"one", b"two"]
    assert [each["bytes"] for each in group.metadata["files"]] == [3, 3, 3] and group.upload_bytes == 9
    assert group.metadata["files"][0]["key"] == group.metadata["files"][2]["key"] == alone.upload_key
    profile_delete(group)
    assert objects(tmp_store) == [b"one"]


def test_projects_share_the_object_and_nothing_else(tmp_store: Path) -> None:
    mine = create(b"same")
    with within(other_project()):
        theirs = create(b"same")
        assert list(Profile.objects.all()) == [theirs]
    assert mine.upload_key == theirs.upload_key
    profile_delete(mine)
    assert read(theirs) == b"same"


def test_files_taken_apart_are_not_copied(tmp_store: Path) -> None:
    group = create(b"one", b"two")
    keys = {each["key"] for each in group.metadata["files"]}
    Profile.objects.filter(pk=group.pk).update(status="failed", error={"kind": "different jobs", "what": "w"})
    made = profile_apart(group)
    assert {each.upload_key for each in made} == keys and objects(tmp_store) == [b"one", b"two"]


def test_what_fails_later_keeps_what_others_use(tmp_store: Path) -> None:
    create(b"same")
    with pytest.raises(RuntimeError, match="later"), transaction.atomic():
        create(b"same")
        raise RuntimeError("later")
    assert objects(tmp_store) == [b"same"] and Profile.objects.count() == 1


def test_a_group_that_is_refused_leaves_nothing(tmp_store: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    saves = 0
    really = FileSystemStorage.save

    def save(self: Any, name: str, content: Any) -> str:
        nonlocal saves
        saves += 1
        if saves == 2:
            raise OSError(28, "No space left on device")
        return str(really(self, name, content))

    monkeypatch.setattr(FileSystemStorage, "save", save)
    with pytest.raises(OSError, match="No space"):
        create(b"one", b"two")
    assert not objects(tmp_store) and not StoredUpload.objects.exists() and not Profile.objects.exists()
    settings.UPLOAD_MAX_BYTES = 3
    with pytest.raises(TraceError, match="more than"):
        create(b"one", b"more")
    assert not objects(tmp_store) and saves == 2


def test_an_object_that_went_missing_is_stored_again(tmp_store: Path) -> None:
    first = create(b"same")
    default_storage.delete(first.upload_key)
    assert read(create(b"same")) == b"same" == read(first)


def test_many_at_once_store_one_object_and_deletions_meanwhile_take_none_that_is_used(tmp_store: Path) -> None:
    failures: list[BaseException] = []
    kept: list[int] = []

    def work(number: int) -> None:
        try:
            for turn in range(6):
                content = b"%d" % ((number + turn) % 2)
                profile = create(content, b"%d" % ((number + turn + 1) % 2))
                assert read(profile) == content
                if turn % 3 == number % 3:
                    kept.append(profile.pk)
                else:
                    profile_delete(profile)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert objects(tmp_store) == [b"0", b"1"] and StoredUpload.objects.count() == 2
    assert sorted(Profile.objects.values_list("pk", flat=True)) == sorted(kept) and len(kept) == 12
    for profile in Profile.objects.all():
        assert read(profile) in (b"0", b"1")
        profile_delete(profile)
    assert not objects(tmp_store) and not StoredUpload.objects.exists()


def test_the_sweep_takes_what_nobody_uses_and_waits_for_no_upload_under_way(tmp_store: Path) -> None:
    gone, used, again = create(b"gone"), create(b"used"), create(b"again")
    Profile.objects.filter(pk__in=[gone.pk, again.pk]).delete()         # rows alone, as with a project
    swept: list[bool] = []

    def sweep() -> None:
        try:
            uploads_sweep()
            swept.append(True)
        finally:
            connection.close()

    with transaction.atomic():
        profile = create(b"again")                                      # its row of the bytes is held until this commits
        thread = threading.Thread(target=sweep)
        thread.start()
        thread.join(30)
        assert swept
    assert objects(tmp_store) == [b"again", b"used"] and read(used) == b"used" and read(profile) == b"again"
    profile_delete(profile)
    assert objects(tmp_store) == [b"used"]


def test_the_same_bytes_count_once_and_go_with_the_last(tmp_store: Path) -> None:
    first, second = create(b"four"), create(b"four", b"xx")
    earlier = create(b"seven__")
    earlier.stored_uploads.clear()                                      # as uploads from before they were shared
    ids = Profile.objects.filter(pk__in=[first.pk, second.pk])
    assert used_bytes() == 13 and profiles_bytes(ids) == 6
    assert freed_bytes(ids) == 6 and freed_bytes(Profile.objects.filter(pk=first.pk)) == 0
    assert freed_bytes(Profile.objects.filter(pk=second.pk)) == 2 and freed_bytes(Profile.objects.filter(pk=earlier.pk)) == 7
    with within(other_project()):
        create(b"four")
        assert used_bytes() == 4 and freed_bytes(Profile.objects.all()) == 0
    assert freed_bytes(ids) == 2
