"""Every profile survives export and import with the same sums: a trace as Chrome JSON, others as the file that was loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile

from profiles.models import Profile
from profiles.topics.services import topic_make
from profiles.topics.table import topic_of
from profiles.upload.services import profile_ingest
from tests.scale import DEEP
from tests.truth.asking import Asking
from tests.truth.conftest import Library
from tests.truth.files import COUNTERS, FILES, SUMMARY, TRACE, each_file

OF_COPIES = 2_000_000_000       # above the ids of all files


@pytest.mark.django_db          # the copy's rows are rolled back, its objects lie in a folder of the test
@each_file(TRACE, where=lambda file: DEEP or file.hash("export") % 2 == 0, sampled=True)
def test_an_exported_trace_has_the_same_sums(
        profile: Profile, ask: Asking, library: Library, tmp_path: Path, settings: Any) -> None:
    causes, exported = ask.topic("causes"), ask.content("api/export/trace/")
    settings.STORAGES = library.storages(tmp_path)
    copy = library.create(profile.pk + OF_COPIES, ContentFile(exported, name="exported.json.gz"))
    profile_ingest(copy.pk, "truth")
    copy.refresh_from_db()
    assert copy.status == Profile.Status.READY, copy.error
    assert _sums(copy) == _sums(profile)
    assert _causes(topic_make(copy, topic_of("causes"))) == _causes(causes)     # type: ignore[arg-type]


@each_file(TRACE, COUNTERS, SUMMARY)
def test_a_download_is_the_file_that_was_loaded(profile: Profile, ask: Asking) -> None:
    file = next(each for each in FILES if each.number == profile.pk)
    assert hashlib.sha256(ask.content("?download=0")).digest() == hashlib.sha256(file.path.read_bytes()).digest()


def _sums(profile: Profile) -> dict[str, Any]:
    return {
        "launches": profile.launches, "gpu_time_ns": profile.gpu_time_ns, "wall_ns": profile.wall_ns, "busy_ns": profile.busy_ns,
        "steps": profile.steps, "kernels": {name: tuple(rest) for name, *rest in profile.kernels.values_list(
            "name", "launches", "total_ns", "min_ns", "max_ns", "registers_per_thread", "smem_bytes")}}


def _causes(document: dict[str, Any]) -> dict[tuple[int, str], int]:
    sums: dict[tuple[int, str], int] = {}
    for row in document["numbers"]["causes"]:
        sums[row["gpu"], row["cause"]] = sums.get((row["gpu"], row["cause"]), 0) + row["wall_ns"]
    return sums
