"""Files of AMD's, Huawei's, Meta's and others' tools from upload to page: sums as read, no word that only an NVIDIA GPU earns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.test import Client
from django.urls import reverse

from profiles.models import Profile
from profiles.upload.services import profile_create, profile_ingest
from tests.profiles.ingest.corpus import mostly_deep

DATA = Path(__file__).parents[1] / "data"
# file -> kind, launches, ns of kernels
EXPECTED: dict[str, tuple[str, int, int | None]] = {
    "cases/rocpd.db": ("trace", 10, 25_000), "cases/rocprofv3_results.json": ("trace", 10, 25_000),
    "cases/rocprofv3_kernel_trace.csv": ("trace", 10, 25_000), "cases/rocprofv1_truncated_us.json": ("trace", 100, 190_000),
    "rocm/matmul_result.rpd.gz": ("trace", 29, 26_399_795),
    "rocm/counter_collection.csv": ("counters", 7, None), "cases/trace_view.json": ("trace", 10, 501_250),
    "cases/mtia.json": ("trace", 5, 250_000), "cases/cuda_profile.json": ("trace", 5, 250_000),
    "cases/nsys_stats_text.txt": ("summary", 1000, 3_387_054_425), "cases/ncu_default_text.txt": ("counters", 1, 1250),
    "cases/metric_nan.hatchet": ("summary", 2, 2000),
}


@pytest.mark.parametrize("name", mostly_deep(       # of every format tests/truth asks a file; each reader's tests have its sums
    EXPECTED, "rocpd.db", "counter_collection.csv", "trace_view.json", "metric_nan.hatchet"))
def test_from_upload_to_page(name: str, db: Any, settings: Any, tmp_path: Path, admin_client: Client) -> None:
    settings.MEDIA_ROOT = tmp_path
    profile = profile_create(owner=None, file=ContentFile((DATA / name).read_bytes(), name=Path(name).name))
    profile_ingest(profile.pk, "w")
    profile.refresh_from_db()
    assert profile.status == Profile.Status.READY, profile.error
    kind, launches, total_ns = EXPECTED[name]
    assert (profile.kind, profile.launches) == (kind, launches)
    if total_ns is not None:
        assert profile.gpu_time_ns == total_ns
    response = admin_client.get(reverse("profile", args=[profile.pk]))
    assert response.status_code == 200
    said = re.search(r'class="answer"[^>]*>(.*?)</p>', response.content.decode(), re.DOTALL)
    assert said is not None and "No GPU work" not in said[1]
    if name.startswith("rocm/counter"):
        page = admin_client.get(reverse("kernel", args=[profile.pk, profile.kernels.all()[0].pk]))
        assert page.status_code == 200
        assert "SQ_WAVES" in admin_client.get(reverse("api-counters", args=[profile.pk]) + "?launch=0").content.decode()
