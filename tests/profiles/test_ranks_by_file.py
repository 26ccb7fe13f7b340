"""Two engines of a data-parallel job that both say rank 0: refused with an offer, and read when it is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse

from profiles.analysis.trace.one_job import why_not
from profiles.ingest import read
from profiles.ingest.trace import GPU_WORK, Trace, TraceError
from profiles.models import Profile
from profiles.upload.request_services import profile_number_by_file
from profiles.upload.services import profile_create, profile_ingest

CASES = Path(__file__).parents[1] / "data" / "cases"
NAMES = ("dp0_rank0.pt.trace.json", "dp1_rank0.pt.trace.json")


def traces() -> list[tuple[str, Trace]]:
    out = []
    for name in NAMES:
        trace = read(CASES / name)
        assert isinstance(trace, Trace)
        out.append((name, trace))
    return out


def test_the_rank_alone_contradicts() -> None:
    assert why_not(traces()) == (NAMES[1], f"it is rank 0, as {NAMES[0]} is: two runs, or two captures of one rank")
    assert why_not(traces(), by_file=True) is None
    other_day = traces()
    other_day[1][1].base_ns = (other_day[1][1].base_ns or 0) + 24 * 3600 * 10**9
    assert why_not(other_day, by_file=True) is not None, "two runs stay two runs"


@pytest.fixture
def refused(db: Any, settings: Any, tmp_path: Path) -> Profile:
    settings.MEDIA_ROOT = tmp_path
    files = [ContentFile((CASES / name).read_bytes(), name=name) for name in NAMES]
    profile = profile_create(owner=None, file=files[0], more_files=files[1:])
    profile_ingest(profile.pk, "w")
    profile.refresh_from_db()
    assert profile.status == Profile.Status.FAILED and profile.error is not None
    assert profile.error["why"] == "the same rank" and profile.error["hint"].startswith("Number the ranks by file")
    return profile


def test_numbered_by_file_they_are_two_ranks(refused: Profile, admin_client: Client) -> None:
    page = admin_client.get(reverse("profile", args=[refused.pk])).content.decode()
    assert "Number the ranks by file" in page and "Load as profiles of their own" in page
    admin_client.post(reverse("profile-number", args=[refused.pk]))
    refused.refresh_from_db()
    assert refused.status == Profile.Status.UPLOADED and refused.error is None
    profile_ingest(refused.pk, "w")
    refused.refresh_from_db()
    assert refused.status == Profile.Status.READY and sorted(refused.metadata["ranks"]) == ["rank 0", "rank 1"]
    alone = sum(row["dur_ns"] for _, trace in traces() for row in trace.slices.to_pylist() if row["category"] in GPU_WORK)
    assert refused.gpu_time_ns == alone
    assert any("numbered by file" in note for note in refused.integrity["notes"])
    with pytest.raises(TraceError, match="not refused"):
        profile_number_by_file(refused)
