"""Jobs of an operator whose space the worker's child lists, through a real child on the CPU: the row, the form, the cache."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason=WITHOUT_TORCH)

from profiles.base.refused import Refused
from tests.workers.tune.listing_child import LIBRARY, MISSING_M, NAME, NOTHING_M, OPERATOR
from tuner import texts
from tuner.jobs import create_services
from tuner.models import CachedConfig, ListedSpace, TuneJob
from tuner.spaces import own
from tuner.tuning.offer import Offer
from tuner.tuning.operators import VENDORS, find
from tuner.tuning.trial import config_key
from workers.core import gpu
from workers.tune import gpu_child, lead, runner
from workers.tune.sandbox import SandboxRunner

pytestmark = [pytest.mark.torch, pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)]
CARD = gpu.Gpu(0, "GPU-host", "The host", "9.0", "", 1)


@pytest.fixture(autouse=True)
def host_products(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(VENDORS, NAME, OPERATOR)
    monkeypatch.setattr(gpu_child, "SPARES", 0)         # each imports torch
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(runner, "SandboxRunner", functools.partial(
        SandboxRunner, child_module="tests.workers.tune.listing_child", policy={"max_samples": 10, "rounds": 2}))


def job_of(alice: Any, size: int = 64, **given: Any) -> TuneJob:
    asked = {"strategy": "exhaustive", "budget_trials": 30, "budget_seconds": 60, **given}
    return create_services.tune_create(owner=alice, operator=NAME, shape={"M": size}, dtype="fp32", device="gpu", **asked)


def ended(job: TuneJob) -> TuneJob:
    lead.run(job.pk, "worker-1")
    job.refresh_from_db()
    return job


def assert_searched_stored_and_cached(job: TuneJob) -> None:
    assert (job.status, job.error, job.ended_by) == ("done", None, "space")
    assert (job.valid_size, job.space_size, job.pruned) == (12, 15, {"too small a matrix": 3})
    assert job.environment["host_products"] == "1.0" and "offer" not in job.environment
    rows = list(job.trials.all())
    assert len(rows) == 12 and all(row.config["LIBRARY"] == LIBRARY for row in rows)
    assert [row.reason for row in rows if row.config["WAY"] == "truncated"] == ["wrong"] * 3
    assert rows[0].config == {"WAY": "rows", "BLOCK": 16, "LIBRARY": LIBRARY}, "the library's own first choice is the default"
    assert job.default_ms and job.library_ms
    kept = [job.best_config, *(one["config"] for one in job.finalists if one["default"])]
    assert CachedConfig.objects.get(job=job).config in kept


def test_what_the_child_lists_is_searched_stored_cached_and_shown_in_the_form(alice: Any, client: Any) -> None:
    """Each job has a child, which imports torch: one lists, one measures what was edited."""
    def asked(**more: Any) -> dict[str, Any]:
        given = {"operator": NAME, "shape": {"M": 64}, "dtype": "fp32", "device": "gpu", **more}
        answer = client.post(reverse("api-tune-space"), json.dumps(given), content_type="application/json")
        assert answer.status_code == 200, answer.content
        return dict(answer.json())

    client.force_login(alice)
    before = asked()
    assert before["valid"] is None and before["parameters"] == [] and "lists the space" in before["unknown"]
    edit = {"parameters": {"WAY": ["rows"]}, "constraints": []}
    assert "nothing can be edited" in asked(space=edit)["fields"][""]
    assert_searched_stored_and_cached(ended(job_of(alice)))
    after = asked()
    assert (after["valid"], after["size"], after["unknown"], after["gpu"]) == (12, 15, "", "CPU")
    assert {each["name"]: each["values"] for each in after["parameters"]}["BLOCK"] == [8, 16, 32]
    assert after["fixed"] == f"{LIBRARY} has no others" and after["left_out"][0]["count"] == 3
    assert asked(space=edit)["valid"] == 3
    job = ended(job_of(alice, space=edit))
    page = client.get(reverse("tune", args=[job.pk])).content.decode()
    assert "WAY=rows" in page and f"LIBRARY={LIBRARY}" in page and "host products" in page
    assert job.status == "done" and {row.config["WAY"] for row in job.trials.all()} <= {"rows"}


def test_an_edit_of_a_space_that_nobody_listed_is_refused(alice: Any) -> None:
    with pytest.raises(Refused, match="nothing can be edited"):
        job_of(alice, space={"parameters": {"WAY": ["rows"]}, "constraints": []})


@pytest.mark.deep_only
def test_what_is_missing_or_empty_ends_the_job_with_its_reason(alice: Any) -> None:
    missing = ended(job_of(alice, MISSING_M))
    assert missing.status == "failed" and missing.error["what"] == "no library of host products"
    nothing = ended(job_of(alice, NOTHING_M))
    assert nothing.status == "failed" and "nothing can run at this shape" in nothing.error["what"]
    assert "too small a matrix: 3" in nothing.error["what"] and not ListedSpace.objects.exists()


OLD = {"WAY": "rows", "BLOCK": 16, "LIBRARY": "host products 0.9"}


@pytest.mark.deep_only
def test_what_is_to_be_tried_first_may_be_of_another_version(alice: Any) -> None:
    job = ended(job_of(alice, first=[OLD]))
    assert config_key(OLD) not in {config_key(row.config) for row in job.trials.all()}


def test_a_configuration_of_another_version_is_refused(alice: Any) -> None:
    job = ended(job_of(alice, only=[OLD]))
    assert job.status == "done" and [row.config["LIBRARY"] for row in job.trials.all()] == [LIBRARY]


def test_old_listings_go_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "KEPT", 2)
    for size in (16, 24, 32):
        own.store_listing(NAME, {"M": size}, "fp32", CARD.name, Offer.of([{"BLOCK": 8}], LIBRARY))
    assert [row.shape_key for row in ListedSpace.objects.all()] == [config_key({"M": size}) for size in (32, 24)]


def test_vendors_are_found_and_offered_beside_the_others() -> None:
    names = {"LIBRARY": "cublasLt 13.1.0", "SWIZZLE": 0, "TILE": "128x256", "ALGO": 66}
    assert list(texts.config_in_order(names)) == ["ALGO", "TILE", "SWIZZLE", "LIBRARY"]
    pasted = texts.paste_text("cublaslt_matmul", {**names, "STAGES": "64x3"})
    assert "CUBLASLT_MATMUL_TILE_128x256" in pasted and "\n" not in texts.line_text("cublaslt_matmul", names)
    assert texts.paste_text("matmul", {"BM": 64, "num_warps": 4}) == "triton.Config({'BM': 64}, num_warps=4)"
    assert texts.default_name("cublaslt_matmul") == "the heuristics' first choice" and texts.default_name("x") == "the default"
    assert find("cublaslt_matmul") is VENDORS["cublaslt_matmul"] and find(NAME) is OPERATOR
    empty = VENDORS["cublaslt_matmul"].space({"M": 64, "N": 64, "K": 64}, "bf16", None)         # type: ignore[arg-type]
    assert len(empty) == 0 and empty.params == ()
