"""Archives and formats without kernels all the way to a profile's row and page."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from django.core.files.base import ContentFile

from profiles.models import Profile
from profiles.profile import selectors as selectors_profile
from profiles.upload.services import profile_create, profile_ingest
from tests.profiles.ingest.corpus import CORPUS, DATA

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "reads_anew")]


def ingest(name: str, data: bytes) -> Profile:
    profile = profile_create(owner=None, file=ContentFile(data, name=name), worker="test")
    profile_ingest(profile_id=profile.pk, worker="test")
    return Profile.objects.get(pk=profile.pk)


def zipped(*paths: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path in paths:
            archive.write(path, f"run/{path.name}")
    return out.getvalue()


def test_an_archive_of_ranks_becomes_one_profile():
    profile = ingest("job.zip", zipped(*(CORPUS / "kineto" / f"hta_sampled_rank-{rank}_of128.json.gz" for rank in (0, 1))))
    assert (profile.status, profile.kind, profile.launches) == (Profile.Status.READY, Profile.Kind.TRACE, 1154 + 1104)
    assert len(profile.summary["devices"]) == 2


def test_an_archive_of_unlike_profiles_names_them():
    two = zipped(CORPUS / "kineto" / "hta_large_integer.json.gz", DATA / "recorded" / "torch_snapshot.pickle")
    profile = ingest("two.zip", two)
    assert profile.status == Profile.Status.FAILED
    assert "hta_large_integer.json.gz" in profile.error["what"] and profile.error["hint"]


def test_a_memory_snapshot_has_a_headline_tables_and_a_timeline():
    profile = ingest("s.pickle", (DATA / "recorded" / "torch_snapshot.pickle").read_bytes())
    assert profile.status == Profile.Status.READY, profile.error
    assert selectors_profile.answer(profile, []) == [
        ("GPU 0 has 143 MB allocated at the peak; of 174 MB reserved 51 % are unused at the end.", False)]
    titles = [table["title"] for table in selectors_profile.tables(profile)]
    assert titles[:3] == ["Memory", "Allocated at the peak of GPU 0, by who asked for it", "In use at the end, by who asked for it"]
