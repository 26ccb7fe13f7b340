"""What tests keep between runs: made once, made again for another name, gone when nobody uses it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage

from profiles.models import Profile
from profiles.store.objects import prefix
from profiles.upload.services import profile_ingest
from tests.kept import folder as kept
from tests.kept import ingests
from tests.profiles.pages.test_services import recording


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("RIDGEPOINT_TEST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_is_made_once_for_each_name(cache: Path) -> None:
    made: list[str] = []

    def make(folder: Path) -> None:
        made.append(folder.name)
        (folder / "file").write_text("x")
    first = kept.keep("things", "a", make)
    assert kept.keep("things", "a", make) == first and (first / "file").read_text() == "x"
    assert kept.keep("things", "b", make) != first and len(made) == 2


def test_nothing_is_left_of_what_failed(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise ValueError("no")
    with pytest.raises(ValueError, match="no"):
        kept.keep("things", "a", fail)
    assert [path.name for path in (cache / "things").iterdir()] == ["a.lock"]


def test_what_nobody_used_for_two_weeks_goes_when_something_is_made(cache: Path) -> None:
    old, new = kept.keep("things", "old", lambda folder: None), kept.keep("things", "new", lambda folder: None)
    os.utime(old, (0, 0))
    kept.keep("things", "another", lambda folder: None)
    assert not old.exists() and new.exists()


def test_a_changed_file_is_another_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "PROJECT", tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.py").write_text("1")
    before = kept.digest_of([tmp_path / "inner"])
    assert kept.digest_of([tmp_path / "inner"]) == before != kept.digest_of([tmp_path / "inner"], ["Django"])
    (tmp_path / "inner" / "a.py").write_text("2")
    assert kept.digest_of([tmp_path / "inner"]) != before


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["kineto_layer.json.gz", pytest.param("buildA.ncu-rep.zst", marks=pytest.mark.deep_only)])
def test_a_kept_ingest_is_the_one_that_was_read(name: str, tmp_store: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times: read anew, read and kept, and from what was kept; the same rows and objects each time."""
    monkeypatch.setattr(ingests, "is_asked", False)
    anew = facts(name)
    monkeypatch.setattr(ingests, "is_asked", True)
    assert facts(name) == anew
    assert len(list((cache / "ingests").glob("*/result.pickle"))) == 1
    assert facts(name) == anew


def facts(name: str) -> Any:
    """What an ingest leaves of a file, but for numbers of rows and times of the clock."""
    profile = profile_ingest(recording(name).pk, "test")
    assert profile is not None and profile.status == Profile.Status.READY
    volatile = {"id", "profile_id", "kernel_id", "created", "seconds", "peak_rss_bytes", "stored_bytes", "upload_key", "written",
                "family_id", "shape_id", "topic", "started", "finished", "updated", "follow_due"}

    def rows(found: Any) -> list[dict[str, Any]]:
        return [{key: value for key, value in row.items() if key not in volatile} for row in found.order_by("pk").values()]
    folder = Path(default_storage.path(prefix(profile.pk)))
    objects = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*.parquet")}
    return (rows(Profile.objects.filter(pk=profile.pk)), rows(profile.kernels), rows(profile.findings),
            rows(profile.counter_launches), objects)
