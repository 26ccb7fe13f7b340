"""One ceiling on the job's page, its list, the problem's page, the API and the command."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.urls import reverse

from profiles.ceilings.services import ceilings_load
from tuner.models import TuneJob

pytestmark = pytest.mark.django_db
SHAPE = {"M": 4096, "N": 4096, "K": 4096}
H200 = Path(__file__).parents[2] / "data" / "h200"


@pytest.fixture
def done() -> TuneJob:
    cache.clear()
    ceilings_load(json.loads((H200 / "ceilings.json").read_text()))
    return TuneJob.objects.create(
        operator="matmul", shape=SHAPE, dtype="bf16", device="gpu", strategy="local", budget_trials=100, budget_seconds=60,
        status="done", gpu="NVIDIA H200", best_ms=0.1846, default_ms=0.3, library_ms=0.1765, elapsed_s=20.0,
        best_config={"BM": 128}, finalists=[{"config": {"BM": 128}, "median_ms": 0.1846, "tie": False}])


def test_every_place_says_the_same_number(done: TuneJob, client: Any, api: Any, alice: Any) -> None:
    client.force_login(alice)
    told = api(alice).get(reverse("api-tune", args=[done.pk])).json()["ceiling"]
    assert told["ms"] == pytest.approx(0.13918, rel=1e-3) and told["side"] == "compute" and "1,980 MHz" in told["source"]
    assert told["share"] == pytest.approx(told["ms"] / 0.1846) and told["library_share"] == pytest.approx(told["ms"] / 0.1765)
    assert told["baseline"] == "library" and told["score"] == pytest.approx(1 / (1 + (0.1846 - told["ms"]) / (0.1765 - told["ms"])))
    share, score = "75.4", f"{told['score']:.2f}"
    page = client.get(reverse("tune", args=[done.pk])).content.decode()
    snapshot = client.get(reverse("tune-snapshot", args=[done.pk])).json()
    assert snapshot["state"]["ceiling_ms"] == told["ms"]
    for text in (page, client.get(reverse("tune-list")).content.decode()):
        assert share in text and score in text
    query = {"operator": "matmul", "dtype": "bf16", "gpu": "NVIDIA H200", **SHAPE}
    assert f"{share}" in client.get(reverse("problem"), query).content.decode()
    assert api(alice).get(reverse("api-problem"), query).json()["tuned"]["done"]["ceiling"] == told
    said = StringIO()
    call_command("tune", "show", str(done.pk), stdout=said)
    assert f"{share} % of the ceiling (139.2 µs" in said.getvalue()


def test_an_unknown_gpu_has_an_unknown_ceiling(done: TuneJob, client: Any, alice: Any) -> None:
    TuneJob.objects.filter(pk=done.pk).update(gpu="Some GPU")
    client.force_login(alice)
    assert "Ceiling: unknown" in client.get(reverse("tune", args=[done.pk])).content.decode()
